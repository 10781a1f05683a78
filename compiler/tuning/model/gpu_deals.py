"""How kernels of GPUs that multiply no matrices deal points out to blocks, threads and lanes, of n schedules at once.

rows, block (4, 1024), 128 threads, 8 per access   =>   blocks of 4 rows, lanes along the row, 8 groups of columns each
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.nouns.schedule import WARP, GpuTile, Schedule
from tilewright.compiler.nouns.workload import Operand, Workload
from tilewright.compiler.tuning.model.deal import Deal, box_of, column, once_for_each, ones, points_along
from tilewright.compiler.tuning.model.gemm_shape import ACCESS_BYTES
from tilewright.compiler.tuning.model.gpu_lines import scans, sorts
from tilewright.compiler.tuning.model.gpu_scatters import scatters
from tilewright.compiler.tuning.model.gpu_windows import windows
from tilewright.compiler.tuning.model.roles import axis_stride, element_strides
from tilewright.compiler.tuning.model.statements import Statement, read_statements

_LINE_BYTES, _BANK_BYTES = 128, 4
"""Rows of a box of a transposition that are this long end in a gap of a bank."""


def deal_of(workload: Workload, kernel: str, schedules: Sequence[Schedule]) -> Deal:
    """How a kernel that is no contraction deals a workload out; raises ScheduleError for one that does not compute it."""
    tiles = [schedule.gpu or GpuTile() for schedule in schedules]
    if kernel == "elementwise":
        return _results(workload, tiles)
    if kernel == "windows":
        return windows(workload, tiles)
    if kernel == "transpose":
        return _boxes(workload, tiles)
    if kernel == "rows":
        return _rows(workload, tiles)
    if kernel == "sort":
        return sorts(workload, tiles)
    if kernel == "scan":
        return scans(workload, tiles)
    if kernel == "scatter":
        return scatters(workload, tiles)
    return _tiles(workload, schedules)


def levels_of(workload: Workload, schedule: Schedule) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What one access of a thread and what a block has, over the workload's axes: a schedule's `levels`."""
    deal = deal_of(workload, schedule.gpu.kernel if schedule.gpu is not None else "", [schedule])
    own = deal.lanes[0][: max(1, len(deal.lanes[0]) // WARP)]
    thread = own.max(axis=0) - own.min(axis=0) + 1
    return ("registers", tuple(thread.tolist())), ("shared", tuple(deal.box[0].tolist()))


def _whole_reductions(workload: Workload, box: np.ndarray) -> np.ndarray:
    for axis in range(len(workload.axes)):
        if axis not in workload.parallel:
            box[:, axis] = workload.extents[axis]
    return box


def _results(workload: Workload, tiles: Sequence[GpuTile]) -> Deal:
    """Runs of neighbouring results; what other parts of a dispatch have is dealt out like the largest one."""
    axes, one = workload.parallel, ones(tiles)
    points = math.prod(workload.extents[a] for a in axes)
    vector, threads, block = (
        column(tiles, "vector"),
        column(tiles, "threads"),
        column(tiles, "block", 0),
    )
    each = np.maximum(1, block // (threads * vector))
    groups, rest = points // vector, points % vector
    whole, left = -(-groups // (threads * each)), -(-rest // threads)
    blocks = whole + left
    box = _whole_reductions(workload, box_of(workload, axes, np.minimum(block, points)))
    # Longer vectors are several accesses, between which lanes leave gaps.
    most = max(1, ACCESS_BYTES // max(o.element_bytes for o in workload.operands))

    def at_once(lanes: int) -> np.ndarray:
        own = np.arange(WARP)[:, None] * lanes + np.arange(min(lanes, most))
        return points_along(workload, axes, own.reshape(-1) % points)

    lanes = once_for_each(at_once, vector)
    found = Deal(blocks, box, vector, each, one, lanes, lanes, 0 * one, one, one.astype(float))
    # Threads beyond the last result compute it once more.
    found.computed = (whole * threads * each * vector + left * threads) / max(1, points)
    return found


def split_axes(workload: Workload) -> list[tuple[int, int, int]]:
    """(axis, points of one step of it, extent) of the result's loops where operands' indices take them apart, outer first.

    Empty where they do so at odd places.
    """
    cuts, inner = {1}, 1
    sizes = {}
    for axis in reversed(workload.parallel):
        sizes[axis] = inner
        inner *= workload.extents[axis]
        cuts.add(inner)
    for operand in workload.operands:
        for term in (t for index in operand.index_map for t in index.terms if t.variable in sizes):
            cuts |= {
                sizes[term.variable] * term.divisor,
                sizes[term.variable] * term.divisor * term.modulus,
            } - {0}
    chain = sorted(cut for cut in cuts if cut <= inner)
    if any(b % a for a, b in pairwise(chain)):
        return []
    found = []
    for low, high in pairwise(chain):
        axis = next(a for a, size in sizes.items() if size <= low < size * workload.extents[a])
        found.append((axis, low // sizes[axis], high // low))
    return found[::-1]


def _boxes(workload: Workload, tiles: Sequence[GpuTile]) -> Deal:
    """Boxes that are read in the order of an operand's memory and written in that of the result's."""
    axes, one = split_axes(workload), ones(tiles)
    sizes = np.asarray([tile.block for tile in tiles if len(tile.block) == len(axes)], dtype=np.int64)
    if len(sizes) < len(tiles):
        found = next(tile for tile in tiles if len(tile.block) != len(axes))
        raise ScheduleError(
            f"features of `{workload.op}` on a GPU: gpu.block is {list(found.block)}, its results lie along {len(axes)} axes"
        )
    extents = np.asarray([extent for *_, extent in axes], dtype=np.int64)
    blocks = (-(-extents // sizes)).prod(axis=1)
    box = np.ones((len(tiles), len(workload.axes)), dtype=np.int64)
    for number, (axis, step, _) in enumerate(axes):
        spans = np.where(sizes[:, number] > 1, step * sizes[:, number], 1)
        box[:, axis] = np.maximum(box[:, axis], np.minimum(spans, workload.extents[axis]))
    source = max(workload.inputs, key=lambda o: (_crosses(workload, o), o.nbytes), default=workload.output)
    strides = [abs(_step_of(source, axis, step)) for axis, step, _ in axes]
    read_order = sorted(range(len(axes)), key=lambda i: -strides[i] if strides[i] else -(1 << 62))
    read = _run_of(sizes, read_order, source)
    write_order = list(range(len(axes)))
    write = _run_of(sizes, write_order, workload.output)

    def in_order(order: Sequence[int]) -> Callable[..., np.ndarray]:
        return lambda run, *box: _in_box(workload, axes, np.asarray(box), order, WARP * run)

    lanes = once_for_each(in_order(read_order), read, *sizes.T)
    stored = once_for_each(in_order(write_order), write, *sizes.T)
    item = workload.output.element_bytes
    shared, padded = np.ones(len(tiles), dtype=np.int64), np.zeros(len(tiles), dtype=bool)
    for number in reversed(range(len(axes))):
        pad = ~padded & (shared * item >= _LINE_BYTES)
        shared, padded = shared + np.where(pad, max(1, _BANK_BYTES // item), 0), padded | pad
        shared = shared * sizes[:, number]
    threads = column(tiles, "threads")
    each = -(-sizes.prod(axis=1) // (threads * read))
    computed = blocks * sizes.prod(axis=1) / max(1, int(extents.prod()))
    found = Deal(blocks, box, read, each, one, lanes, stored, shared * item, one, one.astype(float))
    found.computed = computed
    return found


def _crosses(workload: Workload, operand: Operand) -> bool:
    """Whether an operand moves along the result, but not beside it where the result lies side by side."""
    last = next((a for a in reversed(workload.parallel) if workload.extents[a] > 1), None)
    return bool(operand.axes) and last is not None and axis_stride(operand, last) != 1


def _step_of(operand: Operand, axis: int, step: int) -> int:
    """Elements between two points of an axis that are `step` apart."""
    total = 0
    for index, stride in zip(operand.index_map, element_strides(operand)):
        for term in index.terms:
            if term.variable == axis and step % term.divisor == 0:
                own = step // term.divisor
                if not term.modulus or own % term.modulus:
                    total += stride * term.scale * (own % term.modulus if term.modulus else own)
    return total


def _run_of(sizes: np.ndarray, order: Sequence[int], operand: Operand) -> np.ndarray:
    """Elements of one access of the innermost axis of a box: up to 16 bytes that divide it."""
    inner = sizes[:, order[-1]]
    return np.gcd(inner, max(1, 16 // operand.element_bytes))


def _in_box(
    workload: Workload,
    axes: Sequence[tuple[int, int, int]],
    sizes: np.ndarray,
    order: Sequence[int],
    count: int,
) -> np.ndarray:
    """The first `count` points of a box in an order of its axes."""
    points = np.zeros((count, len(workload.axes)), dtype=np.int64)
    left = np.arange(count) % max(1, int(sizes.prod()))
    for number in reversed(order):
        axis, step, _ = axes[number]
        points[:, axis] += left % sizes[number] * step
        left = left // sizes[number]
    return points


def reduced_axes(statements: Sequence[Statement]) -> tuple[int, ...]:
    """The axes that some statement reduces over: a row's."""
    return tuple(sorted({axis for s in statements for axis in s.reduction}))


def _rows(workload: Workload, tiles: Sequence[GpuTile]) -> Deal:
    """Whole rows, or pieces of them, which threads keep in registers or walk step by step."""
    statements, one = read_statements(workload), ones(tiles)
    columns = reduced_axes(statements)
    if not columns:
        raise ScheduleError(
            f"features of `{workload.op}` on a GPU: gpu.kernel is rows, but nothing is reduced"
        )
    rows = tuple(axis for axis in workload.parallel if axis not in columns)
    length = math.prod(workload.extents[a] for a in columns)
    count = math.prod(workload.extents[a] for a in rows)
    block_rows, block_columns, threads = (
        column(tiles, "block", 0),
        column(tiles, "block", 1),
        column(tiles, "threads"),
    )
    vector, split = np.maximum(column(tiles, "vector"), 1), np.maximum(column(tiles, "split_k"), 1)
    largest = max(workload.inputs, key=lambda o: o.nbytes, default=workload.output)
    inner = [a for a in (*rows, *columns) if axis_stride(largest, a) == 1 and workload.extents[a] > 1]
    contiguous = not inner or inner[-1] in columns
    beside = np.maximum(1, block_rows // (1 if contiguous else vector))
    across = np.maximum(1, threads // beside)
    walked = np.minimum(-(-length // split), length)
    steps = np.maximum(1, -(-walked // block_columns))
    each = np.maximum(1, block_columns // (across * (vector if contiguous else 1)))
    blocks = -(-count // block_rows) * split
    box = box_of(workload, rows, np.minimum(block_rows, count))
    box[:, list(columns)] = box_of(workload, columns, walked)[:, list(columns)]

    def of_warp(wide: int, deep: int, own: int) -> np.ndarray:
        thread = np.arange(WARP)
        along, row = (thread % wide, thread // wide) if contiguous else (thread // deep, thread % deep)
        part = np.arange(own)
        at_row = np.repeat(row, own) if contiguous else (row[:, None] * own + part).reshape(-1)
        at_column = (along[:, None] * own + part).reshape(-1) if contiguous else np.repeat(along, own)
        points = points_along(workload, rows, at_row % max(1, count))
        return points + points_along(workload, columns, at_column % length)

    lanes = once_for_each(of_warp, across, beside, vector)
    sums = [s for s in statements if s.reduction]
    item = sum(s.result.element_bytes for s in sums)
    warps = across // WARP
    shared = np.where(warps > 1, beside * warps * item, 0) if contiguous else across * beside * vector * item
    if not contiguous:
        shared = np.where(across > 1, shared, 0)
    # Pieces of a row whose results nobody waits for are combined by the last block to come: an exchange more, and a flag.
    waits = len(sums) > 1 or bool(workload.output.axes & frozenset(columns))
    # With several groups of rows the flag finds a place that is free by then.
    combined = 2 * (-(-shared // 16) * 16) + np.where((beside == 1) | (shared == 0), 4, 0)
    shared = np.where((split > 1) & (not waits), combined, shared)
    found = Deal(blocks, box, vector, each, steps, lanes, lanes, shared, split, one.astype(float))
    looped = steps > 1
    for operand in (o for s in statements for o in s.reads if o.name.startswith("in")):
        reads = sum(o.name == operand.name for s in statements for o in s.reads)
        again = sum(1 for s in statements if s.reduction) if reads else 0
        found.passes[operand.name] = np.where(looped, max(reads, min(again, 2)), 1)
    # All wait for each other after every sum, or the last one for what the others have left.
    found.rounds = (split > 1) * (1.0 * len(sums) if waits else 1.0)
    return found


def _tiles(workload: Workload, schedules: Sequence[Schedule]) -> Deal:
    """rTasks of the fallback, whose loops threads share one point each."""
    one, axes = ones(schedules), workload.parallel
    box = np.tile(np.asarray(workload.extents, dtype=np.int64), (len(schedules), 1))
    for row, schedule in enumerate(schedules):
        for loop, size in enumerate(schedule.tile):
            if not size:
                continue
            if loop >= len(axes) or size > workload.extents[axes[loop]]:
                raise ScheduleError(
                    f"features of `{workload.op}` on a GPU: tile[{loop}] is {size}, which no loop of its result has; use 0"
                )
            box[row, axes[loop]] = size
    extents = np.asarray(workload.extents, dtype=np.int64)[list(axes)]
    own = box[:, list(axes)]
    blocks = (-(-extents // np.maximum(own, 1))).prod(axis=1) if len(axes) else one
    lanes = []
    for sizes in own:
        points = np.zeros((WARP, len(workload.axes)), dtype=np.int64)
        left = np.arange(WARP) % max(1, int(sizes.prod()))
        for axis, size in reversed(list(zip(axes, sizes.tolist()))):
            points[:, axis], left = left % size, left // size
        lanes.append(points)
    return Deal(np.maximum(blocks, 1), box, one, one, one, lanes, lanes, 0 * one, one, one.astype(float))
