"""The family of fused attention: one kernel per dispatch, on matrix instructions where the types and the target allow."""

from __future__ import annotations

from typing import TypeAlias

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.attention.mma import MmaPlan, emit_mma
from tilewright.compiler.families.attention.problem import AttentionProblem, read_attention
from tilewright.compiler.families.attention.simt import LANES, SimtPlan, SimtTile, emit_simt
from tilewright.compiler.families.attention.wgmma import ARCH, WgmmaPlan, read_maps, tile_of
from tilewright.compiler.families.attention.wgmma_kernel import emit_wgmma
from tilewright.compiler.families.contract import require
from tilewright.compiler.families.wgmma.maps import NotHopper
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.occupancy import register_limit, shared_limit
from tilewright.compiler.targets.target import Target

Plan: TypeAlias = MmaPlan | SimtPlan | WgmmaPlan


def match(function: ir.Operation, target: Target) -> AttentionProblem:
    """The attention that a dispatch is; raises NotAttention."""
    return read_attention(function)


def emit(problem: AttentionProblem, schedule: Schedule, target: Target) -> ir.Module:
    """The kernel that a complete schedule describes; raises ScheduleError for one that no kernel has."""
    plan = plan_of(problem, schedule.gpu or GpuTile(), target)
    if isinstance(plan, WgmmaPlan):
        return emit_wgmma(plan)
    return emit_mma(plan) if isinstance(plan, MmaPlan) else emit_simt(plan)


def plan_of(problem: AttentionProblem, said: GpuTile, target: Target) -> Plan:
    """The plan of the sizes that a schedule says; raises ScheduleError for those that no kernel has."""
    require(said, "kernel", "threads", "block", "stages")

    def refused(rule: str) -> ScheduleError:
        return ScheduleError(f"attention @{problem.name} on {target.name}: [{said.text()}] {rule}")

    if len(said.block) != 2:
        raise refused(f"does not fit: gpu.block is (queries, keys), found {list(said.block)}")
    rows, columns = said.block
    if said.kernel == "wgmma":
        try:
            maps = warpgroup_maps(problem, target)
        except NotHopper as reason:
            raise refused(f"is not for wgmma: {reason}") from None
        tile = tile_of(problem, rows, columns, said.stages)
        if rule := tile.broken_rule():
            raise refused(f"as wgmma kernel: {rule}")
        return WgmmaPlan(problem, tile, maps)
    plan = sized(problem, rows, columns, said.threads, bool(said.instruction), target)
    if plan is None or not fits(plan, target):
        raise refused(
            f"does not fit: expected rows of a multiple of {LANES}, whole warps, and no more than "
            f"{shared_limit(target):,} B of shared memory; use smaller blocks, or no gpu entry"
        )
    return plan


def sized(
    problem: AttentionProblem, rows: int, columns: int, threads: int, matrices: bool, target: Target
) -> MmaPlan | SimtPlan | None:
    """A plan of these sizes; None where they do not go together."""
    if rows % 16 or columns % 16 or threads % 32 or not 32 <= threads <= 1024:
        return None
    if matrices:
        if not takes_matrices(problem, target) or rows % (threads // 2):
            return None
        return MmaPlan(problem, rows, columns, threads)
    if rows % (threads // LANES):
        return None
    return SimtPlan(problem, SimtTile(rows, columns, threads, target.compute_capability >= 80))


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
        target.compute_capability >= 80
        and len(types) == 1
        and types <= {"f16", "bf16"}
        and str(problem.real) == "f32"
    )


def warpgroup_maps(problem: AttentionProblem, target: Target):
    """The tensor maps of an attention on warpgroups; raises NotHopper where TMA and wgmma do not take it."""
    if target.arch != ARCH:
        raise NotHopper(f"{target.arch} is not {ARCH}")
    return read_maps(problem)
