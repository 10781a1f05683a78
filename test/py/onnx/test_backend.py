"""The backend interface that ONNX defines."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from models import info, model, random
from onnx import TensorProto, helper
from onnx.backend.base import Backend, BackendRep

from tilewright import onnx_backend
from tilewright.compiler.errors import ModelImportError, UnsupportedError


def scaled(shape=("n", 3)) -> onnx.ModelProto:
    return model(
        [helper.make_node("Mul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        [info("x", list(shape))],
        [info("y", list(shape)), info("z", list(shape))],
        {"w": np.array([1, -2, 3], np.float32)},
    )


def test_prepare_and_run_for_several_shapes():
    prepared = onnx_backend.prepare(scaled())
    assert isinstance(prepared, BackendRep)
    for n in (1, 4, 1):
        x = random(n, 3, seed=n)
        outputs = prepared.run([x])
        np.testing.assert_array_equal(outputs.y, x * np.array([1, -2, 3], np.float32))
        np.testing.assert_array_equal(outputs[1], np.maximum(outputs[0], 0))


def test_inputs_by_name_as_one_array_or_too_few():
    prepared = onnx_backend.prepare(scaled((2, 3)), "CPU")
    x = random(2, 3)
    np.testing.assert_array_equal(prepared.run({"x": x})[0], prepared.run(x)[0])
    with pytest.raises(ModelImportError, match=r"0 inputs given, the model takes 1: \['x'\]"):
        prepared.run([])


def test_run_model_and_run_node():
    x = random(2, 3)
    np.testing.assert_array_equal(
        onnx_backend.run_model(scaled(), [x]).z, np.maximum(x * [1, -2, 3], 0).astype("f")
    )
    node = helper.make_node("Concat", ["a", "b"], ["c"], axis=1)
    (joined,) = onnx_backend.run_node(node, [x, x])
    np.testing.assert_array_equal(joined, np.concatenate([x, x], 1))
    (top, _) = onnx_backend.run_node(helper.make_node("TopK", ["x", "k"], ["v", "i"]), [x, np.array([1])])
    np.testing.assert_array_equal(top, x.max(axis=1, keepdims=True))


def test_values_that_shape_results():
    made = model(
        [helper.make_node("Expand", ["x", "shape"], ["y"])],
        [info("x", [1, 3]), info("shape", [2], TensorProto.INT64)],
        [info("y", None)],
    )
    prepared = onnx_backend.prepare(made)
    x = random(1, 3)
    for rows in (2, 5, 2):
        assert prepared.run([x, np.array([rows, 3])])[0].shape == (rows, 3)


def test_devices():
    assert onnx_backend.supports_device("CPU")
    assert not onnx_backend.supports_device("CUDA")
    with pytest.raises(ValueError, match="device `CUDA` is not supported"):
        onnx_backend.prepare(scaled(), "CUDA")
    assert issubclass(onnx_backend.TilewrightBackend, Backend)


def test_unsupported_models_are_refused_when_prepared():
    made = model(
        [helper.make_node("NonZero", ["x"], ["y"])], [info("x", [3])], [info("y", None, TensorProto.INT64)]
    )
    with pytest.raises(UnsupportedError, match="NonZero"):
        onnx_backend.prepare(made)
    assert not onnx_backend.is_compatible(made)
    assert onnx_backend.is_compatible(scaled((2, 3)))


def test_outputs_that_are_inputs_or_weights():
    made = model(
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["w"], ["z"])],
        [info("x", [2])],
        [info("y", [2]), info("z", [2])],
        {"w": np.array([5, 6], np.float32)},
    )
    x = random(2)
    y, z = onnx_backend.run_model(made, [x])
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(z, [5, 6])
    y[:] = 0
    assert x.any()
