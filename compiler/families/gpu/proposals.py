"""A GPU's schedules as proposers give them, and what they ask of a dispatch: its spaces, its workload, its aligned tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tilewright.compiler.analysis.workload_of import NoWorkload, read_workload, workload_of
from tilewright.compiler.dialects.attention import ATTENTION
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.gpu import families
from tilewright.compiler.families.gpu.candidates import gpu_candidates, product_of
from tilewright.compiler.families.gpu.dispatch_space import kernel_spaces
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.nouns.schedule import KERNELS, GpuTile, Schedule
from tilewright.compiler.nouns.space import Space
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.gpu.gpu_candidates import WINDOWS
from tilewright.compiler.tuning.proposers.gpu import GPU_PROPOSERS, in_turn
from tilewright.compiler.tuning.proposers.gpu_dispatch import GpuDispatch
from tilewright.compiler.tuning.roller.options import ConstructOptions

_RIVALS = {"wgmma": ("attention",)}
"""Of kernels that the model may find slower than others: which."""


def gpu_proposals(
    function: ir.Operation,
    target: Target,
    count: int,
    options: ConstructOptions,
    proposer: str = "",
) -> list[Candidate]:
    """At most `count` complete schedules of a dispatch, the one to use unmeasured first.

    Where no `proposer` is named, others are asked for what the first one leaves. Raises NoWorkload for what none of them
    proposes anything: that has no axes to cut, or the model does not count its kernels.
    """
    subject = read_dispatch(function, target)
    distinct: dict[Schedule, Candidate] = {}
    reasons = []
    for name in (proposer,) if proposer else in_turn(subject):
        if len(distinct) >= count:
            break
        try:
            found = GPU_PROPOSERS[name](subject, count, options)
        except ScheduleError as reason:
            reasons.append(str(reason))
            continue
        for candidate in found:
            key = replace(candidate.schedule, levels=())
            distinct.setdefault(key, replace(candidate, proposer=name))
    if not distinct:
        raise NoWorkload("; ".join(reasons))
    return list(distinct.values())[:count]


def read_dispatch(function: ir.Operation, target: Target) -> GpuDispatch:
    """The dispatch for proposers."""
    return GpuDispatch(
        target,
        partial(_kernels, function, target),
        partial(_form, function),
        partial(_enumerated, function, target),
        lambda schedule: families.constructed(function, schedule, target),
        partial(_workload, function),
    )


def _kernels(function: ir.Operation, target: Target, every: bool) -> Mapping[str, Space]:
    own = families.constructed(function, _asked(function), target)
    assert own.gpu is not None
    return kernel_spaces(function, target, own, KERNELS if every else _RIVALS.get(own.gpu.kernel, ()))


def _asked(function: ir.Operation) -> Schedule:
    """What is asked of families where nobody chooses: windows of one channel are batches of products, but poor ones."""
    try:
        is_window = read_workload(function).workload.op in WINDOWS
    except NoWorkload:
        is_window = False
    return Schedule(gpu=GpuTile("windows")) if is_window else Schedule()


def _form(function: ir.Operation) -> str:
    if walk(function, ATTENTION):
        return "attention"
    try:
        dispatch = read_workload(function)
    except NoWorkload:
        return "whole"
    return "loops" if product_of(function, dispatch) is None else "product"


def _enumerated(
    function: ir.Operation, target: Target, options: ConstructOptions, proposer: str
) -> list[Candidate]:
    try:
        return gpu_candidates(function, target, options, proposer)
    except NoWorkload as reason:
        raise ScheduleError(str(reason)) from None


def _workload(function: ir.Operation) -> Workload:
    with function.context, function.location:
        return workload_of(function)
