"""Puts a schedule on every dispatch whose convolution is computed by Winograd's algorithm.

    func private @conv(...) {tilewright.operator = "conv"}          // holds a generic with tilewright.winograd = 4
      =>
    func private @conv(...) {tilewright.schedule = {tile = [0, 4, 0, 0], reductions = [{winograd = [14, 32]}]},
                         tilewright.predicted = {bound = "compute", us = 400.}, ...}

An rTask re-uses what it transforms only within itself, and costs other operations than a direct convolution, so its
cuts come from `tuning/winograd_choice.py`. Of the first few the model of complete schedules takes another one where it
predicts that to be faster. A dispatch that has a schedule keeps it; loops that its sink does not follow one to one stay
whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilewright.compiler.analysis.sink import outside, sink_of
from tilewright.compiler.analysis.structure import Structured, loop_lines, tileable_loops
from tilewright.compiler.analysis.winograd_form import Convolution2d
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.families.cpu.proposals import read_dispatch
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.targets.file import written
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.cpu.winograd_choice import WinogradMachine, WinogradProblem, ranked_tiles
from tilewright.compiler.tuning.proposers.first_choice import fastest
from tilewright.compiler.tuning.proposers.reduction_depths import with_depth

_MODELLED = 4
"""Cuts that the model of complete schedules chooses of."""


@dataclass(frozen=True)
class ScheduleWinograd(Pass):
    """Takes the target as `choose-winograd` does."""

    target: str = "cpu"

    @classmethod
    def for_target(cls, target: Target) -> ScheduleWinograd:
        """The pass with a target's numbers."""
        return cls(written(target))

    def run(self, op: ir.Operation) -> None:
        target = self.target_named(op, self.target)
        for function in functions(op.opview):
            if "tilewright.operator" in function.attributes and schedule_attribute.read(function) is None:
                chosen = next(winograd_candidates(function, target), None)
                if chosen is not None:
                    schedule_attribute.write(function, chosen.schedule)
                    schedule_attribute.write_prediction(function, chosen.us, chosen.bound)


def winograd_candidates(function: ir.Operation, target: Target) -> Iterator[Candidate]:
    """The schedule of a dispatch with such a convolution, complete, and the same one with its products in blocks of channels,
    which is worth a measurement; none for every other dispatch."""
    cuts = _cuts(function, target)
    if not cuts:
        return
    subject = read_dispatch(function, target)
    listed = [replace(cut, schedule=subject.complete(cut.schedule)) for cut in cuts]
    first = listed[fastest(subject, listed)]
    yield first
    if any(said.loops == "winograd" for said in first.schedule.reductions):
        blocked = with_depth(subject, first, "winograd")
        if blocked != first:
            yield blocked


def _cuts(function: ir.Operation, target: Target) -> list[Candidate]:
    """The first few cuts of a dispatch with such a convolution and what each is estimated at, none for every other."""
    group = [
        s
        for view in function.regions[0].blocks[0].operations
        if (s := Structured.read(view.operation)) is not None
    ]
    convolutions = [c for s in group if (c := Convolution2d.read(s.op)) is not None and c.outputs]
    sink = sink_of(function)
    if len(convolutions) != 1 or sink is None or group[-1].op != sink or outside(function) is not None:
        return []
    (convolution,) = convolutions
    n, h, w, f, r, _, c = convolution.extents
    lines = loop_lines(group[-1], group)
    line = next(line for s, line in zip(group, lines) if s.op == convolution.op) or {}
    outer = {inner: loop for loop, inner in line.items() if inner is not None}
    tileable = tileable_loops(group[-1], group)
    loops = [outer.get(loop) for loop in convolution.loops[:4]]
    found = []
    for choice in ranked_tiles(
        WinogradProblem(n, h, w, f, r, c, convolution.block),
        WinogradMachine.of(target),
        convolution.outputs or 0,
        tuple(loop in tileable for loop in loops),
    )[:_MODELLED]:
        tile = [0] * len(group[-1].extents)
        for loop, size, extent in zip(loops, choice.tile, convolution.extents):
            if size < extent and loop is not None:
                tile[loop] = size
        bound = "DRAM" if choice.streams else "compute"
        found.append(Candidate(Schedule(tuple(tile)), choice.us, bound))
    return found
