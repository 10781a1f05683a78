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


@contrib("Trilu")
def triangle(b: Builder, node: Node):
    return b.op("Trilu", *[v for v in node.inputs if v is not None], **node.attrs)


@contrib("CDist")
def distances(b: Builder, node: Node):
    """Of every row of x [N, F] to every row of y [M, F]: [N, M], squared unless the metric is "euclidean"."""
    metric = node.attrs.get("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise Refused(f"its metric `{metric}` is not known")
    apart = forms.sub(b, forms.unsqueeze(b, node.operand(0), 1), forms.unsqueeze(b, node.operand(1), 0))
    squares = forms.reduce(b, "ReduceSumSquare", apart, [2], keep=False)
    return squares if metric == "sqeuclidean" else b.op("Sqrt", squares)


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


@rule("SimplifiedLayerNormalization")
def simplified_layer_normalization(b: Builder, node: Node):
    """RMS normalization under the name that ONNX Runtime's optimiser gives it; the second output is 1 / RMS.

    x: [..., N...], its last axes from `axis` on are normalised; 1 / RMS: [..., 1...] of type `stash_type`.
    """
    x, scale = node.operand(0), node.operand(1)
    axis, epsilon = node.attrs.get("axis", -1) % x.rank, node.attrs.get("epsilon", 1e-5)
    stash = node.attrs.get("stash_type", TensorProto.FLOAT)
    y = b.op("RMSNormalization", x, scale, axis=axis, epsilon=epsilon, stash_type=stash)
    if not node.wants(1):
        return y
    wide = x if x.dtype == TensorProto.DOUBLE else forms.cast(b, x, TensorProto.FLOAT)
    squares = forms.reduce(b, "ReduceMean", forms.mul(b, wide, wide), range(axis, x.rank))
    inverse = b.op("Reciprocal", b.op("Sqrt", forms.add(b, squares, epsilon)))
    return [y, forms.cast(b, inverse, stash)]


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
