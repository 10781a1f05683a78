"""Chooses how the elements of a dispatch are dealt out to threads, where a schedule leaves that open.

Lanes are the widest that make accesses cheap, vectors per thread as many as leave every core enough blocks. Results that
lie across their operands in memory are cut into boxes, as large as they may be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.elementwise.access import Access, Buffer, cost
from tilewright.compiler.families.elementwise.cover import (
    LANES,
    MOST_VECTORS,
    Cover,
    Part,
    cover_of,
    cover_rules,
    tile_of,
)
from tilewright.compiler.families.elementwise.family import MOST_BOX, Elementwise, check, gpu_of, trace
from tilewright.compiler.families.elementwise.scalars import Unwritable
from tilewright.compiler.families.elementwise.transpose import (
    LINE_BYTES,
    Boxes,
    Crossing,
    boxes_of,
    crossing,
)
from tilewright.compiler.families.tile_space import refuse_broken
from tilewright.compiler.gpu.alignment import FULL_BYTES
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.target import Target

_THREADS = 256
_FEWEST_THREADS = 64
_USUAL_VECTORS = 4
"""Vectors per thread: 64 bytes of every operand under way."""
_MOST_BYTES = 16 * 1024
"""Results of a box: many blocks of them fit into a multiprocessor's shared memory at once."""
_FEWEST_POINTS = 2048
"""Fewer points lie in the nearest cache anyway."""
_BLOCKS_PER_CORE = 2
"""Of a scatter, whose blocks have more to do the more updates hit their keys."""


def complete(problem: Elementwise, request: Schedule, target: Target) -> Schedule:
    """The schedule of the kernel for a dispatch, every field of it.

    Raises ScheduleError for sizes that no kernel has, Unwritable where index arithmetic takes none of the vectors.
    """
    said = request.gpu or GpuTile()
    if problem.scatter is not None:
        blocks = min(problem.scatter.keys, _BLOCKS_PER_CORE * target.num_cores)
        own = said if said.kernel == "scatter" else GpuTile()
        block = own.block or (-(-problem.scatter.keys // blocks),)
        return _checked(problem, GpuTile("scatter", own.threads or _THREADS, block), target)
    across = problem.crossing if said.kernel in ("", "transpose") else None
    if across is not None:
        box = (
            said.block if said.kernel == "transpose" and said.block else chosen_box(across, target.num_cores)
        )
        if box is not None:
            return _checked(problem, GpuTile("transpose", said.threads or _THREADS, box), target)
    parts, main = problem.dispatch.parts, problem.main
    largest = cover(parts[main], problem.accesses[main], request, target)
    # A schedule is about most of the points; what else is computed follows with as many threads.
    others = [Schedule(gpu=GpuTile(threads=largest.threads)) for _ in parts]
    for number, (block, lanes) in zip(
        [n for n in range(len(parts)) if n != main], zip(said.parts[::2], said.parts[1::2])
    ):
        others[number] = Schedule(gpu=GpuTile(threads=largest.threads, block=(block,), vector=lanes))
    covers = [
        largest if number == main else cover(part, problem.accesses[number], others[number], target)
        for number, part in enumerate(parts)
    ]
    if problem.differs_by_lane:
        try:
            trace(problem.dispatch, [own.lanes for own in covers])
        except Unwritable as reason:
            if said.kernel and said.vector:
                raise ScheduleError(f"gpu.vector is {said.vector}: {reason}; use 1") from None
            raise
    return Schedule(gpu=gpu_of(problem, covers))


def _checked(problem: Elementwise, made: GpuTile, target: Target) -> Schedule:
    """The schedule; raises ScheduleError where no kernel has it."""
    check(problem, made, target)
    return Schedule(gpu=made)


def cover(part: Part, accesses: Sequence[Access], schedule: Schedule, target: Target) -> Cover:
    """How a part is dealt out: as the schedule says, and where it leaves a choice, as accesses and cores ask for.

    Lanes are the widest that make accesses cheap; vectors per thread as many as leave every core enough blocks.
    Raises ScheduleError for lanes that no vector has, and for blocks that are no whole vectors of every thread.
    """
    given = schedule.gpu or GpuTile()
    lanes = given.vector or _lanes(part, accesses)
    if lanes not in LANES:
        raise ScheduleError(
            f"gpu.vector is {lanes}; threads access {', '.join(map(str, LANES))} elements at once"
        )
    threads = given.threads or _THREADS
    groups = max(1, part.points // lanes)
    while not given.threads and threads > _FEWEST_THREADS and groups < threads * target.num_cores:
        threads //= 2
    if part.window is not None:
        size = given.thread[0] if given.thread else given.block[0] // (threads * lanes) if given.block else 0
        small = tile_of(part, lanes, size, target.num_cores)
        return Cover(lanes, 1, threads, part.points // small.size, small, True)
    if given.block:
        refuse_broken(cover_rules(part), GpuTile("elementwise", threads, given.block, vector=lanes), "")
        return cover_of(part, threads, given.block[0] // (threads * lanes), lanes)
    if any(schedule.tile) and len(schedule.tile) == len(part.extents):
        block = math.prod(size or extent for size, extent in zip(schedule.tile, part.extents))
        return Cover(lanes, min(MOST_VECTORS, max(1, block // (threads * lanes))), threads, part.points)
    widest = max((lanes * a.buffer.item_bytes for a in accesses), default=FULL_BYTES)
    most = max(1, _USUAL_VECTORS * FULL_BYTES // max(FULL_BYTES, widest)) if lanes > 1 else 2 * _USUAL_VECTORS
    vectors = 1
    while vectors < most and groups >= 2 * vectors * threads * target.num_cores * 2:
        vectors *= 2
    return Cover(lanes, vectors, threads, part.points)


def _lanes(part: Part, accesses: Sequence[Access]) -> int:
    candidates = [lanes for lanes in LANES if lanes == 1 or part.points >= 2 * lanes]
    return min(candidates, key=lambda lanes: (sum(cost(a, lanes) for a in accesses), -lanes))


def boxes(extents: Sequence[int], accesses: Sequence[Access], result: Buffer, cores: int) -> Boxes | None:
    """The boxes of results of these extents; None where operands are read well in the order of the results' memory."""
    across = crossing(extents, accesses, result)
    box = None if across is None else chosen_box(across, cores)
    return None if across is None or box is None else boxes_of(across, box)


def chosen_box(across: Crossing, cores: int) -> tuple[int, ...] | None:
    """The box of results that cross an operand, as large as it may be, but so that none of the `cores` has less than two.

    None where boxes are not worth it: few points, or as much that is read in the order of the results, for then the
    nearest cache serves the rest.
    """
    if math.prod(across.axes) < _FEWEST_POINTS or across.is_along:
        return None
    box = _box(
        across.axes,
        across.order,
        across.reads,
        across.source.item_bytes,
        across.writes,
        across.result.item_bytes,
    )
    return None if box is None else _grown(box, across.axes, cores)


def _box(
    axes: Sequence[int],
    order: Sequence[int],
    strides: Sequence[int],
    item_bytes: int,
    written: Sequence[int],
    written_bytes: int,
) -> tuple[int, ...] | None:
    """The largest box whose runs are two lines, one, or a half or quarter of one long and that fits; None where none does."""
    for run_bytes in (2 * LINE_BYTES, LINE_BYTES, LINE_BYTES // 2, LINE_BYTES // 4):
        box = [1] * len(axes)
        _extend(box, axes, list(reversed(order)), strides, run_bytes // item_bytes)
        _extend(box, axes, list(reversed(range(len(axes)))), written, run_bytes // written_bytes)
        if math.prod(box) <= MOST_BOX and math.prod(box) * written_bytes <= _MOST_BYTES:
            return tuple(box)
    return None


def _extend(
    box: list[int], axes: Sequence[int], inner_first: Sequence[int], strides: Sequence[int], run: int
) -> None:
    """Grows a box along axes that follow each other in memory, all with the same gaps, until runs have `run` elements."""
    gap, length = 0, 1
    for axis in inner_first:
        gap = gap or strides[axis]
        if strides[axis] != gap * length or length >= run:
            break
        size = _share(axes[axis], -(-run // length))
        box[axis] = max(box[axis], size)
        length *= axes[axis]
        if size != axes[axis]:
            break


def _share(extent: int, wanted: int) -> int:
    """How much of an axis a box takes: all of a short one, a divisor of at least `wanted`, or just that."""
    if extent < 2 * wanted:
        return extent
    return next((size for size in range(wanted, 2 * wanted) if extent % size == 0), wanted)


def _grown(box: tuple[int, ...], axes: Sequence[int], cores: int) -> tuple[int, ...]:
    """Doubles a box, inner axes first, as long as it stays small and twice as many remain as there are cores."""
    found = list(box)
    for axis in reversed(range(len(axes))):
        while (
            2 * found[axis] <= axes[axis]
            and 2 * math.prod(found) <= MOST_BOX // 4
            and math.prod(axes) >= 4 * cores * math.prod(found)
        ):
            found[axis] *= 2
    return tuple(found)
