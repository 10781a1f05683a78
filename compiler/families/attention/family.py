"""The family of fused attention: one kernel per dispatch, on matrix instructions where the types and the target allow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TypeAlias

from tilewright.compiler import debug
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.attention.mma import MmaPlan, emit_mma
from tilewright.compiler.families.attention.problem import AttentionProblem, NotAttention, read_attention
from tilewright.compiler.families.attention.simt import LANES, SimtPlan, SimtTile, emit_simt
from tilewright.compiler.families.attention.wgmma import ARCH, WgmmaPlan, read_maps, tile_of
from tilewright.compiler.families.attention.wgmma_kernel import emit_wgmma
from tilewright.compiler.families.decision import Decision
from tilewright.compiler.families.wgmma.maps import NotHopper
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.gpu.gemm_tiles import architecture
from tilewright.compiler.tuning.gpu.occupancy import register_limit, shared_limit

_PREFERRED = (64, 128, 32, 16)
"""Rows of queries and of keys in the order in which they are tried where no schedule says otherwise."""

_WARPGROUP_TILES = ((128, 128), (128, 96), (128, 80), (128, 64), (64, 64))
"""Rows of queries and of keys for warpgroups, in the order in which they are tried. Source: near those of
FlashAttention-3, `hopper/tile_size.h`, where heads of 128 have 128 queries and 128 or 176 keys, heads of 256 80 keys."""
_FEWEST_ROWS = 33
"""Of queries: with fewer, half of what a warpgroup multiplies is not wanted."""

Plan: TypeAlias = MmaPlan | SimtPlan | WgmmaPlan


def emit(function: ir.Operation, schedule: Schedule | None, target: Target) -> ir.Module:
    """The dispatch's kernel in gpu-level IR; raises as `decide` does."""
    return decide(function, schedule, target).write()


def decide(function: ir.Operation, schedule: Schedule | None, target: Target) -> Decision:
    """The plan of the dispatch's kernel; raises NotAttention for a dispatch that is none, or that nothing here holds.

    Raises ScheduleError for a schedule of an attention that no kernel can follow.
    """
    asked = schedule.gpu if schedule else None
    with function.context, ir.Location.unknown(function.context):
        problem = read_attention(function)
        plan = choose(problem, asked, target)
    if plan is None:
        raise NotAttention(f"no block of this attention fits {target.name}")

    def write() -> ir.Module:
        with function.context, ir.Location.unknown(function.context):
            if isinstance(plan, WgmmaPlan):
                return emit_wgmma(plan)
            return emit_mma(plan) if isinstance(plan, MmaPlan) else emit_simt(plan)

    return Decision(Schedule(gpu=plan.gpu), write)


def choose(problem: AttentionProblem, asked: GpuTile | None, target: Target) -> Plan | None:
    """The plan that a schedule asks for, else the first that fits; None where none does. Raises ScheduleError."""
    if asked is None or asked.kernel in ("", "wgmma"):
        found = _wgmma_plan(problem, asked or GpuTile(), target)
        if found is not None:
            return found
    if asked is not None and asked.kernel == "attention" and asked.block:
        plan = _plan(problem, asked.block[0], asked.block[1], asked.threads, bool(asked.instruction), target)
        if plan is None or not fits(plan, target):
            raise ScheduleError(
                f"attention @{problem.name} on {target.name}: {asked.text()} does not fit: expected rows of a multiple "
                f"of {LANES}, whole warps, and no more than {shared_limit(target):,} B of shared memory; use smaller "
                "blocks, or no gpu entry"
            )
        return plan
    return next((plan for plan in _candidates(problem, target) if fits(plan, target)), None)


def fits(plan: Plan, target: Target) -> bool:
    """Whether the target's shared memory and registers hold a plan."""
    if isinstance(plan, WgmmaPlan):
        return plan.tile.broken_rule() is None
    threads = plan.threads if isinstance(plan, MmaPlan) else plan.tile.threads
    return plan.shared_bytes <= shared_limit(target) and plan.registers <= register_limit(target, threads)


def takes_matrices(problem: AttentionProblem, target: Target) -> bool:
    """Whether queries, keys and values are of one type of 16 bits, scores f32, and the target multiplies such matrices."""
    types = {access.dtype for access in problem.accesses[:3]}
    return (
        architecture(target) >= 80
        and len(types) == 1
        and types <= {"f16", "bf16"}
        and str(problem.real) == "f32"
    )


def takes_warpgroups(problem: AttentionProblem, target: Target) -> bool:
    """Whether TMA and wgmma take this attention; the debug log says why not."""
    try:
        if target.arch != ARCH:
            raise NotHopper(f"{target.arch} is not {ARCH}")
        read_maps(problem)
    except NotHopper as reason:
        debug.log(3, f"{problem.name}: no attention by wgmma: {reason}")
        return False
    return True


def _wgmma_plan(problem: AttentionProblem, asked: GpuTile, target: Target) -> WgmmaPlan | None:
    """The plan on warpgroups that is asked for, or the first that fits; None where they cannot or should not be used."""
    if not takes_warpgroups(problem, target):
        return None
    maps = read_maps(problem)
    if asked.block:
        tile = tile_of(problem, *asked.block[:2], asked.stages or 2)
        if rule := tile.broken_rule():
            raise ScheduleError(f"attention @{problem.name} as wgmma kernel on {target.name}: {rule}")
        return WgmmaPlan(problem, tile, maps)
    if asked.kernel != "wgmma" and problem.attention.rows < _FEWEST_ROWS:
        debug.log(3, f"{problem.name}: no attention by wgmma: {problem.attention.rows} queries")
        return None
    tiles = (tile_of(problem, *sizes) for sizes in _WARPGROUP_TILES)
    return next((WgmmaPlan(problem, tile, maps) for tile in tiles if tile.broken_rule() is None), None)


def _candidates(problem: AttentionProblem, target: Target) -> Iterator[Plan]:
    matrices = takes_matrices(problem, target)
    for rows, columns in product(_PREFERRED, (64, 32, 16)):
        if rows > 16 and rows >= 2 * problem.attention.rows:
            continue
        # Without asynchronous copies, more rows to a thread hide more of what loads take.
        share = 2 if matrices or architecture(target) < 80 else 4
        threads = min(256, max(32, share * rows))
        plan = _plan(problem, rows, columns, threads, matrices, target)
        if plan is not None:
            yield plan


def _plan(
    problem: AttentionProblem, rows: int, columns: int, threads: int, matrices: bool, target: Target
) -> Plan | None:
    """A plan of these sizes; None where they do not go together."""
    threads = threads or 128
    if rows % 16 or columns % 16 or threads % 32 or not 32 <= threads <= 1024:
        return None
    if matrices:
        if not takes_matrices(problem, target) or rows % (threads // 2):
            return None
        return MmaPlan(problem, rows, columns, threads)
    if rows % (threads // LANES):
        return None
    return SimtPlan(problem, SimtTile(rows, columns, threads, architecture(target) >= 80))
