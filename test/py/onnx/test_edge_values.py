"""Operators at the edges of what they take, against ONNX's reference evaluator: NaN, ties, large integers, no elements."""

from __future__ import annotations

import numpy as np
import pytest
from models import info, model
from onnx import helper
from onnx.reference import ReferenceEvaluator

import tilewright
from tilewright.compiler.errors import UnsupportedError


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


POWERS = [np.array([0, 1, 2, 3, 4, 40]), np.array(2), np.array([3]), np.array(0), np.array(2**40 + 1), np.array(7, np.uint8),
          np.array([0, 1, 2, 3, 4, 255], np.uint8), np.array(0.5, np.float32), np.array(-2.0), np.array([0.5, 1, 2.5, 3, 0.3, 1], np.float32),
          np.array([3, 2**31, 3, 1, 2**31 + 1, 2], np.uint32)]  # fmt: skip


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("exponent", POWERS, ids=str)
@pytest.mark.parametrize("known", [(), (1,)])
def test_powers_of_integers(dtype, exponent, known):
    """Of whole exponents they wrap around, of others they are cut."""
    sign = 1 if exponent.dtype.kind == "f" else -1
    x = np.array([2, 3, 5 * sign, 7, sign, 1], dtype)
    compare("Pow", x, exponent, known=known)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("known", [(), (1,)])
def test_powers_below_zero_of_integers(dtype, known):
    x, exponent = np.array([1, 1, -1, -1, 2, -3, 7], dtype), np.array([-1, -2, -1, -2, -1, -1, -3])
    _, _, found = compiled("Pow", x, exponent, known=known)
    np.testing.assert_array_equal(found, [1, 1, -1, 1, 0, 0, 0])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "int32", "uint32", "int64"])
def test_resized_integers_are_exact_and_saturate(dtype, mode):
    limits = np.iinfo(dtype)
    low, high = (limits.min, limits.max) if dtype != "int64" else (-(2**50), 2**50 - 1)
    x = np.array([[[[low, high, low, high, high - 1, high]]]], dtype)
    scales = np.array([1, 1, 1, 2], np.float32)
    compare("Resize", x, np.array([], np.float32), scales, known=(1, 2), mode=mode)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_nearest_of_64_bits_loses_none(dtype):
    x = np.array([[[[np.iinfo(dtype).max, np.iinfo(dtype).max - 1, 3]]]], dtype)
    arrays = x, np.array([], np.float32), np.array([1, 1, 1, 2], np.float32)
    _, _, found = compiled("Resize", *arrays, known=(1, 2), mode="nearest")
    np.testing.assert_array_equal(found, x.repeat(2, axis=3))


def test_what_lies_outside_a_resized_image_saturates_too():
    x, roi, sizes = np.array([[7, 9]], np.uint8), np.array([0, 0, 1, 2], np.float32), np.array([1, 4])
    attributes = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 300.0}
    for mode in ("nearest", "linear"):
        arrays = x, roi, np.array([], np.float32), sizes
        compare("Resize", *arrays, known=(1, 2, 3), mode=mode, **attributes)


@pytest.mark.parametrize("x", FLOATS)
@pytest.mark.parametrize("weights", FLOATS)
@pytest.mark.parametrize("statistics", FLOATS)
def test_batch_normalization_of_mixed_types(x, weights, statistics):
    draw = np.random.default_rng(0).standard_normal
    scale, bias = (draw(3).astype(weights) for _ in range(2))
    mean, variance = draw(3).astype(statistics), (draw(3) ** 2 + 1).astype(statistics)
    loose = 1e-2 if np.float16 in (x, weights, statistics) else 1e-5
    image = draw((2, 3, 4)).astype(x)
    compare("BatchNormalization", image, scale, bias, mean, variance, tolerance=loose)


@pytest.mark.parametrize("op", ["Sum", "Mean", "Max", "Min"])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "shapes", [((1, 2), (2,), (3, 1)), ((), (2,), (3, 1)), ((2,), (2,), (3, 1), (4, 1, 1))]
)
def test_many_operands_broadcast_together(op, dtype, shapes):
    arrays = [np.arange(1, 1 + np.prod(s, dtype=int)).reshape(s).astype(dtype) for s in shapes]
    _, _, found = compiled(op, *arrays)
    function = {"Sum": np.sum, "Mean": np.mean, "Max": np.max, "Min": np.min}[op]
    wanted = function(np.broadcast_arrays(*arrays), axis=0)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-3 if dtype == np.float16 else 1e-6)


PRODUCTS = [
    ((np.ones((3, 0), np.float32), np.ones((0, 5), np.float32), np.ones(5, np.float32)), {}),
    ((np.ones((3, 0), np.float32), np.ones((0, 5), np.float32)), {"alpha": 2.0}),
    ((np.ones((0, 3), np.int32), np.ones((5, 0), np.int32), np.full((3, 1), 7, np.int32)),
     {"transA": 1, "transB": 1, "beta": 2.0}),
    ((np.array([[1, 2]]), np.array([[3], [4]])), {"alpha": 2.5}),
    ((np.array([[-1, -2]]), np.array([[3], [4]]), np.array([1])), {"alpha": 2.5, "beta": 0.5}),
    ((np.array([[1, 2]], np.uint32), np.array([[3], [4]], np.uint32), np.array([1], np.uint32)), {"beta": 0.5}),
    ((np.array([[2**40, 2]]), np.array([[3], [4]]), np.array([2**41 + 1])), {"alpha": 2.0, "beta": 3.0}),
    ((np.ones((3, 2), np.float32), np.ones((2, 5), np.float32), np.full(5, np.nan, np.float32)), {"beta": 0.0}),
    ((np.ones((3, 2), np.float32), np.ones((2, 5), np.float32), np.full(5, np.inf, np.float32)),
     {"alpha": 3.0, "beta": 0.0}),
]  # fmt: skip


@pytest.mark.parametrize(("arrays", "attributes"), PRODUCTS)
def test_products_of_nothing_and_by_fractions(arrays, attributes):
    compare("Gemm", *arrays, **attributes)


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_window_of_a_local_response_normalization(size, dtype):
    """Of an even size it reaches further behind than before; ONNX's reference looks at some channels only."""
    x = np.arange(1, 13).reshape(2, 3, 2, 1).astype(dtype)
    _, _, found = compiled("LRN", x, size=size, alpha=2.0, beta=0.5, bias=1.5)
    wide = x.astype(np.float64)
    windows = [(max(0, c - (size - 1) // 2), c + size // 2 + 1) for c in range(3)]
    squares = np.stack([(wide[:, a:z] ** 2).sum(1) for a, z in windows], axis=1)
    wanted = wide / (1.5 + 2.0 / size * squares) ** 0.5
    np.testing.assert_allclose(found, wanted, rtol=1e-3 if dtype == np.float16 else 1e-6)


MEANINGLESS = [
    ("Range", [0, 5, 0], {}),
    ("Range", [0.0, 5.0, 0.0], {}),
    ("Range", [0.0, np.nan, 1.0], {}),
    ("Range", [0.0, np.inf, 1.0], {}),
    ("Range", [0.0, 1e30, 1.0], {}),
    ("Range", [0, 2**60, 1], {}),
    ("DepthToSpace", [(1, 6, 2, 2)], {"blocksize": 2}),
    ("DepthToSpace", [(1, 4, 2, 2)], {"blocksize": 0}),
    ("SpaceToDepth", [(1, 4, 3, 2)], {"blocksize": 2}),
    ("SpaceToDepth", [(1, 4, 2, 3)], {"blocksize": 2}),
    ("GroupNormalization", [(1, 4, 2, 3), (4,), (4,)], {"num_groups": 3}),
    ("GroupNormalization", [(1, 4, 2, 3), (4,), (4,)], {"num_groups": 0}),
]


@pytest.mark.parametrize(("op", "operands", "attributes"), MEANINGLESS)
def test_numbers_that_mean_nothing_are_refused(op, operands, attributes):
    arrays = [np.ones(o, np.float32) if isinstance(o, tuple) else np.array(o) for o in operands]
    with pytest.raises(UnsupportedError, match=rf'{op} at node 0 "y": (it goes|from|its)'):
        compiled(op, *arrays, known=(0, 1, 2) if op == "Range" else (), **attributes)


@pytest.mark.parametrize("attributes", [{}, {"scale": 0.3}, {"q_num_heads": 2, "kv_num_heads": 2}], ids=str)
def test_attention_of_double_precision_is_scaled_in_it(attributes):
    draw = np.random.default_rng(0).standard_normal
    q, k, v = (draw((1, 2, 5, 3)) for _ in range(3))
    scores = q @ k.swapaxes(-1, -2) * float(np.float32(attributes.get("scale", 0)) or 1 / np.sqrt(3))
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ v
    if "q_num_heads" in attributes:
        q, k, v, wanted = (x.swapaxes(1, 2).reshape(1, 5, 6) for x in (q, k, v, wanted))
    _, _, found = compiled("Attention", q, k, v, opset=23, **attributes)
    np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-14)
