"""Blocks of a reduction's steps where a register tile's operands are more than a core's own cache keeps until the next one.

Rows of register tiles pass a panel of columns: each finds it in the core's own cache, or takes all of it from one that is shared.
Blocks are as deep as that cache keeps (k_c: Low et al., "Analytical Modeling Is Enough for High-Performance BLIS", TOMS 2016, §4),
or less deep where the addresses of so many rows' pages are not kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.compiler.nouns.reduction_blocks import depths
from tilewright.compiler.nouns.register_tiles import RegisterTile
from tilewright.compiler.nouns.schedule import BLOCKED, Reduction, Schedule
from tilewright.compiler.nouns.workload import Operand, Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate, cache_levels
from tilewright.compiler.tuning.cpu.dispatch import CpuDispatch
from tilewright.compiler.tuning.cpu.rtask_tiles import CpuModel, Ranked
from tilewright.compiler.tuning.model.cpu_features import WALKED_SHARE, own_cache, share_of
from tilewright.compiler.tuning.model.footprints import STREAMED_SHARE, kept_pages, kept_runs
from tilewright.compiler.tuning.model.micro_performance import predict
from tilewright.compiler.tuning.model.roles import axis_stride, is_contiguous, steps_of
from tilewright.compiler.tuning.model.statements import Statement, read_statements

_WORTH = 0.9
"""Blocks are chosen where they are predicted to take less than this part of the time without: one more costs about a hundredth."""


def with_depths(subject: CpuDispatch, candidate: Candidate) -> Candidate:
    """The candidate with blocks where it is predicted to be faster so, complete then; a depth that it has already stays."""
    workload, target = subject.workload, subject.target
    plain = found = replace(candidate, schedule=subject.complete(candidate.schedule))
    # Most are kept whole: their statements need not be read.
    loops = workload, workload.inputs, workload.reduction
    if any(_overflows(said, *loops, target) for said in plain.schedule.reductions):
        statements = [s for s in read_statements(subject.described) if s.reduces]
        for number, statement in enumerate(statements):
            found = _blocked(subject, statement, found, number)
    return candidate if found is plain else found


def with_depth(subject: CpuDispatch, candidate: Candidate, loops: str) -> Candidate:
    """A complete candidate with those blocks of the first reduction by `loops` that are predicted to be the fastest, worth it or
    not; as it is where there are none."""
    statements = [s for s in read_statements(subject.described) if s.reduces]
    entries = list(candidate.schedule.reductions)
    number = next(number for number, said in enumerate(entries) if said.loops == loops)
    extents = [subject.described.axes[axis].extent for axis in steps_of(statements[number], loops)]
    schedules = []
    for depth in depths(extents)[1:]:
        entries[number] = replace(entries[number], depth=depth)
        schedules.append(replace(candidate.schedule, reductions=tuple(entries)))
    if not schedules:
        return candidate
    found = predict(subject.described, schedules, subject.target)
    best = int(found.us.argmin())
    return replace(candidate, schedule=schedules[best], us=round(float(found.us[best]), 3))


def _blocked(subject: CpuDispatch, statement: Statement, candidate: Candidate, number: int) -> Candidate:
    """The candidate with one reduction in blocks, if these are worth it."""
    workload, entries = subject.described, list(candidate.schedule.reductions)
    said, schedules = entries[number], [candidate.schedule]
    for depth in _depths(workload, statement, said, subject.target):
        entries[number] = replace(said, depth=depth)
        schedules.append(replace(candidate.schedule, reductions=tuple(entries)))
    found = predict(workload, schedules, subject.target)
    # Of depths that are nearly as good the first one: the deepest.
    best = int(np.argmax(found.us * _WORTH <= found.us.min()))
    ratio = float(found.us[best] / found.us[0])
    if ratio >= _WORTH:
        return candidate
    schedule = schedules[best]
    if candidate.schedule.levels and subject.registers is not None and subject.registers.number == number:
        schedule = replace(schedule, levels=_levels(subject, schedule, schedule.reductions[number]))
    return replace(candidate, schedule=schedule, us=round(candidate.us * ratio, 3), bound=found.bound[best])


def _levels(
    subject: CpuDispatch, schedule: Schedule, said: Reduction
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """What each level of memory holds of the reduction that does the work while it is summed in blocks."""
    model = CpuModel(subject.workload, subject.cuts, subject.target, subject.task_us)
    extents = subject.cuts.extents
    tile = [*schedule.tile, *[0] * (len(extents) - len(schedule.tile))]
    whole = tuple(size or extent for size, extent in zip(tile, extents))
    return cache_levels(model, Ranked(whole, RegisterTile(*said.sizes), 0.0, ""), said.depth)


def _depths(workload: Workload, statement: Statement, said: Reduction, target: Target) -> list[int]:
    """Blocks of which a core's own cache keeps what a register tile is computed of; none where all of it may stay.

    Blocks that are all alike come first, the deepest before others: what is left over of others is counted at run time.
    """
    summed = steps_of(statement, said.loops)
    if not _overflows(said, workload, statement.reads, summed, target):
        return []
    extents = [workload.axes[axis].extent for axis in summed]
    steps = math.prod(extents)
    most = STREAMED_SHARE * _room(target) / _step_bytes(said, statement.reads)
    fitting = [depth for depth in depths(extents)[1:] if depth <= most]
    return sorted(fitting, key=lambda depth: (steps % depth > 0, -depth))


def _overflows(
    said: Reduction, workload: Workload, reads: Sequence[Operand], reduction: Sequence[int], target: Target
) -> bool:
    """Whether a register tile could sum in blocks, and what it is computed of is more than stays until the next one: its bytes
    in a core's own cache, or of an operand whose every step is another row, rows in the sets that they share, or addresses of
    their pages."""
    if said.loops not in BLOCKED or said.depth:
        return False
    steps = math.prod(workload.axes[axis].extent for axis in reduction)
    rows = np.asarray(rows_apart(reads, reduction), dtype=np.int64)
    width = said.sizes[-1] if said.sizes else 1
    run = width * max((operand.element_bytes for operand in reads), default=0)
    kept = np.minimum(kept_runs(own_cache(target), _room(target), rows, run), kept_pages(rows, run))
    return _step_bytes(said, reads) * steps > WALKED_SHARE * _room(target) or bool((steps > kept).any())


def rows_apart(reads: Sequence[Operand], reduction: Sequence[int]) -> list[int]:
    """Bytes from one step of a reduction to the next, of operands whose every step is another row, which no packing has put
    side by side."""
    return [
        axis_stride(operand, axis) * operand.element_bytes
        for operand in reads
        for axis in reduction[-1:]
        if not operand.is_packed and axis in operand.axes and not is_contiguous(operand, axis)
    ]


def _step_bytes(said: Reduction, reads: Sequence[Operand]) -> int:
    """What a register tile is computed of in one step."""
    return sum(said.sizes) * max((operand.element_bytes for operand in reads), default=0)


def _room(target: Target) -> float:
    """Bytes of a core's own last cache."""
    return share_of(own_cache(target), target)
