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


class Rows:
    """An image `[N, C, *spatial]` by pixels, whose channels are rows that are read whole.

    Samples are `[M, P, C]`: `images`, `[M]`, says of which image each is, by default of all in order.
    """

    def __init__(self, b: Builder, image: Value, images: Value | None = None):
        self.b, self.spatial = b, image.shape[2:]
        batch, channels, size = *image.shape[:2], math.prod(self.spatial)
        pixels = forms.reshape(b, image, (batch, channels, size))
        self._pixels = forms.reshape(b, forms.transpose(b, pixels, (0, 2, 1)), (batch * size, channels))
        if images is None:
            self._first = b.const(np.arange(batch)[:, None] * size, TensorProto.INT64)
        else:
            number = forms.cast(b, images, TensorProto.INT64)
            self._first = forms.unsqueeze(b, forms.mul(b, number, size), 1)

    def read(self, places: list[Value], inside: Value | None) -> Value:
        """At integral float places `[M, P]` per axis, zero where not `inside`."""
        b, flat = self.b, None
        for place, extent in zip(places, self.spatial):
            whole = forms.cast(b, forms.clamp(b, place, 0, extent - 1), TensorProto.INT64)
            index = forms.clamp(b, whole, 0, extent - 1)  # of integers it is known to be inside
            flat = index if flat is None else forms.add(b, forms.mul(b, flat, extent), index)
        assert flat is not None
        values = b.op("Gather", self._pixels, forms.add(b, flat, self._first), axis=0)
        if inside is None:
            return values
        return b.op("Where", forms.unsqueeze(b, inside, 2), values, b.scalar(0, values))

    def within(self, places: list[Value]) -> Value:
        """Where all places are inside the image."""
        return _between(self.b, places, [(0, extent - 1) for extent in self.spatial])


def _between(b: Builder, places: list[Value], bounds: list[tuple[float, float]]) -> Value:
    """Where every place is between the bounds of its axis."""
    result: Value | None = None
    for place, (low, high) in zip(places, bounds):
        for test in (
            b.op("GreaterOrEqual", place, b.scalar(low, place)),
            b.op("LessOrEqual", place, b.scalar(high, place)),
        ):
            result = test if result is None else b.op("And", result, test)
    assert result is not None
    return result


def _channels_first(b: Builder, samples: Value) -> Value:
    """`[M, P, C]` as `[M, C, P]`."""
    return forms.transpose(b, samples, (0, 2, 1))


def in_one_type(b: Builder, node: Node) -> Value | None:
    """The node on f32, or f64 where an operand is, when its floats are shorter or differ: places need the digits."""
    floats = {v.dtype for v in node.inputs if v is not None and v.is_float}
    wide = TensorProto.DOUBLE if TensorProto.DOUBLE in floats else TensorProto.FLOAT
    if floats <= {wide}:
        return None
    inputs = [forms.cast(b, v, wide) if v is not None and v.is_float else v for v in node.inputs]
    return forms.cast(b, b.op(node.op, *inputs, **node.attrs), node.operand(0).dtype)


def linear(b: Builder, image: Rows, places: list[Value]) -> Value:
    """Multilinear interpolation at `[M, P]` places, zero outside: `[M, P, C]`."""
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
        term = forms.mul(b, image.read(at, image.within(at)), forms.unsqueeze(b, weight, 2))
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
    image = Rows(b, x)
    if mode == "nearest":
        at = [b.op("Round", p) for p in settle(places)]
        result = image.read(at, image.within(at))
    elif mode == "linear":
        result = linear(b, image, settle(places))
    elif mode == "cubic":
        result = _cubic(b, image, places, settle)
    else:
        raise Refused(f"its mode `{mode}` is not nearest, linear or cubic")
    return forms.reshape(b, _channels_first(b, result), (*x.shape[:2], *grid.shape[1:-1]))


def _cubic(b: Builder, image: Rows, places: list[Value], settle) -> Value:
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
        term = forms.mul(b, image.read(at, image.within(at)), forms.unsqueeze(b, weight, 2))
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
    columns = _channels_first(b, linear(b, Rows(b, image), places))
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
    near = _between(b, places, [(-1, extent) for extent in spatial])
    bounded = [forms.clamp(b, place, 0, extent - 1) for place, extent in zip(places, spatial)]
    values = _corners(b, Rows(b, x, batches), bounded, largest=mode == "max")
    values = b.op("Where", forms.unsqueeze(b, near, 2), values, b.scalar(0, values))
    grid = forms.reshape(b, values, (count, bins[0], ratio, bins[1], ratio, x.shape[1]))
    found = forms.reduce(b, "ReduceMax" if mode == "max" else "ReduceMean", grid, [2, 4], keep=False)
    return forms.transpose(b, found, (0, 3, 1, 2))


def _corners(b: Builder, image: Rows, places: list[Value], largest: bool) -> Value:
    """Bilinear interpolation; `largest` takes the largest of the weighted corners instead of their sum."""
    if not largest:
        return linear(b, image, places)
    floors = [b.op("Floor", p) for p in places]
    total: Value | None = None
    for corner in itertools.product((0, 1), repeat=2):
        at = [forms.add(b, f, c) for f, c in zip(floors, corner)]
        parts = [forms.sub(b, p, f) for p, f in zip(places, floors)]
        parts = [part if c else forms.sub(b, 1, part) for part, c in zip(parts, corner)]
        weight = forms.unsqueeze(b, forms.mul(b, *parts), 2)
        term = forms.mul(b, image.read(at, None), weight)
        total = term if total is None else b.op("Max", total, term)
    assert total is not None
    return total
