"""Rules for Resize: one axis after the other, by the few input elements that each output element reads."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto, helper

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.arithmetic import bits
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import Node, Refused, Value

MAX_TAPS = 4
"""Most elements read one by one; beyond (antialiasing) an axis is a product with a matrix."""


def coordinates(mode: str, n: int, out: int, scale: float, roi: tuple[float, float]) -> np.ndarray:
    """The input coordinate of every output element along one axis.

    Where corners meet, the resized axis has its whole length, as in the operator's documentation, ONNX Runtime and
    PyTorch; onnx's reference evaluator takes n * scale there, whose fraction moves the last corner out of its place.
    """
    x = np.arange(out, dtype=np.float64)
    width = scale * n
    if mode == "align_corners":
        return np.zeros(out) if out == 1 else x * (n - 1) / (out - 1)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_crop_and_resize":
        start, end = roi
        if out == 1:
            return np.full(out, (end - start) * (n - 1) / 2 + start * (n - 1))
        return x * (end - start) * (n - 1) / (out - 1) + start * (n - 1)
    if mode == "pytorch_half_pixel" and width == 1:
        return np.full(out, -0.5)
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if mode == "half_pixel_symmetric":
        return n / 2 * (1 - out / width) + (x + 0.5) / scale - 0.5
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (x + 0.5) / scale - 0.5
    raise Refused(f"its coordinate_transformation_mode `{mode}` is not known")


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def taps(node: Node, x: np.ndarray, n: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Input indices and weights, `[out, taps]`, of interpolation at the coordinates `x`; indices are inside."""
    mode = node.attrs.get("mode", "nearest")
    if mode == "nearest":
        rounding = node.attrs.get("nearest_mode", "round_prefer_floor")
        whole = {
            "round_prefer_floor": lambda v: np.ceil(v - 0.5),
            "round_prefer_ceil": lambda v: np.floor(v + 0.5),
            "floor": np.floor,
            "ceil": np.ceil,
        }
        if rounding not in whole:
            raise Refused(f"its nearest_mode `{rounding}` is not known")
        index = whole[rounding](x)[:, None]
        return np.clip(index, 0, n - 1).astype(np.int64), np.ones_like(index)
    if mode not in ("linear", "cubic"):
        raise Refused(f"its mode `{mode}` is not known")
    narrow = min(scale, 1.0) if node.attrs.get("antialias", 0) else 1.0
    reach = (1 if mode == "linear" else 2) / narrow
    first = np.floor(x - reach).astype(np.int64) + 1
    index = first[:, None] + np.arange(math.ceil(2 * reach))[None, :]
    distance = (index - x[:, None]) * narrow
    if mode == "linear":
        weights = np.clip(1 - np.abs(distance), 0, None)
    else:
        weights = _cubic(distance, node.attrs.get("cubic_coeff_a", -0.75))
    if node.attrs.get("exclude_outside", 0):
        weights = np.where((index < 0) | (index >= n), 0.0, weights)
    if narrow < 1 or node.attrs.get("exclude_outside", 0):
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(index, 0, n - 1), weights


def _along(b: Builder, x: Value, axis: int, index: np.ndarray, weights: np.ndarray) -> Value:
    if index.shape[1] > MAX_TAPS:
        matrix = np.zeros((index.shape[0], x.shape[axis]))
        np.add.at(matrix, (np.arange(index.shape[0])[:, None], index), weights)
        last = x.rank - 1
        order = [i for i in range(x.rank) if i != axis] + [axis]
        moved = b.op("MatMul", forms.transpose(b, x, order), b.const(matrix.T, x.dtype))
        return forms.transpose(b, moved, [*range(axis), last, *range(axis, last)])
    total: Value | None = None
    shape = (-1, *[1] * (x.rank - 1 - axis))
    for tap in range(index.shape[1]):
        if not weights[:, tap].any():
            continue
        part = b.op("Gather", x, b.const(index[:, tap]), axis=axis)
        if not (weights[:, tap] == 1).all():
            part = forms.mul(b, part, b.const(weights[:, tap].reshape(shape), x.dtype))
        total = part if total is None else forms.add(b, total, part)
    if total is None:
        raise Refused("no element of its result lies in its operand")
    return total


@rule("Resize")
def resize(b: Builder, node: Node):
    x = node.operand(0)
    axes = [a % x.rank for a in node.attrs.get("axes") or range(x.rank)]
    mode = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    roi = (
        node.operand(1).known("roi").reshape(2, -1)
        if node.input(1) is not None and node.operand(1).size
        else None
    )
    extents = [x.shape[a] for a in axes]
    if node.input(2) is not None and node.operand(2).size:
        scales = [float(s) for s in node.operand(2).known("scales").reshape(-1)]
        sizes = [math.floor(n * s) for n, s in zip(extents, scales)]
    else:
        sizes = node.operand(3).ints("sizes")
        scales = [s / n for s, n in zip(sizes, extents)]
        policy = node.attrs.get("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scale = min(scales) if policy == "not_larger" else max(scales)
            scales = [scale] * len(axes)
            sizes = [math.floor(scale * n + 0.5) for n in extents]
    is_moved = x.is_float or node.attrs.get("mode", "nearest") == "nearest"
    wide = (
        x if is_moved else forms.cast(b, x, TensorProto.DOUBLE if bits(x.dtype) >= 32 else TensorProto.FLOAT)
    )
    outside = None
    for place, (axis, n, out, scale) in enumerate(zip(axes, extents, sizes, scales)):
        window = (0.0, 1.0) if roi is None else (float(roi[0][place]), float(roi[1][place]))
        at = coordinates(mode, n, out, scale, window)
        if mode == "tf_crop_and_resize":
            beyond = ((at < 0) | (at > n - 1)).reshape(-1, *[1] * (x.rank - 1 - axis))
            if beyond.any():
                beyond = b.const(beyond)
                outside = beyond if outside is None else b.op("Or", outside, beyond)
        elif n == out and scale == 1.0 and mode != "tf_half_pixel_for_nn":
            continue
        wide = _along(b, wide, axis, *taps(node, at, n, scale))
    if outside is not None:
        number = node.attrs.get("extrapolation_value", 0.0)
        number = number if wide.is_float else _saturated(number, x.dtype)
        wide = b.op("Where", outside, b.scalar(number, wide), wide)
    if wide.dtype == x.dtype:
        return wide
    least, most = (_saturated(number, x.dtype) for number in (-np.inf, np.inf))
    kind = helper.tensor_dtype_to_np_dtype(wide.dtype)
    if int(kind.type(most)) > most:  # The largest number of 64 bits is none of f64.
        most = np.nextafter(kind.type(most), kind.type(0))
    return forms.cast(b, forms.clamp(b, b.op("Round", wide), least, most), x.dtype)


def _saturated(number: float, dtype: int) -> int:
    """The integer of an element type that is nearest to `number`."""
    limits = np.iinfo(helper.tensor_dtype_to_np_dtype(dtype))
    return int(min(max(np.rint(number), limits.min), limits.max))
