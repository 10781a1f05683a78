"""Rules for support vector machines of `ai.onnx.ml`: kernels of rows with support vectors, and what is decided by them."""

from __future__ import annotations

import itertools

import numpy as np
from onnx import TensorProto

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.classical import ML, labels_of, rows
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import Node, Refused, Value


def _kernels(b: Builder, node: Node, count: int) -> Value:
    """The kernel function of every row and every one of `count` support vectors: [N, count]."""
    x = forms.cast(b, rows(b, node), TensorProto.FLOAT)
    vectors = np.array(node.attrs["support_vectors"], np.float32).reshape(count, x.shape[1])
    kind = node.attrs.get("kernel_type", "LINEAR")
    gamma, offset, degree = node.attrs.get("kernel_params") or (0.0, 0.0, 0.0)
    if kind == "RBF":
        apart = forms.sub(b, forms.unsqueeze(b, x, 1), b.const(vectors))
        return b.op("Exp", forms.mul(b, forms.reduce(b, "ReduceSumSquare", apart, [2], keep=False), -gamma))
    product = b.op("MatMul", x, b.const(np.ascontiguousarray(vectors.T)))
    if kind == "LINEAR":
        return product
    inner = forms.add(b, forms.mul(b, product, gamma), offset)
    if kind == "POLY":
        return b.op("Pow", inner, b.scalar(degree, inner))
    if kind == "SIGMOID":
        return b.op("Tanh", inner)
    raise Refused(f"its kernel_type `{kind}` is not known")


@rule("SVMRegressor", domain=ML)
def regressor(b: Builder, node: Node):
    """sum_s coefficient_s K(x, s) + rho [N, 1]; of one class its sign. ONNX Runtime transforms neither by `post_transform`."""
    coefficients = np.array(node.attrs["coefficients"], np.float32)
    count = node.attrs.get("n_supports", 0)
    kernels = _kernels(b, node, count) if count else forms.cast(b, rows(b, node), TensorProto.FLOAT)
    score = b.op("MatMul", kernels, b.const(coefficients.reshape(kernels.shape[1], 1)))
    score = forms.add(b, score, node.attrs["rho"][0])
    if not node.attrs.get("one_class", 0):
        return score
    return b.op("Where", b.op("Greater", score, b.scalar(0, score)), b.scalar(1, score), b.scalar(-1, score))


@rule("SVMClassifier", domain=ML)
def classifier(b: Builder, node: Node):
    """The label that most pairs of classes vote for, and the score of every pair, of two classes of either.

    Vectors lie class by class; of classes i < j the first has a vote where the score of the pair is above 0. Coefficients:
    [classes - 1, vectors], those of class i against j in row j - 1, of j against i in row i.
    """
    labels = labels_of(node, "classlabels_ints", "classlabels_strings")
    counts = node.attrs.get("vectors_per_class")
    if not counts:
        raise Refused("it has no support vectors; a LinearClassifier says the same")
    if node.attrs.get("prob_a"):
        raise Refused(
            "its probabilities are found by iterating until they change little; convert the model without them"
        )
    if node.attrs.get("post_transform", "NONE") != "NONE":
        raise Refused(f"its post_transform `{node.attrs['post_transform']}` is not taken")
    classes, total = len(labels), sum(counts)
    if classes < 2 or len(counts) != classes:
        raise Refused(f"it has {classes} labels for support vectors of {len(counts)} classes")
    given = np.array(node.attrs["coefficients"], np.float32).reshape(classes - 1, total)
    starts = np.cumsum([0, *counts])
    own = [slice(start, end) for start, end in itertools.pairwise(starts)]
    pairs = list(itertools.combinations(range(classes), 2))
    columns = np.zeros((total, len(pairs)), np.float32)
    for number, (i, j) in enumerate(pairs):
        columns[own[i], number], columns[own[j], number] = given[j - 1, own[i]], given[i, own[j]]
    scores = b.op("MatMul", _kernels(b, node, total), b.const(columns))
    scores = forms.add(b, scores, b.const(np.array(node.attrs["rho"], np.float32)))
    first, second = np.zeros((2, len(pairs), classes), np.float32)
    for number, (i, j) in enumerate(pairs):
        first[number, i] = second[number, j] = 1
    above = forms.cast(b, b.op("Greater", scores, b.scalar(0, scores)), TensorProto.FLOAT)
    votes = forms.add(b, b.op("MatMul", above, b.const(first - second)), b.const(second.sum(0)))
    label = b.op("Gather", b.const(labels), b.op("ArgMax", votes, axis=1, keepdims=0), axis=0)
    return [label, scores if classes > 2 else forms.concat(b, [b.op("Neg", scores), scores], 1)]
