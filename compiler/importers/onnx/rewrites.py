"""Rules for single operators: what torch-mlir does not lower, or lowers wrongly, built from what it lowers well."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, helper

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.file import LARGEST_ELEMENTS
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import Node, Refused


@rule("Identity")
def identity(b: Builder, node: Node):
    return node.operand(0)


@rule("Constant")
def constant(b: Builder, node: Node):
    """Any of the forms of `value`; strings and sparse tensors are refused."""
    for name, dtype in (("value_float", TensorProto.FLOAT), ("value_floats", TensorProto.FLOAT),
                        ("value_int", TensorProto.INT64), ("value_ints", TensorProto.INT64)):  # fmt: skip
        if name in node.attrs:
            return b.const(np.array(node.attrs[name]), dtype)
    value = node.attrs.get("value")
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OSU":
        raise Refused("a constant of strings, or a sparse one, is not taken")
    return b.const(value)


@rule("ConstantOfShape")
def constant_of_shape(b: Builder, node: Node):
    value = node.attrs.get("value", np.zeros(1, np.float32)).reshape(-1)[0]
    return forms.full(b, value, helper.np_dtype_to_tensor_dtype(value.dtype), node.operand(0).ints("input"))


@rule("Shape")
def shape(b: Builder, node: Node):
    x = node.operand(0)
    if x.items is not None:
        raise Refused("its operand is a sequence")
    start, end = node.attrs.get("start", 0), node.attrs.get("end", x.rank)
    return b.const(np.array(x.shape[start:end], np.int64))


@rule("Size")
def size(b: Builder, node: Node):
    return b.const(np.array(node.operand(0).size, np.int64))


@rule("And", "Or")
def with_a_known_side(b: Builder, node: Node):
    """A side that decides is the result, and one that does not is left out: loops end where counters say so."""
    sides = [node.operand(0), node.operand(1)]
    shape = np.broadcast_shapes(*(side.shape for side in sides))
    deciding = node.op == "Or"
    for known, other in (sides, sides[::-1]):
        if known.array is None or known.weight:
            continue
        if np.all(known.array == deciding):
            return forms.full(b, deciding, TensorProto.BOOL, shape)
        if not np.any(known.array == deciding):
            return forms.expand(b, other, shape)
    return None


@rule("Dropout")
def dropout(b: Builder, node: Node):
    """The identity, and an all-true mask: what it is in inference, or with ratio 0."""
    x, ratio, training = node.operand(0), node.input(1), node.input(2)
    active = training is not None and bool(training.known("training_mode").reshape(-1)[0])
    if active and (ratio is None or ratio.known("ratio").reshape(-1)[0] != 0):
        raise Refused("training mode drops elements at random")
    return [x, forms.full(b, True, TensorProto.BOOL, x.shape)][: node.outputs]


@rule("CastLike")
def cast_like(b: Builder, node: Node):
    return b.op("Cast", node.operand(0), to=node.operand(1).dtype, **node.attrs)


@rule("BatchNormalization")
def batch_normalization(b: Builder, node: Node):
    """x * scale + shift, with scale and shift from weights alone, so that they can be folded when weights are bound."""
    given = [node.operand(i) for i in range(5)]
    kinds = {v.dtype for v in given}
    if len(kinds) > 1:  # The operands may differ in type, in all of which their widest can be computed.
        wide = TensorProto.DOUBLE if TensorProto.DOUBLE in kinds else TensorProto.FLOAT
        made = b.op(node.op, *(forms.cast(b, v, wide) for v in given), outputs=node.outputs, **node.attrs)
        made = [made] if node.outputs == 1 else made
        return [forms.cast(b, v, given[0].dtype if i == 0 else given[3].dtype) for i, v in enumerate(made)]
    x, gamma, beta, mean, variance = given
    epsilon = node.attrs.get("epsilon", 1e-5)
    updated = []
    if node.attrs.get("training_mode", 0):
        axes = [i for i in range(x.rank) if i != 1]
        momentum = node.attrs.get("momentum", 0.9)
        batch_mean = forms.reduce(b, "ReduceMean", x, axes)
        centred = forms.sub(b, x, batch_mean)
        batch_variance = forms.reduce(b, "ReduceMean", forms.mul(b, centred, centred), axes)
        for old, new in ((mean, batch_mean), (variance, batch_variance)):
            new = forms.cast(b, forms.reshape(b, new, old.shape), old.dtype)
            updated.append(forms.add(b, forms.mul(b, old, momentum), forms.mul(b, new, 1 - momentum)))
        mean = forms.reshape(b, batch_mean, mean.shape)
        variance = forms.reshape(b, batch_variance, variance.shape)
    scale = forms.div(b, gamma, b.op("Sqrt", forms.add(b, variance, epsilon)))
    shift = forms.sub(b, beta, forms.mul(b, mean, scale))
    column = (x.shape[1] if x.rank > 1 else 1,) + (1,) * (x.rank - 2)
    y = forms.add(b, forms.mul(b, x, forms.reshape(b, scale, column)), forms.reshape(b, shift, column))
    return [y, *updated][: node.outputs]


@rule("MatMul")
def matmul(b: Builder, node: Node):
    """A vector operand is a matrix of one row or column; sums of nothing are zeros."""
    x, y = node.operand(0), node.operand(1)
    if x.shape[-1] == 0:
        return forms.full(b, 0, *b.infer(node)[0])
    if x.rank > 1 and y.rank > 1:
        return None
    left = forms.unsqueeze(b, x, 0) if x.rank == 1 else x
    right = forms.unsqueeze(b, y, 1) if y.rank == 1 else y
    product = b.op("MatMul", left, right)
    shape = list(product.shape)
    if y.rank == 1:
        shape.pop()
    if x.rank == 1:
        shape.pop(-1 if y.rank == 1 else -2)
    return forms.reshape(b, product, shape)


@rule("Gemm")
def scaled_product(b: Builder, node: Node):
    """What torch-mlir leaves out or takes for an integer: `alpha` without a summand, `beta` = 0, fractions of integers."""
    x, alpha, beta = node.operand(0), node.attrs.get("alpha", 1.0), node.attrs.get("beta", 1.0)
    summand = node.input(2) if beta != 0 else None
    is_whole = x.is_float or (float(alpha).is_integer() and float(beta).is_integer())
    is_empty = 0 in x.shape
    if is_whole and not is_empty and (summand is not None or (alpha == 1 and node.input(2) is None)):
        return None
    attrs = {name: value for name, value in node.attrs.items() if name not in ("alpha", "beta")}
    zeros = forms.full(b, 0, *b.infer(node)[0]) if is_empty else None
    wide = x.dtype if is_whole else TensorProto.DOUBLE
    result = forms.cast(b, zeros or b.kept("Gemm", *node.inputs[:2], **attrs), wide)
    if alpha != 1:
        result = forms.mul(b, result, alpha)
    if summand is not None:
        scaled = forms.cast(b, summand, wide)
        result = forms.add(b, result, scaled if beta == 1 else forms.mul(b, scaled, beta))
    return forms.cast(b, result, x.dtype)


@rule("Range")
def arithmetic_sequence(b: Builder, node: Node):
    """One of no length is refused before it becomes an extent."""
    start, limit, delta = (node.operand(i).known().reshape(-1)[0].item() for i in range(3))
    if delta == 0 or not all(math.isfinite(number) for number in (start, limit, delta)):
        raise Refused(f"it goes from {start} to {limit} by {delta}")
    if (limit - start) / delta > LARGEST_ELEMENTS:
        raise Refused(f"from {start} to {limit} by {delta} it has more elements than any tensor")
    return b.kept("Range", *node.inputs, **node.attrs)


@rule("Softmax", "LogSoftmax")
def softmax(b: Builder, node: Node):
    """exp(x - max) / sum, or x - max - log(sum), in f32 at least."""
    x = node.operand(0)
    axis = [node.attrs.get("axis", -1)]
    wide = x if x.dtype == TensorProto.DOUBLE else forms.cast(b, x, TensorProto.FLOAT)
    moved = forms.sub(b, wide, forms.reduce(b, "ReduceMax", wide, axis))
    powers = b.op("Exp", moved)
    total = forms.reduce(b, "ReduceSum", powers, axis)
    result = forms.div(b, powers, total) if node.op == "Softmax" else forms.sub(b, moved, b.op("Log", total))
    return forms.cast(b, result, x.dtype)


@rule("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
def composed_reduction(b: Builder, node: Node):
    """sqrt(sum(x * x)), log(sum(x)), m + log(sum(exp(x - m))), rounded once; torch-mlir dies of axes of extent 1."""
    x = node.operand(0)
    wide = x
    if x.dtype != TensorProto.DOUBLE:
        wide = forms.cast(b, x, TensorProto.FLOAT if x.is_float else TensorProto.DOUBLE)

    def total(operand):
        return b.op("ReduceSum", operand, *node.inputs[1:], **node.attrs)

    if node.op == "ReduceL2":
        result = b.op("Sqrt", total(forms.mul(b, wide, wide)))
    elif node.op == "ReduceLogSum" or 0 in x.shape:
        result = b.op("Log", total(wide if node.op == "ReduceLogSum" else b.op("Exp", wide)))
    else:
        largest = b.op("ReduceMax", wide, *node.inputs[1:], **{**node.attrs, "keepdims": 1})
        finite = b.op("Not", b.op("IsInf", largest))
        shift = b.op("Where", finite, largest, b.scalar(0, largest))
        powers = b.op("Exp", forms.sub(b, wide, shift))
        sums = b.op("Log", total(powers))
        result = forms.add(b, sums, forms.reshape(b, shift, sums.shape))
    return forms.cast(b, result, x.dtype)


@rule("ReduceMean")
def integer_mean(b: Builder, node: Node):
    """The mean of integers is their sum divided towards zero."""
    x = node.operand(0)
    if x.is_float:
        return None
    total = b.op("ReduceSum", *node.inputs, **node.attrs)
    count = x.size // max(total.size, 1)
    return forms.div(b, total, count)
