"""Norms of double precision, against numpy: `stash_type` says float, and neither ONNX's reference nor ONNX Runtime rounds to that."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright


def compiled(op: str, arrays: dict[str, np.ndarray], outputs: int, **attributes):
    """The results of a model of one node whose inputs are `arrays`."""
    names = [f"y{number}" for number in range(outputs)]
    types = [TensorProto.DOUBLE, *[TensorProto.FLOAT] * (outputs - 1)]
    graph = helper.make_graph(
        [helper.make_node(op, list(arrays), names, **attributes)],
        "norm",
        [helper.make_tensor_value_info(n, TensorProto.DOUBLE, a.shape) for n, a in arrays.items()],
        [helper.make_tensor_value_info(n, t, None) for n, t in zip(names, types)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    found = tilewright.compile(model)(*arrays.values())
    return list(found) if isinstance(found, (list, tuple)) else [found]


EPSILON = float(np.float32(1e-5))


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("has_bias", [False, True])
def test_layer_normalization(outputs: int, axis: int, has_bias: bool) -> None:
    draw = np.random.default_rng(0).standard_normal
    x = draw((4, 2, 3)) + 5
    arrays = {"x": x, "scale": draw(x.shape[axis:])} | ({"bias": draw(x.shape[axis:])} if has_bias else {})
    axes = tuple(range(axis % 3, 3))
    mean = x.mean(axes, keepdims=True)
    inverse = 1 / np.sqrt(x.var(axes, keepdims=True) + EPSILON)
    wanted = [(x - mean) * inverse * arrays["scale"] + arrays.get("bias", 0.0), mean, inverse][:outputs]
    found = compiled("LayerNormalization", arrays, outputs, axis=axis)
    for ours, right, tolerance in zip(found, wanted, (1e-13, 1e-6, 1e-6)):
        np.testing.assert_allclose(ours, right, rtol=tolerance, atol=tolerance)
    assert [np.asarray(o).dtype for o in found] == [np.float64, np.float32, np.float32][:outputs]


def test_rms_normalization() -> None:
    draw = np.random.default_rng(0).standard_normal
    x, scale = draw((4, 2, 3)), draw(3)
    wanted = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * scale
    (found,) = compiled("RMSNormalization", {"x": x, "scale": scale}, 1)
    np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-13)
