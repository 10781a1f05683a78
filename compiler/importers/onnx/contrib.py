"""Rules for operators of ONNX Runtime's own domain, `com.microsoft`, that optimised and quantised models hold."""

from __future__ import annotations

from onnx import TensorProto

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import Node, Refused, Value

DOMAIN = "com.microsoft"


def contrib(*names: str):
    """Registers a rule in ONNX Runtime's domain."""
    return rule(*names, domain=DOMAIN)


@contrib("Gelu")
def gelu(b: Builder, node: Node):
    return b.op("Gelu", node.operand(0))


@contrib("BiasGelu")
def bias_gelu(b: Builder, node: Node):
    return b.op("Gelu", forms.add(b, node.operand(0), node.operand(1)))


@contrib("FastGelu")
def fast_gelu(b: Builder, node: Node):
    x = node.operand(0)
    if node.input(1) is not None:
        x = forms.add(b, x, node.operand(1))
    return b.op("Gelu", x, approximate="tanh")


@contrib("QuickGelu")
def quick_gelu(b: Builder, node: Node):
    x = node.operand(0)
    return forms.mul(b, x, b.op("Sigmoid", forms.mul(b, x, node.attrs.get("alpha", 1.702))))


@contrib("FusedMatMul", "TransposeMatMul")
def fused_matmul(b: Builder, node: Node):
    """alpha * op(x) @ op(y), where op swaps the last two axes when asked to."""
    if node.attrs.get("transBatchA", 0) or node.attrs.get("transBatchB", 0):
        raise Refused("transposed batch axes are not taken")
    sides = []
    for index, flag in ((0, "transA"), (1, "transB")):
        x = node.operand(index)
        if node.attrs.get(flag, 0) and x.rank > 1:
            x = forms.transpose(b, x, [*range(x.rank - 2), x.rank - 1, x.rank - 2])
        sides.append(x)
    product = b.op("MatMul", *sides)
    alpha = node.attrs.get("alpha", 1.0)
    return product if alpha == 1.0 else forms.mul(b, product, alpha)


def _activated(b: Builder, x: Value, name: str, parameters: list[float]) -> Value:
    if not name:
        return x
    if name == "Clip":
        return b.op("Clip", x, b.scalar(parameters[0], x), b.scalar(parameters[1], x))
    names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}.get(name, ())
    if name not in ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid"):
        raise Refused(f"its activation `{name}` is not known")
    return b.op(name, x, **dict(zip(names, parameters)))


@contrib("FusedConv")
def fused_conv(b: Builder, node: Node):
    """Convolution, then an optional sum, then an activation."""
    attrs = {k: v for k, v in node.attrs.items() if not k.startswith("activation")}
    inputs = [v for v in node.inputs[:3] if v is not None]
    y = b.op("Conv", *inputs, **attrs)
    if node.input(3) is not None:
        y = forms.add(b, y, node.operand(3))
    return _activated(b, y, node.attrs.get("activation", ""), node.attrs.get("activation_params", []))


@contrib("FusedGemm")
def fused_gemm(b: Builder, node: Node):
    attrs = {k: v for k, v in node.attrs.items() if not k.startswith("activation")}
    y = b.op("Gemm", *[v for v in node.inputs if v is not None], **attrs)
    names = ("activation_alpha", "activation_beta")
    parameters = [node.attrs[name] for name in names if name in node.attrs]
    return _activated(b, y, node.attrs.get("activation", ""), parameters)


@contrib("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_layer_normalization(b: Builder, node: Node):
    """Layer norm of the sum of two tensors (and a bias); the fourth output is that sum."""
    simple = node.op == "SkipSimplifiedLayerNormalization"
    total = forms.add(b, node.operand(0), node.operand(1))
    bias = node.input(3 if simple else 4)
    if bias is not None:
        total = forms.add(b, total, bias)
    epsilon = node.attrs.get("epsilon", 1e-12)
    if any(node.wants(i) for i in (1, 2)):
        raise Refused("its mean and inverse deviation are not given as outputs")
    if simple:
        y = b.op("RMSNormalization", total, node.operand(2), epsilon=epsilon)
    else:
        shift = node.input(3)
        y = b.op("LayerNormalization", total, node.operand(2), *([shift] if shift else []), epsilon=epsilon)
    return [y, y, y, total][: node.outputs]


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
