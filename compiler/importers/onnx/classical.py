"""Rules for operators of `ai.onnx.ml` that are arithmetic: scalers, normalisers, imputers and linear models."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import Node, Refused, Value

ML = "ai.onnx.ml"


def rows(b: Builder, node: Node) -> Value:
    """The operand as [N, C] of floats, of f32 where it holds anything else; a vector is one row."""
    x = node.operand(0)
    if x.rank not in (1, 2):
        raise Refused(f"it takes a matrix, its operand has {x.rank} dimensions")
    x = x if x.rank == 2 else forms.reshape(b, x, (1, *x.shape))
    return x if x.dtype == TensorProto.DOUBLE else forms.cast(b, x, TensorProto.FLOAT)


def transformed(b: Builder, scores: Value, name: str) -> Value:
    """Scores [N, C] after the `post_transform` of this name."""
    if name == "NONE":
        return scores
    if scores.shape[1] == 1:
        raise Refused(f"its post_transform `{name}` is for one score, which ONNX Runtime does not transform")
    if name == "SOFTMAX":
        return b.op("Softmax", scores, axis=1)
    if name == "LOGISTIC":
        return b.op("Sigmoid", scores)
    raise Refused(f"its post_transform `{name}` is not taken")


def labels_of(node: Node, *names: str) -> np.ndarray:
    """The integer labels of a classifier; those of words are refused."""
    for name in names:
        if node.attrs.get(name):
            if isinstance(node.attrs[name][0], str):
                raise Refused("its labels are strings; convert the model with integer labels")
            return np.array(node.attrs[name], np.int64)
    raise Refused("it has no labels")


def labelled(b: Builder, scores: Value, labels: np.ndarray) -> Value:
    """The label [N] of the largest score in each row."""
    return b.op("Gather", b.const(labels), b.op("ArgMax", scores, axis=1, keepdims=0), axis=0)


@rule("Scaler", domain=ML)
def scaler(b: Builder, node: Node):
    x = forms.cast(b, node.operand(0), TensorProto.FLOAT)
    offset, scale = (b.const(np.array(node.attrs[name], np.float32)) for name in ("offset", "scale"))
    return forms.mul(b, forms.sub(b, x, offset), scale)


@rule("Normalizer", domain=ML)
def normalizer(b: Builder, node: Node):
    """Rows over their norm; a row whose norm is 0 stays as it is."""
    x, kind = forms.cast(b, node.operand(0), TensorProto.FLOAT), node.attrs.get("norm", "MAX")
    operators = {"MAX": "ReduceMax", "L1": "ReduceL1", "L2": "ReduceL2"}
    if kind not in operators:
        raise Refused(f"its norm `{kind}` is not known")
    norm = forms.reduce(b, operators[kind], x, [-1])
    return forms.div(b, x, b.op("Where", b.op("Equal", norm, b.scalar(0, norm)), b.scalar(1, norm), norm))


@rule("Imputer", domain=ML)
def imputer(b: Builder, node: Node):
    """The value to replace is NaN or a number; what replaces it is one number, or one for each column."""
    x, kind = node.operand(0), "float" if node.operand(0).is_float else "int64"
    numbers = node.attrs[f"imputed_value_{kind}s"]
    missing = node.attrs.get(f"replaced_value_{kind}", 0)
    found = b.op("IsNaN", x) if missing != missing else b.op("Equal", x, b.scalar(missing, x))
    return b.op("Where", found, b.const(np.array(numbers), x.dtype), x)


def _linear(b: Builder, node: Node, outputs: int) -> Value:
    """x [N, F] @ coefficients [outputs, F]^T + intercepts [outputs]."""
    x = forms.cast(b, rows(b, node), TensorProto.FLOAT)
    coefficients = np.array(node.attrs["coefficients"], np.float32).reshape(outputs, x.shape[1])
    scores = b.op("MatMul", x, b.const(np.ascontiguousarray(coefficients.T)))
    if not node.attrs.get("intercepts"):
        return scores
    return forms.add(b, scores, b.const(np.array(node.attrs["intercepts"], np.float32)))


@rule("LinearRegressor", domain=ML)
def linear_regressor(b: Builder, node: Node):
    scores = _linear(b, node, node.attrs.get("targets", 1))
    return transformed(b, scores, node.attrs.get("post_transform", "NONE"))


@rule("LinearClassifier", domain=ML)
def linear_classifier(b: Builder, node: Node):
    """Labels and scores; one row of coefficients for two classes scores the second."""
    labels = labels_of(node, "classlabels_ints", "classlabels_strings")
    width = max(rows(b, node).shape[1], 1)
    scores = _linear(b, node, len(node.attrs["coefficients"]) // width)
    name = node.attrs.get("post_transform", "NONE")
    if scores.shape[1] == len(labels):
        return [labelled(b, scores, labels), transformed(b, scores, name)]
    if scores.shape[1] != 1 or len(labels) != 2:
        raise Refused(f"it has {len(labels)} labels for {scores.shape[1]} scores")
    return of_two_classes(b, scores, labels, name, 0, forms.sub(b, 1, scores))


def of_two_classes(
    b: Builder, score: Value, labels: np.ndarray, name: str, least: float, rest: Value
) -> list[Value]:
    """The second label where its score [N, 1] is above `least`; both scores, which only LOGISTIC changes."""
    above = b.op("Greater", score, b.scalar(least, score))
    label = b.op("Where", above, b.ints(labels[1]), b.ints(labels[0]))
    if name == "LOGISTIC":
        both = b.op("Sigmoid", forms.concat(b, [b.op("Neg", score), score], 1))
    elif name in ("NONE", "SOFTMAX"):
        both = forms.concat(b, [rest, score], 1)
    else:
        raise Refused(f"its post_transform `{name}` is not taken")
    return [forms.reshape(b, label, (score.shape[0],)), both]


@rule("ZipMap", domain=ML)
def zip_map(b: Builder, node: Node):
    """Converters put it behind every classifier unless they are told not to."""
    raise Refused(
        "it makes a map of each row, and only tensors are returned; convert the model with the option zipmap=False"
    )


@rule("LabelEncoder", domain=ML)
def label_encoder(b: Builder, node: Node):
    """Each number that is a key becomes the value of that key, every other one the default; of equal keys the first counts.

    NaN is what a key of NaN says from version 4 on, and the default before, as in ONNX Runtime.
    """
    keys, values = _listed(node, "keys"), _listed(node, "values")
    if len(keys) != len(values):
        raise Refused(f"it has {len(keys)} keys for {len(values)} values")
    defaults = {"i": node.attrs.get("default_int64", -1), "f": node.attrs.get("default_float", -0.0)}
    default = node.attrs.get("default_tensor", defaults[values.dtype.kind])
    x = node.operand(0)
    wide = forms.unsqueeze(b, x, x.rank)
    same = b.op("Equal", wide, b.const(keys, x.dtype))
    if node.version >= 4 and keys.dtype.kind == "f" and np.isnan(keys).any():
        same = b.op("Or", same, b.op("And", b.op("IsNaN", wide), b.const(np.isnan(keys))))
    ones = forms.cast(b, same, TensorProto.INT32)
    found = forms.reduce(b, "ReduceMax", ones, [x.rank], keep=False)
    chosen = b.op("Gather", b.const(values), b.op("ArgMax", ones, axis=x.rank, keepdims=0), axis=0)
    is_known = b.op("Greater", found, b.scalar(0, found))
    return b.op("Where", is_known, chosen, b.scalar(np.reshape(default, ()), chosen))


def _listed(node: Node, side: str) -> np.ndarray:
    """The keys or the values of a LabelEncoder, which are numbers."""
    for kind, dtype in (("int64s", np.int64), ("floats", np.float32), ("tensor", None)):
        found = node.attrs.get(f"{side}_{kind}")
        if found is not None and (array := np.array(found, dtype)).dtype.kind in "if" and array.size:
            return array.reshape(-1)
    raise Refused(
        f"its {side} are strings, or there are none; convert the model with labels that are numbers"
    )
