"""`O2`: the schedules of a module's dispatches are searched on the machine at hand, or taken from a lock of an earlier search.

module after the phase `schedule`
  =>  search_schedules(module, target, SearchOptions(seconds=60))    // measured, and the best put on each dispatch
  =>  apply_lock(module, target, lock)                               // nothing measured, the same schedules again
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.compiler.codegen.lower_cpu import compiler_version
from tilewright.compiler.errors import LockError, ScheduleError
from tilewright.compiler.families.tasks.dispatch_task import DispatchTask, dispatch_tasks
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.record import key_of, target_text
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import KEPT
from tilewright.compiler.package.residence import name_of
from tilewright.compiler.profiler.candidate_bench import MeasureOptions
from tilewright.compiler.profiler.decisions import Decision, Measured
from tilewright.compiler.profiler.local_device import LocalCpuDevice, LocalGpuDevice
from tilewright.compiler.profiler.measuring_device import MeasuringDevice
from tilewright.compiler.profiler.recording import record_path
from tilewright.compiler.profiler.selection import Say
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cost_models.cost_model import CostModel
from tilewright.compiler.tuning.lockfile import Lock, Locked
from tilewright.compiler.tuning.record_store import RecordStore
from tilewright.compiler.tuning.search.replay import outcomes_on_record
from tilewright.compiler.tuning.search.search_task import Device, Outcome
from tilewright.compiler.tuning.search.strategies import strategy_named
from tilewright.compiler.tuning.search.tune_result import OnEvent, TaskResult, TuneEvent, TuneResult
from tilewright.compiler.tuning.search.tuner import tune
from tilewright.runtime.settings import num_threads

MakeDevice = Callable[[Target, MeasureOptions], Device]


@dataclass(frozen=True)
class SearchOptions:
    """How long a search lasts, in seconds or in candidates, and how it goes about it.

    A dispatch ends early where `patience` candidates in a row brought nothing faster.
    Without a `strategy` it is `pruner` on CPUs, and `genetic` on GPUs, where no device has said yet how well cost models rank
    candidates. `cost_model` stands in place of the strategy's. With `bitwise` only schedules are used that sum in the order of the
    constructed one: results are the same to the last bit. One that is to `resume` takes what is on record for its own beginning. `threads` measure.
    """

    seconds: float | None = 60.0
    trials: int | None = None
    patience: int | None = None
    strategy: str = ""
    cost_model: str = ""
    seed: int = 0
    bitwise: bool = False
    resume: bool = False
    threads: int = 1

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> SearchOptions:
        """The search that checked options of a compilation ask for, on as many threads as a model runs with."""
        return cls(
            seconds=options.get("budget"),
            trials=options.get("trials"),
            patience=options.get("patience"),
            strategy=options.get("strategy", ""),
            cost_model=options.get("cost_model", ""),
            seed=options.get("seed", 0),
            bitwise=options.get("bitwise", False),
            resume=options.get("resume", False),
            threads=num_threads(),
        )

    def strategy_for(self, target: Target) -> str:
        """The strategy's name."""
        return self.strategy or ("genetic" if target.is_cuda else "pruner")


@dataclass(frozen=True)
class Searched:
    """What a search made of a module: what it found, and the decision of every dispatch, by name.

    `tasks` are those of the result with the dispatches that they stand for.
    """

    result: TuneResult
    tasks: Sequence[DispatchTask] = ()

    @property
    def decisions(self) -> dict[str, Decision]:
        """Of every dispatch, by name, what was compared at the end."""
        found = zip(self.tasks, map(decision_of, self.result.tasks))
        return {name_of(function): decision for task, decision in found for function in task.functions}

    def lock(self, target: Target) -> Lock:
        """The schedules that are used, for the next compilation."""
        entries = {found.task.key: locked(found) for found in self.result.tasks}
        return Lock(target, compiler_version(), entries)


def local_device(target: Target, options: MeasureOptions) -> MeasuringDevice:
    """The processor of this machine that runs a target's code; raises DeviceError where there is none."""
    return (LocalGpuDevice if target.is_cuda else LocalCpuDevice)(target, options)


def search_schedules(
    module: ir.Module,
    target: Target,
    options: SearchOptions,
    on_event: OnEvent | None = None,
    on_tasks: Callable[[Sequence[DispatchTask]], None] = lambda tasks: None,
    model: CostModel | None = None,
    make_device: MakeDevice = local_device,
) -> Searched:
    """Puts the best schedule that a search finds on every dispatch that @main calls; one written by hand keeps its own.

    What is on record is not measured again. An interrupted search puts there what it has, and says so in its result.
    """
    tasks = dispatch_tasks(module, target, bitwise=options.bitwise)
    on_tasks(tasks)
    if not tasks:
        return Searched(TuneResult((), 0.0))
    strategy = strategy_named(options.strategy_for(target)).with_model(options.cost_model)
    measuring = MeasureOptions(threads=options.threads, exact=options.bitwise)
    with closing(make_device(target, measuring)) as device:
        result = tune(
            tasks,
            device,
            strategy,
            trials=options.trials,
            seconds=options.seconds,
            patience=options.patience,
            seed=options.seed,
            records=_on_record(tasks, device, options) if options.resume else None,
            model=model,
            on_event=on_event,
        )
    for task, found in zip(tasks, result.tasks):
        task.apply(found.schedule)
    return Searched(result, tasks)


def progress(options: SearchOptions, say: Say) -> OnEvent:
    """Tells `say` of every batch: what is done of the search, and what it knows of a dispatch."""

    def on_event(event: TuneEvent) -> None:
        done = (
            (event.all_trials, options.trials)
            if options.trials
            else (int(event.seconds), int(options.seconds or 0))
        )
        say(*done, f"{event.task.name}: {event.best_us:.1f} us after {event.trials} trials")

    return on_event


def _on_record(
    tasks: Sequence[DispatchTask], device: Device, options: SearchOptions
) -> dict[str, list[Outcome]]:
    """What is on record of each task: outcomes of the same work, on the same device, with as many threads."""
    path = record_path()
    if not path.exists():
        return {}
    target = key_of(target_text(tasks[0].target))
    with RecordStore(path) as store:
        return outcomes_on_record(tasks, store, target, device.name, options.threads, compiler_version())


def apply_lock(module: ir.Module, target: Target, lock: Lock) -> dict[str, Decision]:
    """Puts the schedules of a lock on the dispatches of a module; returns them as decisions.

    Raises LockError where the lock is of another target or of another model, or a schedule is none of its dispatch.
    """
    if lock.target != target:
        raise LockError(
            f"the lock is for the target `{lock.target.name}` as it was when that was tuned, found `{target.name}`; leave "
            "the target out, and the lock's is used"
        )
    tasks = {task.key: task for task in dispatch_tasks(module, target)}
    for keys, texts in (
        (set(tasks) - set(lock.dispatches), "says nothing of"),
        (set(lock.dispatches) - set(tasks), "is of"),
    ):
        if keys:
            first = min(keys)
            name = (tasks if first in tasks else lock.dispatches)[first].name
            raise LockError(
                f"the lock {texts} `{name}` ({first:.12}), and the model has {'it' if first in tasks else 'no such dispatch'}: it "
                "was made of another model, with other options or by another version of the compiler; tune again"
            )
    for key, task in tasks.items():
        _expect_in_space(task, lock.dispatches[key].schedule)
        task.apply(lock.dispatches[key].schedule)
    return locked_decisions(list(tasks.values()), lock)


def locked_decisions(tasks: Sequence[DispatchTask], lock: Lock) -> dict[str, Decision]:
    """What a lock says of the dispatches of these tasks, by name, as decisions without alternatives."""
    decisions = {}
    for task in tasks:
        entry = lock.dispatches[task.key]
        decided = Decision((Measured(entry.schedule, entry.us),), 0)
        decisions |= dict.fromkeys(map(name_of, task.functions), decided)
    return decisions


def _expect_in_space(task: DispatchTask, schedule: Schedule) -> None:
    try:
        rule = task.space.legal(task.space.point(schedule)[None])[0]
    except ScheduleError as error:
        raise LockError(f"the lock's schedule of `{task.name}`: {error}; tune again") from None
    if rule != KEPT:
        broken = task.space.rules[rule]
        raise LockError(f"the lock's schedule of `{task.name}`: {broken.field}: {broken.text}; tune again")


def locked(found: TaskResult) -> Locked:
    """What is used of a task, as the space writes it."""
    return Locked(found.task.name, found.schedule, _told(found.used_us), _told(found.constructed_us))


def _told(us: float) -> float | None:
    return None if math.isinf(us) else round(us, 3)


def decision_of(found: TaskResult) -> Decision:
    """The constructed schedule, and then those that were left at the end, fastest first."""
    constructed, *others = found.compared.values()
    ranked = [constructed, *sorted(others, key=lambda outcome: (outcome.us, outcome.point))]
    rows = tuple(
        Measured(
            found.task.space.schedule(np.asarray(outcome.point)),
            _told(outcome.us),
            outcome.error,
            statistics.median(outcome.rounds_us) if outcome.rounds_us else None,
        )
        for outcome in ranked
    )
    return Decision(rows, [outcome.point for outcome in ranked].index(found.used.point))
