"""A dispatch on a GPU as proposers see it: the spaces of its kernels, its workload, and what enumeration lists for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import Space, union
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.model.micro_performance import Prediction, predict
from tilewright.compiler.tuning.roller.options import ConstructOptions


@dataclass(frozen=True)
class GpuDispatch:
    """What is known of one dispatch on a GPU, without its IR; what is read of that is read when it is needed.

    `read_kernels` gives the spaces by kernel, that of the kernel first which is used where nobody chooses, of all kernels or
    of those only that may be as fast; `read_form` says whether it is a "product", "attention", "loops" of
    structured operations, or else "whole"; `enumerate`
    lists candidates by a proposer of tiles, which may leave fields open, and raises ScheduleError for what has no axes to
    cut; `complete` fills these in; `describe` gives the workload with its body.
    """

    target: Target
    read_kernels: Callable[[bool], Mapping[str, Space]]
    read_form: Callable[[], str]
    enumerate: Callable[[ConstructOptions, str], list[Candidate]]
    complete: Callable[[Schedule], Schedule]
    describe: Callable[[], Workload]

    @cached_property
    def workload(self) -> Workload:
        """The workload with what it computes."""
        return self.describe()

    @cached_property
    def kernels(self) -> Mapping[str, Space]:
        """By kernel, its schedules; the default of the first one is the family's own choice."""
        return self.read_kernels(True)

    @cached_property
    def rivals(self) -> Mapping[str, Space]:
        """Those of `kernels` that may be as fast as the first one."""
        return self.read_kernels(False)

    @cached_property
    def form(self) -> str:
        return self.read_form()

    @cached_property
    def space(self) -> Space:
        return union("kernel", self.kernels)

    def predictions(self, schedules: Sequence[Schedule]) -> Prediction:
        """Times of complete schedules by the micro-performance model; raises ScheduleError for what it does not count."""
        return predict(self.workload, schedules, self.target)

    def predicted(self, schedule: Schedule) -> tuple[float, str]:
        """Microseconds of one complete schedule, and what bounds it; raises ScheduleError as `predictions` does."""
        found = self.predictions([schedule])
        return round(float(found.us[0]), 3), found.bound[0]
