"""`O2` from a graph to a program: choices and schedules are searched, and whole programs race for which of them are used.

found = search_program(module, target, options, weights)      // of an imported module, which stays as it is
found.module, found.decisions                                 // with schedules on its dispatches, to be packaged
found.lock                                                    // from which the same program is compiled again
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.compiler import debug, phases
from tilewright.compiler.codegen.lower_cpu import compiler_version
from tilewright.compiler.dialects.choice_attribute import ask_choices
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.families.tasks.dispatch_task import DispatchTask, dispatch_tasks
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.choices import Value
from tilewright.compiler.package.residence import name_of
from tilewright.compiler.profiler.decisions import Decision, Measured
from tilewright.compiler.profiler.program_bench import NoReference, ProgramBench
from tilewright.compiler.profiler.schedule_search import (
    MakeDevice,
    Searched,
    SearchOptions,
    decision_of,
    local_device,
    locked,
    search_schedules,
)
from tilewright.compiler.searched_choices import find_choices
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.lockfile import Lock, Locked, LockedProgram
from tilewright.compiler.tuning.search.choice_search import ChoiceResult, OnMove
from tilewright.compiler.tuning.search.program_race import (
    INTERRUPTED,
    SHARE,
    Change,
    OnTest,
    Raced,
    RaceResult,
    race_programs,
)
from tilewright.compiler.tuning.search.tune_result import OnEvent, TaskResult, TuneResult
from tilewright.compiler.workers.tasks import from_bytes, to_bytes
from tilewright.runtime.errors import PackageError
from tilewright.runtime.program import Package

MakeBench = Callable[..., ProgramBench]


@dataclass(frozen=True)
class FoundProgram:
    """The program to use: `module` has its schedules, `tasks` are its dispatches, `raced` says how it was decided."""

    module: ir.Module
    tasks: Sequence[DispatchTask]
    decisions: Mapping[str, Decision]
    lock: Lock
    choices: ChoiceResult
    result: TuneResult
    raced: RaceResult


@dataclass(frozen=True)
class Reports:
    """Who is told of what a search does: of moves of choices, of what is searched then, of batches, of how many changes whole programs
    begin to race for, and of each pair that has."""

    on_move: OnMove = lambda move, done, total: None
    on_tasks: Callable[[Sequence[DispatchTask]], None] = lambda tasks: None
    on_event: OnEvent = lambda event: None
    on_race: Callable[[int], object] = lambda changes: None
    on_test: OnTest = lambda test: None


def search_program(
    module: ir.Module,
    target: Target,
    options: dict[str, Any],
    weights: Sequence[Any],
    reports: Reports | None = None,
    make_device: MakeDevice = local_device,
    make_bench: MakeBench = ProgramBench,
    keeps: bool = True,
) -> FoundProgram:
    """The program that checked options of `O2` ask for; on CPUs it is the constructed one unless another was faster.

    Ctrl-C ends the search, which `keeps` what it has, or raises KeyboardInterrupt; between its parts one is for who called it
    (`holding_interrupts`). Raises what the compiler says of the graph, and DeviceError where nothing here runs the target's code.
    """
    told = reports or Reports()
    choices, left = find_choices(module, target, options, told.on_move)
    _expect_kept(keeps or not choices.is_interrupted)
    programs = _Programs(to_bytes(module), target, options)
    asked = SearchOptions.of(left)
    scheduled = programs.scheduled(choices.values)
    searched = search_schedules(
        scheduled, target, asked, told.on_event, told.on_tasks, make_device=make_device
    )
    _expect_kept(keeps or not searched.result.is_interrupted)
    programs.searched = searched
    changes = found_changes(choices, searched)
    interrupted = choices.is_interrupted or searched.result.is_interrupted
    if not changes:
        raced = RaceResult(())
    elif interrupted or target.kind != "cpu":
        raced = RaceResult(changes, why=INTERRUPTED if interrupted else f"`{target.name}` is no CPU")
    else:
        told.on_race(len(changes))
        raced = _raced(programs, changes, options, weights, asked.threads, told.on_test, make_bench)
    _expect_kept(keeps or not raced.is_interrupted)
    debug.log(1, f"race: {raced.text()}")
    final, tasks, decisions, entries = programs.made(raced.kept)
    lock = Lock(target, compiler_version(), entries, programs.values(raced.kept), told_of(raced))
    return FoundProgram(final, tasks, decisions, lock, choices, used_of(searched.result, raced), raced)


def _expect_kept(is_kept: bool) -> None:
    """Ends the compilation where the search was interrupted and nobody wants what it has."""
    if not is_kept:
        raise KeyboardInterrupt


def found_changes(choices: ChoiceResult, searched: Searched) -> tuple[Change, ...]:
    """What a search found that is other than what was constructed."""
    moves = [Change(move.text(), move.gain_us, values=move.after) for move in choices.moves if move.is_taken]
    schedules = [
        Change(found.task.name, _gain_us(found), key=found.task.key)
        for found in searched.result.tasks
        if found.used.point != found.constructed.point
    ]
    return (*moves, *schedules)


def used_of(result: TuneResult, raced: RaceResult) -> TuneResult:
    """What a search found, with the constructed schedule used of each task whose change was left."""
    kept = {change.key for change in raced.kept}
    tasks = [
        found if found.task.key in kept else replace(found, chosen=found.constructed)
        for found in result.tasks
    ]
    return replace(result, tasks=tuple(tasks))


def told_of(raced: RaceResult) -> LockedProgram:
    """What a lock says of a race."""
    gain = raced.gain
    return LockedProgram(raced.used, None if gain is None else round(gain, 4), raced.why)


def _gain_us(found: TaskResult) -> float:
    """What a call of the model was measured to save by the schedule of a task; 0 where nothing compares."""
    gain = found.gain
    return 0.0 if gain is None else found.task.calls * found.constructed_us * (1.0 - 1.0 / gain)


def _raced(
    programs: _Programs,
    changes: tuple[Change, ...],
    options: Mapping[str, Any],
    weights: Sequence[Any],
    threads: int,
    on_test: OnTest,
    make_bench: MakeBench,
) -> RaceResult:
    budget, raced = options.get("budget"), list[Raced]()
    try:
        with make_bench(programs.package(()), weights, threads, exact=options.get("bitwise", False)) as bench:

            def race(before: Sequence[Change], after: Sequence[Change]) -> Raced | None:
                try:
                    both = programs.package(before), programs.package(after)
                    if _alike(*both):
                        return None
                    raced.append(bench.race(*both))
                # Choices may go together with all others, and not with some; a disk may be full by now.
                except (OSError, TilewrightError) as error:
                    if isinstance(error, NoReference) or (isinstance(error, OSError) and not raced):
                        raise
                    return Raced(error=str(error).splitlines()[0])
                return raced[-1]

            return race_programs(changes, race, None if budget is None else SHARE * budget, on_test)
    except (NoReference, PackageError, OSError) as error:
        return RaceResult(changes, why=str(error))


def _alike(one: Package, other: Package) -> bool:
    """Whether two packages compute alike, step by step."""
    return replace(one, notes={}) == replace(other, notes={})


_Key = tuple[tuple[str, Value], ...]


def _key(values: Mapping[str, Value]) -> _Key:
    return tuple(sorted(values.items()))


class _Programs:
    """Programs of one model with some of the changes that a search found; `module` is as it was imported and asked."""

    def __init__(self, module: bytes, target: Target, options: Mapping[str, Any]):
        self._module, self._target = module, target
        self._given: Mapping[str, Value] = options.get("choices") or {}
        self._denormals = options.get("denormals", "keep")
        self._scheduled: dict[_Key, bytes] = {}
        self._packages: dict[tuple[_Key, frozenset[str]], Package] = {}
        self.searched = Searched(TuneResult((), 0.0))

    def values(self, changes: Sequence[Change]) -> dict[str, Value]:
        """The choices of a program: those that are given, and what changes moved."""
        found = dict(self._given)
        for change in changes:
            found |= change.values
        return found

    def scheduled(self, moved: Mapping[str, Value]) -> ir.Module:
        """The module with constructed schedules, and with these choices moved; raises what the compiler says of them."""
        values = {**self._given, **moved}
        key = _key(values)
        if key not in self._scheduled:
            module = from_bytes(self._module)
            if values:
                ask_choices(module, values)
            phases.schedule_module(module, self._target, phases.Report())
            self._scheduled[key] = to_bytes(module)
        return from_bytes(self._scheduled[key])

    def package(self, changes: Sequence[Change]) -> Package:
        """The program with these changes, as it is raced; it is compiled once."""
        place = _key(self.values(changes)), frozenset(change.key for change in changes)
        if place not in self._packages:
            module = self.made(changes)[0]
            package = phases.package_module(module, self._target, phases.Report())
            self._packages[place] = replace(package, denormals=self._denormals)
        return self._packages[place]

    def made(
        self, changes: Sequence[Change]
    ) -> tuple[ir.Module, list[DispatchTask], dict[str, Decision], dict[str, Locked]]:
        """The module with these changes, its tasks, and their schedules as decisions and as entries of a lock."""
        module = self.scheduled(self.values(changes))
        with module.context, ir.Location.unknown(module.context):
            return module, *self._applied(module, changes)

    def _applied(
        self, module: ir.Module, changes: Sequence[Change]
    ) -> tuple[list[DispatchTask], dict[str, Decision], dict[str, Locked]]:
        found = {result.task.key: result for result in self.searched.result.tasks}
        moved = {change.key for change in changes if change.key}
        tasks = dispatch_tasks(module, self._target)
        decisions: dict[str, Decision] = {}
        entries: dict[str, Locked] = {}
        for task in tasks:
            result = found.get(task.key)
            own = task.space.schedule(task.space.point(task.constructed))
            if result is not None and task.key not in moved:
                result = replace(result, chosen=result.constructed)
            known = task.space if task.key in moved else {own}
            if result is not None and result.schedule in known:
                task.apply(result.schedule)
                entry, decided = locked(result), decision_of(result)
            else:  # work of a graph with other choices than the one that was searched
                entry, decided = Locked(task.name, own), Decision((Measured(own),), 0)
            entries[task.key] = entry
            decisions |= dict.fromkeys(map(name_of, task.functions), decided)
        return tasks, decisions, entries
