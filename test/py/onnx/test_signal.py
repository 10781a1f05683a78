"""ONNX's Fourier transforms against the reference evaluator: real and complex, both ways, along any axis."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilewright

SHAPES = [(3, 60, 1), (3, 60, 2), (5, 64, 9, 1), (5, 64, 9, 2), (5, 7, 3, 2), (2, 37, 1), (2, 37, 2)]
CASES = [
    (shape, inverse, onesided)
    for shape, inverse, onesided in itertools.product(SHAPES, (0, 1), (0, 1))
    if not onesided or (shape[-1] == 1) != bool(inverse)
]
"""Half of a transform is asked for of real numbers, or gives them: of others it does not say what the other half is."""


def model(
    nodes: list[onnx.NodeProto], shape: tuple[int, ...], constants: dict[str, np.ndarray]
) -> onnx.ModelProto:
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    known = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "transforms", [given], [made], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def check(made: onnx.ModelProto, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (wanted,), (found,) = ReferenceEvaluator(made).run(None, {"x": x}), tilewright.compile(made)(x)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize(("shape", "inverse", "onesided"), CASES)
def test_transforms_along_any_axis(shape: tuple[int, ...], inverse: int, onesided: int) -> None:
    for axis in range(1, len(shape) - 1):
        node = helper.make_node("DFT", ["x", "", "axis"], ["y"], inverse=inverse, onesided=onesided)
        check(model([node], shape, {"axis": np.array(axis)}), shape)


@pytest.mark.parametrize("onesided", [0, 1])
def test_windows_of_a_signal(onesided: int) -> None:
    constants = {"step": np.array(16), "window": np.hanning(64).astype(np.float32), "length": np.array(64)}
    node = helper.make_node("STFT", ["x", "step", "window", "length"], ["y"], onesided=onesided)
    check(model([node], (2, 400, 1), constants), (2, 400, 1))
