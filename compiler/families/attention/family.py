"""The family of fused attention: one kernel per dispatch, on matrix instructions where the types and the target allow."""

from __future__ import annotations

from typing import TypeAlias

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.attention.mma import MmaPlan, emit_mma
from tilewright.compiler.families.attention.problem import AttentionProblem, read_attention
from tilewright.compiler.families.attention.rules import sized, warp_rules, warpgroup_rules
from tilewright.compiler.families.attention.simt import SimtPlan, emit_simt
from tilewright.compiler.families.attention.wgmma import ARCH, WgmmaPlan, read_maps, tile_of
from tilewright.compiler.families.attention.wgmma_kernel import emit_wgmma
from tilewright.compiler.families.contract import require
from tilewright.compiler.families.tile_space import broken_rules, refuse_broken
from tilewright.compiler.families.wgmma.maps import NotHopper
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.space import KEPT, Constraint
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
    who = f"attention @{problem.name} on {target.name}"
    if len(said.block) != 2:
        raise ScheduleError(f"{who}: [{said.text()}]: gpu.block is (queries, keys), found {list(said.block)}")
    maps = None
    if said.kernel == "wgmma":
        try:
            maps = warpgroup_maps(problem, target)
        except NotHopper as reason:
            raise ScheduleError(f"{who}: [{said.text()}] is not for wgmma: {reason}") from None
    elif said.instruction and not takes_matrices(problem, target):
        raise ScheduleError(
            f"{who}: [{said.text()}]: gpu.instruction is {said.instruction}, which does not multiply these; leave it out"
        )
    refuse_broken(rules(problem, said, target), said, who)
    if maps is not None:
        return WgmmaPlan(problem, tile_of(problem, *said.block, said.stages), maps)
    return sized(problem, *said.block, said.threads, bool(said.instruction), target)


def rules(problem: AttentionProblem, said: GpuTile, target: Target) -> tuple[Constraint, ...]:
    """What schedules of a kernel keep to; `said` tells which."""
    return warpgroup_rules(problem) if said.kernel == "wgmma" else warp_rules(problem, target)


def fits(plan: Plan, target: Target) -> bool:
    """Whether a kernel has the sizes of a plan."""
    problem = plan.problem
    return broken_rules(rules(problem, plan.gpu, target), [plan.gpu])[0] == KEPT


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
