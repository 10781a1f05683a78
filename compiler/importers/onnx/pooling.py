"""Rules for pooling in forms that torch-mlir does not lower: windows gathered by constant indices, then reduced."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.conv import padded
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import Node, Refused, Value


class Windows:
    """The windows of a pooling over `x`: output extents, and per output position the input positions it sees.

    `places` is `[outputs, kernel]` into the flattened spatial axes, -1 where the window overhangs the input;
    `padded` marks overhang that counts as padding (not that which only rounding up added).
    """

    def __init__(self, node: Node, x: Value):
        rank = x.rank - 2
        self.spatial = x.shape[2:]
        kernel = node.attrs["kernel_shape"]
        strides = node.attrs.get("strides") or [1] * rank
        dilations = node.attrs.get("dilations") or [1] * rank
        pads = node.attrs.get("pads") or [0] * (2 * rank)
        auto = node.attrs.get("auto_pad", "NOTSET")
        before, after, extents = [], [], []
        for i, (n, k, s, d) in enumerate(zip(self.spatial, kernel, strides, dilations)):
            reach = (k - 1) * d + 1
            if auto in ("SAME_UPPER", "SAME_LOWER"):
                out = -(-n // s)
                total = max((out - 1) * s + reach - n, 0)
                front = total // 2 if auto == "SAME_UPPER" else total - total // 2
                back = total - front
            else:
                front, back = (0, 0) if auto == "VALID" else (pads[i], pads[rank + i])
                out = (n + front + back - reach) // s + 1
                if node.attrs.get("ceil_mode", 0):
                    out = -(-(n + front + back - reach) // s) + 1
                    if (out - 1) * s >= n + front:
                        out -= 1
            before.append(front)
            after.append(back)
            extents.append(out)
        self.extents = tuple(extents)
        columns, inside, within = [], [], []
        for n, k, s, d, out, front, back in zip(
            self.spatial, kernel, strides, dilations, extents, before, after
        ):
            place = np.arange(out)[:, None] * s + np.arange(k)[None, :] * d - front
            columns.append(place)
            inside.append((place >= 0) & (place < n))
            within.append((place >= -front) & (place < n + back))
        self.inside, self.padded = (
            _crossed(inside, np.logical_and, True),
            _crossed(within, np.logical_and, True),
        )
        flat = np.zeros((1, 1), np.int64)
        for place, n in zip(columns, self.spatial):
            flat = (flat[:, None, :, None] * n + place[None, :, None, :]).reshape(
                flat.shape[0] * place.shape[0], flat.shape[1] * place.shape[1]
            )
        self.places = np.where(self.inside, flat, -1)


def _crossed(parts: list[np.ndarray], combine, start) -> np.ndarray:
    total = np.full((1, 1), start)
    for part in parts:
        total = combine(total[:, None, :, None], part[None, :, None, :]).reshape(
            total.shape[0] * part.shape[0], total.shape[1] * part.shape[1]
        )
    return total


def gathered(b: Builder, x: Value, windows: Windows, fill: float) -> Value:
    """`[N, C, outputs, kernel]`: what every window sees, `fill` where it overhangs."""
    flat = forms.reshape(b, x, (*x.shape[:2], int(np.prod(windows.spatial))))
    values = b.op("Gather", flat, b.const(np.maximum(windows.places, 0)), axis=2)
    if windows.inside.all():
        return values
    return b.op("Where", b.const(windows.inside), values, b.scalar(fill, x))


def _simple(node: Node, x: Value) -> bool:
    """Whether torch-mlir takes the pooling as it stands."""
    rank = x.rank - 2
    pads = node.attrs.get("pads") or [0] * (2 * rank)
    dilated = any(d != 1 for d in node.attrs.get("dilations") or [1])
    return (
        x.is_float
        and rank in (1, 2, 3)
        and node.attrs.get("auto_pad", "NOTSET") == "NOTSET"
        and pads[:rank] == pads[rank:]
        and not node.attrs.get("ceil_mode", 0)
        and not (dilated and node.op != "MaxPool")
    )


@rule("MaxPool")
def max_pool(b: Builder, node: Node):
    x = node.operand(0)
    if not node.wants(1) and _simple(node, x):
        return None
    windows = Windows(node, x)
    lowest = -np.inf if x.is_float else _lowest(x.dtype)
    values = gathered(b, x, windows, lowest)
    y = forms.reshape(
        b, forms.reduce(b, "ReduceMax", values, [3], keep=False), (*x.shape[:2], *windows.extents)
    )
    if not node.wants(1):
        return y
    # Column-major order counts the spatial axes the other way round.
    spatial = windows.spatial
    flat = np.arange(int(np.prod(spatial)), dtype=np.int64)
    if node.attrs.get("storage_order", 0):
        order = "F"
        flat = np.ravel_multi_index(np.unravel_index(flat, spatial), spatial, order=order).astype(np.int64)
    table = b.const(flat[np.maximum(windows.places, 0)])
    best = b.op("ArgMax", values, axis=3, keepdims=1)
    places = forms.expand(b, table, values.shape)
    found = forms.reshape(b, b.op("GatherElements", places, best, axis=3), y.shape)
    planes = np.arange(x.shape[0] * x.shape[1], dtype=np.int64) * len(flat)
    base = b.const(planes.reshape(*x.shape[:2], *[1] * len(spatial)))
    return [y, forms.add(b, found, base)]


def _lowest(dtype: int) -> int:
    lowest: dict[int, int] = {TensorProto.INT8: -128, TensorProto.UINT8: 0}
    return lowest.get(dtype, -(2**31))


@rule("AveragePool")
def average_pool(b: Builder, node: Node):
    x = node.operand(0)
    if _simple(node, x):
        return None
    windows = Windows(node, x)
    counted = windows.padded if node.attrs.get("count_include_pad", 0) else windows.inside
    counts = np.maximum(counted.sum(axis=1), 1)
    total = forms.reduce(b, "ReduceSum", gathered(b, x, windows, 0), [3], keep=False)
    mean = forms.div(b, total, b.const(counts, x.dtype))
    return forms.reshape(b, mean, (*x.shape[:2], *windows.extents))


@rule("LpPool")
def lp_pool(b: Builder, node: Node):
    """(sum of |x|^p)^(1/p) over every window."""
    x, p = node.operand(0), node.attrs.get("p", 2)
    windows = Windows(node, x)
    values = gathered(b, b.op("Abs", x), windows, 0)
    result = _norm(b, values, [3], p, keep=False)
    return forms.reshape(b, result, (*x.shape[:2], *windows.extents))


@rule("GlobalLpPool")
def global_lp_pool(b: Builder, node: Node):
    x = node.operand(0)
    return _norm(b, b.op("Abs", x), list(range(2, x.rank)), node.attrs.get("p", 2), keep=True)


def _norm(b: Builder, magnitude: Value, axes: list[int], p: int, keep: bool) -> Value:
    if p == 1:
        return forms.reduce(b, "ReduceSum", magnitude, axes, keep)
    if p == 2:
        return b.op("Sqrt", forms.reduce(b, "ReduceSum", forms.mul(b, magnitude, magnitude), axes, keep))
    powers = b.op("Pow", magnitude, b.scalar(p, magnitude))
    return b.op("Pow", forms.reduce(b, "ReduceSum", powers, axes, keep), b.scalar(1 / p, magnitude))


@rule("LpNormalization")
def lp_normalization(b: Builder, node: Node):
    """x / its norm along an axis, zero where the norm is zero."""
    x = node.operand(0)
    norm = _norm(b, b.op("Abs", x), [node.attrs.get("axis", -1)], node.attrs.get("p", 2), keep=True)
    none = b.op("Equal", norm, b.scalar(0, norm))
    safe = b.op("Where", none, b.scalar(1, norm), norm)
    return b.op("Where", none, b.scalar(0, x), forms.div(b, x, safe))


@rule("MaxUnpool")
def max_unpool(b: Builder, node: Node):
    """Values scattered to the flat places they were pooled from."""
    x, places = node.operand(0), node.operand(1)
    rank = x.rank - 2
    strides = node.attrs.get("strides") or [1] * rank
    pads = node.attrs.get("pads") or [0] * (2 * rank)
    kernel = node.attrs["kernel_shape"]
    inferred = [
        (n - 1) * s - pads[i] - pads[rank + i] + k
        for i, (n, s, k) in enumerate(zip(x.shape[2:], strides, kernel))
    ]
    shape = (*x.shape[:2], *inferred)
    target = tuple(node.operand(2).ints("output_shape")) if node.input(2) is not None else shape
    if len(target) != x.rank:
        raise Refused(f"its output shape {target} has another rank than its input")
    # The indices count in the inferred shape; a larger output holds that in its corner.
    zeros = forms.full(b, 0, x.dtype, (int(np.prod(shape)),))
    places, values = forms.reshape(b, places, (x.size,)), forms.reshape(b, x, (x.size,))
    flat = b.op("ScatterElements", zeros, places, values, axis=0)
    image = forms.reshape(b, flat, shape)
    return padded(b, image, [0] * x.rank, [t - n for t, n in zip(target, shape)])
