"""Schedules of a dispatch that is an attention, on a CPU: its cuts, in the order of the model of complete schedules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from tilewright.compiler.analysis.workload_of import workload_of
from tilewright.compiler.families.cpu.complete_schedule import complete, others
from tilewright.compiler.families.cpu.dispatch_space import dispatch_space
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import Space
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.model.micro_performance import predict
from tilewright.compiler.tuning.proposers.first_choice import least
from tilewright.compiler.tuning.proposers.proposer import UNGUIDED
from tilewright.compiler.tuning.roller.options import ConstructOptions


def attention_proposals(
    function: ir.Operation, target: Target, count: int, options: ConstructOptions, proposer: str = ""
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
    """What proposers that know nothing of the machine ask of a dispatch."""

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
