"""Dispatches of this CPU whose spaces were sampled and measured whole: what a search on them is judged against.

    pools = [measure(case, count, threads, records, say) for case in suite("resnet18-conv")]
    StoredTask(pools[0], np.arange(len(pools[0])))       // replayed like any pool of stored programs

The sample holds the constructed schedule, first; a third of the others is what Roller proposes, a third is drawn from the
constructed one's neighbours, the rest evenly from the space: of a space where one point in a thousand is good, drawing evenly
would leave nothing to find. What a file of records knows is not measured again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tilewright.bench.suites import Case
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cost_models.cost_model import Samples
from tilewright.compiler.tuning.features.feature_set import Features, Steps, Table, rows
from tilewright.compiler.tuning.search.search_task import SearchTask

if TYPE_CHECKING:  # asked for where it is used, behind the variables that number threads
    from tilewright.compiler.families.tasks.dispatch_task import DispatchTask

SETS = frozenset({"knobs", "statement", "data-flow", "micro-performance", "loop-context", "context-relation"})
"""What is kept of every candidate, so that models can be judged when the module is gone."""


@dataclass(frozen=True)
class MeasuredDispatch:
    """Schedules of one dispatch with their microseconds, infinite for a failure: [n], and those of the constructed one.

    The constructed schedule is none of them: a search that begins with it is at its end where nothing is faster. Its time,
    and that of the best of them, were taken in turns (`raced_us`): what is measured first may meet a machine that is not warm.
    `space_size` counts the points of the space, legal and illegal; `objects` are the digests of the machine code.
    """

    name: str
    workload: Workload
    target: Target
    us: np.ndarray
    raced_us: tuple[float, float]
    objects: tuple[str, ...]
    space_size: int
    seconds: float
    _sets: dict[str, Table | Steps] = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.us)

    def features(self, sets: frozenset[str]) -> Features:
        """These sets of features of all candidates; raises TilewrightError for one that was not kept."""
        if missing := sets - self._sets.keys():
            raise TilewrightError(f"{self.name}: no features {', '.join(sorted(missing))} were kept")
        return {name: self._sets[name] for name in sorted(sets)}

    def samples(self, places: np.ndarray, sets: frozenset[str]) -> Samples:
        """Measured candidates to learn from, with these sets of features."""
        return Samples(self.name, rows(self.features(sets), places), self.us[places], self.target.name)


def sampled(task: SearchTask, count: int, rng: np.random.Generator) -> np.ndarray:
    """At most `count` distinct candidates and the default before them: [n, knobs]."""
    space, default = task.space, task.space.point(task.space.default())
    near = space.neighbours(default)
    parts = [default[None], task.seeds(count // 3 + 1), near[rng.permutation(len(near))[: count // 3]]]
    parts.append(space.sample(count, rng))
    distinct = {point.tobytes(): point for point in np.concatenate(parts)}
    return np.asarray(list(distinct.values())[: count + 1], dtype=np.int64)


def heaviest_task(case: Case) -> DispatchTask:
    """The dispatch of a case on this CPU that computes most; raises TilewrightError where none has a space."""
    from tilewright.compiler import driver, phases
    from tilewright.compiler.families.tasks.dispatch_task import dispatch_tasks
    from tilewright.compiler.targets.target import resolve

    target = resolve("cpu")
    module = driver.import_model(*case.build()).module
    phases.run_phases(module, target, "graph", "schedule")
    if not (tasks := dispatch_tasks(module, target)):
        raise TilewrightError(f"{case.name}: no dispatch of it has a space")
    return max(tasks, key=lambda t: (t.workload.flops * t.calls, t.workload.nbytes))


def measure(
    case: Case, count: int, threads: int, records: Path, say: Callable[[str], object], seed: int = 0
) -> MeasuredDispatch:
    """Samples and measures the heaviest dispatch of a case; raises TilewrightError where it has no space or none runs."""
    from tilewright.compiler.ir import ir
    from tilewright.compiler.profiler.candidate_bench import MeasureOptions
    from tilewright.compiler.profiler.local_device import LocalCpuDevice

    started = time.perf_counter()
    task = heaviest_task(case)
    module, target = task.module, task.target
    with module.context, ir.Location.unknown(module.context):
        points = sampled(task, count, np.random.default_rng(seed))
        options = MeasureOptions(threads=threads, seconds=0.05, rounds=4, kept=((1, 1.5), (2, 1.25)))
        found = {}
        with LocalCpuDevice(target, options, records) as device:
            device.submit(task, list(points))
            for outcome in device.outcomes():
                found[outcome.point] = outcome
                say(f"{case.name}: {len(found)} of {len(points)}")
            outcomes = [found[tuple(point)] for point in points.tolist()]
            us = np.asarray([outcome.us for outcome in outcomes])
            if np.isinf(us[1:]).all():
                raise TilewrightError(f"{case.name}: no schedule of it runs: {outcomes[1].error}")
            raced = device.race(task, [points[0], points[1 + int(us[1:].argmin())]], 5)
        sets = dict(task.features(points[1:], SETS))
    return MeasuredDispatch(
        case.name, task.workload, target, us[1:], (raced[0].us, raced[1].us), tuple(o.object for o in outcomes[1:]),
        task.space.size, time.perf_counter() - started, sets,
    )  # fmt: skip
