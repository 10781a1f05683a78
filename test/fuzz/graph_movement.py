"""ONNX operators that move elements: shapes, slices, pads, gathers, scatters, joins, constants."""

from __future__ import annotations

import numpy as np

from fuzz.generator import NoFit
from fuzz.graph_draw import node
from fuzz.graph_growth import Growth, name_of

HUGE = (2**31 - 1, 2**63 - 1)


def axes_of(g: Growth, rank: int, most: int = 4) -> list[int]:
    """Some axes, each once, counted from either end."""
    picked = g.choose.sample(range(rank), g.choose.randint(min(1, rank), min(rank, most)))
    return [axis - rank if g.maybe(0.4) else axis for axis in picked]


def with_axes(
    g: Growth, op: str, a: str, axes: list[int] | None, since: int, outputs: int = 1, **attrs
) -> None:
    """Axes as an operand from `since` on, as an attribute before."""
    if g.opset >= since:
        g.emit(op, [a, None if axes is None else g.ints(*axes)], outputs, **attrs)
    else:
        positive = axes if g.opset >= 11 or axes is None else [x % max(g.arrays[a].ndim, 1) for x in axes]
        g.emit(op, [a], outputs, axes=positive, **attrs)


@node(2)
def reshape(g: Growth) -> None:
    a = g.operand("Reshape")
    array = g.arrays[a]
    sizes = [1] * g.choose.randint(0, 2)
    for n in array.shape:
        for factor in (2, 3, 5):
            while n and n % factor == 0:
                n //= factor
                sizes.append(factor)
        sizes.append(n)
    g.choose.shuffle(sizes)
    while len(sizes) > 4:
        sizes[:2] = [sizes[0] * sizes[1]]
    if not array.ndim and g.maybe():
        sizes = []
    allow = g.optional(g.choose.randint(0, 1), 0.3) if g.opset >= 14 else None
    for i, n in enumerate(sizes):
        if i < array.ndim and array.shape[i] == n and n and not allow and g.maybe(0.4):
            sizes[i] = 0
    if sizes and array.size and 0 not in sizes and g.maybe(0.4):
        sizes[g.choose.randrange(len(sizes))] = -1
    g.emit("Reshape", [a, g.ints(*sizes)], allowzero=allow)


@node(2)
def transpose(g: Growth) -> None:
    a = g.operand("Transpose")
    perm = list(range(g.arrays[a].ndim))
    g.choose.shuffle(perm)
    g.emit("Transpose", [a], perm=g.optional(perm, 0.8))


@node(1.5)
def squeeze(g: Growth) -> None:
    a = g.operand("Squeeze")
    ones = [i for i, n in enumerate(g.arrays[a].shape) if n == 1]
    axes = [i - g.arrays[a].ndim if g.maybe(0.3) and g.opset >= 11 else i for i in ones if g.maybe(0.7)]
    with_axes(g, "Squeeze", a, axes if axes else None, 13)


@node(1.5)
def unsqueeze(g: Growth) -> None:
    a = g.operand("Unsqueeze", 0, 3)
    count = g.choose.choice((1, 1, 2))
    rank = g.arrays[a].ndim + count
    axes = g.choose.sample(range(rank), count)
    axes = [x - rank if g.maybe(0.3) and g.opset >= 11 else x for x in axes]
    with_axes(g, "Unsqueeze", a, axes, 13)


@node(0.7)
def flatten(g: Growth) -> None:
    a = g.operand("Flatten")
    rank = g.arrays[a].ndim
    low = -rank if g.opset >= 11 else 0
    g.emit("Flatten", [a], axis=g.optional(g.choose.randint(low, rank)))


@node(1.5)
def expand(g: Growth) -> None:
    a = g.operand("Expand", 0, 3)
    shape = [n if n != 1 or g.maybe() else g.choose.choice((2, 3)) for n in g.arrays[a].shape]
    shape = [1 if g.maybe(0.2) else n for n in shape]
    shape = [g.choose.choice((1, 2)) for _ in range(g.choose.choice((0, 0, 1)))] + shape
    g.emit("Expand", [a, g.ints(*shape)])


@node(1)
def tile(g: Growth) -> None:
    a = g.operand("Tile")
    g.emit("Tile", [a, g.ints(*(g.choose.choice((1, 1, 2, 3, 0)) for _ in g.arrays[a].shape))])


@node(2)
def concat(g: Growth) -> None:
    a = g.operand("Concat", 1)
    axis = g.axis(g.arrays[a].ndim) if g.opset >= 11 else g.axis(g.arrays[a].ndim) % g.arrays[a].ndim
    parts = [a]
    for _ in range(g.choose.choice((0, 1, 1, 2, 3))):
        shape = list(g.arrays[a].shape)
        shape[axis] = g.choose.choice((shape[axis], 1, 2, 0))
        parts.append(a if g.maybe(0.2) else g.like(a, shape))
    g.choose.shuffle(parts)
    g.emit("Concat", parts, axis=axis)


@node(2)
def split(g: Growth) -> None:
    a = g.operand("Split", 1)
    axis = g.axis(g.arrays[a].ndim)
    if g.opset < 11:
        axis %= g.arrays[a].ndim
    n = g.arrays[a].shape[axis]
    count = g.choose.randint(1, max(1, min(n, 4)))
    place = g.optional(axis) if axis == 0 else axis
    if g.maybe():
        cuts = sorted(g.choose.randint(0, n) for _ in range(count - 1))
        sizes = [b - a for a, b in zip([0, *cuts], [*cuts, n])]
        if g.opset >= 13:
            g.emit("Split", [a, g.ints(*sizes)], count, axis=place)
        else:
            g.emit("Split", [a], count, axis=place, split=sizes)
        return
    if g.opset >= 18:
        g.emit("Split", [a], count, axis=place, num_outputs=count)
    elif n % count == 0:
        g.emit("Split", [a], count, axis=place)


@node(3)
def slices(g: Growth) -> None:
    a = g.operand("Slice", 1)
    rank = g.arrays[a].ndim
    axes = axes_of(g, rank)
    starts, ends, steps = [], [], []
    for axis in axes:
        n = g.arrays[a].shape[axis]
        step = g.choose.choice((1, 1, 1, 2, 3, -1, -1, -2)) if g.opset >= 10 else 1
        low, high = sorted((g.choose.randint(-n - 2, n + 2), g.choose.choice((n, n + 3, n // 2, *HUGE, -1))))
        if g.maybe(0.3):
            low = g.choose.choice((0, -n))
        if step < 0 and g.maybe(0.8):
            low, high = high, g.choose.choice((low, -n - 1, -HUGE[0], -HUGE[1] - 1))
        starts.append(low)
        ends.append(high)
        steps.append(step)
    if g.opset < 10:
        positive = [axis % rank for axis in axes]
        g.emit("Slice", [a], starts=starts, ends=ends, axes=positive)
        return
    kind = g.choose.choice(("int64", "int64", "int32"))
    if kind == "int32":
        limit = 2**31 - 1
        starts = [max(-limit - 1, min(limit, n)) for n in starts]
        ends = [max(-limit - 1, min(limit, n)) for n in ends]
    given: list[str | None] = [g.ints(*starts, dtype=kind), g.ints(*ends, dtype=kind)]
    in_order = [axis % rank for axis in axes] == list(range(len(axes)))
    given.append(None if in_order and g.maybe(0.5) else g.ints(*axes, dtype=kind))
    given.append(None if all(s == 1 for s in steps) and g.maybe() else g.ints(*steps, dtype=kind))
    g.emit("Slice", [a, *given])


@node(2)
def pad(g: Growth) -> None:
    a = g.operand("Pad", 1)
    array = g.arrays[a]
    modes = ["constant", "constant", "reflect", "edge"] + (["wrap"] if g.opset >= 19 else [])
    mode = g.choose.choice(modes)
    rank = array.ndim
    axes = axes_of(g, rank) if g.opset >= 18 and g.maybe(0.4) else list(range(rank))
    most = [array.shape[axis] - 1 if mode == "reflect" else 3 for axis in axes]
    if mode != "constant" and 0 in array.shape:
        raise NoFit("an edge of nothing")
    amounts = [g.choose.choice((0, 0, g.choose.randint(0, max(0, min(m, 3))))) for m in (*most, *most)]
    if g.maybe(0.2):
        amounts = [
            -1 if g.maybe(0.3) and array.shape[axes[i % len(axes)]] > 2 else n for i, n in enumerate(amounts)
        ]
    if g.opset < 11:
        value = g.optional(g.choose.choice((0.0, 1.5)))
        g.emit("Pad", [a], mode=g.optional(mode) if mode == "constant" else mode, pads=amounts, value=value)
        return
    value = g.fresh((), name_of(array), "normal") if mode == "constant" and g.maybe(0.4) else None
    chosen = None if len(axes) == rank and axes == list(range(rank)) else g.ints(*axes)
    g.emit("Pad", [a, g.ints(*amounts), value, chosen], mode=mode if mode != "constant" else g.optional(mode))


def indices(g: Growth, shape: tuple[int, ...], bound: int, since: int = 11) -> str:
    """Indices, counted from the end too where the opset has them."""
    if bound == 0:
        raise NoFit("nothing to index")
    fill = f"signed:{bound}" if g.opset >= since and g.maybe(0.6) else f"index:{bound}"
    return g.fresh(shape, g.choose.choice(("int64", "int64", "int32")), fill)


@node(2)
def gather(g: Growth) -> None:
    a = g.operand("Gather", 1)
    axis = g.axis(g.arrays[a].ndim)
    i = indices(g, g.shape(0, 2), g.arrays[a].shape[axis])
    g.emit("Gather", [a, i], axis=axis if axis else g.optional(axis))


@node(1.5)
def gather_elements(g: Growth) -> None:
    a = g.operand("GatherElements", 1)
    axis = g.axis(g.arrays[a].ndim)
    shape = [max(1, n - g.choose.choice((0, 0, 1))) for n in g.arrays[a].shape]
    shape[axis] = g.choose.randint(1, 4)
    i = indices(g, tuple(shape), g.arrays[a].shape[axis])
    g.emit("GatherElements", [a, i], axis=axis if axis else g.optional(axis))


@node(1.5)
def gather_nd(g: Growth) -> None:
    a = g.operand("GatherND", 1)
    array = g.arrays[a]
    batch = g.choose.choice((0, 0, 1)) if g.opset >= 12 and array.ndim > 1 else 0
    depth = g.choose.randint(1, array.ndim - batch)
    bounds = array.shape[batch : batch + depth]
    if 0 in array.shape:
        raise NoFit("nothing to index")
    shape = (*array.shape[:batch], *g.shape(0, 2)[: 2 - batch], depth)
    rows = np.stack(
        [
            np.random.default_rng(g.seed + i).integers(-n if g.maybe() else 0, n, shape[:-1])
            for i, n in enumerate(bounds)
        ],
        -1,
    )
    g.emit("GatherND", [a, g.known(rows.astype(np.int64))], batch_dims=batch or g.optional(0))


@node(2)
def scatter_elements(g: Growth) -> None:
    op = "ScatterElements" if g.opset >= 11 else "Scatter"
    a = g.operand(op, 1)
    array = g.arrays[a]
    axis = g.axis(array.ndim) if g.opset >= 11 else g.choose.randrange(array.ndim)
    shape = [max(1, n - g.choose.choice((0, 1))) for n in array.shape]
    if 0 in array.shape:
        raise NoFit("nothing to index")
    reductions = ("none", "add", "mul") + (("max", "min") if g.opset >= 18 else ())
    reduction = g.optional(g.choose.choice(reductions)) if g.opset >= 16 else None
    if reduction in (None, "none"):
        rows = np.random.default_rng(g.seed).permuted(
            np.broadcast_to(
                np.arange(array.shape[axis]).reshape(
                    [-1 if i == axis % array.ndim else 1 for i in range(array.ndim)]
                ),
                array.shape,
            ),
            axis=axis,
        )[tuple(slice(0, n) for n in shape)]
        i = g.known(rows.astype(np.int64) - (array.shape[axis] if g.opset >= 11 and g.maybe(0.3) else 0))
    else:
        i = indices(g, tuple(shape), array.shape[axis])
    g.emit(op, [a, i, g.like(a, shape)], axis=axis if axis else g.optional(axis), reduction=reduction)


@node(1.5)
def scatter_nd(g: Growth) -> None:
    a = g.operand("ScatterND", 1)
    array = g.arrays[a]
    if 0 in array.shape:
        raise NoFit("nothing to index")
    depth = g.choose.randint(1, array.ndim)
    reductions = ("none", "add", "mul") + (("max", "min") if g.opset >= 18 else ())
    reduction = g.optional(g.choose.choice(reductions)) if g.opset >= 16 else None
    places = np.array(list(np.ndindex(*array.shape[:depth])), np.int64).reshape(-1, depth)
    rows = np.random.default_rng(g.seed).permutation(places)[: g.choose.randint(1, 4)]
    if reduction not in (None, "none"):
        rows = np.concatenate([rows, rows[:1]])
    rows = rows - (np.array(array.shape[:depth]) if g.maybe(0.3) and g.opset >= 13 else 0)
    g.emit("ScatterND", [a, g.known(rows), g.like(a, (len(rows), *array.shape[depth:]))], reduction=reduction)


@node(0.8)
def blocks(g: Growth) -> None:
    op = g.choose.choice(("DepthToSpace", "SpaceToDepth"))
    dtype = g.dtype(op)
    deep = op == "DepthToSpace"
    shape = (g.choose.choice((1, 2)), 4 * g.choose.randint(1, 2) if deep else 3, 2, 4)
    mode = g.optional(g.choose.choice(("DCR", "CRD"))) if deep and g.opset >= 11 else None
    g.emit(op, [g.fresh(shape, dtype)], blocksize=2, mode=mode)


@node(0.8)
def triangle(g: Growth) -> None:
    a = g.operand("Trilu", 2)
    k = g.known(np.array(g.choose.randint(-3, 4), np.int64)) if g.maybe() else None
    g.emit("Trilu", [a, k], upper=g.optional(g.choose.randint(0, 1)))


@node(1)
def shape(g: Growth) -> None:
    a = g.any_of(g.types("Shape"))
    if g.maybe(0.2):
        g.emit("Size", [a])
        return
    rank = g.arrays[a].ndim
    edges = (
        {n: g.optional(g.choose.randint(-rank - 2, rank + 2), 0.4) for n in ("start", "end")}
        if g.opset >= 15
        else {}
    )
    g.emit("Shape", [a], **edges)


@node(0.7)
def constants(g: Growth) -> None:
    kind = g.choose.choice(("ConstantOfShape", "Range", "EyeLike"))
    if kind == "ConstantOfShape":
        from onnx import numpy_helper

        dtype = g.choose.choice(("float32", "float64", "float16", "int32", "int64", "uint8", "bool"))
        value = numpy_helper.from_array(np.ones(1, dtype)) if g.maybe(0.7) else None
        g.emit(kind, [g.ints(*g.shape(0, 3))], value=value)
    elif kind == "Range":
        dtype = g.dtype(kind, among=("float32", "float64", "int16", "int32", "int64"))
        start, limit, step = g.choose.choice(((0, 5, 1), (5, 0, -2), (1, 8, 3), (3, 3, 1), (0, 5, -1)))
        g.emit(kind, [g.known(np.array(n, dtype)) for n in (start, limit, step)])
    else:
        from fuzz.graph_growth import element_type

        a = g.operand(kind, 2, 2)
        to = g.optional(element_type(g.choose.choice(("float32", "int64", "float64"))))
        g.emit(kind, [a], k=g.optional(g.choose.randint(-2, 3)), dtype=to)


@node(0.8)
def one_hot(g: Growth) -> None:
    depth = g.choose.randint(1, 5)
    i = g.fresh(g.shape(0, 3), g.choose.choice(("int64", "int32", "float32", "uint8")), f"index:{depth}")
    values = g.fresh((2,), g.dtype("OneHot", 2), "normal")
    shape = g.choose.choice(((), (1,)))
    axis = g.axis(g.arrays[i].ndim, 1)
    g.emit(
        "OneHot",
        [i, g.known(np.full(shape, depth, np.int64)), values],
        axis=axis if axis != -1 else g.optional(-1),
    )


@node(0.5)
def reverse_sequence(g: Growth) -> None:
    a = g.operand("ReverseSequence", 2)
    batch = g.optional(g.choose.randint(0, 1))
    at = 1 if batch is None else batch
    time = 1 - at
    rows, steps = g.arrays[a].shape[at], g.arrays[a].shape[time]
    lengths = np.random.default_rng(g.seed).integers(min(1, steps), steps + 1, rows)
    g.emit(
        "ReverseSequence", [a, g.known(lengths)], batch_axis=batch, time_axis=time if time else g.optional(0)
    )


@node(0.5)
def compress(g: Growth) -> None:
    a = g.operand("Compress", 1)
    axis = g.optional(g.axis(g.arrays[a].ndim) if g.opset >= 11 else 0)
    n = g.arrays[a].size if axis is None else g.arrays[a].shape[axis]
    keep = np.array([g.maybe() for _ in range(g.choose.randint(0, n))], bool)
    g.emit("Compress", [a, g.known(keep)], axis=axis)


@node(0.4)
def center_crop_pad(g: Growth) -> None:
    a = g.operand("CenterCropPad", 1)
    axes = g.optional(axes_of(g, g.arrays[a].ndim))
    count = g.arrays[a].ndim if axes is None else len(axes)
    g.emit("CenterCropPad", [a, g.ints(*(g.choose.randint(1, 6) for _ in range(count)))], axes=axes)
