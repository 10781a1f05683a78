"""Rules that move elements: Pad, Slice backwards, depth and space, scatters with a reduction."""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.conv import padded
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.scalar import broadcast, elementwise
from tilewright.compiler.importers.onnx.values import Node, Refused, Value


@rule("Where")
def where(b: Builder, node: Node):
    """Two of one shape that the condition spreads are spread first: where they are equal, torch-mlir returns either."""
    condition, x, y = node.operand(0), node.operand(1), node.operand(2)
    shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
    if x.shape != y.shape or x.shape == shape:
        return None
    return b.op("Where", condition, forms.expand(b, x, shape), y)


@rule("Pad")
def pad(b: Builder, node: Node):
    """Reflected, repeated and wrapped edges are gathered by constant indices; negative amounts cut."""
    x = node.operand(0)
    amounts = node.operand(1).ints("pads")
    axes = node.operand(3).ints("axes") if node.input(3) is not None else range(x.rank)
    before, after = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = amounts[i], amounts[len(amounts) // 2 + i]
    mode = node.attrs.get("mode", "constant")
    if mode == "constant":
        value = node.input(2)
        if value is not None and value.array is None:
            return _pad_with(b, x, before, after, forms.reshape(b, value, ()))
        number = 0 if value is None else value.known("constant_value").reshape(-1)[0]
        if not (node.input(3) is None and min(before + after, default=0) >= 0):
            cut = padded(b, x, [min(n, 0) for n in before], [min(n, 0) for n in after])
            grown = [max(n, 0) for n in before + after]
            return b.op("Pad", cut, b.ints(*grown), b.scalar(number, x), mode="constant")
        return None
    if mode not in ("reflect", "edge", "wrap"):
        raise Refused(f"its mode `{mode}` is not known")
    for axis, (front, back) in enumerate(zip(before, after)):
        if front or back:
            n = x.shape[axis]
            place = np.arange(-front, n + back)
            if mode == "edge":
                place = np.clip(place, 0, n - 1)
            elif mode == "wrap":
                place = place % n
            elif n > 1:
                place = place % (2 * n - 2)
                place = np.where(place < n, place, 2 * n - 2 - place)
            else:
                place = np.zeros_like(place)
            x = b.op("Gather", x, b.const(place.astype(np.int64)), axis=axis)
    return x


def _pad_with(b: Builder, x: Value, before: list[int], after: list[int], value: Value) -> Value:
    """Padding with a value known at run time only: blocks of it on both sides."""
    x = padded(b, x, [min(n, 0) for n in before], [min(n, 0) for n in after])
    for axis, (front, back) in enumerate(zip(before, after)):
        parts = [x]
        if front > 0:
            parts.insert(0, forms.expand(b, value, (*x.shape[:axis], front, *x.shape[axis + 1 :])))
        if back > 0:
            parts.append(forms.expand(b, value, (*x.shape[:axis], back, *x.shape[axis + 1 :])))
        x = forms.concat(b, parts, axis)
    return x


@rule("Slice")
def slice_backwards(b: Builder, node: Node):
    """A negative step is a gather; others are left as they are, with the axes that their steps belong to."""
    x = node.operand(0)
    starts, ends = node.operand(1).ints("starts"), node.operand(2).ints("ends")
    axes = node.operand(3).ints("axes") if node.input(3) is not None else list(range(len(starts)))
    steps = node.operand(4).ints("steps") if node.input(4) is not None else [1] * len(starts)
    if all(step > 0 for step in steps):
        if node.input(3) is not None or node.input(4) is None:
            return None
        # torch-mlir wants both, and ONNX all of one type.
        return b.kept("Slice", x, *(b.ints(*each) for each in (starts, ends, axes, steps)))
    for start, end, axis, step in zip(starts, ends, axes, steps):
        axis %= x.rank
        n = x.shape[axis]
        if step > 0:
            first, last, _ = slice(start, end, step).indices(n)
            x = forms.slice_axis(b, x, axis, first, max(first, last), step)
            continue
        start = min(max(start + n if start < 0 else start, -1), n - 1)
        end = min(max(end + n if end < 0 else end, -1), n - 1)
        x = b.op("Gather", x, b.const(np.arange(start, end, step, dtype=np.int64)), axis=axis)
    return x


@rule("DepthToSpace")
def depth_to_space(b: Builder, node: Node):
    x, block = node.operand(0), node.attrs["blocksize"]
    n, c, h, w = x.shape
    if block < 1 or c % block**2:
        raise Refused(f"its {c} channels are not divisible by the square of its block size, {block}")
    if node.attrs.get("mode", "DCR") == "DCR":
        split = forms.reshape(b, x, (n, block, block, c // block**2, h, w))
        moved = forms.transpose(b, split, (0, 3, 4, 1, 5, 2))
    else:
        split = forms.reshape(b, x, (n, c // block**2, block, block, h, w))
        moved = forms.transpose(b, split, (0, 1, 4, 2, 5, 3))
    return forms.reshape(b, moved, (n, c // block**2, h * block, w * block))


@rule("SpaceToDepth")
def space_to_depth(b: Builder, node: Node):
    x, block = node.operand(0), node.attrs["blocksize"]
    n, c, h, w = x.shape
    if block < 1 or h % block or w % block:
        raise Refused(f"its image of {h}x{w} is not divisible by its block size, {block}")
    split = forms.reshape(b, x, (n, c, h // block, block, w // block, block))
    order = (0, 3, 5, 1, 2, 4) if node.attrs.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    return forms.reshape(b, forms.transpose(b, split, order), (n, c * block**2, h // block, w // block))


@rule("ScatterElements")
def scatter_elements(b: Builder, node: Node):
    """The reductions that torch-mlir lacks here go to ScatterND, with every element's full place."""
    if node.attrs.get("reduction", "none") not in ("max", "min"):
        return None
    x, index, updates = node.operand(0), node.operand(1), node.operand(2)
    axis = node.attrs.get("axis", 0) % x.rank
    index = forms.cast(b, index, TensorProto.INT64)
    grids = np.meshgrid(*(np.arange(n, dtype=np.int64) for n in index.shape), indexing="ij")
    columns = [index if i == axis else b.const(grid) for i, grid in enumerate(grids)]
    places = forms.stack(b, columns, -1)
    return b.op("ScatterND", x, places, updates, reduction=node.attrs["reduction"])


@rule("TensorScatter")
def tensor_scatter(b: Builder, node: Node):
    """Each batch entry's update written into its cache from its own place on."""
    cache, update, starts = node.operand(0), node.operand(1), node.input(2)
    axis = node.attrs.get("axis", -2) % cache.rank
    length = update.shape[axis]
    place = b.const(np.arange(length, dtype=np.int64).reshape(-1, *[1] * (cache.rank - 1 - axis)))
    if starts is not None:
        first = forms.reshape(
            b, forms.cast(b, starts, TensorProto.INT64), (starts.size, *[1] * (cache.rank - 1))
        )
        place = forms.add(b, place, first)
    if node.attrs.get("mode", "linear") == "circular":
        place = b.op("Mod", place, b.const(np.array(cache.shape[axis], np.int64)))
    return b.op("ScatterElements", cache, forms.expand(b, place, update.shape), update, axis=axis)


@rule("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(b: Builder, node: Node):
    x, index = node.operand(0), node.operand(1)
    picked = b.op("Gather", x, forms.reshape(b, index, (index.size,)), axis=x.rank - 1)
    return forms.reshape(b, picked, (1, index.size)) if x.rank == 1 else picked


@rule("Binarizer", domain="ai.onnx.ml")
def binarizer(b: Builder, node: Node):
    x = node.operand(0)
    above = b.op("Greater", x, b.scalar(node.attrs.get("threshold", 0.0), x))
    return b.op("Cast", above, to=x.dtype)


@rule("Compress")
def compress(b: Builder, node: Node):
    """The condition shapes the result, so it is known when compiling."""
    x, keep = node.operand(0), node.operand(1).known("condition").reshape(-1)
    axis = node.attrs.get("axis")
    if axis is None:
        x, axis = forms.reshape(b, x, (x.size,)), 0
    places = np.flatnonzero(keep[: x.shape[axis]]).astype(np.int64)
    return b.op("Gather", x, b.const(places), axis=axis)


@rule("NonZero", "Unique", "NonMaxSuppression")
def shaped_by_data(b: Builder, node: Node):
    """Only where everything is known, and then the node was evaluated already."""
    raise Refused("the shape of its result depends on data")


@rule("ReverseSequence")
def reverse_sequence(b: Builder, node: Node):
    """Step t of a sequence of n steps is read at n - 1 - t, steps beyond its end where they are."""
    x, lengths = node.operand(0), forms.cast(b, node.operand(1), TensorProto.INT64)
    batch, time = node.attrs.get("batch_axis", 1), node.attrs.get("time_axis", 0)
    steps = b.const(
        np.arange(x.shape[time], dtype=np.int64).reshape([-1 if i == time else 1 for i in range(x.rank)])
    )
    ends = forms.reshape(b, lengths, [x.shape[batch] if i == batch else 1 for i in range(x.rank)])
    place = b.op("Where", b.op("Less", steps, ends), forms.sub(b, forms.sub(b, ends, 1), steps), steps)
    return b.op("GatherElements", x, forms.expand(b, place, x.shape), axis=time)


@rule("Gather")
def gather_from_one(b: Builder, node: Node):
    """One place in a dimension of one element: torch-mlir takes that for the operand, whatever the place is."""
    x, index = node.operand(0), node.operand(1)
    axis = node.attrs.get("axis", 0) % max(x.rank, 1)
    if index.size != 1 or x.shape[axis] != 1 or (index.array is not None and index.ints() in ([0], [-1])):
        return None
    spread = forms.expand(b, forms.reshape(b, index, [1] * x.rank), x.shape)
    picked = b.op("GatherElements", x, spread, axis=axis)
    return forms.reshape(b, picked, x.shape[:axis] + index.shape + x.shape[axis + 1 :])


def _numbered(b: Builder, x: Value, index: Value, batch: int = 0) -> tuple[Value, Value]:
    """`x` with the axes that tuples of indices count in one, and the places there of the tuples.

    A tuple with an index out of its own dimension has a place out of all of `x`, so that reading it fails the call.
    """
    depth = batch + index.shape[-1]
    if index.rank <= batch or depth > x.rank:
        raise Refused(f"its indices have the shape {index.shape}, its operand {x.shape}")
    extents = x.shape[:depth]
    count = math.prod(extents)
    columns = []
    for axis in range(batch):
        places = np.arange(extents[axis], dtype=np.int64)
        columns.append(b.const(places.reshape([-1, *[1] * (index.rank - 2 - axis)])))
    columns += [forms.pick(b, index, -1, i) for i in range(index.shape[-1])]
    body = [
        "%zero = arith.constant 0 : i64",
        f"%none = arith.constant {count} : i64",
        "%true = arith.constant true",
    ]
    place, inside = "%zero", "%true"
    for i, extent in enumerate(extents):
        body += [
            f"%extent{i} = arith.constant {extent} : i64",
            f"%below{i} = arith.cmpi slt, %a{i}, %zero : i64",
            f"%turned{i} = arith.addi %a{i}, %extent{i} : i64",
            f"%index{i} = arith.select %below{i}, %turned{i}, %a{i} : i64",
            f"%fits{i} = arith.cmpi ult, %index{i}, %extent{i} : i64",
            f"%inside{i} = arith.andi {inside}, %fits{i} : i1",
            f"%rows{i} = arith.muli {place}, %extent{i} : i64",
            f"%place{i} = arith.addi %rows{i}, %index{i} : i64",
        ]
        place, inside = f"%place{i}", f"%inside{i}"
    body.append(f"%r = arith.select {inside}, {place}, %none : i64")
    places = elementwise(b, "\n".join(body), columns, TensorProto.INT64)
    return forms.reshape(b, x, (count, *x.shape[depth:])), places


@rule("GatherND")
def gather_tuples(b: Builder, node: Node):
    """Rows of the operand whose indexed axes are one."""
    x, index = node.operand(0), node.operand(1)
    flat, places = _numbered(b, x, index, node.attrs.get("batch_dims", 0))
    return b.op("Gather", flat, places, axis=0)


@rule("ScatterND")
def scatter_tuples(b: Builder, node: Node):
    """Rows of the operand whose indexed axes are one."""
    x, index, updates = node.operand(0), node.operand(1), node.operand(2)
    if index.shape[-1] == 1:
        return None
    flat, places = _numbered(b, x, index)
    if updates.shape != index.shape[:-1] + x.shape[index.shape[-1] :]:
        raise Refused(
            f"its updates have the shape {updates.shape}, its indices {index.shape}, its operand {x.shape}"
        )
    written = b.op("ScatterND", flat, forms.unsqueeze(b, places, -1), updates, **node.attrs)
    return forms.reshape(b, written, x.shape)


@rule("OneHot")
def one_hot(b: Builder, node: Node):
    """The second of `values` where a number along the new axis is the index; indices out of range have none."""
    index, values = forms.cast(b, node.operand(0), TensorProto.INT64), node.operand(2)
    depth = node.operand(1).ints("depth")[0]
    axis = node.attrs.get("axis", -1) % (index.rank + 1)
    steps = np.arange(depth, dtype=np.int64).reshape([-1, *[1] * (index.rank - axis)])
    wrapped = b.op("Where", b.op("Less", index, b.scalar(0, index)), forms.add(b, index, depth), index)
    hit = b.op("Equal", forms.unsqueeze(b, wrapped, axis), b.const(steps))
    off, on = (forms.pick(b, values, 0, place) for place in (0, 1))
    return b.op("Where", hit, on, off)


@rule("Expand")
def expand_both_ways(b: Builder, node: Node):
    """The given shape broadcasts with the operand's own: an extent of 1 in it leaves the operand's."""
    x, given = node.operand(0), tuple(node.operand(1).ints("shape"))
    shape = broadcast(x.shape, given)
    if shape == x.shape:
        return x
    return None if shape == given else b.kept("Expand", x, b.ints(*shape))
