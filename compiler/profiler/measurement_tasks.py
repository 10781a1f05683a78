"""The dispatches of a module that have candidates to choose from, each with what is known of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tilewright.compiler.analysis.workload_of import workload_of
from tilewright.compiler.codegen.lower_cpu import LoweredKernel
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.record import Record
from tilewright.compiler.package.residence import (
    calls_of_main,
    name_of,
    residence_of,
    weight_bytes,
    weight_level,
)
from tilewright.compiler.profiler.dispatch_facts import DispatchFacts, read_facts
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate

CandidatesOf = Callable[[ir.Operation], Sequence[Candidate]]
"""The candidates of a dispatch, first the one that is there already."""


@dataclass
class MeasurementTask:
    """A dispatch that is to be decided, and what is known of its candidates.

    By number of the candidate: `objects` digests of their code, `errors` why there is none or it failed, `kernels` what
    was compiled in this process.
    """

    function: ir.Operation
    facts: DispatchFacts
    candidates: Sequence[Candidate]
    records: list[Record] = field(default_factory=list)
    objects: dict[int, str] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    kernels: dict[int, LoweredKernel] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.facts.name

    def unknown(self) -> list[int]:
        """The candidates whose objects nobody knows yet."""
        return [n for n in range(len(self.candidates)) if n not in self.objects and n not in self.errors]

    def distinct(self) -> dict[str, int]:
        """The objects that have not failed, each with its first candidate."""
        found = {d: n for n, d in sorted(self.objects.items(), reverse=True) if n not in self.errors}
        return dict(sorted(found.items(), key=lambda entry: entry[1]))

    def unmeasured(self) -> list[int]:
        """A candidate for each object that is to be measured; none where there is nothing to choose or to trust."""
        distinct = self.distinct()
        if 0 not in distinct.values() or len(distinct) < 2:
            return []
        measured = {record.object for record in self.records}
        return [number for digest, number in distinct.items() if digest not in measured]

    def known_us(self) -> dict[str, float]:
        """The best round of every object that is on record and has not failed."""
        distinct = self.distinct()
        found: dict[str, float] = {}
        for record in self.records:
            if record.object in distinct:
                found[record.object] = min(record.us, found.get(record.object, math.inf))
        return found

    def medians_us(self) -> dict[str, float]:
        """The middle round of every object that has any on record."""
        rounds: dict[str, list[float]] = {}
        for record in self.records:
            if record.rounds_us:
                rounds.setdefault(record.object, []).extend(record.rounds_us)
        return {digest: statistics.median(found) for digest, found in rounds.items()}

    def to_run(self) -> list[int]:
        """The candidates that measuring needs: the first, to compare with, what has no record, and the rival.

        The rival has the best record; it runs where it and the first one never took turns.
        """
        wanted = {0, *self.unmeasured()}
        known = self.known_us()
        if known:
            best = min(known, key=lambda digest: (known[digest], digest))
            first = {(r.at, r.host) for r in self.records if r.object == self.objects[0]}
            if not any((r.at, r.host) in first for r in self.records if r.object == best):
                wanted.add(self.distinct()[best])
        return sorted(wanted)

    def missing(self) -> list[int]:
        """The candidates that measuring needs, and whose kernels are not here."""
        return [number for number in self.to_run() if number not in self.kernels]

    def learn(self, records: Sequence[Record] = ()) -> None:
        """Takes in records of the workload: objects that failed are failures of every candidate that has them."""
        self.records.extend(records)
        failed = {record.object: record.error for record in self.records if record.error and record.object}
        for number, digest in self.objects.items():
            if digest in failed:
                self.errors[number] = failed[digest]


def measurement_tasks(
    module: ir.Module, target: Target, candidates_of: CandidatesOf
) -> Iterator[MeasurementTask]:
    """The dispatches that @main calls and that have a choice; one with another schedule was written by hand."""
    rotate_bytes = weight_bytes(module)
    level = weight_level(target, rotate_bytes)
    calls = calls_of_main(module)
    for function in functions(module):
        name = name_of(function)
        if name not in calls:
            continue
        candidates = list(
            {candidate.schedule: candidate for candidate in reversed(candidates_of(function))}.values()
        )
        candidates.reverse()
        if len(candidates) < 2 or schedule_attribute.read(function) != candidates[0].schedule:
            continue
        residence = residence_of(calls[name], level)
        facts = read_facts(function, workload_of(function), residence, rotate_bytes)
        yield MeasurementTask(function, facts, candidates)
