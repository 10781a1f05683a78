"""Chooses what a schedule of attention leaves open: the first kernel and the first block of queries and keys that fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from tilewright.compiler import debug
from tilewright.compiler.families.attention.family import (
    Plan,
    fits,
    plan_of,
    takes_matrices,
    warpgroup_maps,
)
from tilewright.compiler.families.attention.problem import AttentionProblem, NotAttention
from tilewright.compiler.families.attention.rules import sized
from tilewright.compiler.families.attention.wgmma import WgmmaPlan, tile_of
from tilewright.compiler.families.wgmma.maps import NotHopper
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.target import Target

_PREFERRED = (64, 128, 32, 16)
"""Rows of queries and of keys in the order in which they are tried where no schedule says otherwise."""

_WARPGROUP_TILES = ((128, 128), (128, 96), (128, 80), (128, 64), (64, 64))
"""Rows of queries and of keys for warpgroups, in the order in which they are tried. Source: near those of
FlashAttention-3, `hopper/tile_size.h`, where heads of 128 have 128 queries and 128 or 176 keys, heads of 256 80 keys."""
_FEWEST_ROWS = 33
"""Of queries: with fewer, half of what a warpgroup multiplies is not wanted."""

_THREADS = 128
_STAGES = 2


def complete(problem: AttentionProblem, request: Schedule, target: Target) -> Schedule:
    """The schedule of one of the family's kernels, every field of it: as requested, or of the first block that fits.

    Raises ScheduleError for sizes that no kernel has, NotAttention or NotHopper where no kernel holds the attention.
    """
    said = request.gpu or GpuTile()
    plan: Plan | None = None
    if said.kernel == "wgmma" or (not said.kernel and suits_warpgroups(problem, target)):
        plan = _on_warpgroups(problem, said, target)
    if plan is None and said.kernel == "attention" and said.block:
        plan = plan_of(problem, _filled(problem, said, target), target)
    if plan is None and said.kernel != "wgmma":
        plan = next((plan for plan in _candidates(problem, target) if fits(plan, target)), None)
    if plan is None:
        raise NotAttention(f"no block of this attention fits {target.name}")
    return Schedule(gpu=plan.gpu)


def _filled(problem: AttentionProblem, said: GpuTile, target: Target) -> GpuTile:
    """The schedule of a kernel of single warps whose block is said, with the threads and stages that it has."""
    said = replace(said, threads=said.threads or _THREADS)
    matrices = bool(said.instruction)
    plan = sized(problem, *said.block, said.threads, matrices, target) if len(said.block) == 2 else None
    return replace(said, stages=said.stages or (plan.slots if plan is not None else _STAGES))


def suits_warpgroups(problem: AttentionProblem, target: Target) -> bool:
    """Whether TMA and wgmma take this attention, and rows enough are wanted; the debug log says why not."""
    if problem.attention.rows < _FEWEST_ROWS:
        debug.log(3, f"{problem.name}: no attention by wgmma: {problem.attention.rows} queries")
        return False
    return takes_warpgroups(problem, target)


def takes_warpgroups(problem: AttentionProblem, target: Target) -> bool:
    """Whether TMA and wgmma take this attention; the debug log says why not."""
    try:
        warpgroup_maps(problem, target)
    except NotHopper as reason:
        debug.log(3, f"{problem.name}: no attention by wgmma: {reason}")
        return False
    return True


def _on_warpgroups(problem: AttentionProblem, said: GpuTile, target: Target) -> WgmmaPlan | None:
    """The plan that is requested, or the first that fits; None where none does. Raises NotHopper, ScheduleError."""
    maps = warpgroup_maps(problem, target)
    if said.block:
        tile = tile_of(problem, said.block[0], said.block[-1], said.stages or _STAGES)
        found = plan_of(problem, replace(said, threads=tile.threads, stages=tile.stages), target)
        assert isinstance(found, WgmmaPlan)
        return found
    plans = (WgmmaPlan(problem, tile_of(problem, *sizes), maps) for sizes in _WARPGROUP_TILES)
    return next((plan for plan in plans if fits(plan, target)), None)


def _candidates(problem: AttentionProblem, target: Target) -> Iterator[Plan]:
    matrices = takes_matrices(problem, target)
    for rows, columns in product(_PREFERRED, (64, 32, 16)):
        if rows > 16 and rows >= 2 * problem.attention.rows:
            continue
        # Without asynchronous copies, more rows to a thread hide more of what loads take.
        share = 2 if matrices or target.compute_capability < 80 else 4
        threads = min(256, max(32, share * rows))
        yield sized(problem, rows, columns, threads, matrices, target)
