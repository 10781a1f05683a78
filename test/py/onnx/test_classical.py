"""Operators of classical machine learning, `ai.onnx.ml`, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from ml_models import check, ml_model
from models import in_onnxruntime, random
from onnx import TensorProto, helper

import tilewright
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.importers.onnx.model import import_onnx
from tilewright.compiler.importers.onnx.trees import IS_NAN, NAN_ABOVE, NAN_BELOW, condition_of

ort = pytest.importorskip("onnxruntime")

X = random(9, 4)
HOLES = np.where(random(9, 4, seed=1) > 0.8, np.float32(np.nan), X)


@pytest.mark.parametrize(
    ("op", "x", "attrs"),
    [
        ("Scaler", X, {"offset": [0.5, 1.0, 0.0, -1.0], "scale": [2.0, 1.0, 0.5, 3.0]}),
        ("Scaler", X.astype(np.float64), {"offset": [0.5], "scale": [2.0]}),
        ("Normalizer", np.concatenate([X, 0 * X]), {"norm": "L1"}),
        ("Normalizer", np.concatenate([X, 0 * X]), {"norm": "L2"}),
        ("Normalizer", np.abs(X), {"norm": "MAX"}),
        ("Imputer", HOLES, {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": float("nan")}),
        ("Imputer", np.round(X), {"imputed_value_floats": [9.0], "replaced_value_float": 1.0}),
        ("LinearRegressor", X, {"coefficients": random(8).tolist(), "targets": 2, "intercepts": [1.0, -1.0]}),
        ("LinearRegressor", X, {"coefficients": random(8).tolist(), "targets": 2, "post_transform": "LOGISTIC"}),
    ],
)  # fmt: skip
def test_arithmetic(op, x, attrs):
    check(ml_model(op, x, **attrs), x)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_linear_classifiers(rows, transform):
    labels = [7, -2, 5][: max(rows, 2)]
    made = ml_model("LinearClassifier", X, (TensorProto.INT64, TensorProto.FLOAT), 1, coefficients=random(rows * 4).tolist(),
                    intercepts=random(rows).tolist(), classlabels_ints=labels, post_transform=transform)  # fmt: skip
    check(made, X)


def random_trees(kind: str, targets: int, seed: int, modes=("LEQ",), positive=False, splits=None) -> dict:
    """Attributes of three ragged trees over four features; every leaf weighs every target."""
    rng = np.random.default_rng(seed)
    nodes: list[tuple] = []
    leaves: list[tuple] = []
    for tree in range(3):
        number, open_ = 1, [(0, 0)]
        while open_:
            at, depth = open_.pop()
            if depth == 4 or (depth and rng.random() < 0.25):
                nodes.append((tree, at, 0, 0.0, "LEAF", 0, 0, 0))
                weights = rng.random(targets) if positive else rng.standard_normal(targets)
                leaves += [(tree, at, target, float(w)) for target, w in enumerate(weights)]
                continue
            split = float(rng.choice(splits) if splits else rng.standard_normal())
            mode = str(rng.choice(modes))
            tracks = 0 if mode == "EQ" else int(rng.integers(2))
            nodes.append(
                (tree, at, int(rng.integers(4)), split, f"BRANCH_{mode}", number, number + 1, tracks)
            )
            open_ += [(number, depth + 1), (number + 1, depth + 1)]
            number += 2
    names = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
             "missing_value_tracks_true")  # fmt: skip
    attrs = {f"nodes_{name}": list(column) for name, column in zip(names, zip(*nodes))}
    columns = zip(("treeids", "nodeids", "ids", "weights"), zip(*leaves))
    return attrs | {f"{kind}_{name}": list(column) for name, column in columns}


@pytest.mark.parametrize("modes", [["LEQ"], ["LT"], ["GT"], ["GTE"], ["EQ"], ["NEQ"], ["LEQ", "EQ"]])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_regression_trees(modes, dtype):
    x = np.round(HOLES).astype(dtype)  # many of them lie on a split
    x[0, :3] = np.inf, -np.inf, np.nan
    attrs = random_trees("target", 2, 3, modes, splits=[-1.0, 0.0, 1.0])
    check(ml_model("TreeEnsembleRegressor", x, n_targets=2, **attrs), x)


@pytest.mark.parametrize("fields", [{"base_values": [0.5]}, {"aggregate_function": "AVERAGE"},
                                    {"aggregate_function": "MIN"}, {"aggregate_function": "MAX"}])  # fmt: skip
def test_aggregates_of_trees(fields):
    check(ml_model("TreeEnsembleRegressor", X, n_targets=1, **random_trees("target", 1, 4), **fields), X)


def test_splits_at_infinity_tell_numbers_from_nan():
    x = HOLES.copy()
    x[0] = np.inf
    attrs = random_trees("target", 1, 5, splits=[float("inf")])
    check(ml_model("TreeEnsembleRegressor", x, n_targets=1, **attrs), x)


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_classifying_trees(classes, positive, transform):
    attrs = random_trees("class", classes, 6, positive=positive)
    labels = [7, -2, 5][: max(classes, 2)]
    made = ml_model("TreeEnsembleClassifier", X, (TensorProto.INT64, TensorProto.FLOAT),
                    classlabels_int64s=labels, post_transform=transform, **attrs)  # fmt: skip
    wanted = in_onnxruntime(made, {"x": X})
    label, scores = tilewright.compile(made, (X,))(X)
    np.testing.assert_allclose(scores, wanted[1], rtol=1e-5, atol=1e-6)
    # Where leaves score both of two classes, ONNX Runtime's label is 1 for a second score above 0, whatever the first.
    np.testing.assert_array_equal(label, np.array(labels)[scores.argmax(1)] if classes == 2 else wanted[0])


def test_trees_with_leaves_of_their_own():
    attrs: dict = {
        "tree_roots": [0, 2], "n_targets": 2, "aggregate_function": 1, "post_transform": 0,
        "nodes_featureids": [0, 1, 3], "nodes_truenodeids": [1, 0, 2], "nodes_falsenodeids": [3, 1, 4],
        "nodes_trueleafs": [0, 1, 1], "nodes_falseleafs": [1, 1, 1], "leaf_targetids": [0, 1, 0, 1, 0],
        "nodes_modes": helper.make_tensor("modes", TensorProto.UINT8, [3], [0, 3, 1]),
        "nodes_splits": helper.make_tensor("splits", TensorProto.FLOAT, [3], [0.2, -0.1, 0.3]),
        "leaf_weights": helper.make_tensor("weights", TensorProto.FLOAT, [5], [1.0, 2.0, 3.0, 4.0, 5.0]),
    }  # fmt: skip
    check(ml_model("TreeEnsemble", X, version=5, **attrs), X)


def test_branches_may_share_children():
    attrs = random_trees("target", 1, 3)
    shared = attrs["nodes_falsenodeids"][0]
    inner = next(i for i, mode in enumerate(attrs["nodes_modes"][1:], 1) if mode != "LEAF")
    assert attrs["nodes_treeids"][inner] == 0 and attrs["nodes_nodeids"][inner] == shared
    attrs["nodes_truenodeids"][0] = attrs["nodes_truenodeids"][inner]
    check(ml_model("TreeEnsembleRegressor", X, n_targets=1, **attrs), X)


def test_conditions_are_intervals_that_say_where_nan_goes():
    f32, infinity = np.dtype(np.float32), float("inf")
    below = float(np.nextafter(np.float32(1), np.float32(0)))

    def made(mode, split=1.0, tracks=False):
        condition = condition_of(mode, 0, split, tracks, (3, 4), f32)
        return condition.reading, condition.low, condition.high, condition.children

    assert made("LEQ") == (NAN_ABOVE, -infinity, 1.0, (3, 4))
    assert made("LEQ", tracks=True) == (NAN_BELOW, -infinity, 1.0, (3, 4))
    assert made("LT") == (NAN_ABOVE, -infinity, below, (3, 4))
    assert made("GT") == (NAN_BELOW, -infinity, 1.0, (4, 3))
    assert made("GTE", tracks=True) == (NAN_ABOVE, -infinity, below, (4, 3))
    assert made("EQ") == (NAN_ABOVE, 1.0, 1.0, (3, 4))
    assert made("NEQ", tracks=True) == (NAN_ABOVE, 1.0, 1.0, (4, 3))
    assert made("LEQ", infinity) == (IS_NAN, -infinity, 0.5, (3, 4))


def refusal(op: str, **attrs) -> str:
    types = (TensorProto.INT64, TensorProto.FLOAT) if "Classifier" in op else (TensorProto.FLOAT,)
    with pytest.raises(UnsupportedError) as error:
        import_onnx(ml_model(op, X, types, **attrs))
    return str(error.value)


def test_what_is_refused():
    trees = random_trees("target", 1, 3)
    assert "there is no lowering for it" in refusal("FeatureVectorizer")
    maps = refusal("ZipMap", classlabels_int64s=[0, 1, 2, 3])
    assert "it makes a map of each row" in maps and "zipmap=False" in maps
    one = refusal("TreeEnsembleRegressor", post_transform="LOGISTIC", **trees)
    assert "its post_transform `LOGISTIC` is for one score, which ONNX Runtime does not transform" in one
    two = random_trees("target", 2, 3)
    probit = refusal("TreeEnsembleRegressor", n_targets=2, post_transform="PROBIT", **two)
    assert "its post_transform `PROBIT` is not taken" in probit
    around = {**trees, "nodes_truenodeids": [0] * len(trees["nodes_modes"])}
    assert "its trees have more than 128 levels" in refusal("TreeEnsembleRegressor", **around)
    far = {**trees, "nodes_featureids": [4] * len(trees["nodes_modes"])}
    assert "a node reads feature 4 of 4" in refusal("TreeEnsembleRegressor", **far)
    unknown = {**trees, "nodes_values": [float("nan")] * len(trees["nodes_modes"])}
    assert "a node tests for LEQ of nan" in refusal("TreeEnsembleRegressor", **unknown)
    classes = random_trees("class", 2, 3)
    one = {**classes, "class_ids": [1] * len(classes["class_ids"]), "classlabels_int64s": [0, 1]}
    assert "its leaves score classes [1] of 2, with 0 base values" in refusal("TreeEnsembleClassifier", **one)
    words = refusal("TreeEnsembleClassifier", classlabels_strings=["a", "b"], **classes)
    assert "its labels are strings; convert the model with integer labels" in words
