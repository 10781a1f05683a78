"""Support vector machines and encoded labels of `ai.onnx.ml`, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from ml_models import check, ml_model
from models import random
from onnx import TensorProto, numpy_helper

from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.importers.onnx.model import import_onnx

pytest.importorskip("onnxruntime")

KINDS = ("LINEAR", "POLY", "RBF", "SIGMOID")
ROWS = random(60, 3)
BOTH = (TensorProto.INT64, TensorProto.FLOAT)


def machine(vectors: int, coefficients: int, rho: int, kind: str = "RBF") -> dict:
    """Attributes of a machine of so many support vectors, coefficients and differences."""
    return {
        "kernel_type": kind,
        "kernel_params": [0.3, 0.5, 3.0],
        "support_vectors": random(vectors, 3, seed=1).ravel().tolist(),
        "coefficients": random(coefficients, seed=2).tolist(),
        "rho": random(rho, seed=3).tolist(),
    }


@pytest.mark.parametrize("one_class", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_regressors(kind: str, one_class: int) -> None:
    check(ml_model("SVMRegressor", ROWS, **machine(5, 5, 1, kind), n_supports=5, one_class=one_class), ROWS)


def test_regressors_without_vectors() -> None:
    given = {
        "kernel_type": "LINEAR",
        "kernel_params": [0.0, 0.0, 0.0],
        "coefficients": [1.0, 2.0, 3.0],
        "rho": [0.2],
    }
    check(ml_model("SVMRegressor", ROWS, **given), ROWS)


@pytest.mark.parametrize("counts", [[2, 3], [2, 1, 3], [1, 1, 2, 2]], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_classifiers(kind: str, counts: list[int]) -> None:
    classes, total = len(counts), sum(counts)
    pairs = classes * (classes - 1) // 2
    given = machine(total, (classes - 1) * total, pairs, kind)
    labels = [7, 5, 9, 1][:classes]
    check(
        ml_model("SVMClassifier", ROWS, BOTH, classlabels_ints=labels, vectors_per_class=counts, **given),
        ROWS,
    )


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"prob_a": [1.0], "prob_b": [0.0]}, "probabilities"),
        ({"post_transform": "SOFTMAX"}, "post_transform"),
        ({"classlabels_ints": [1, 2, 3]}, "3 labels for support vectors of 2 classes"),
        ({"vectors_per_class": None}, "no support vectors"),
        ({"kernel_type": "COSINE"}, "COSINE"),
    ],
)
def test_what_is_refused(changed: dict, reason: str) -> None:
    given = {**machine(5, 5, 1), "classlabels_ints": [0, 1], "vectors_per_class": [2, 3], **changed}
    given = {name: value for name, value in given.items() if value is not None}
    with pytest.raises(UnsupportedError, match=reason):
        import_onnx(ml_model("SVMClassifier", ROWS, BOTH, **given), (ROWS,))


NAN = float("nan")
NUMBERS = np.array([[3, 8, 5], [-2, 3, 0]])


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize(
    ("x", "attrs", "result"),
    [
        (NUMBERS, {"keys_int64s": [3, 5], "values_int64s": [30, 50]}, TensorProto.INT64),
        (NUMBERS, {"keys_int64s": [3, 5, 3], "values_int64s": [30, 50, 70]}, TensorProto.INT64),
        (NUMBERS, {"keys_int64s": [3, 5], "values_int64s": [30, 50], "default_int64": 7}, TensorProto.INT64),
        (NUMBERS, {"keys_int64s": [0, 8], "values_floats": [0.5, 2.0], "default_float": -9.0}, TensorProto.FLOAT),
        (
            np.array([[1.5, NAN], [2.5, -1.0]], np.float32),
            {"keys_floats": [1.5, NAN], "values_int64s": [1, 2]},
            TensorProto.INT64,
        ),
        (
            np.array([1.5, 2.5, 0.0], np.float32),
            {"keys_floats": [2.5, 1.5], "values_floats": [1.0, -3.0]},
            TensorProto.FLOAT,
        ),
    ],
    ids=["integers", "equal keys", "default", "floats", "not a number", "floats to floats"],
)  # fmt: skip
def test_numbers_are_encoded(x: np.ndarray, attrs: dict, result: int, version: int) -> None:
    check(ml_model("LabelEncoder", x, (result,), version=version, **attrs), x)


def test_tensors_of_keys() -> None:
    x = np.array([1.5, 2.5, 0.0], np.float64)
    tensors = {
        "keys_tensor": numpy_helper.from_array(np.array([2.5, 1.5])),
        "values_tensor": numpy_helper.from_array(np.array([4.0, 8.0])),
        "default_tensor": numpy_helper.from_array(np.array([-1.0])),
    }
    check(ml_model("LabelEncoder", x, (TensorProto.DOUBLE,), version=4, **tensors), x)


def test_strings_are_refused() -> None:
    made = ml_model("LabelEncoder", NUMBERS, (TensorProto.STRING,), keys_int64s=[1], values_strings=["a"])
    with pytest.raises(UnsupportedError, match="strings"):
        import_onnx(made, (NUMBERS,))
