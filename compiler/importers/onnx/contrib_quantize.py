"""Rules for the quantised operators of ONNX Runtime's own domain."""

from __future__ import annotations

from dataclasses import replace

from onnx import TensorProto

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.contrib import contrib
from tilewright.compiler.importers.onnx.quantize import centred, requantised
from tilewright.compiler.importers.onnx.recurrent import Products, unrolled
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
    name, (x, kept) = node.op.removeprefix("QLinear"), _channels_second(b, node, _real(b, node, 0))
    y = b.op(name, x, **({} if name == "GlobalAveragePool" else kept))
    return _as_given(b, node, _stored(b, y, node.operand(3), node.input(4)))


@contrib("QLinearConv")
def quantised_convolution(b: Builder, node: Node):
    """ONNX's operator, for images that may have their channels last; filters never do."""
    x, kept = _channels_second(b, node, node.operand(0))
    inputs = [v for v in node.inputs[1:] if v is not None]
    return _as_given(b, node, b.op("QLinearConv", x, *inputs, **kept))


@contrib("NhwcMaxPool")
def pooled_with_channels_last(b: Builder, node: Node):
    node = replace(node, attrs={**node.attrs, "channels_last": 1})
    x, kept = _channels_second(b, node, node.operand(0))
    return _as_given(b, node, b.op("MaxPool", x, **kept))


def _channels_second(b: Builder, node: Node, x: Value) -> tuple[Value, dict]:
    """The image with its channels second, as ONNX has them, and what the node says beside where they are."""
    kept = {name: value for name, value in node.attrs.items() if name != "channels_last"}
    is_last = node.attrs.get("channels_last", 0)
    return (forms.transpose(b, x, [0, x.rank - 1, *range(1, x.rank - 1)]) if is_last else x), kept


def _as_given(b: Builder, node: Node, y: Value) -> Value:
    """The result with its channels where the node has those of its image."""
    return forms.transpose(b, y, [0, *range(2, y.rank), 1]) if node.attrs.get("channels_last", 0) else y


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
    x, w, w_scale, w_zero, bias = *(node.operand(i) for i in range(3)), node.input(3), node.input(4)
    y = _dynamically_quantised(b, x, w, w_scale, w_zero)
    return y if bias is None else forms.add(b, y, bias)


def _dynamically_quantised(b: Builder, x: Value, w: Value, w_scale: Value, w_zero: Value | None) -> Value:
    """x quantised to u8 by its own range, an integer product, and back."""
    q, scale, zero = b.op("DynamicQuantizeLinear", x, outputs=3)
    total = b.op("MatMulInteger", q, w, zero, *([w_zero] if w_zero is not None else []))
    return forms.mul(b, forms.cast(b, total, TensorProto.FLOAT), forms.mul(b, scale, w_scale))


class QuantisedProducts(Products):
    """W: [directions, input size, 4 H] and R: [directions, H, 4 H] of bytes, with scales and zero points from 8 on."""

    def of_inputs(self, x: Value, d: int) -> Value:
        return self._quantised(x, d, (1, 8, 9))

    def of_state(self, state: Value, d: int) -> Value:
        return self._quantised(state, d, (2, 10, 11))

    def _quantised(self, x: Value, d: int, operands: tuple[int, int, int]) -> Value:
        w, scale, zero = (forms.pick(self.b, self.node.operand(i), 0, d) for i in operands)
        return _dynamically_quantised(self.b, x, w, scale, zero)


@contrib("DynamicQuantizeLSTM")
def dynamic_quantised_lstm(b: Builder, node: Node):
    """An LSTM whose inputs, all together, and states, of each step, are quantised by their own ranges."""
    attrs = {"hidden_size": node.operand(2).shape[1], **node.attrs}
    return unrolled(b, replace(node, op="LSTM", attrs=attrs), QuantisedProducts(b, node))


@contrib("MatMulIntegerToFloat")
def matmul_integer_to_float(b: Builder, node: Node):
    x, w, x_scale, w_scale = (node.operand(i) for i in range(4))
    zeros = [node.input(4), node.input(5)]
    total = b.op("MatMulInteger", x, w, *zeros)
    y = forms.mul(b, forms.cast(b, total, TensorProto.FLOAT), forms.mul(b, x_scale, w_scale))
    return y if node.input(6) is None else forms.add(b, y, node.operand(6))


@contrib("QGemm")
def quantised_gemm(b: Builder, node: Node):
    """alpha * a_scale * b_scale * (op(A) op(B) + C) of bytes, C being i32; real numbers where there is no y_scale.

    A: [M, K] or [K, M], B: [K, N] or [N, K] with a scale and a zero point for all or for each of its N columns.
    """
    a, w, c = node.operand(0), node.operand(3), node.input(6)
    w_zero = node.input(5)
    if node.attrs.get("transA", 0):
        a = forms.transpose(b, a, (1, 0))
    if node.attrs.get("transB", 0):
        w = forms.transpose(b, w, (1, 0))
    total = b.op("MatMul", centred(b, a, node.operand(2), 0), centred(b, w, w_zero, 1))
    if c is not None:
        total = forms.add(b, total, c)
    scales = [v if v.size > 1 else forms.reshape(b, v, ()) for v in (node.operand(1), node.operand(4))]
    factor = forms.mul(b, forms.mul(b, scales[0], node.attrs.get("alpha", 1.0)), scales[1])
    y_scale = node.input(7)
    if y_scale is None:
        return forms.mul(b, forms.cast(b, total, TensorProto.FLOAT), factor)
    return requantised(b, total, forms.div(b, factor, forms.reshape(b, y_scale, ())), node.operand(8))


@contrib("QLinearWhere")
def quantised_where(b: Builder, node: Node):
    """Operands: the condition, (x, scale, zero point), the same of y, then the result's scale and zero point."""
    scale, zero = node.operand(7), node.input(8)
    sides = [_stored(b, _real(b, node, first), scale, zero) for first in (1, 4)]
    return b.op("Where", node.operand(0), *sides)


def _unpacked(b: Builder, packed: Value, bits: int) -> Value:
    """The numbers of `bits` bits that lie in the bytes of the last axis, the lowest bits first: u8."""
    if bits == 8:
        return packed
    mask = b.scalar((1 << bits) - 1, packed)
    parts = []
    for shift in range(0, 8, bits):
        moved = b.op("BitShift", packed, b.scalar(shift, packed), direction="RIGHT") if shift else packed
        parts.append(b.op("BitwiseAnd", moved, mask))
    numbers = forms.stack(b, parts, -1)
    return forms.reshape(b, numbers, (*packed.shape[:-1], packed.shape[-1] * len(parts)))


@contrib("MatMulNBits")
def matmul_of_packed_weights(b: Builder, node: Node):
    """x W^T + bias, W: [N, K] = (numbers of 2, 4 or 8 bits - zero point) * scale, both of them per block of a row.

    x: [..., K], B: [N, blocks, bytes of a block]; zero points are packed like B, or of x's type, or 2^(bits - 1). W
    depends on weights alone, so that it is unpacked once. Source: com.microsoft's operator documentation.
    """
    x, packed, scales, zeros, bias = (
        node.operand(0),
        node.operand(1),
        node.operand(2),
        node.input(3),
        node.input(5),
    )
    bits, block, n, k = node.attrs.get("bits", 4), node.attrs["block_size"], node.attrs["N"], node.attrs["K"]
    if bits not in (2, 4, 8):
        raise Refused(f"its `bits` are {bits}; weights of 2, 4 and 8 bits are taken")
    if node.input(4) is not None:
        raise Refused("its operand `g_idx` is not taken")
    if node.attrs.get("weight_prepacked", 0):
        raise Refused("its attribute `weight_prepacked` is not taken")
    blocks = -(-k // block)
    if packed.shape != (n, blocks, block * bits // 8):
        raise Refused(f"its weights have the shape {packed.shape}, expected {(n, blocks, block * bits // 8)}")
    wide = TensorProto.FLOAT
    numbers = forms.cast(b, _unpacked(b, packed, bits), wide)
    if zeros is None:
        moved = forms.sub(b, numbers, 1 << (bits - 1))
    else:
        if zeros.dtype == TensorProto.UINT8:
            zeros = _unpacked(b, forms.reshape(b, zeros, (n, zeros.size // n)), bits)
            zeros = forms.slice_axis(b, zeros, 1, 0, blocks)
        moved = forms.sub(b, numbers, forms.reshape(b, forms.cast(b, zeros, wide), (n, blocks, 1)))
    scaled = forms.mul(b, moved, forms.reshape(b, forms.cast(b, scales, wide), (n, blocks, 1)))
    w = forms.slice_axis(b, forms.reshape(b, scaled, (n, blocks * block)), 1, 0, k)
    y = b.op("MatMul", x, forms.transpose(b, forms.cast(b, w, x.dtype), (1, 0)))
    return y if bias is None else forms.add(b, y, bias)


@contrib("GatherBlockQuantized")
def gathered_packed_rows(b: Builder, node: Node):
    """Rows of a table that are chosen by index, (numbers - zero point) * scale, both of them per block of a row: real numbers.

    Table: [rows, ..., columns] of 4 bits, or [rows, ..., bytes] of `bits` bits each; scales: [rows, ..., blocks]; zero points
    are packed like the table, 0 for types of 4 bits and 2^(bits - 1) for bytes. Source: com.microsoft's operator documentation.
    """
    table, indices, scales, zeros = node.operand(0), node.operand(1), node.operand(2), node.input(3)
    block, in_bytes = node.attrs.get("block_size", 128), table.dtype == TensorProto.UINT8
    bits = node.attrs.get("bits", 4) if in_bytes else 8
    last = table.rank - 1
    if (
        node.attrs.get("gather_axis", 0) % table.rank
        or node.attrs.get("quantize_axis", 1) % table.rank != last
    ):
        raise Refused("it is taken where rows are chosen, and blocks lie along the last axis")
    if bits not in (2, 4, 8):
        raise Refused(f"its `bits` are {bits}; numbers of 2, 4 and 8 bits are taken")

    def rows(of: Value, columns: int) -> Value:
        chosen = b.op("Gather", of if in_bytes else forms.cast(b, of, TensorProto.INT8), indices, axis=0)
        numbers = _unpacked(b, chosen, bits) if in_bytes else chosen
        return forms.slice_axis(b, numbers, numbers.rank - 1, 0, columns)

    columns = table.shape[-1] * (8 // bits if in_bytes else 1)
    blocks = -(-columns // block)
    if scales.shape != (*table.shape[:-1], blocks):
        raise Refused(f"its scales have the shape {scales.shape}, expected {(*table.shape[:-1], blocks)}")
    numbers = forms.cast(b, rows(table, columns), TensorProto.FLOAT)
    spread = [position // block for position in range(columns)]

    def by_column(of: Value) -> Value:
        return b.op("Gather", forms.cast(b, of, TensorProto.FLOAT), b.ints(*spread), axis=of.rank - 1)

    if zeros is not None:
        numbers = forms.sub(b, numbers, by_column(rows(zeros, blocks)))
    elif in_bytes:
        numbers = forms.sub(b, numbers, 1 << (bits - 1))
    factors = by_column(b.op("Gather", scales, indices, axis=0))
    return forms.cast(b, forms.mul(b, numbers, factors), scales.dtype)
