"""A dispatch of a module as a task of a search: its space, its features, candidates to begin with, and its limit.

    module after the phase `schedule`  =>  [DispatchTask(@matmul_128x768x3072, calls = 12), ...]

Dispatches of equal work are one task, whose arguments come from where those of the first one do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tilewright.compiler.analysis.winograd_form import share_of_direct
from tilewright.compiler.analysis.workload_of import NoWorkload, workload_of
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import ScheduleError, TilewrightError
from tilewright.compiler.families.cpu import dispatch_space as cpu_space
from tilewright.compiler.families.cpu.complete_schedule import complete
from tilewright.compiler.families.cpu.proposals import START_US, cpu_proposals
from tilewright.compiler.families.gpu import dispatch_space as gpu_space
from tilewright.compiler.families.gpu.proposals import gpu_proposals
from tilewright.compiler.ir import functions, ir, walk
from tilewright.compiler.nouns.schedule import PREDICTED, PROPOSER, Schedule
from tilewright.compiler.nouns.space import KEPT, Space
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.package.residence import (
    calls_of_main,
    name_of,
    residence_of,
    weight_bytes,
    weight_level,
)
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.features.cpu_sets import cpu_features
from tilewright.compiler.tuning.features.feature_set import Features, Table
from tilewright.compiler.tuning.features.gpu_sets import gpu_features
from tilewright.compiler.tuning.roller.options import ConstructOptions

SEARCHED = "search"
"""The proposer of what a search found."""
Proposals = Callable[[ir.Operation, int], Sequence[Schedule]]
"""At most so many schedules of a dispatch, best first."""


@dataclass
class DispatchTask:
    """Dispatches of one `workload` on a target, of which the first stands for all; `calls` counts those of a model's run.

    They are operations of `module`, which has to live as long as they do. `constructed` is the schedule that is used without a search. `residence` names for every argument the memory that it
    comes from, as in a `Record`; `rotate_bytes` of weights pass between two calls. A `bitwise` task has only schedules that sum
    in the order of the constructed one.
    """

    module: ir.Module
    functions: tuple[ir.Operation, ...]
    workload: Workload
    target: Target
    constructed: Schedule
    calls: int
    residence: tuple[str, ...]
    rotate_bytes: int
    proposals: Proposals | None = None
    bitwise: bool = False

    @property
    def function(self) -> ir.Operation:
        return self.functions[0]

    @property
    def name(self) -> str:
        return name_of(self.function)

    @property
    def key(self) -> str:
        """The key of the workload, as its records have it."""
        return self.workload.key

    @cached_property
    def space(self) -> Space:
        """All schedules of the dispatch; its default is the constructed one."""
        return self._space(self.function)

    def _space(self, function: ir.Operation) -> Space:
        made = gpu_space.dispatch_space if self.target.is_cuda else cpu_space.dispatch_space
        with function.context, function.location:
            space = made(function, self.target, self.constructed)
        return space.held(cpu_space.order_knobs(space)) if self.bitwise else space

    def schedules(self, points: np.ndarray) -> list[Schedule]:
        """What candidates [n, knobs] are."""
        return [self.space.schedule(point) for point in points]

    def features(self, points: np.ndarray, sets: frozenset[str]) -> Features:
        """These sets of features of candidates [n, knobs]; raises ValueError for a set that the target's schedules lack."""
        found: dict = {}
        if "knobs" in sets:
            names = self.space.features
            found["knobs"] = Table(names, ("",) * len(names), self.space.encode(points))
        if rest := sets - {"knobs"}:
            if self.target.kind == "cpu":
                found |= cpu_features(self.workload, self.schedules(points), self.target, rest)
            else:
                found |= gpu_features(self.workload, self.schedules(points), self.target, rest)
        return found

    def seeds(self, count: int) -> np.ndarray:
        """The constructed schedule, and what proposers would try beside it, best first: [at most count, knobs]."""
        proposals = self.proposals or self._proposed
        points: dict[bytes, np.ndarray] = {}
        for schedule in [self.constructed, *proposals(self.function, count)]:
            try:
                point = self.space.point(schedule)
            except ScheduleError:
                continue
            if self.space.legal(point[None])[0] == KEPT:
                points.setdefault(point.tobytes(), point)
        kept = list(points.values())[:count]
        return np.asarray(kept, dtype=np.int64).reshape(len(kept), len(self.space.knobs))

    def _proposed(self, function: ir.Operation, count: int) -> Sequence[Schedule]:
        options = ConstructOptions(top_k=max(1, count), candidates=max(40, count))
        target = replace(self.target, start_us=self.target.start_us or START_US)
        with function.context, function.location:
            try:
                proposals = gpu_proposals if target.is_cuda else cpu_proposals
                return [c.schedule for c in proposals(function, target, count, options)]
            except NoWorkload:
                return []

    @cached_property
    def limit_us(self) -> float:
        """The longer of arithmetic at the peak, and of every operand once from the nearest memory that it can be in.

        What is no weight was just written: it is in the nearest cache that all cores together have room for it in.
        """
        rates = self.target.peak_gflops
        peak = max(rates.get(dtype, 0.0) for dtype in ("f32", *(o.dtype for o in self.workload.operands)))
        moved = 0.0
        for number, operand in enumerate([*self.workload.inputs, self.workload.output]):
            level = self.residence[number] if number < len(self.residence) else ""
            moved += operand.nbytes / (self._bandwidth(level, operand.nbytes) * 1e3)
        # Winograd's transforms take fewer products than the workload counts.
        with self.function.context:
            share = min((share_of_direct(op) for op in walk(self.function, "linalg.generic")), default=1.0)
        return max(self.workload.flops * share / (peak * 1e3), moved)

    def _bandwidth(self, level: str, nbytes: int) -> float:
        """GB/s that all cores read of so many bytes in a level of memory, of the nearest one that holds them for ""."""
        if level:
            return self.target.level(level).bandwidth_gbps
        shared = (
            (memory, memory.capacity_bytes * max(1, self.target.num_cores // max(1, memory.shared_by)))
            for memory in reversed(self.target.memory)
            if memory.name != "registers"
        )
        return next(
            (m.bandwidth_gbps for m, room in shared if room >= nbytes), self.target.memory[0].bandwidth_gbps
        )

    def apply(self, schedule: Schedule, proposer: str = SEARCHED) -> None:
        """Puts a schedule on all dispatches of the task; one that is written so that it cannot have it keeps its own.

        The constructed one stays as it is: it says more than a space does, what each level of memory holds.
        """
        if schedule == self.space.schedule(self.space.point(self.constructed)):
            return
        for function in self.functions:
            if function is not self.function and schedule not in self._space(function):
                continue
            schedule_attribute.write(function, schedule)
            function.attributes[PROPOSER] = ir.StringAttr.get(proposer, function.context)
            if PREDICTED in function.attributes:  # that is of the constructed one
                del function.attributes[PREDICTED]


def dispatch_tasks(
    module: ir.Module, target: Target, proposals: Proposals | None = None, bitwise: bool = False
) -> list[DispatchTask]:
    """The dispatches that @main calls and that have more than one schedule, each workload once.

    The module is past the phase `schedule`. One whose schedule no space has was written by hand, and keeps it.
    """
    if bitwise and target.kind != "cpu":
        raise TilewrightError(
            f"bitwise: in which order a kernel sums is known of CPUs, found `{target.name}`; leave the option out"
        )
    with module.context, ir.Location.unknown(module.context):
        return list(_found(module, target, proposals, bitwise))


def _found(
    module: ir.Module, target: Target, proposals: Proposals | None, bitwise: bool
) -> Iterable[DispatchTask]:
    rotate_bytes = weight_bytes(module)
    level = weight_level(target, rotate_bytes)
    calls = calls_of_main(module)
    found: dict[str, DispatchTask] = {}
    by_name = {name_of(function): function for function in functions(module)}
    for name, called in calls.items():
        function = by_name.get(name)
        if function is None:
            continue
        constructed = schedule_attribute.read(function)
        if constructed is None:
            continue
        if not target.is_cuda:
            constructed = complete(function, constructed, target)
        workload, residence = workload_of(function), residence_of(called, level)
        known = found.get(workload.key)
        if known is not None:
            known.functions += (function,)
            known.calls += called.count
            continue
        task = DispatchTask(
            module,
            (function,),
            workload,
            target,
            constructed,
            called.count,
            residence,
            rotate_bytes,
            proposals,
            bitwise,
        )
        if len(task.space.knobs) and constructed in task.space:
            found[workload.key] = task
    return found.values()
