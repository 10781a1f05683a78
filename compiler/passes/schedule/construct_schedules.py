"""Puts a schedule on every dispatch that has none: tiles aligned with the target, constructed without a search.

    func private @matmul_128x768x3072(...) {tilewright.operator = "matmul"}
      =>
    func private @matmul_128x768x3072(...) {
      tilewright.schedule = {levels = {L1 = [4, 96, 64], ...}, reductions = [{products = [8, 48]}], tile = [64, 192]},
      tilewright.predicted = {bound = "compute", us = 3904.}}

On CPUs and NVIDIA GPUs the schedule is what the code generator applies, and `levels` say what each memory holds of it;
for other targets, which no code is generated for yet, the levels are all there is. What a hand-written schedule
leaves out of a CPU's kernel is filled in. A dispatch that has no workload gets an empty schedule, and `tilewright.unscheduled` says why.
Source: Roller, OSDI'22, §3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.compiler.analysis.strided_form import strided_form
from tilewright.compiler.analysis.workload_of import DispatchWorkload, NoWorkload, read_workload
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.kernel_form import ONCE
from tilewright.compiler.families.cpu.complete_schedule import complete
from tilewright.compiler.families.cpu.proposals import START_US, cpu_proposals
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.schedule import PROPOSER, UNSCHEDULED, Schedule
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.targets.file import written
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.model.rates import TASK_US
from tilewright.compiler.tuning.proposers.cpu import CPU_PROPOSERS
from tilewright.compiler.tuning.roller import RULES, ConstructOptions, construct

TOLD = "it runs once, by a kernel that is told its extents and strides"
"""Why a dispatch of @prepack has no schedule."""


@dataclass(frozen=True)
class ConstructSchedules(Pass):
    """`target` is a preset, a .json file or a target as JSON text; `cores` when positive stands in for its own, and
    `start_us`, `task_us` when not negative for what starting a step on all cores, or one rTask of it, costs on a CPU.
    Of `top_k` candidates number `candidate` is taken. `proposer` lists them: "roller", "aligned", "modelled", "default" or
    "random"; where it is empty, "roller" and for what that leaves "aligned", of contractions on GPUs "aligned" alone.
    The five rules are Roller's alignments (OSDI'22, §3.1); `epsilon` bounds padding, `axis_fusion` and `shrink` are its §3.2.
    """

    target: str = "cpu"
    cores: int = 0
    start_us: float = -1.0
    task_us: float = -1.0
    top_k: int = 10
    candidate: int = 0
    proposer: str = ""
    memory_transaction: bool = True
    execution_unit: bool = True
    tensor_shape: bool = True
    memory_bank: bool = True
    matrix_unit: bool = False
    epsilon: float = 0.0
    axis_fusion: bool = True
    shrink: bool = True

    @classmethod
    def for_target(cls, target: Target) -> ConstructSchedules:
        """The pass for a target."""
        return cls(written(target))

    def run(self, op: ir.Operation) -> None:
        target = self.described(op)
        for function in functions(op.opview):
            if "tilewright.operator" not in function.attributes:
                continue
            written = schedule_attribute.read(function)
            if written is not None:
                if target.kind == "cpu":
                    schedule_attribute.write(function, complete(function, written, target))
                continue
            if ONCE in function.attributes and strided_form(function) is not None:
                function.attributes[UNSCHEDULED] = ir.StringAttr.get(TOLD, function.context)
                continue
            try:
                candidates = self.candidates(function, target, self.candidate + 1)
            except NoWorkload as reason:
                schedule_attribute.write(function, self._completed(function, Schedule(), target))
                function.attributes[UNSCHEDULED] = ir.StringAttr.get(str(reason), function.context)
                continue
            chosen = candidates[min(self.candidate, len(candidates) - 1)]
            schedule = (
                chosen.schedule if target.is_cuda else self._completed(function, chosen.schedule, target)
            )
            schedule_attribute.write(function, schedule)
            schedule_attribute.write_prediction(function, chosen.us, chosen.bound)
            if chosen.proposer:
                function.attributes[PROPOSER] = ir.StringAttr.get(chosen.proposer, function.context)

    @staticmethod
    def _completed(function: ir.Operation, asked: Schedule, target: Target) -> Schedule:
        """The schedule with everything that a kernel is made of, on targets that code is generated for."""
        if target.kind == "cpu":
            return complete(function, asked, target)
        return _constructed_on_gpus(function, asked, target) if target.is_cuda else asked

    def described(self, op: ir.Operation) -> Target:
        """The target with the options' numbers; raises PassError for one that nobody knows."""
        found = self.target_named(op, self.target)
        if self.candidate < 0 or self.top_k < 1:
            raise self.refusal(
                op, f"expected candidate >= 0 and top-k >= 1, found {self.candidate} and {self.top_k}"
            )
        if self.proposer and self.proposer not in (known := _proposers(found)):
            listed = ", ".join(known)
            raise self.refusal(
                op, f"unknown proposer `{self.proposer}`; the proposers for {found.name} are: {listed}"
            )
        if self.cores > 0:
            found = replace(found, num_cores=self.cores)
        start_us = self.start_us if self.start_us >= 0 else found.start_us or START_US
        return replace(found, start_us=start_us)

    def construct_options(self) -> ConstructOptions:
        """What the construction is told."""
        rules = frozenset(rule for rule in RULES if getattr(self, rule))
        return ConstructOptions(
            top_k=self.top_k,
            candidates=max(40, self.top_k),
            rules=rules,
            epsilon=self.epsilon,
            axis_fusion=self.axis_fusion,
            shrink=self.shrink,
            matrix_unit=self.matrix_unit,
        )

    def candidates_or_none(self, function: ir.Operation) -> list[Candidate]:
        """`candidates` for the target that the options describe; none where there is no workload."""
        try:
            return self.candidates(function, self.described(function))
        except NoWorkload:
            return []

    def candidates(self, function: ir.Operation, target: Target, count: int | None = None) -> list[Candidate]:
        """The first `count` of at most `top_k` schedules of a dispatch, on GPUs complete; raises NoWorkload."""
        most = self.top_k if count is None else min(count, self.top_k)
        if target.is_cuda:
            from tilewright.compiler.families.gpu.proposals import gpu_proposals

            return gpu_proposals(function, target, most, self.construct_options(), self.proposer)
        if target.kind != "cpu":
            return self._constructed(read_workload(function), target)
        task_us = self.task_us if self.task_us >= 0 else TASK_US
        return cpu_proposals(function, target, most, self.construct_options(), self.proposer, task_us)

    def _constructed(self, dispatch: DispatchWorkload, target: Target) -> list[Candidate]:
        programs = construct(dispatch.workload, target, self.construct_options())
        return [Candidate(Schedule(levels=p.levels), round(p.predicted_us, 3), p.bound) for p in programs]


# The kernels of GPUs are many modules, which a compilation for a CPU does not wait for.


def _constructed_on_gpus(function: ir.Operation, asked: Schedule, target: Target) -> Schedule:
    from tilewright.compiler.families.gpu import families

    return families.constructed(function, asked, target)


def _proposers(target: Target) -> Sequence[str]:
    """Who proposes schedules for a target, the one that is asked first in front."""
    if target.kind == "cpu":
        return CPU_PROPOSERS
    if not target.is_cuda:
        return ("roller",)
    from tilewright.compiler.tuning.proposers.gpu import GPU_PROPOSERS

    return GPU_PROPOSERS
