"""Cuts of a dispatch into rTasks from sizes alone: enough tasks for the workers, each big enough to be worth one.

The first heuristic, without a search; works on plain numbers, so it is the same for every target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.tuning.register_tile import divisors


@dataclass(frozen=True)
class Cuttable:
    """What deciding a cut needs to know of a dispatch.

    `extents` are those of the sink's loops, of which `loops` may be cut, outer first; `steps[i]` is what the tile
    of loop `i` should be a multiple of; `exact` demands tiles that divide; `work` is the dispatch's total in
    scalar operations, `minimum_work` what one task should have at least.
    """

    extents: tuple[int, ...]
    loops: tuple[int, ...]
    steps: tuple[int, ...]
    exact: bool
    work: float
    minimum_work: float


def pieces(extent: int, step: int, exact: bool) -> list[int]:
    """Tile sizes of a loop, descending.

    Multiples of `step` that divide it, where it is itself a multiple; otherwise even divisions, whose last tile
    overlaps its neighbour, or divisors where `exact` forbids that.
    """
    if extent % step == 0 and (step > 1 or exact):
        return [step * d for d in reversed(divisors(extent // step))]
    if exact:
        return list(reversed(divisors(extent)))
    return sorted(
        {-(-extent // count) for count in range(1, -(-extent // min(step, extent)) + 1)}, reverse=True
    )


def cut(dispatch: Cuttable, max_tasks: int) -> tuple[int, ...]:
    """Tile sizes of the sink's loops, 0 where a loop stays whole.

    Cuts one loop after the other, outer ones first, until there are `max_tasks` tasks, or as many as `minimum_work`
    in each allows; rounding up in the last loop makes less than twice as many.
    """
    target = max(1, min(max_tasks, int(dispatch.work / dispatch.minimum_work)))
    tile = list(dispatch.extents)
    tasks = 1
    for loop in dispatch.loops:
        if tasks >= target:
            break
        extent = dispatch.extents[loop]
        sizes = pieces(extent, dispatch.steps[loop], dispatch.exact)
        wanted = -(-target // tasks)
        fitting = [size for size in sizes if -(-extent // size) <= wanted]
        tile[loop] = fitting[-1]
        tasks *= -(-extent // tile[loop])
    return tuple(0 if size == extent else size for size, extent in zip(tile, dispatch.extents))


def total(extents: Sequence[int], tile: Sequence[int]) -> int:
    """The number of tasks that `tile` makes."""
    count = 1
    for extent, size in zip(extents, tile):
        count *= -(-extent // size) if size else 1
    return count


def transposing_tile(
    extents: tuple[int, ...], source_order: Sequence[int], block: int
) -> tuple[int, ...] | None:
    """The tile of a copy that reads in another order than it writes; None when both run along the same loop.

    `source_order` are the loops that the source's dimensions follow, outer first. The tile takes about `block`
    consecutive elements of the source and of the result, so that every cache line is used up while it is near.
    """
    if not source_order or source_order[-1] == len(extents) - 1:
        return None
    tile = [1] * len(extents)
    tile[-1] = min(extents[-1], block)
    run = 1
    for loop in reversed(source_order):
        if run >= block or loop == len(extents) - 1:
            break
        tile[loop] = min(extents[loop], -(-block // run))
        run *= tile[loop]
    return tuple(0 if size == extent else size for size, extent in zip(tile, extents))
