"""Forms of operators from old opsets, against onnx's reference evaluator or their definition."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from models import info, model, random, single
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilewright
from tilewright.compiler.errors import UnsupportedError

X = random(2, 3, 4)
IMAGE = random(1, 2, 4, 4)

CASES = [
    ("Softmax", 11, (X,), {"axis": -1}),
    ("LogSoftmax", 9, (X,), {"axis": 2}),
    *((op, 9, (X[:0],), {"axis": axis}) for op in ("Softmax", "Hardmax") for axis in (0, 1)),
    ("Squeeze", 11, (random(1, 3, 1),), {"axes": [0, 2]}),
    ("Unsqueeze", 7, (X,), {"axes": [0, 3]}),
    ("ReduceSum", 11, (X,), {"axes": [1], "keepdims": 0}),
    ("ReduceMax", 13, (X,), {"axes": [-1]}),
    ("Clip", 7, (X,), {"min": -0.5, "max": 0.5}),
    ("Clip", 7, (X,), {"min": 0.0}),
    ("Slice", 7, (X,), {"starts": [1, 0], "ends": [3, 1000], "axes": [1, 2]}),
    ("Pad", 7, (X,), {"pads": [0, 1, 0, 0, 0, 2], "value": 1.5}),
    ("Pad", 10, (IMAGE,), {"pads": [0, 0, 1, 1, 0, 0, 1, 1], "mode": "reflect"}),
    ("Dropout", 7, (X,), {"ratio": 0.5}),
]


@pytest.mark.parametrize(("op", "opset", "inputs", "attrs"), CASES, ids=lambda v: str(v)[:12])
def test_old_form(op, opset, inputs, attrs):
    made = single(op, *inputs, opset=opset, **attrs)
    expected = ReferenceEvaluator(made).run(None, {f"x{i}": array for i, array in enumerate(inputs)})[0]
    result = tilewright.compile(made, inputs)(*inputs)[0]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_softmax_of_flattened_axes_differs_from_the_newest():
    made = single("Softmax", X, opset=11, axis=1)
    flat = X.reshape(2, 12)
    powers = np.exp(flat - flat.max(axis=1, keepdims=True))
    expected = (powers / powers.sum(axis=1, keepdims=True)).reshape(X.shape)
    np.testing.assert_allclose(tilewright.compile(made, (X,))(X)[0], expected, rtol=1e-5)


def test_split_into_equal_parts():
    made = single("Split", X, opset=11, types=(TensorProto.FLOAT, TensorProto.FLOAT), axis=2)
    parts = tilewright.compile(made, (X,))(X)
    np.testing.assert_array_equal(np.concatenate(parts, axis=2), X)
    assert [p.shape for p in parts] == [(2, 3, 2), (2, 3, 2)]


def test_top_k_by_attribute():
    made = single("TopK", X, opset=9, types=(TensorProto.FLOAT, TensorProto.INT64), k=2, axis=2)
    values, places = tilewright.compile(made, (X,))(X)
    np.testing.assert_array_equal(values, -np.sort(-X, axis=2)[..., :2])
    np.testing.assert_array_equal(np.take_along_axis(X, places, 2), values)


def test_upsample_of_opsets_7_and_9():
    expected = IMAGE.repeat(2, axis=2).repeat(2, axis=3)
    made = single("Upsample", IMAGE, opset=7, scales=[1.0, 1.0, 2.0, 2.0], mode="nearest")
    np.testing.assert_array_equal(tilewright.compile(made, (IMAGE,))(IMAGE)[0], expected)
    node = helper.make_node("Upsample", ["x", "scales"], ["y"], mode="nearest")
    weights = {"scales": np.array([1, 1, 2, 2], np.float32)}
    made = model([node], [info("x", IMAGE.shape)], [info("y", expected.shape)], weights, opset=9)
    np.testing.assert_array_equal(tilewright.compile(made, (IMAGE,))(IMAGE)[0], expected)


def test_resize_of_opset_10():
    node = helper.make_node("Resize", ["x", "scales"], ["y"], mode="nearest")
    weights = {"scales": np.array([1, 1, 2, 2], np.float32)}
    made = model([node], [info("x", IMAGE.shape)], [info("y", (1, 2, 8, 8))], weights, opset=10)
    expected = IMAGE.repeat(2, axis=2).repeat(2, axis=3)
    np.testing.assert_array_equal(tilewright.compile(made, (IMAGE,))(IMAGE)[0], expected)


def test_scatter_of_opset_9():
    x, places, updates = np.zeros((3, 3), np.float32), np.array([[1, 0, 2], [0, 2, 1]]), random(2, 3)
    made = single("Scatter", x, places, updates, opset=9, axis=0)
    expected = x.copy()
    for i, j in np.ndindex(2, 3):
        expected[places[i, j], j] = updates[i, j]
    np.testing.assert_array_equal(
        tilewright.compile(made, (x, places, updates))(x, places, updates)[0], expected
    )


def test_group_norm_of_opset_18_scales_groups():
    x, scale, bias = random(2, 4, 3), np.array([2, 3], np.float32), np.array([1, -1], np.float32)
    made = single("GroupNormalization", x, scale, bias, opset=18, num_groups=2)
    groups = x.reshape(2, 2, 6)
    normal = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    expected = (normal * scale[:, None] + bias[:, None]).reshape(x.shape)
    result = tilewright.compile(made, (x, scale, bias))(x, scale, bias)[0]
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


def test_broadcast_from_an_axis_before_opset_7():
    y = random(3, seed=1)
    node = helper.make_node("Add", ["x", "y"], ["z"], broadcast=1, axis=1)
    made = model([node], [info("x", X.shape), info("y", y.shape)], [info("z", X.shape)], opset=6)
    np.testing.assert_allclose(tilewright.compile(made, (X, y))(X, y)[0], X + y[:, None], rtol=1e-6)


def test_forms_before_opset_7_that_mean_something_else_are_refused():
    node = helper.make_node("Upsample", ["x"], ["y"], width_scale=2.0, height_scale=2.0)
    made = model([node], [info("x", IMAGE.shape)], [info("y", (1, 2, 8, 8))], opset=6)
    with pytest.raises(UnsupportedError, match="Upsample"):
        tilewright.compile(made, (IMAGE,))


def test_training_batch_norm_before_opset_14_is_refused():
    node = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "m2", "v2", "m3", "v3"])
    inputs = [info("x", IMAGE.shape)] + [info(n, [2]) for n in "sbmv"]
    outputs = [info("y", IMAGE.shape), *(info(n, [2]) for n in ("m2", "v2", "m3", "v3"))]
    made = model([node], inputs, outputs, opset=9)
    with pytest.raises(UnsupportedError, match="training mode"):
        tilewright.compile(made, (IMAGE, *[np.ones(2, np.float32)] * 4))


def test_newest_opset_is_taken():
    made = model(
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [info("x", [2], TensorProto.FLOAT)],
        [info("y", [2])],
        opset=onnx.defs.onnx_opset_version(),
    )
    x = random(2)
    np.testing.assert_array_equal(tilewright.compile(made, (x,))(x)[0], x + x)
