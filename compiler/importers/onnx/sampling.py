"""Rules that read an image at computed places: GridSample, DeformConv, RoiAlign."""

from __future__ import annotations

import itertools
import math

import numpy as np
from onnx import TensorProto

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.conv import check_convolution
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import Node, Refused, Value


def read(
    b: Builder, image: Value, places: list[Value], spatial: tuple[int, ...], inside: Value | None
) -> Value:
    """`image[n, c, places]` as `[N, C, P]`: integral float places `[N, P]` per axis, zero where not `inside`."""
    flat: Value | None = None
    for place, extent in zip(places, spatial):
        bounded = forms.clamp(b, place, 0, extent - 1)
        index = forms.cast(b, bounded, TensorProto.INT64)
        flat = index if flat is None else forms.add(b, forms.mul(b, flat, extent), index)
    assert flat is not None
    pixels = forms.reshape(b, image, (*image.shape[:2], math.prod(spatial)))
    wide = forms.expand(b, forms.unsqueeze(b, flat, 1), (image.shape[0], image.shape[1], flat.shape[1]))
    values = b.op("GatherElements", pixels, wide, axis=2)
    if inside is None:
        return values
    return b.op("Where", forms.unsqueeze(b, inside, 1), values, b.scalar(0, values))


def in_one_type(b: Builder, node: Node) -> Value | None:
    """The node on f32, or f64 where an operand is, when its floats are shorter or differ: places need the digits."""
    floats = {v.dtype for v in node.inputs if v is not None and v.is_float}
    wide = TensorProto.DOUBLE if TensorProto.DOUBLE in floats else TensorProto.FLOAT
    if floats <= {wide}:
        return None
    inputs = [forms.cast(b, v, wide) if v is not None and v.is_float else v for v in node.inputs]
    return forms.cast(b, b.op(node.op, *inputs, **node.attrs), node.operand(0).dtype)


def within(b: Builder, places: list[Value], spatial: tuple[int, ...]) -> Value:
    """Where all places are inside the image."""
    result: Value | None = None
    for place, extent in zip(places, spatial):
        for test in (
            b.op("GreaterOrEqual", place, b.scalar(0, place)),
            b.op("LessOrEqual", place, b.scalar(extent - 1, place)),
        ):
            result = test if result is None else b.op("And", result, test)
    assert result is not None
    return result


def linear(b: Builder, image: Value, places: list[Value], spatial: tuple[int, ...]) -> Value:
    """Multilinear interpolation at `[N, P]` places, zero outside: `[N, C, P]`."""
    floors = [b.op("Floor", p) for p in places]
    fractions = [forms.sub(b, p, f) for p, f in zip(places, floors)]
    total: Value | None = None
    for corner in itertools.product((0, 1), repeat=len(places)):
        at = [forms.add(b, f, 1) if c else f for f, c in zip(floors, corner)]
        weight: Value | None = None
        for fraction, c in zip(fractions, corner):
            part = fraction if c else forms.sub(b, 1, fraction)
            weight = part if weight is None else forms.mul(b, weight, part)
        assert weight is not None
        values = read(b, image, at, spatial, within(b, at, spatial))
        term = forms.mul(b, values, forms.unsqueeze(b, weight, 1))
        total = term if total is None else forms.add(b, total, term)
    assert total is not None
    return total


def _reflected(b: Builder, place: Value, low: float, high: float) -> Value:
    """Folds a coordinate back and forth between the two bounds."""
    span = high - low
    if span <= 0:
        return forms.full(b, low, place.dtype, place.shape)
    away = b.op("Abs", forms.sub(b, place, low))
    turns = b.op("Floor", forms.div(b, away, span))
    rest = forms.sub(b, away, forms.mul(b, turns, span))
    half = b.op("Floor", forms.div(b, turns, 2))
    odd = forms.sub(b, turns, forms.mul(b, half, 2))
    back = forms.sub(b, span, rest)
    folded = forms.add(b, forms.mul(b, rest, forms.sub(b, 1, odd)), forms.mul(b, back, odd))
    return forms.add(b, folded, low)


@rule("GridSample")
def grid_sample(b: Builder, node: Node):
    wide = in_one_type(b, node)
    if wide is not None:
        return wide
    x, grid = node.operand(0), node.operand(1)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(node.attrs.get("mode", "linear"), "")
    mode = mode or node.attrs.get("mode", "linear")
    padding = node.attrs.get("padding_mode", "zeros")
    align = node.attrs.get("align_corners", 0)
    spatial = x.shape[2:]
    rank = len(spatial)
    count = math.prod(grid.shape[1:-1])
    flat = forms.reshape(b, grid, (grid.shape[0], count, rank))
    places, bounds = [], []
    for axis, extent in enumerate(spatial):
        unit = forms.pick(b, flat, 2, rank - 1 - axis)
        if align:
            place = forms.mul(b, forms.add(b, unit, 1), (extent - 1) / 2)
            bounds.append((0.0, extent - 1.0))
        else:
            place = forms.div(b, forms.sub(b, forms.mul(b, forms.add(b, unit, 1), extent), 1), 2)
            bounds.append((-0.5, extent - 0.5))
        places.append(place)

    def settle(at: list[Value]) -> list[Value]:
        """Moves places inside, for the paddings that do."""
        if padding == "reflection":
            at = [_reflected(b, p, low, high) for p, (low, high) in zip(at, bounds)]
        if padding != "zeros":
            at = [forms.clamp(b, p, 0, e - 1) for p, e in zip(at, spatial)]
        return at

    if mode != "nearest" and not x.is_float:
        raise Refused("between integers there is nothing to interpolate")
    if mode == "nearest":
        at = [b.op("Round", p) for p in settle(places)]
        result = read(b, x, at, spatial, within(b, at, spatial))
    elif mode == "linear":
        result = linear(b, x, settle(places), spatial)
    elif mode == "cubic":
        result = _cubic(b, x, places, spatial, settle)
    else:
        raise Refused(f"its mode `{mode}` is not nearest, linear or cubic")
    return forms.reshape(b, result, (*x.shape[:2], *grid.shape[1:-1]))


def _cubic(b: Builder, image: Value, places: list[Value], spatial: tuple[int, ...], settle) -> Value:
    floors = [b.op("Floor", p) for p in places]
    weights = [_cubic_weights(b, forms.sub(b, p, f)) for p, f in zip(places, floors)]
    total: Value | None = None
    for corner in itertools.product(range(4), repeat=len(places)):
        at = settle([forms.add(b, f, c - 1) for f, c in zip(floors, corner)])
        weight: Value | None = None
        for axis, c in enumerate(corner):
            part = weights[axis][c]
            weight = part if weight is None else forms.mul(b, weight, part)
        assert weight is not None
        at = [b.op("Round", p) for p in at]
        term = forms.mul(
            b, read(b, image, at, spatial, within(b, at, spatial)), forms.unsqueeze(b, weight, 1)
        )
        total = term if total is None else forms.add(b, total, term)
    assert total is not None
    return total


def _cubic_weights(b: Builder, t: Value, a: float = -0.75) -> list[Value]:
    """Keys' kernel at distances 1 + t, t, 1 - t, 2 - t."""

    def near(d: Value) -> Value:
        square = forms.mul(b, d, d)
        cube = forms.mul(b, forms.sub(b, forms.mul(b, d, a + 2), a + 3), square)
        return forms.add(b, cube, 1)

    def far(d: Value) -> Value:
        inner = forms.mul(b, forms.add(b, forms.mul(b, forms.sub(b, d, 5), d), 8), d)
        return forms.mul(b, forms.sub(b, inner, 4), a)

    other = forms.sub(b, 1, t)
    return [far(forms.add(b, t, 1)), near(t), near(other), far(forms.add(b, other, 1))]


@rule("DeformConv")
def deform_conv(b: Builder, node: Node):
    """Samples at the kernel's places plus learned offsets, then a matrix product with the kernel."""
    wide = in_one_type(b, node)
    if wide is not None:
        return wide
    x, w, offset = node.operand(0), node.operand(1), node.operand(2)
    bias, mask = node.input(3), node.input(4)
    rank = x.rank - 2
    if rank != 2:
        raise Refused("only images (rank 4) are taken")
    check_convolution(node, x, w, bias)
    strides = node.attrs.get("strides") or [1, 1]
    dilations = node.attrs.get("dilations") or [1, 1]
    pads = node.attrs.get("pads") or [0] * 4
    groups, fields = node.attrs.get("group", 1), node.attrs.get("offset_group", 1)
    n, c, height, width = x.shape
    kernel, out = w.shape[2:], offset.shape[2:]
    taps, count = math.prod(kernel), math.prod(out)
    offsets = forms.reshape(b, offset, (n * fields, taps, 2, count))
    places = []
    for axis in range(2):
        steps = np.arange(out[axis]) * strides[axis] - pads[axis]
        ticks = np.arange(kernel[axis]) * dilations[axis]
        grid = (ticks[:, None] + steps[None, :]).astype(np.float64)
        if axis == 0:
            full = np.broadcast_to(grid[:, None, :, None], (*kernel, *out))
        else:
            full = np.broadcast_to(grid[None, :, None, :], (*kernel, *out))
        base = b.const(full.reshape(taps, count), x.dtype)
        place = forms.add(b, forms.pick(b, offsets, 2, axis), base)
        places.append(forms.reshape(b, place, (n * fields, taps * count)))
    image = forms.reshape(b, x, (n * fields, c // fields, height, width))
    columns = linear(b, image, places, (height, width))
    columns = forms.reshape(b, columns, (n, fields, c // fields, taps, count))
    if mask is not None:
        columns = forms.mul(b, columns, forms.reshape(b, mask, (n, fields, 1, taps, count)))
    columns = forms.reshape(b, columns, (n, groups, c // groups * taps, count))
    weights = forms.reshape(b, w, (1, groups, w.shape[0] // groups, c // groups * taps))
    y = forms.reshape(b, b.op("MatMul", weights, columns), (n, w.shape[0], *out))
    return y if bias is None else forms.add(b, y, forms.reshape(b, bias, (bias.size, 1, 1)))


@rule("RoiAlign")
def roi_align(b: Builder, node: Node):
    """A fixed grid of samples in every bin of every region, averaged or their largest taken."""
    x, rois, batches = node.operand(0), node.operand(1), node.operand(2)
    mode, ratio = node.attrs.get("mode", "avg"), node.attrs.get("sampling_ratio", 0)
    if ratio <= 0:
        raise Refused(
            "`sampling_ratio` = 0 takes a number of samples that depends on data; give a positive one"
        )
    bins = (node.attrs.get("output_height", 1), node.attrs.get("output_width", 1))
    half = node.attrs.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    spatial, count = x.shape[2:], rois.shape[0]
    image = b.op("Gather", x, batches, axis=0)
    scaled = forms.sub(b, forms.mul(b, rois, node.attrs.get("spatial_scale", 1.0)), 0.5 if half else 0.0)
    samples = []
    for axis in range(2):
        start, end = (forms.slice_axis(b, scaled, 1, c, c + 1) for c in (1 - axis, 3 - axis))
        size = forms.sub(b, end, start)
        if not half:
            size = b.op("Max", size, b.scalar(1.0, size))
        steps = (np.arange(bins[axis] * ratio) + 0.5) / (bins[axis] * ratio)
        samples.append(forms.add(b, start, forms.mul(b, size, b.const(steps[None, :], x.dtype))))
    tall, wide = bins[0] * ratio, bins[1] * ratio
    places = [
        forms.reshape(
            b, forms.expand(b, forms.unsqueeze(b, samples[0], 2), (count, tall, wide)), (count, tall * wide)
        ),
        forms.reshape(
            b, forms.expand(b, forms.unsqueeze(b, samples[1], 1), (count, tall, wide)), (count, tall * wide)
        ),
    ]
    near: Value | None = None
    bounded = []
    for place, extent in zip(places, spatial):
        for test in (
            b.op("GreaterOrEqual", place, b.scalar(-1, place)),
            b.op("LessOrEqual", place, b.scalar(extent, place)),
        ):
            near = test if near is None else b.op("And", near, test)
        bounded.append(forms.clamp(b, place, 0, extent - 1))
    assert near is not None
    values = _corners(b, image, bounded, spatial, largest=mode == "max")
    values = b.op("Where", forms.unsqueeze(b, near, 1), values, b.scalar(0, values))
    grid = forms.reshape(b, values, (count, x.shape[1], bins[0], ratio, bins[1], ratio))
    return forms.reduce(b, "ReduceMax" if mode == "max" else "ReduceMean", grid, [3, 5], keep=False)


def _corners(b: Builder, image: Value, places: list[Value], spatial, largest: bool) -> Value:
    """Bilinear interpolation; `largest` takes the largest of the weighted corners instead of their sum."""
    if not largest:
        return linear(b, image, places, spatial)
    floors = [b.op("Floor", p) for p in places]
    total: Value | None = None
    for corner in itertools.product((0, 1), repeat=2):
        at = [forms.add(b, f, c) for f, c in zip(floors, corner)]
        parts = [forms.sub(b, p, f) for p, f in zip(places, floors)]
        parts = [part if c else forms.sub(b, 1, part) for part, c in zip(parts, corner)]
        weight = forms.unsqueeze(b, forms.mul(b, *parts), 1)
        term = forms.mul(b, read(b, image, at, spatial, None), weight)
        total = term if total is None else b.op("Max", total, term)
    assert total is not None
    return total
