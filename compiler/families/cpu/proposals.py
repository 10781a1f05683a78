"""A CPU's schedules as proposers give them, and what they ask of a dispatch: its space, its cuts, what its registers hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from tilewright.compiler.analysis.cut_space import lines_cut_space, read_cut_space
from tilewright.compiler.analysis.line_operations import lines_of
from tilewright.compiler.analysis.placement import OVERWRITES
from tilewright.compiler.analysis.sink import outside, sink_of
from tilewright.compiler.analysis.workload_of import DispatchWorkload, NoWorkload, read_workload, workload_of
from tilewright.compiler.dialects.attention import ATTENTION
from tilewright.compiler.families.cpu.complete_schedule import can_stream, complete, others
from tilewright.compiler.families.cpu.cut_reductions import Cuts
from tilewright.compiler.families.cpu.dispatch_space import dispatch_space
from tilewright.compiler.families.cpu.kinds import kinds_of
from tilewright.compiler.families.cpu.walked_rows import walked_rows
from tilewright.compiler.ir import ir, static_shape, walk
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import Space
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.cpu.dispatch import CpuDispatch, RegisterSizes
from tilewright.compiler.tuning.model.micro_performance import predict
from tilewright.compiler.tuning.model.rates import TASK_US
from tilewright.compiler.tuning.model.rtask_times import streams
from tilewright.compiler.tuning.proposers.cpu import CPU_PROPOSERS, IN_TURN
from tilewright.compiler.tuning.proposers.first_choice import (
    POOL,
    fastest,
    least,
    loads_least,
    shares_rows,
)
from tilewright.compiler.tuning.proposers.proposer import UNGUIDED
from tilewright.compiler.tuning.proposers.reduction_depths import rows_apart, with_depths
from tilewright.compiler.tuning.roller.options import ConstructOptions

START_US = 2.0
"""Starting all cores on a step and waiting for the last, for a CPU that was not measured: two cache lines that travel
between cores a few times."""


def cpu_proposals(
    function: ir.Operation,
    target: Target,
    count: int,
    options: ConstructOptions,
    proposer: str = "",
    task_us: float = TASK_US,
) -> list[Candidate]:
    """At most `count` schedules of a dispatch, the one to use unmeasured first; raises NoWorkload.

    Where no `proposer` is named, others are asked for what the first one leaves. Of an attention its cuts are all there is to
    propose (`_attention_proposals`).
    """
    if walk(function, ATTENTION):
        return _attention_proposals(function, target, count, options, proposer)
    subject = read_dispatch(function, target, task_us)
    found: list[Candidate] = []
    for name in (proposer,) if proposer else IN_TURN:
        if len(found) < count:
            found = _distinct([*found, *_proposed(subject, name, count, options)])
    found = _distinct([*(_with_rows_ahead(function, first, subject) for first in found[:1]), *found])
    asked = streams(subject.workload.nbytes, target)
    found = list(_streamed(function, found, target, asked))
    found = [*found[:1], *_unfetched(subject, found[:1]), *found[1:]][:count]

    def pool(name: str) -> list[Candidate]:
        # Whether results are streamed is not chosen among them.
        listed = _proposed(subject, name, POOL, replace(options, top_k=POOL))
        return [next(_streamed(function, [other], target, asked)) for other in listed]

    return _distinct(_refined(subject, found, pool))[:count]


def _attention_proposals(
    function: ir.Operation, target: Target, count: int, options: ConstructOptions, proposer: str
) -> list[Candidate]:
    """At most `count` complete schedules, the one to use unmeasured first.

    No loop of a sink is cut, so that there is nothing to construct: whatever `proposer` is named, but for those that know
    nothing of the machine, cuts are those that `tuning/cpu/attention_cut.py` lists, by predicted time. The first that is listed
    stays the first where it is predicted to be about as fast as any.
    """
    subject = _Attention(function, target)
    if proposer in UNGUIDED:
        found = UNGUIDED[proposer](subject, count, options)
        return [replace(candidate, proposer=proposer) for candidate in found]
    listed = [subject.constructed]
    listed += [replace(listed[0], reductions=cut) for cut in others(function, (), target) or ()]
    predicted = predict(subject.workload, listed, target)
    first = least(predicted.us)
    order = sorted(range(len(listed)), key=lambda place: (place != first, predicted.us[place]))
    return [
        Candidate(listed[place], round(float(predicted.us[place]), 3), predicted.bound[place], "modelled")
        for place in order[:count]
    ]


@dataclass(frozen=True)
class _Attention:
    """A dispatch that is an attention, as proposers see it."""

    function: ir.Operation
    target: Target

    @cached_property
    def constructed(self) -> Schedule:
        return complete(self.function, Schedule(), self.target)

    @cached_property
    def space(self) -> Space:
        return dispatch_space(self.function, self.target, self.constructed)

    @cached_property
    def workload(self) -> Workload:
        return workload_of(self.function)

    def predicted(self, schedule: Schedule) -> tuple[float, str]:
        found = predict(self.workload, [schedule], self.target)
        return round(float(found.us[0]), 3), found.bound[0]


def _distinct(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Each schedule once, whatever is said of it to be in the caches."""
    found: dict[Schedule, Candidate] = {}
    for candidate in candidates:
        found.setdefault(replace(candidate.schedule, levels=()), candidate)
    return list(found.values())


def _proposed(subject: CpuDispatch, name: str, count: int, options: ConstructOptions) -> list[Candidate]:
    """What one proposer proposes, with its name."""
    found = CPU_PROPOSERS[name](subject, count, options)
    return [replace(candidate, proposer=name) for candidate in found]


def _refined(
    subject: CpuDispatch, candidates: Sequence[Candidate], pool: Callable[[str], list[Candidate]]
) -> Iterator[Candidate]:
    """The candidates with blocks of their reductions' steps where these are predicted to be faster, and the first one without.

    Where the first one gets some, and an operand is read in rows, or where rows are multiplied by rows, it is chosen among a
    `pool` of its proposer (`first_choice`). Proposers that construct nothing say what they want themselves.
    """
    for number, candidate in enumerate(candidates):
        if candidate.proposer not in IN_TURN:
            yield candidate
            continue
        blocked = with_depths(subject, candidate)
        if number:
            yield blocked
            continue
        plain, found, best = [candidate], [blocked], 0
        if blocked is candidate and shares_rows(subject):
            plain += pool(candidate.proposer)
            found, best = plain, fastest(subject, plain)
        elif blocked is not candidate and rows_apart(subject.workload.inputs, subject.workload.reduction):
            plain += pool(candidate.proposer)
            found += [with_depths(subject, other) for other in plain[1:]]
            best = loads_least(subject, found)
        yield found[best]
        yield from (other for other in dict.fromkeys((plain[best], candidate)) if other is not found[best])


def _with_rows_ahead(function: ir.Operation, candidate: Candidate, subject: CpuDispatch) -> Candidate:
    """The candidate, with fewer rows in an rTask where it walks more of them again than are fetched ahead.

    Half of them, and half again, until the next rTask's come while these are computed on.
    """
    tile = candidate.schedule.tile
    cut = max((loop for loop, size in enumerate(tile) if size), default=None)
    if cut is None or candidate.proposer not in IN_TURN or not walked_rows(function):
        return candidate
    if subject.complete(candidate.schedule).prefetch:
        return candidate
    size = tile[cut] // 2
    while size:
        smaller = Schedule((*tile[:cut], size, *tile[cut + 1 :]))
        if subject.complete(smaller).prefetch:
            us, bound = subject.predicted(smaller)
            return replace(candidate, schedule=smaller, us=us, bound=bound)
        size //= 2
    return candidate


def _unfetched(subject: CpuDispatch, candidates: Sequence[Candidate]) -> Iterator[Candidate]:
    """Those of the candidates that fetch panels ahead, without."""
    for candidate in candidates:
        whole = subject.complete(candidate.schedule)
        if whole.prefetch:
            yield replace(candidate, schedule=replace(whole, prefetch=0))


def _streamed(
    function: ir.Operation, candidates: Sequence[Candidate], target: Target, asked: bool
) -> Iterator[Candidate]:
    """The candidates with stores past the caches where that is asked for and can be, and the first one the other way too."""
    for number, candidate in enumerate(candidates):
        other = replace(candidate, schedule=replace(candidate.schedule, stream=True))
        can = can_stream(function, candidate.schedule, target)
        yield other if can and asked else candidate
        if can and number == 0:
            yield candidate if asked else other


def read_dispatch(function: ir.Operation, target: Target, task_us: float = TASK_US) -> CpuDispatch:
    """The dispatch for proposers; raises NoWorkload for one that code generation does not cut."""
    lines = lines_of(function)
    if lines is not None:
        if any(0 in static_shape(value.type) for value in lines.op.operands):
            raise NoWorkload("a loop has no steps")
        dispatch = DispatchWorkload(workload_of(function), tuple(range(len(lines.extents))))
        space = lines_cut_space(lines, OVERWRITES in function.attributes, target.vector_bits)
    else:
        dispatch = read_workload(function)
        if dispatch.main is None or sink_of(function) is None:
            raise NoWorkload("code generation cuts structured operations, scans, sorts and scatters only")
        space = read_cut_space(dispatch, target.vector_bits)
        if outside(function) is not None:
            space = space.whole()
    completed = cache(partial(complete, function, target=target))
    return CpuDispatch(
        dispatch.workload,
        target,
        space,
        lambda: dispatch_space(function, target, completed(Schedule())),
        partial(_registers, function, dispatch, target),
        completed,
        partial(others, function, target=target),
        partial(workload_of, function),
        task_us,
    )


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
