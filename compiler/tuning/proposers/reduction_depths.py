"""Blocks of a reduction's steps where a register tile's operands are more than a core's own cache keeps until the next one.

Rows of register tiles pass a panel of columns: each finds it in the core's own cache, or takes all of it from one that is shared.
Blocks are as deep as that cache keeps (k_c: Low et al., "Analytical Modeling Is Enough for High-Performance BLIS", TOMS 2016, §4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tilewright.compiler.nouns.reduction_blocks import depths
from tilewright.compiler.nouns.register_tiles import RegisterTile
from tilewright.compiler.nouns.schedule import BLOCKED, Reduction, Schedule
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate, cache_levels
from tilewright.compiler.tuning.cpu.dispatch import CpuDispatch
from tilewright.compiler.tuning.cpu.rtask_tiles import CpuModel, Ranked
from tilewright.compiler.tuning.model.cpu_features import WALKED_SHARE, caches, share_of
from tilewright.compiler.tuning.model.footprints import STREAMED_SHARE
from tilewright.compiler.tuning.model.micro_performance import predict
from tilewright.compiler.tuning.model.statements import Statement, read_statements

_WORTH = 0.9
"""Blocks are chosen where they are predicted to take less than this part of the time without: one more costs about a hundredth."""


def with_depths(subject: CpuDispatch, candidate: Candidate) -> Candidate:
    """The candidate, complete, with blocks where it is predicted to be faster so; a depth that it has already stays."""
    target, all_steps = subject.target, _steps(subject.workload, subject.workload.reduction)
    widest = max((operand.element_bytes for operand in subject.workload.inputs), default=0)
    # Most are kept whole: their statements need not be read.
    if any(_overflows(said, all_steps, widest, target) for said in candidate.schedule.reductions):
        statements = [s for s in read_statements(subject.described) if s.reduces]
        for number, statement in enumerate(statements):
            candidate = _blocked(subject, statement, candidate, number)
    return candidate


def _blocked(subject: CpuDispatch, statement: Statement, candidate: Candidate, number: int) -> Candidate:
    """The candidate with one reduction in blocks, if these are worth it."""
    workload, target, entries = subject.described, subject.target, list(candidate.schedule.reductions)
    depth = _deepest(workload, statement, entries[number], target)
    if not depth:
        return candidate
    entries[number] = replace(entries[number], depth=depth)
    schedule = replace(candidate.schedule, reductions=tuple(entries))
    found = predict(workload, [candidate.schedule, schedule], target)
    ratio = float(found.us[1] / found.us[0])
    if ratio >= _WORTH:
        return candidate
    if subject.registers is not None and subject.registers.number == number:
        schedule = replace(schedule, levels=_levels(subject, schedule, entries[number]))
    return replace(candidate, schedule=schedule, us=round(candidate.us * ratio, 3), bound=found.bound[1])


def _levels(
    subject: CpuDispatch, schedule: Schedule, said: Reduction
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What each level of memory holds of the reduction that does the work while it is summed in blocks."""
    model = CpuModel(subject.workload, subject.cuts, subject.target, subject.task_us)
    extents = subject.cuts.extents
    tile = [*schedule.tile, *[0] * (len(extents) - len(schedule.tile))]
    whole = tuple(size or extent for size, extent in zip(tile, extents))
    return cache_levels(model, Ranked(whole, RegisterTile(*said.sizes), 0.0, ""), said.depth)


def _deepest(workload: Workload, statement: Statement, said: Reduction, target: Target) -> int:
    """The deepest block of which a core's own cache keeps what a register tile is computed of; 0 where it keeps it whole.

    Blocks that are all alike come first: what is left over of others is counted at run time.
    """
    widest = max((operand.element_bytes for operand in statement.reads), default=0)
    steps = _steps(workload, statement.reduction)
    if not _overflows(said, steps, widest, target):
        return 0
    extents = [workload.axes[axis].extent for axis in statement.reduction]
    most = STREAMED_SHARE * _room(target) / (sum(said.sizes) * widest)
    fitting = [depth for depth in depths(extents)[1:] if depth <= most]
    return max(fitting, key=lambda depth: (steps % depth == 0, depth), default=0)


def _overflows(said: Reduction, steps: int, element_bytes: int, target: Target) -> bool:
    """Whether a register tile could sum in blocks, and what it is computed of is more than stays until the next one."""
    tile = sum(said.sizes) * element_bytes * steps
    return said.loops in BLOCKED and not said.depth and tile > WALKED_SHARE * _room(target)


def _room(target: Target) -> float:
    """Bytes of a core's own last cache."""
    own = [level for level in caches(target) if level.shared_by == 1] or caches(target)[:1]
    return share_of(own[-1], target)


def _steps(workload: Workload, axes: Sequence[int]) -> int:
    return math.prod(workload.axes[axis].extent for axis in axes)
