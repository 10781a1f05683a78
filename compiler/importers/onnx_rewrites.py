"""Rules for single operators: what torch-mlir does not lower, or lowers wrongly, built from what it lowers well."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tilewright.compiler.importers import onnx_forms as forms
from tilewright.compiler.importers.onnx_builder import Builder, Node, Refused
from tilewright.compiler.importers.onnx_rules import rule


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
    return b.op("Cast", node.operand(0), to=node.operand(1).dtype, saturate=node.attrs.get("saturate"))


@rule("BatchNormalization")
def batch_normalization(b: Builder, node: Node):
    """x * scale + shift, with scale and shift from weights alone, so that they can be folded when weights are bound."""
    if node.attrs.get("training_mode", 0):
        raise Refused("training mode is not taken")
    x, gamma, beta, mean, variance = (node.operand(i) for i in range(5))
    epsilon = node.attrs.get("epsilon", 1e-5)
    scale = forms.div(b, gamma, b.op("Sqrt", forms.add(b, variance, epsilon)))
    shift = forms.sub(b, beta, forms.mul(b, mean, scale))
    column = (x.shape[1] if x.rank > 1 else 1,) + (1,) * (x.rank - 2)
    return forms.add(b, forms.mul(b, x, forms.reshape(b, scale, column)), forms.reshape(b, shift, column))
