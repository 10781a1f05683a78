"""Rules for Einsum, Det and running products."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import Node, Refused, Value

MAX_DETERMINANT = 32
"""Largest matrix whose elimination is unrolled."""


@rule("Einsum")
def einsum(b: Builder, node: Node):
    """Operands contracted from left to right, each pair as one batch matrix product."""
    terms, output = _equation(node.attrs["equation"], [v.rank for v in node.inputs if v is not None])
    operands = [_diagonal(b, node.operand(i), term) for i, term in enumerate(terms)]
    while len(operands) > 1:
        later = output + "".join(term for _, term in operands[2:])
        operands = [_contract(b, *operands[0], *operands[1], later), *operands[2:]]
    x, term = operands[0]
    gone = [i for i, letter in enumerate(term) if letter not in output]
    if gone:
        x = forms.reduce(b, "ReduceSum", x, gone, keep=False)
        term = "".join(letter for letter in term if letter in output)
    return forms.transpose(b, x, [term.index(letter) for letter in output])


def _equation(text: str, ranks: list[int]) -> tuple[list[str], str]:
    """Terms and output as letters; an ellipsis becomes capital letters counted from its end."""
    text = text.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in text]
    widths = [rank - len(t.replace("...", "")) if "..." in t else 0 for t, rank in zip(terms, ranks)]
    most = max(widths, default=0)
    terms = [t.replace("...", "".join(spare[most - w : most])) for t, w in zip(terms, widths)]
    for term, rank in zip(terms, ranks):
        if len(term) != rank:
            raise Refused(f"its equation `{text}` names {len(term)} axes of an operand of rank {rank}")
    if arrow:
        return terms, right.replace("...", "".join(spare[:most]))
    letters = "".join(terms)
    single = sorted(c for c in set(letters) if letters.count(c) == 1 and c not in spare[:most])
    return terms, "".join(spare[:most]) + "".join(single)


def _diagonal(b: Builder, x: Value, term: str) -> tuple[Value, str]:
    """The diagonal of axes with the same letter, which becomes the last one, and the letters of its axes."""
    while len(set(term)) < len(term):
        letter = next(c for c in term if term.count(c) > 1)
        first = term.index(letter)
        second = term.index(letter, first + 1)
        n = x.shape[first]
        order = [i for i in range(x.rank) if i not in (first, second)] + [first, second]
        moved = forms.transpose(b, x, order)
        flat = forms.reshape(b, moved, (*moved.shape[:-2], n * n))
        picked = b.op("Gather", flat, b.const(np.arange(n, dtype=np.int64) * (n + 1)), axis=-1)
        term = "".join(c for i, c in enumerate(term) if i not in (first, second)) + letter
        x = picked
    return x, term


def _contract(b: Builder, x: Value, xs: str, y: Value, ys: str, later: str) -> tuple[Value, str]:
    extent = dict(zip(xs, x.shape))
    for letter, n in zip(ys, y.shape):
        extent[letter] = max(extent.get(letter, 1), n)
    x, xs = _sum_private(b, x, xs, ys + later)
    y, ys = _sum_private(b, y, ys, xs + later)
    batch = [c for c in xs if c in ys and c in later]
    summed = [c for c in xs if c in ys and c not in later]
    rows = [c for c in xs if c not in ys]
    columns = [c for c in ys if c not in xs]
    size = lambda letters: int(np.prod([extent[c] for c in letters], dtype=np.int64))  # noqa: E731

    def arranged(value: Value, term: str, *groups: list[str]) -> Value:
        order = [c for group in groups for c in group]
        moved = forms.transpose(b, value, [term.index(c) for c in order])
        moved = forms.expand(b, moved, [extent[c] for c in order])
        return forms.reshape(b, moved, [size(group) for group in groups])

    left, right = arranged(x, xs, batch, rows, summed), arranged(y, ys, batch, summed, columns)
    product = b.op("MatMul", left, right) if summed else forms.mul(b, left, right)
    result = batch + rows + columns
    return forms.reshape(b, product, [extent[c] for c in result]), "".join(result)


def _sum_private(b: Builder, x: Value, term: str, others: str) -> tuple[Value, str]:
    gone = [i for i, c in enumerate(term) if c not in others]
    if not gone:
        return x, term
    return forms.reduce(b, "ReduceSum", x, gone, keep=False), "".join(c for c in term if c in others)


@rule("Det")
def determinant(b: Builder, node: Node):
    """Gaussian elimination with the largest pivot of each column, unrolled."""
    x = node.operand(0)
    n = x.shape[-1]
    if n > MAX_DETERMINANT:
        raise Refused(f"a determinant of {n} rows; {MAX_DETERMINANT} is the most that is unrolled")
    lead = x.shape[:-2]
    result = forms.full(b, 1, x.dtype, (*lead, 1, 1))
    for left in range(n, 0, -1):
        column = forms.slice_axis(b, x, x.rank - 1, 0, 1)
        place = b.op("ArgMax", b.op("Abs", column), axis=x.rank - 2, keepdims=1)
        rows = b.const(np.arange(left, dtype=np.int64).reshape(left, 1))
        chosen = forms.cast(b, b.op("Equal", rows, place), x.dtype)
        pivot_row = forms.reduce(b, "ReduceSum", forms.mul(b, chosen, x), [x.rank - 2])
        first = forms.slice_axis(b, x, x.rank - 2, 0, 1)
        x = forms.add(b, x, forms.mul(b, chosen, forms.sub(b, first, pivot_row)))
        swapped = b.op("Equal", place, b.const(np.array(0, np.int64)))
        pivot = forms.slice_axis(b, pivot_row, x.rank - 1, 0, 1)
        result = forms.mul(b, result, b.op("Where", swapped, pivot, b.op("Neg", pivot)))
        if left > 1:
            rest = forms.slice_axis(b, x, x.rank - 2, 1, left)
            safe = b.op("Where", b.op("Equal", pivot, b.scalar(0, pivot)), b.scalar(1, pivot), pivot)
            factor = forms.div(b, forms.slice_axis(b, rest, x.rank - 1, 0, 1), safe)
            rest = forms.sub(b, rest, forms.mul(b, factor, pivot_row))
            x = forms.slice_axis(b, rest, x.rank - 1, 1, left)
    return forms.reshape(b, result, lead)


@rule("CumProd")
def running_product(b: Builder, node: Node):
    """Doubling: after k steps each element holds the product of the 2^k before it."""
    x = node.operand(0)
    axis = node.operand(1).ints("axis")[0] % x.rank
    backwards, exclusive = node.attrs.get("reverse", 0), node.attrs.get("exclusive", 0)
    if backwards:
        x = forms.reverse(b, x, axis)

    def shifted(value: Value, by: int) -> Value:
        ones = forms.full(b, 1, x.dtype, (*x.shape[:axis], by, *x.shape[axis + 1 :]))
        return forms.concat(b, [ones, forms.slice_axis(b, value, axis, 0, x.shape[axis] - by)], axis)

    if exclusive:
        x = shifted(x, 1)
    step = 1
    while step < x.shape[axis]:
        x = forms.mul(b, x, shifted(x, step))
        step *= 2
    return forms.reverse(b, x, axis) if backwards else x


@rule("GroupNormalization")
def group_normalization(b: Builder, node: Node):
    """(x - mean) / sqrt(variance + epsilon) per group, then scale and bias per channel."""
    x, scale, bias = node.operand(0), node.operand(1), node.operand(2)
    groups = node.attrs["num_groups"]
    wide = node.attrs.get("stash_type", 1) or TensorProto.FLOAT
    if groups < 1 or x.shape[1] % groups:
        raise Refused(f"its {x.shape[1]} channels are not divisible by its number of groups, {groups}")
    grouped = forms.cast(b, forms.reshape(b, x, (x.shape[0], groups, math.prod(x.shape[1:]) // groups)), wide)
    normal = normalised(b, grouped, [2], node.attrs.get("epsilon", 1e-5))
    normal = forms.cast(b, forms.reshape(b, normal, x.shape), x.dtype)
    column = (x.shape[1], *[1] * (x.rank - 2))
    return forms.add(b, forms.mul(b, normal, forms.reshape(b, scale, column)), forms.reshape(b, bias, column))


_EPSILON = float(np.float32(1e-5))
"""Attributes are floats of single precision."""


@rule("LayerNormalization")
def layer_normalization(b: Builder, node: Node):
    """Of double precision alone; torch-mlir has the others, and rounds these to `stash_type`, which no reference does."""
    x, bias = node.operand(0), node.input(2)
    if x.dtype != TensorProto.DOUBLE:
        return None
    axes = list(range(node.attrs.get("axis", -1) % x.rank, x.rank))
    mean, centred, deviation = _statistics(b, x, axes, node.attrs.get("epsilon", _EPSILON))
    y = forms.mul(b, forms.div(b, centred, deviation), node.operand(1))
    stash = node.attrs.get("stash_type", 1) or TensorProto.FLOAT
    saved = [forms.cast(b, value, stash) for value in (mean, b.op("Reciprocal", deviation))]
    return [y if bias is None else forms.add(b, y, bias), *saved][: node.outputs]


@rule("RMSNormalization")
def rms_normalization(b: Builder, node: Node):
    """Of double precision alone, as layer normalization; others are what their definition says."""
    x = node.operand(0)
    if x.dtype != TensorProto.DOUBLE:
        return None
    axes = list(range(node.attrs.get("axis", -1) % x.rank, x.rank))
    squares = forms.reduce(b, "ReduceMean", forms.mul(b, x, x), axes)
    root = b.op("Sqrt", forms.add(b, squares, node.attrs.get("epsilon", _EPSILON)))
    return forms.mul(b, forms.div(b, x, root), node.operand(1))


@rule("LRN")
def local_response_normalization(b: Builder, node: Node):
    """Of an even `size` alone, where more of the window lies behind than before, unlike torch's: a mean of squares."""
    x, size = node.operand(0), node.attrs["size"]
    if size % 2:
        return None
    alpha, beta = (node.attrs.get(name, default) for name, default in (("alpha", 1e-4), ("beta", 0.75)))
    wide = x if x.dtype == TensorProto.DOUBLE else forms.cast(b, x, TensorProto.FLOAT)
    image = forms.reshape(b, forms.mul(b, wide, wide), (x.shape[0], 1, x.shape[1], math.prod(x.shape[2:])))
    pads = [(size - 1) // 2, 0, size // 2, 0]
    means = b.op("AveragePool", image, kernel_shape=[size, 1], pads=pads, count_include_pad=1)
    scale = forms.add(b, forms.mul(b, forms.reshape(b, means, x.shape), alpha), node.attrs.get("bias", 1.0))
    return forms.cast(b, forms.div(b, wide, b.op("Pow", scale, b.scalar(beta, scale))), x.dtype)


@rule("Attention")
def attention(b: Builder, node: Node):
    """Of double precision alone: its definition has the scale in single precision, so that queries are scaled before."""
    q = node.operand(0)
    width = q.shape[-1] // (node.attrs["q_num_heads"] if q.rank == 3 else 1)
    scale = node.attrs.get("scale", 1 / math.sqrt(width))
    if q.dtype != TensorProto.DOUBLE or scale == 1:
        return None
    attrs = {**node.attrs, "scale": 1.0}
    return b.op("Attention", forms.mul(b, q, scale), *node.inputs[1:], outputs=node.outputs, **attrs)


def normalised(b: Builder, x: Value, axes: list[int], epsilon: float) -> Value:
    """(x - mean) / sqrt(variance + epsilon) over `axes`."""
    _, centred, deviation = _statistics(b, x, axes, epsilon)
    return forms.div(b, centred, deviation)


def _statistics(b: Builder, x: Value, axes: list[int], epsilon: float) -> tuple[Value, Value, Value]:
    """The mean over `axes`, x - mean, and sqrt(variance + epsilon)."""
    mean = forms.reduce(b, "ReduceMean", x, axes)
    centred = forms.sub(b, x, mean)
    variance = forms.reduce(b, "ReduceMean", forms.mul(b, centred, centred), axes)
    return mean, centred, b.op("Sqrt", forms.add(b, variance, epsilon))
