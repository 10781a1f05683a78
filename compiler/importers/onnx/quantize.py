"""Rules for quantised operators: exact integer arithmetic between the scaling and rounding that ONNX defines."""

from __future__ import annotations

from onnx import TensorProto

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.conv import check_convolution, convolution_pads, padded
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.small_types import SMALL_FLOATS, SMALL_INTEGERS
from tilewright.compiler.importers.onnx.values import Node, Refused, Value

INTEGERS: dict[int, tuple[int, int]] = {
    TensorProto.INT8: (-128, 127), TensorProto.UINT8: (0, 255), TensorProto.INT16: (-32768, 32767),
    TensorProto.UINT16: (0, 65535), TensorProto.INT32: (-(2**31), 2**31 - 1),
}  # fmt: skip


def _range(dtype: int) -> tuple[int, int]:
    if dtype in SMALL_INTEGERS:
        width, signed = SMALL_INTEGERS[dtype]
        return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    return INTEGERS[dtype]


def _along(b: Builder, parameter: Value, x: Value, axis: int, block: int) -> Value:
    """A scale or zero point shaped to broadcast against `x`: one for all, one per entry of `axis`, or per block."""
    if parameter.size == 1 and parameter.rank <= 1:
        return forms.reshape(b, parameter, ())
    if block:
        axis %= x.rank
        spread = forms.unsqueeze(b, parameter, axis + 1)
        wide = list(spread.shape)
        wide[axis + 1] = block
        spread = forms.expand(b, spread, wide)
        merged = (*parameter.shape[:axis], parameter.shape[axis] * block, *parameter.shape[axis + 1 :])
        return forms.slice_axis(b, forms.reshape(b, spread, merged), axis, 0, x.shape[axis])
    if parameter.rank != 1:
        return parameter
    shape = [1] * x.rank
    shape[axis % x.rank] = parameter.size
    return forms.reshape(b, parameter, shape)


@rule("QuantizeLinear")
def quantize_linear(b: Builder, node: Node):
    """saturate(round(x / scale) + zero point); a float target is a saturating cast of x / scale."""
    x, scale, zero = node.operand(0), node.operand(1), node.input(2)
    axis, block = node.attrs.get("axis", 1), node.attrs.get("block_size", 0)
    to = zero.dtype if zero is not None else node.attrs.get("output_dtype", 0) or TensorProto.UINT8
    precision = node.attrs.get("precision", 0) or scale.dtype
    if precision == TensorProto.FLOAT8E8M0 or precision in INTEGERS:
        precision = TensorProto.FLOAT
    scale = forms.cast(b, scale, precision)
    ratio = forms.div(b, forms.cast(b, x, precision), _along(b, scale, x, axis, block))
    if to in SMALL_FLOATS:
        return b.op("Cast", ratio, to=to, saturate=node.attrs.get("saturate", 1))
    low, high = _range(to)
    wide = precision if precision == TensorProto.DOUBLE else TensorProto.FLOAT
    rounded = forms.cast(b, b.op("Round", ratio), wide)
    if zero is not None:
        offset = _along(b, forms.cast(b, zero, wide), x, axis, block)
        rounded = forms.add(b, rounded, offset)
    clipped = forms.clamp(b, rounded, low, high)
    return b.op("Cast", clipped, to=to)


@rule("DequantizeLinear")
def dequantize_linear(b: Builder, node: Node):
    """(x - zero point) * scale."""
    x, scale, zero = node.operand(0), node.operand(1), node.input(2)
    axis, block = node.attrs.get("axis", 1), node.attrs.get("block_size", 0)
    to = node.attrs.get("output_dtype", 0) or scale.dtype
    wide = TensorProto.FLOAT
    if x.dtype in INTEGERS or x.dtype in SMALL_INTEGERS:
        value = forms.cast(b, x, TensorProto.INT32)
        if zero is not None:
            value = forms.sub(b, value, _along(b, forms.cast(b, zero, TensorProto.INT32), x, axis, block))
        value = forms.cast(b, value, wide)
    else:
        value = forms.cast(b, x, wide)
        if zero is not None:
            value = forms.sub(b, value, _along(b, forms.cast(b, zero, wide), x, axis, block))
    return forms.cast(b, forms.mul(b, value, _along(b, forms.cast(b, scale, wide), x, axis, block)), to)


def centred(b: Builder, x: Value, zero: Value | None, axis: int) -> Value:
    """x - zero point as i32."""
    wide = forms.cast(b, x, TensorProto.INT32)
    if zero is None:
        return wide
    offset = forms.cast(b, zero, TensorProto.INT32)
    if offset.rank == 1 and offset.size > 1:
        shape = [1] * x.rank
        shape[axis] = offset.size
        offset = forms.reshape(b, offset, shape)
    elif offset.rank <= 1:
        offset = forms.reshape(b, offset, ())
    return forms.sub(b, wide, offset)


@rule("MatMulInteger")
def matmul_integer(b: Builder, node: Node):
    left, right = node.operand(0), node.operand(1)
    x = centred(b, left, node.input(2), max(left.rank - 2, 0))
    return b.op("MatMul", x, centred(b, right, node.input(3), right.rank - 1))


def _integer_conv(b: Builder, x: Value, w: Value, attrs: dict) -> Value:
    """A convolution of i32, which ONNX's Conv has no form for and the lowering does.

    What is padded by more on one side is padded first: torch-mlir does that with floats only.
    """
    ones = [1] * (x.rank - 2)
    steps = [attrs.get(name) or ones for name in ("strides", "dilations")]
    before, after = convolution_pads(attrs, x.shape[2:], w.shape[2:], *steps)
    if before != after:
        x = padded(b, x, before, after)
        attrs = {name: value for name, value in attrs.items() if name not in ("pads", "auto_pad")}
    typed = [b.fresh(TensorProto.FLOAT, v.shape) for v in (x, w)]
    ((_, shape),) = b.infer(Node("Conv", [*typed], attrs))
    result = b.fresh(TensorProto.INT32, shape, sources=x.sources | w.sources)
    b.emit(Node("Conv", [x, w], attrs, place=b.place), [result])
    return result


@rule("ConvInteger")
def conv_integer(b: Builder, node: Node):
    check_convolution(node, node.operand(0), node.operand(1), None)
    x = centred(b, node.operand(0), node.input(2), 1)
    return _integer_conv(b, x, centred(b, node.operand(1), node.input(3), 0), node.attrs)


def requantised(b: Builder, total: Value, factor: Value, zero: Value) -> Value:
    """saturate(round(total * factor) + zero point), of the zero point's type."""
    low, high = _range(zero.dtype)
    scaled = b.op("Round", forms.mul(b, forms.cast(b, total, TensorProto.FLOAT), factor))
    moved = forms.add(b, scaled, forms.reshape(b, forms.cast(b, zero, TensorProto.FLOAT), ()))
    clipped = forms.clamp(b, moved, low, high)
    return b.op("Cast", clipped, to=zero.dtype)


@rule("QLinearMatMul")
def qlinear_matmul(b: Builder, node: Node):
    a, a_scale, a_zero, w, w_scale, w_zero, y_scale, y_zero = (node.operand(i) for i in range(8))
    total = b.op("MatMul", centred(b, a, a_zero, max(a.rank - 2, 0)), centred(b, w, w_zero, w.rank - 1))
    if a_scale.size > 1 or y_scale.size > 1:
        raise Refused("scales per row are not taken")
    scales = [forms.cast(b, s, TensorProto.FLOAT) for s in (a_scale, w_scale, y_scale)]
    scales = [forms.reshape(b, s, ()) if s.size == 1 else s for s in scales]
    return requantised(b, total, forms.div(b, forms.mul(b, scales[0], scales[1]), scales[2]), y_zero)


@rule("QLinearConv")
def qlinear_conv(b: Builder, node: Node):
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (node.operand(i) for i in range(8))
    check_convolution(node, x, w, node.input(8))
    total = _integer_conv(b, centred(b, x, x_zero, 1), centred(b, w, w_zero, 0), node.attrs)
    column = (-1, *[1] * (x.rank - 2))
    if node.input(8) is not None:
        bias = node.operand(8)
        total = forms.add(b, total, forms.reshape(b, bias, (bias.size, *column[1:])))
    factor = forms.div(b, forms.mul(b, forms.reshape(b, x_scale, ()), w_scale), forms.reshape(b, y_scale, ()))
    shape = () if factor.size == 1 else (factor.size, *column[1:])
    return requantised(b, total, forms.reshape(b, factor, shape), y_zero)
