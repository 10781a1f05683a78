"""Operators at the edges of what they take, against ONNX's reference evaluator: NaN, ties, large integers, no elements."""

from __future__ import annotations

import numpy as np
import pytest
from models import info, model
from onnx import helper
from onnx.reference import ReferenceEvaluator

import tilewright


def compiled(op: str, *arrays: np.ndarray, known: tuple[int, ...] = (), opset: int = 21, **attributes):
    """A model of one node, what it is called with, and its result; operands in `known` are initializers."""
    kinds = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in arrays]
    node = helper.make_node(op, [f"x{i}" for i in range(len(arrays))], ["y"], **attributes)
    feeds = {f"x{i}": array for i, array in enumerate(arrays) if i not in known}
    inputs = [info(f"x{i}", arrays[i].shape, kinds[i]) for i in range(len(arrays)) if i not in known]
    weights = {f"x{i}": arrays[i] for i in known}
    made = model([node], inputs, [info("y", None, kinds[0])], weights, opset)
    return made, feeds, tilewright.compile(made, feeds)(**feeds)[0]


def compare(op: str, *arrays: np.ndarray, tolerance: float = 0, **attributes) -> None:
    """The operator's result against the reference's."""
    made, feeds, found = compiled(op, *arrays, **attributes)
    (wanted,) = ReferenceEvaluator(made).run(None, feeds)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


FLOATS = [np.float16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bounds", [(0, 6), (6, 0), (0,), (np.nan, 6), (0, np.nan)])
@pytest.mark.parametrize("is_known", [False, True])
def test_nan_is_not_clipped(dtype, bounds, is_known):
    x = np.array([np.nan, 2, -1, 9, np.inf, -np.inf], dtype)
    numbers = [np.array(bound, dtype) for bound in bounds]
    known = tuple(range(1, len(bounds) + 1)) if is_known else ()
    compare("Clip", x, *numbers, known=known)


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_has_no_sign(dtype):
    compare("Sign", np.array([np.nan, 2, -3, 0, np.inf, -np.inf], dtype))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
@pytest.mark.parametrize("op", ["Neg", "Abs", "Sign"])
def test_signs_of_integers_are_exact(op, dtype):
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.min + 1, limits.max, limits.max - 1, 0, -3], dtype)
    compare(op, x)
