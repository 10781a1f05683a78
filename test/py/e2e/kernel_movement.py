"""Random data movement: gathers, scatters, joins, slices, pads, resizing; all exact but for what accumulates."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from kernel_draws import FLOATS, INTEGERS, Case, Draw

ALL = (torch.float32, torch.float64, torch.float16, torch.bfloat16, *INTEGERS, torch.bool)


def gathers(draw: Draw) -> Case:
    rows, width, count = draw.extent(101), draw.extent(64), draw.extent(48)
    form = draw.pick(
        [
            "embedding",
            "index_select",
            "take_along",
            "advanced",
            "advanced2",
            "negative",
            "mask_rows",
            "gather",
            "index_1",
        ]
    )
    dtype = draw.dtype(ALL)
    table = draw.tensor((rows, width), dtype)
    kind = draw.pick([torch.int64, torch.int32])
    index = draw.index((count,), rows, kind)
    name = f"gather {form} {rows}x{width} {count} {dtype} {kind}"
    if form == "embedding":
        ids = draw.index((2, count), rows, kind)
        return Case(
            name, lambda i, t: F.embedding(i, t), (ids,), (draw.tensor((rows, width), draw.dtype()),), 0
        )
    if form == "index_select":
        axis = draw.pick([0, 1])
        index = draw.index((count,), table.shape[axis], kind)
        return Case(name, lambda t, i: torch.index_select(t, axis, i), (table, index), (), 0)
    if form == "take_along":
        index = draw.index((rows, count), width)
        return Case(name, lambda t, i: torch.take_along_dim(t, i, 1), (table, index), (), 0)
    if form == "gather":
        index = draw.index((count, width), rows)
        return Case(name, lambda t, i: torch.gather(t, 0, i), (table, index), (), 0)
    if form == "advanced":
        return Case(name, lambda t, i: t[i], (table, index.long()), (), 0)
    if form == "advanced2":
        other = draw.index((count,), width)
        return Case(name, lambda t, i, j: t[i, j], (table, index.long(), other), (), 0)
    if form == "negative":
        return Case(name, lambda t, i: t[i], (table, index.long() - rows), (), 0)
    if form == "index_1":
        other = draw.index((count,), width)
        return Case(name, lambda t, i: t[:, i], (table, other), (), 0)
    return Case(name, lambda t, i: t[None][:, i].sum(2), (table.float(), index.long()), (), width + 4)


def scatters(draw: Draw) -> Case:
    rows, width, count = draw.extent(33), draw.extent(33), draw.extent(48)
    form = draw.pick(
        [
            "index_put",
            "accumulate",
            "scatter",
            "scatter_add",
            "index_add",
            "index_copy",
            "slice_scatter",
            "select_scatter",
            "scatter_reduce",
            "masked_scatter_fill",
        ]
    )
    dtype = draw.dtype((torch.float32, torch.float64, torch.int64, torch.int32))
    base = draw.tensor((rows, width), dtype)
    unique = torch.randperm(rows, generator=draw.generator)[: draw.random.randint(1, rows)]
    repeated = draw.index((count,), rows)
    terms = count + 4 if dtype.is_floating_point else 0
    name = f"{form} {rows}x{width} {count} {dtype}"
    if form == "index_put":
        values = draw.tensor((len(unique), width), dtype)
        return Case(name, lambda b, i, v: b.index_put((i,), v), (base, unique, values), (), 0)
    if form == "accumulate":
        values = draw.tensor((count, width), dtype)
        return Case(
            name, lambda b, i, v: b.index_put((i,), v, accumulate=True), (base, repeated, values), (), terms
        )
    if form == "scatter":
        index = unique[:, None].repeat(1, width)
        values = draw.tensor(index.shape, dtype)
        return Case(name, lambda b, i, v: b.scatter(0, i, v), (base, index, values), (), 0)
    if form == "scatter_add":
        index = draw.index((count, width), rows)
        values = draw.tensor((count, width), dtype)
        return Case(name, lambda b, i, v: b.scatter_add(0, i, v), (base, index, values), (), terms)
    if form == "index_add":
        values = draw.tensor((count, width), dtype)
        return Case(name, lambda b, i, v: b.index_add(0, i, v), (base, repeated, values), (), terms)
    if form == "index_copy":
        values = draw.tensor((len(unique), width), dtype)
        return Case(name, lambda b, i, v: b.index_copy(0, i, v), (base, unique, values), (), 0)
    if form == "slice_scatter":
        start = draw.random.randrange(rows)
        values = draw.tensor((rows - start, width), dtype)
        return Case(name, lambda b, v: b.slice_scatter(v, 0, start, rows), (base, values), (), 0)
    if form == "select_scatter":
        row = draw.random.randrange(rows)
        return Case(
            name, lambda b, v: b.select_scatter(v, 0, row), (base, draw.tensor((width,), dtype)), (), 0
        )
    if form == "scatter_reduce":
        index = draw.index((count, width), rows)
        values = draw.tensor((count, width), dtype)
        how = draw.pick(["amax", "amin", "sum"])
        return Case(
            f"{name} {how}",
            lambda b, i, v: b.scatter_reduce(0, i, v, how),
            (base, index, values),
            (),
            terms if how == "sum" else 0,
        )
    mask = draw.tensor((rows, width), torch.bool)
    return Case(name, lambda b, m: b.masked_fill(m, 3), (base, mask), (), 0)


def joins(draw: Draw) -> Case:
    rank = draw.random.randint(1, 3)
    shape = list(draw.shape(rank, 600))
    axis = draw.random.randrange(rank)
    dtype = draw.dtype(ALL)
    form = draw.pick(["cat", "cat_uneven", "stack", "cat_computed", "cat_one", "split_cat", "hstack"])
    x, y, z = (draw.tensor(shape, dtype) for _ in range(3))
    name = f"{form} {shape} along {axis} {dtype}"
    if form == "cat_uneven":
        longer = [*shape]
        longer[axis] = draw.extent(29)
        return Case(name, lambda x, y: torch.cat([x, y, x], axis), (x, draw.tensor(longer, dtype)), (), 0)
    if form == "stack":
        return Case(name, lambda x, y: torch.stack([x, y], axis), (x, y), (), 0)
    if form == "cat_computed":
        f = [t.float() for t in (x, y)]
        return Case(name, lambda x, y: torch.cat([x + y, torch.relu(x)], axis) * 2, tuple(f), (), 0)
    if form == "cat_one":
        return Case(name, lambda x: torch.cat([x, x[:1]], 0), (x,), (), 0)
    if form == "split_cat":
        return Case(name, lambda x: torch.cat(x.split(2, axis)[::-1], axis), (x,), (), 0)
    if form == "hstack":
        return Case(
            name, lambda x, y, z: torch.stack([x, y, z]).sum(0), (x.double(), y.double(), z.double()), (), 4
        )
    return Case(name, lambda x, y, z: torch.cat([x, y, z], axis), (x, y, z), (), 0)


def slices(draw: Draw) -> Case:
    rank = draw.random.randint(1, 4)
    shape = draw.shape(rank, 2000)
    axis = draw.random.randrange(rank)
    dtype = draw.dtype(ALL)
    x = draw.tensor(shape, dtype)
    size = shape[axis]
    start, step = draw.random.randrange(size), draw.pick([1, 1, 2, 3])
    end = draw.random.randint(start + 1, size)
    order = draw.random.sample(range(rank), rank)
    functions = {
        "slice": lambda x: x[(slice(None),) * axis + (slice(start, end, step),)].clone(),
        "flip": lambda x: x.flip(axis),
        "roll": lambda x: x.roll(start + 1, axis),
        "permute": lambda x: x.permute(order).contiguous(),
        "unfold": lambda x: x.unfold(axis, end - start, step).clone(),
        "select": lambda x: x.select(axis, start).clone(),
        "repeat": lambda x: x.repeat(*([2] + [1] * (rank - 1))),
        "interleave": lambda x: x.repeat_interleave(3, axis),
        "expand": lambda x: x.unsqueeze(axis).expand(*shape[:axis], 5, *shape[axis:]).clone(),
        "reshape": lambda x: x.flip(axis).reshape(-1),
        "permute_slice": lambda x: x.permute(order).contiguous().flatten()[start:],
        "tril": lambda x: torch.tril(x.reshape(-1, shape[-1]), start - 2),
        "diagonal": lambda x: torch.diagonal(x.reshape(-1, shape[-1]), 0).clone(),
        "rot90": lambda x: torch.rot90(x.reshape(-1, shape[-1]), 1),
    }
    form = draw.pick(list(functions))
    return Case(
        f"{form} {[*shape]} axis {axis} {start}:{end}:{step} {order} {dtype}", functions[form], (x,), (), 0
    )


def pads(draw: Draw) -> Case:
    rank = draw.pick([1, 2, 2, 3])
    mode = draw.pick(["constant", "constant", "reflect", "replicate", "circular", "negative"])
    size = [draw.extent({1: 48, 2: 17, 3: 7}[rank], 3) for _ in range(rank)]
    amounts = [draw.random.randint(0, 2) for _ in range(2 * rank)]
    dtype = draw.dtype(ALL if mode == "constant" else FLOATS[:2])
    x = draw.tensor((draw.pick([1, 2]), draw.pick([1, 3, 8]), *size), dtype)
    name = f"pad {mode} {[*x.shape]} {amounts} {dtype}"
    if mode == "negative":
        amounts[0] = -1
        return Case(name, lambda x: F.pad(x, amounts, value=1.0), (x,), (), 0)
    if mode == "constant":
        value = draw.pick([0, 1, 7])
        return Case(name, lambda x: F.pad(x, amounts, value=value), (x,), (), 0)
    return Case(name, lambda x: F.pad(x, amounts, mode=mode), (x,), (), 0)


def resizing(draw: Draw) -> Case:
    height, width = draw.extent(17), draw.extent(17)
    x = draw.tensor((draw.pick([1, 2]), draw.pick([1, 3, 8]), height, width), draw.pick(FLOATS[:2]))
    form = draw.pick(
        [
            "nearest2",
            "nearest",
            "bilinear",
            "bilinear_aligned",
            "shuffle",
            "unshuffle",
            "nearest_down",
            "bicubic",
        ]
    )
    out = (draw.extent(33), draw.extent(33))
    name = f"{form} {[*x.shape]} -> {out} {x.dtype}"
    functions = {
        "nearest2": lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
        "nearest": lambda x: F.interpolate(x, size=out, mode="nearest"),
        "nearest_down": lambda x: F.interpolate(x, size=(max(1, height // 2), width), mode="nearest"),
        "shuffle": lambda x: F.pixel_shuffle(torch.cat([x] * 4, 1), 2),
        "unshuffle": lambda x: F.pixel_unshuffle(torch.cat([torch.cat([x, x], 2)] * 2, 3), 2),
    }
    if form in functions:
        return Case(name, functions[form], (x,), (), 0)
    x = x.float()
    aligned = form == "bilinear_aligned"
    mode = "bicubic" if form == "bicubic" else "bilinear"
    return Case(name, lambda x: F.interpolate(x, size=out, mode=mode, align_corners=aligned), (x,), slack=400)


KINDS = {
    "gathers": gathers,
    "scatters": scatters,
    "joins": joins,
    "slices": slices,
    "pads": pads,
    "resizing": resizing,
}
