"""A task whose candidates are real machine code that does what its point says: compute, crash, hang, or be wrong."""

from __future__ import annotations

import sys
from functools import cached_property
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "schedule"))

from failing_candidates import DEEDS
from profiled_dispatch import MODEL, UNROLL

from tilewright.compiler.analysis.workload_of import workload_of
from tilewright.compiler.families.tasks.dispatch_task import DispatchTask
from tilewright.compiler.ir import functions, parse
from tilewright.compiler.nouns.record import Record
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import Knob, Space
from tilewright.compiler.package.residence import name_of
from tilewright.compiler.profiler.candidate_bench import MeasureOptions
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.record_store import RecordStore

COMPILING = "failing_candidates:compile_candidate"
_FIRST = 1
"""The schedule that is used without a search: no deed has its number."""


class FaultyTask(DispatchTask):
    """The points of its space are deeds, by the numbers that what compiles knows them by: the first of `numbers` is no deed."""

    numbers: tuple[int, ...] = (_FIRST, *sorted(DEEDS), *range(2000, 2400))

    @cached_property
    def space(self) -> Space:
        return Space(
            (Knob("unroll", self.numbers),),
            (),
            lambda values: Schedule(unroll=int(values["unroll"])),
            lambda schedule: {"unroll": schedule.unroll},
            Schedule(unroll=self.numbers[0]),
        )

    def deed(self, name: str | int) -> np.ndarray:
        """The point of a deed, or of a number that means none."""
        number = UNROLL[name] if isinstance(name, str) else name
        return self.space.point(Schedule(unroll=number))


def faulty_task(text: str = MODEL, target: str = "cpu") -> FaultyTask:
    """A task of doubling 64 numbers."""
    module = parse(text)
    (function,) = (f for f in functions(module) if name_of(f) == "double")
    return FaultyTask(module, (function,), workload_of(function), resolve(target), Schedule(), 1, ("",), 0)


def quick(**changed) -> MeasureOptions:
    given = {"compiling": COMPILING, "run_timeout_s": 2.0, "compile_timeout_s": 20, "seconds": 0.01}
    return MeasureOptions(**{**given, **changed})


def recorded(path: Path) -> list[Record]:
    with RecordStore(path) as store:
        return store.find()
