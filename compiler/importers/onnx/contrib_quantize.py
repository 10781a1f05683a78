"""Rules for the quantised operators of ONNX Runtime's own domain."""

from __future__ import annotations

from onnx import TensorProto

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.contrib import contrib
from tilewright.compiler.importers.onnx.values import Node, Refused, Value


def _real(b: Builder, node: Node, first: int) -> Value:
    """Operands (x, scale, zero point) from `first` on, as real numbers."""
    zero = node.input(first + 2)
    return b.op("DequantizeLinear", node.operand(first), node.operand(first + 1), *([zero] if zero else []))


def _stored(b: Builder, x: Value, scale: Value, zero: Value | None) -> Value:
    return b.op("QuantizeLinear", x, scale, *([zero] if zero is not None else []))


@contrib("QLinearAdd", "QLinearMul")
def quantised_binary(b: Builder, node: Node):
    op = forms.add if node.op == "QLinearAdd" else forms.mul
    return _stored(b, op(b, _real(b, node, 0), _real(b, node, 3)), node.operand(6), node.input(7))


@contrib("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax")
def quantised_unary(b: Builder, node: Node):
    name = node.op.removeprefix("QLinear")
    kept = {"alpha": node.attrs.get("alpha", 0.01)} if name == "LeakyRelu" else {}
    if name == "Softmax":
        kept = {"axis": node.attrs.get("axis", -1)}
    return _stored(b, b.op(name, _real(b, node, 0), **kept), node.operand(3), node.input(4))


@contrib("QLinearGlobalAveragePool", "QLinearAveragePool")
def quantised_average_pool(b: Builder, node: Node):
    if node.attrs.get("channels_last", 0):
        raise Refused("channels-last tensors are not taken")
    name = node.op.removeprefix("QLinear")
    kept = (
        {} if name == "GlobalAveragePool" else {k: v for k, v in node.attrs.items() if k != "channels_last"}
    )
    return _stored(b, b.op(name, _real(b, node, 0), **kept), node.operand(3), node.input(4))


@contrib("QLinearConcat")
def quantised_concat(b: Builder, node: Node):
    """Operands: y's scale and zero point, then (x, scale, zero point) for every part."""
    parts = [_real(b, node, i) for i in range(2, len(node.inputs), 3)]
    return _stored(
        b, forms.concat(b, parts, node.attrs["axis"] % parts[0].rank), node.operand(0), node.input(1)
    )


@contrib("QuantizeLinear", "DequantizeLinear")
def quantise(b: Builder, node: Node):
    return b.op(node.op, *[v for v in node.inputs if v is not None], **node.attrs)


@contrib("DynamicQuantizeMatMul")
def dynamic_quantised_matmul(b: Builder, node: Node):
    """x quantised to u8 by its own range, an integer product, and back."""
    x, w, w_scale, w_zero, bias = (
        node.operand(0),
        node.operand(1),
        node.operand(2),
        node.input(3),
        node.input(4),
    )
    q, scale, zero = b.op("DynamicQuantizeLinear", x, outputs=3)
    total = b.op("MatMulInteger", q, w, zero, *([w_zero] if w_zero is not None else []))
    y = forms.mul(b, forms.cast(b, total, TensorProto.FLOAT), forms.mul(b, scale, w_scale))
    return y if bias is None else forms.add(b, y, bias)


@contrib("MatMulIntegerToFloat")
def matmul_integer_to_float(b: Builder, node: Node):
    x, w, x_scale, w_scale = (node.operand(i) for i in range(4))
    zeros = [node.input(4), node.input(5)]
    total = b.op("MatMulInteger", x, w, *zeros)
    y = forms.mul(b, forms.cast(b, total, TensorProto.FLOAT), forms.mul(b, x_scale, w_scale))
    return y if node.input(6) is None else forms.add(b, y, node.operand(6))
