"""Chooses how threads share the rows that a dispatch reduces, sorts or scans, where a schedule leaves that open."""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.rows import scans, sorts
from tilewright.compiler.families.rows.family import RowDispatch
from tilewright.compiler.families.rows.layout import (
    KEPT_BYTES,
    RowLayout,
    RowShape,
    layout_of,
    power_at_least,
)
from tilewright.compiler.families.rows.problem import NotRows, RowProblem, stripped
from tilewright.compiler.families.rows.scans import ScanProblem
from tilewright.compiler.families.rows.sorts import SortProblem
from tilewright.compiler.nouns.schedule import WARP, GpuTile, Schedule
from tilewright.compiler.targets.target import Target

_PIECE = 2048
"""Columns of a piece of a divided row, at least."""
_ROUND = 4
"""Groups of `vector` elements per round of a loop over a row that is too long to be kept."""
_WAVES = 4
"""Blocks per multiprocessor that a divided row is worth."""
_BLOCK = 256
_LONG = 8192
"""Columns from which a row is worth the second step that dividing it takes: writing, counting and reading again."""
_LARGEST = 1024


def complete(rows: RowDispatch, request: Schedule, target: Target) -> Schedule:
    """The schedule of the kernel for a dispatch, every field of it.

    Raises ScheduleError for sizes that no kernel has, NotRows for a sort that fits nowhere.
    """
    said = request.gpu or GpuTile()
    if isinstance(rows.problem, SortProblem):
        own = said if said.kernel == "sort" else GpuTile(threads=said.threads)
        return Schedule(gpu=_sort(rows, rows.problem, own, target))
    if isinstance(rows.problem, ScanProblem):
        own = said if said.kernel == "scan" else GpuTile(threads=said.threads)
        return Schedule(gpu=_scan(rows, rows.problem, own))
    assert rows.shape is not None
    layout = choose_layout(rows.shape, request, target, block_rows(rows.problem, request))
    return Schedule(gpu=layout.gpu)


def block_rows(problem: RowProblem, schedule: Schedule) -> int:
    """How many rows a block has by the schedule's tile, 0 where it leaves the dispatch whole."""
    if not any(schedule.tile):
        return 0
    sink = problem.step_of(stripped(problem.results[0]))
    assert sink is not None
    return -(-problem.num_rows // schedule.num_tasks(sink.generic.extents))


def _sort(rows: RowDispatch, problem: SortProblem, said: GpuTile, target: Target) -> GpuTile:
    """Whole rows in shared memory, several short ones in a block; pieces of long ones of which few elements are kept."""
    threads = _LARGEST
    if not said.block:
        room = target.level("shared").capacity_bytes // 2 // sorts.element_bytes_of(problem, rows.types)
        piece = 1 << (room.bit_length() - 1)
        if problem.length <= room or 2 * problem.kept <= piece:
            width = problem.length if problem.length <= room else piece
            pairs = power_at_least(width) // 2
            together = max(1, min(_BLOCK // max(1, pairs), power_at_least(problem.rows)))
            said = replace(said, block=(together, width))
        elif not problem.counts:
            said = replace(said, block=(1,))
        else:
            raise NotRows("a long row, of which many elements are kept with places that no buffer holds")
    if len(said.block) == 2:
        pairs = said.block[0] * (power_at_least(said.block[1]) // 2)
        threads = min(_LARGEST, max(WARP, pairs))
        threads = power_at_least(threads)
    found = GpuTile("sort", said.threads or threads, said.block)
    sorts.check(problem, rows.types, found, target)
    return found


def _scan(rows: RowDispatch, problem: ScanProblem, said: GpuTile) -> GpuTile:
    """Rows along memory by several threads each, others by one."""
    if not rows.vector:
        threads = said.threads or min(_BLOCK, max(WARP, power_at_least(problem.rows)))
        found = replace(said, kernel="scan", threads=threads, block=said.block or (threads,))
        scans.columns_of(found)
        return found
    vector = said.vector or rows.vector
    across = max(2, min(said.threads or _BLOCK, power_at_least(problem.length // vector)))
    beside = max(1, (said.threads or max(WARP, across)) // across)
    if not said.threads:
        beside = max(beside, min(_BLOCK // 2 // across, power_at_least(problem.rows)), 1)
    block = said.block or (beside, across * vector)
    threads = said.threads or block[0] * (block[-1] // vector)
    found = replace(said, kernel="scan", threads=threads, block=block, vector=vector)
    scans.rows_of(found, rows.vector)
    return found


def choose_layout(shape: RowShape, schedule: Schedule, target: Target, block_rows: int = 0) -> RowLayout:
    """The layout for a device. `schedule.gpu` may say `threads`, and the most elements per access as `vector`; with
    threads given, a block has `block_rows` rows where that is not 0. With a `block` it says everything.

    Raises ScheduleError for a number of threads that cannot be divided among rows.
    """
    asked = schedule.gpu
    if asked is not None and asked.block:
        whole = replace(asked, kernel="rows", vector=asked.vector or 1, split_k=asked.split_k or 1)
        return layout_of(shape, whole, target.num_cores)
    vector = shape.vector
    while asked is not None and asked.vector and vector > asked.vector:
        vector //= 2
    threads = asked.threads if asked is not None else 0
    if threads & (threads - 1):
        raise ScheduleError(f"rows: a block of {threads} threads asked for; use a power of two")
    found = (_contiguous if shape.contiguous else _strided)(shape, vector, threads, block_rows, target)
    return _waiting(shape, found, target)


def _waiting(shape: RowShape, layout: RowLayout, target: Target) -> RowLayout:
    """The layout with long rows divided among blocks that wait for each other, where most of the device would idle.

    Half of what the device takes: all blocks run at once even where it has half as many multiprocessors as its kind.
    """
    blocks = -(-shape.rows // layout.block_rows)
    room = target.num_cores if layout.threads <= _LARGEST // 2 else target.num_cores // 2
    pieces = min(room // blocks, shape.columns // _PIECE)
    if shape.splittable or shape.columns < _LONG or pieces < 2:
        return layout
    groups = -(-shape.columns // layout.group)
    slots = -(-groups // (pieces * layout.across))
    looped = slots * layout.vector > KEPT_BYTES // shape.bytes
    if looped:
        slots = max(1, min(layout.slots, slots))
    return replace(layout, slots=slots, looped=looped, split=pieces, waits=True)


def _contiguous(shape: RowShape, vector: int, threads: int, block_rows: int, target: Target) -> RowLayout:
    kept = KEPT_BYTES // shape.bytes
    groups = -(-shape.columns // vector)
    most = threads or _LARGEST
    if threads and block_rows:
        across = min(max(1, threads // power_at_least(block_rows)), power_at_least(groups))
    else:
        across = _across(shape, groups, vector, most, target)
    looped = -(-groups // across) * vector > kept or _is_worth_splitting(shape, across, target)
    if looped:
        largest = most if threads or not shape.splittable else _BLOCK
        across = min(largest, power_at_least(-(-groups // _ROUND)))
    beside = _beside(shape.rows, across, threads)
    slots = -(-groups // across)
    split = 1
    if looped:
        blocks = -(-shape.rows // beside)
        pieces = max(1, _WAVES * target.num_cores // blocks) if shape.splittable else 1
        slots = max(1, min(_ROUND, slots // pieces))
        split = min(pieces, -(-groups // (across * slots)))
    return RowLayout(True, across, beside, vector, slots, looped, split)


def _across(shape: RowShape, groups: int, vector: int, most: int, target: Target) -> int:
    """Threads per row: few, as long as each still keeps its part and the rows keep the device busy."""
    kept = KEPT_BYTES // shape.bytes
    across = min(most, power_at_least(groups))
    while across > 1:
        half = across // 2
        held = -(-groups // half) * vector
        if held > (kept // 2 if half >= WARP else max(_ROUND, vector)):
            break
        if half >= WARP and shape.rows * half < target.num_cores * _BLOCK:
            break
        across = half
    return across


def _is_worth_splitting(shape: RowShape, across: int, target: Target) -> bool:
    """Whether few long rows leave most of the device idle unless each is divided among blocks."""
    blocks = shape.rows * across // min(across, _BLOCK)
    return shape.splittable and shape.columns >= _LONG and 2 * blocks <= target.num_cores


def _beside(rows: int, across: int, threads: int) -> int:
    """Rows next to each other in a block of a few warps."""
    if threads:
        return max(1, threads // across)
    return max(1, WARP // across, min(_BLOCK // 2 // across, power_at_least(rows)))


def _strided(shape: RowShape, vector: int, threads: int, block_rows: int, target: Target) -> RowLayout:
    kept = KEPT_BYTES // shape.bytes
    if threads and block_rows:
        beside = min(threads, power_at_least(-(-block_rows // vector)))
    else:
        beside = min(WARP, power_at_least(-(-shape.rows // vector)))
        while vector > 1 and shape.rows < target.num_cores * beside * vector:
            vector //= 2
            beside = min(WARP, power_at_least(-(-shape.rows // vector)))
    blocks = -(-shape.rows // (beside * vector))
    if threads:
        across = max(1, threads // beside)
    else:
        most = _LARGEST if blocks < target.num_cores else _BLOCK
        across = max(WARP // beside, min(power_at_least(shape.columns), most // beside))
    slots = -(-shape.columns // across)
    looped = slots * vector > kept
    split = 1
    if looped:
        pieces = max(1, _WAVES * target.num_cores // blocks) if shape.splittable else 1
        slots = max(1, min(2 * _ROUND // vector, slots // pieces))
        split = min(pieces, -(-shape.columns // (across * slots)))
    return RowLayout(False, across, beside, vector, slots, looped, split)
