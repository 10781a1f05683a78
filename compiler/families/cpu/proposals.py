"""Reads off a dispatch what proposers of a CPU's schedules ask: its space, its cuts, and what its registers hold."""

from __future__ import annotations

from functools import partial

from tilewright.compiler.analysis.cut_space import read_cut_space
from tilewright.compiler.analysis.sink import outside, sink_of
from tilewright.compiler.analysis.workload_of import DispatchWorkload, NoWorkload, read_workload, workload_of
from tilewright.compiler.families.cpu.complete_schedule import complete, others
from tilewright.compiler.families.cpu.cut_reductions import Cuts
from tilewright.compiler.families.cpu.dispatch_space import dispatch_space
from tilewright.compiler.families.cpu.kinds import kinds_of
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import Space
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.dispatch import CpuDispatch, RegisterSizes
from tilewright.compiler.tuning.cpu.rtask_tiles import TASK_US, CutSpace


def read_dispatch(function: ir.Operation, target: Target, task_us: float = TASK_US) -> CpuDispatch:
    """The dispatch for proposers; raises NoWorkload for one that code generation does not cut."""
    dispatch = read_workload(function)
    if dispatch.main is None or sink_of(function) is None:
        raise NoWorkload("code generation cuts structured operations only")
    space: CutSpace = read_cut_space(dispatch, target.vector_bits)
    if outside(function) is not None:
        space = space.whole()
    return CpuDispatch(
        dispatch.workload,
        target,
        space,
        partial(_space, function, target),
        partial(_registers, function, dispatch, target),
        lambda schedule: complete(function, schedule, target),
        partial(others, function, target=target),
        partial(workload_of, function),
        task_us,
    )


def _space(function: ir.Operation, target: Target) -> Space:
    return dispatch_space(function, target, complete(function, Schedule(), target))


def _registers(
    function: ir.Operation, dispatch: DispatchWorkload, target: Target, tile: tuple[int, ...]
) -> RegisterSizes | None:
    """What registers hold of the reduction that does the work, in the loops that compute it under a tile."""
    with function.context, function.location:
        cuts = Cuts(function)
        if dispatch.main is None or dispatch.main.op not in cuts.ops:
            return None
        number = cuts.ops.index(dispatch.main.op)
        cut = cuts.under(tile)[number]
        kind, loops = kinds_of(cut, target)[0]
        held = kind.held(cut, loops, target)
    if held is None:
        return None
    axes = [None if loop is None else dispatch.main_axes[loop] for loop in held.loops]
    of_sink = tuple(None if axis is None else dispatch.loops[axis] for axis in axes)
    return RegisterSizes(number, kind.name, of_sink, held.units, held.layer)
