"""A device of a search: candidates are compiled in some threads while others measure, and nothing is measured twice.

    submit -> what is on record is answered -> compiled -> equal objects are answered -> measured -> recorded -> outcome

What compiles, and what measures, is given: workers and a process of this machine (`local_device`), or actors of others
(`ray_device`). Every measurement is in the store before its outcome is handed out, so that whoever is killed loses what
is in flight and no more.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tilewright.compiler.codegen.lower_cpu import LoweredKernel, code_key, compiler_version
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.families.tasks.dispatch_task import DispatchTask
from tilewright.compiler.nouns.record import Record, schedule_text
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.profiler.candidate_bench import MeasureOptions, Tried
from tilewright.compiler.profiler.compile import refusal
from tilewright.compiler.profiler.dispatch_facts import DispatchFacts, read_facts
from tilewright.compiler.profiler.kernel_messages import object_digest
from tilewright.compiler.profiler.recording import Recording, now
from tilewright.compiler.profiler.turns import Cores
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.search.search_task import Outcome

Compile = Callable[[DispatchFacts, Sequence[Schedule]], list[Any]]
"""The kernel of each schedule of a dispatch, or the exception that there is none for."""


class MachineLost(TilewrightError):
    """What compiled or measured is gone, through no fault of the candidate; the message says how."""


class Bench(Protocol):
    """What measures, one candidate at a time."""

    def measure(
        self, facts: DispatchFacts, first: LoweredKernel, kernel: LoweredKernel, best_us: float | None
    ) -> Tried:
        """Checks a kernel against the dispatch's first one and times it."""
        ...

    def race(
        self, facts: DispatchFacts, first: LoweredKernel, kernels: Sequence[LoweredKernel], rounds: int
    ) -> list[Tried]:
        """Times kernels in turns."""
        ...

    def kill(self) -> None:
        """Ends what is being measured, from another thread, and whatever is asked for from then on."""
        ...

    def stop(self) -> None:
        """Gives back what it holds."""
        ...


@dataclass(eq=False)
class _Dispatch:
    """What is known of a task: `tried` by object, and the first kernel, which others are compared with, or why there is none.

    `waiting` are candidates for the first kernel, `alike` those whose objects are being measured.
    """

    task: DispatchTask
    facts: DispatchFacts
    tried: dict[str, Tried] = field(default_factory=dict)
    best_us: float | None = None
    is_begun: bool = False
    first: LoweredKernel | str | None = None
    waiting: list[tuple[_Candidate, LoweredKernel]] = field(default_factory=list)
    alike: dict[str, list[_Candidate]] = field(default_factory=dict)

    def learn(self, digest: str, tried: Tried) -> None:
        """Takes in what became of an object."""
        self.tried[digest] = tried
        if tried.rounds_us:
            self.best_us = min(self.best_us or tried.rounds_us[0], *tried.rounds_us)


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A schedule of a dispatch and the point that it is of, since when it is asked for; `is_first` stands for no point."""

    dispatch: _Dispatch
    schedule: Schedule
    point: tuple[int, ...] = ()
    since: float = 0.0
    is_first: bool = False


@dataclass(frozen=True, eq=False)
class _Race:
    """Kernels of a dispatch that are to take turns, and where what comes of it goes."""

    dispatch: _Dispatch
    schedules: Sequence[Schedule]
    kernels: Sequence[LoweredKernel]
    rounds: int
    done: queue.Queue[list[Tried] | BaseException]


class MeasuringDevice:
    """Compiles with `compilers` threads, in that of `submit` where there are none, and measures with a thread per bench.

    Records go to the file `records`, or to that of the cache folder. Where compiling `shares_cores` with measuring, they
    take turns.
    """

    def __init__(
        self,
        target: Target,
        options: MeasureOptions,
        records: Path | None,
        compile: Compile,
        compilers: int,
        benches: Sequence[Bench],
        shares_cores: bool = False,
    ):
        self.name = options.device
        self._target, self._options, self._records = target, options, records
        self._compile, self._compilers, self._benches = compile, compilers, benches
        self._code = code_key(target)
        self._dispatches: dict[str, _Dispatch] = {}
        self._in_flight = 0
        self._to_compile: queue.Queue[_Candidate | None] = queue.Queue()
        self._to_measure: queue.Queue[tuple[_Candidate, Any] | _Race | None] = queue.Queue()
        self._done: queue.Queue[Outcome | BaseException] = queue.Queue()
        self._cores = Cores(lambda: not self._to_measure.empty()) if shares_cores else None
        self._recording: Recording | None = None
        self._measuring: list[threading.Thread] = []
        self._knowledge = threading.RLock()
        """Held by whoever reads or changes what is known of a dispatch."""
        self._is_over = False

    # What a search calls, from one thread.

    def submit(self, task: DispatchTask, points: Sequence[np.ndarray]) -> None:
        """Asks for these candidates; returns at once."""
        self._start()
        dispatch, since = self._dispatch(task), time.monotonic()
        asked = [
            _Candidate(dispatch, task.space.schedule(point), tuple(map(int, point)), since)
            for point in points
        ]
        self._in_flight += len(asked)
        unknown = self._recall(dispatch, asked)
        if unknown and not dispatch.is_begun:
            dispatch.is_begun = True
            unknown.insert(0, _Candidate(dispatch, _first(task), is_first=True))
        for candidate in unknown:
            self._to_compile.put(candidate)
        if not self._compilers:
            self._to_compile.put(None)
            self._compile_all()

    def outcomes(self) -> Iterator[Outcome]:
        """What is asked for, as it comes; ends when nothing is left in flight."""
        while self._in_flight:
            outcome = self._done.get()
            if isinstance(outcome, BaseException):
                raise outcome
            self._in_flight -= 1
            yield outcome

    def race(self, task: DispatchTask, points: Sequence[np.ndarray], rounds: int = 9) -> list[Outcome]:
        """Measures candidates in turns: differences of a few percent are true then.

        Those that took turns before are not asked again: with one store of records, every process decides alike.
        """
        self._start()
        dispatch, since = self._dispatch(task), time.monotonic()
        schedules = [task.space.schedule(point) for point in points]
        first, *compiled = self._compile(dispatch.facts, [_first(task), *schedules])
        reasons = [refusal(result) for result in compiled]
        if (reason := refusal(first)) is not None:
            return [Outcome(task.key, tuple(map(int, p)), error=_no_first(reason)) for p in points]
        with self._knowledge:
            dispatch.first, dispatch.is_begun = dispatch.first or first, True
        racing = [n for n, reason in enumerate(reasons) if reason is None]
        found = self._raced(dispatch, [_digest(compiled[n]) for n in racing], rounds)
        if found is None:
            done: queue.Queue[list[Tried] | BaseException] = queue.Queue()
            chosen = [schedules[n] for n in racing], [compiled[n] for n in racing]
            self._to_measure.put(_Race(dispatch, *chosen, rounds, done))
            answer = done.get()
            if isinstance(answer, BaseException):
                raise answer
            found = answer
        tried = dict(zip(racing, found))
        return [
            _outcome(
                _Candidate(dispatch, schedules[n], tuple(map(int, point)), since),
                tried.get(n) or Tried(error=str(reasons[n])),
                _digest(compiled[n]) if n in tried else "",
            )
            for n, point in enumerate(points)
        ]

    def _raced(self, dispatch: _Dispatch, objects: Sequence[str], rounds: int) -> list[Tried] | None:
        """The last race on record that all of these objects were in for so many rounds; None where there was none."""
        assert self._recording is not None
        if self._options.exact:  # nobody compared their bits then
            return None
        facts, sittings = dispatch.facts, dict[tuple[str, str], dict[str, tuple[float, ...]]]()
        for record in self._recording.find(facts.workload, facts.residence, set(objects)):
            if record.error:
                return None
            if len(record.rounds_us) >= rounds:
                sittings.setdefault((record.at, record.host), {})[record.object] = record.rounds_us
        shared = [raced for _, raced in sorted(sittings.items()) if raced.keys() >= set(objects)]
        return [Tried(shared[-1][digest]) for digest in objects] if shared else None

    def close(self) -> None:
        """Gives back processes and machines; what is in flight is lost, what was measured is kept."""
        if self._is_over:
            return
        self._is_over = True
        if self._cores:
            self._cores.end()
        for bench in self._benches:
            bench.kill()
        for _ in range(self._compilers):
            self._to_compile.put(None)
        for _ in self._measuring:
            self._to_measure.put(None)
        try:
            for thread in self._measuring:
                thread.join()
        finally:  # somebody may not want to wait for that
            if self._recording is not None:
                self._recording.close()

    def __enter__(self) -> MeasuringDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        if self._is_over:
            raise TilewrightError(f"device {self.name} is closed; make another one")
        if self._measuring:
            return
        self._recording = self._opened()
        for _ in range(self._compilers):
            # One that compiles when the device is closed ends after that, and holds nothing up.
            threading.Thread(target=self._compile_all, name=f"compiling for {self.name}", daemon=True).start()
        for bench in self._benches:
            thread = threading.Thread(
                target=self._measure_all, args=(bench,), name=f"measuring on {self.name}", daemon=True
            )
            self._measuring.append(thread)
            thread.start()

    def _dispatch(self, task: DispatchTask) -> _Dispatch:
        if task.key not in self._dispatches:
            with task.function.context, task.function.location:
                facts = read_facts(task.function, task.workload, task.residence, task.rotate_bytes)
            self._dispatches[task.key] = _Dispatch(task, facts)
        return self._dispatches[task.key]

    def _opened(self) -> Recording:
        """Records for the thread that calls this."""
        return Recording(self._target, self.name, self._options.threads, path=self._records, is_patient=True)

    def _recall(self, dispatch: _Dispatch, asked: Sequence[_Candidate]) -> list[_Candidate]:
        """Answers for what is on record; returns the others."""
        assert self._recording is not None
        facts = dispatch.facts
        objects = self._recording.objects(facts.code, self._code, [c.schedule for c in asked])
        with self._knowledge:
            unmet = set(objects) - {"", *dispatch.tried}
            self._learn_records(self._recording, dispatch, unmet)
            refused = {
                record.schedule: Tried(error=record.error)
                for record in self._recording.refusals(facts.workload, compiler_version())
            }
            unknown = []
            for candidate, digest in zip(asked, objects):
                tried = dispatch.tried.get(digest) or refused.get(schedule_text(candidate.schedule))
                if tried is None:
                    unknown.append(candidate)
                else:
                    self._done.put(_outcome(candidate, tried, digest))
        return unknown

    @staticmethod
    def _learn_records(recording: Recording, dispatch: _Dispatch, objects: set[str]) -> None:
        facts = dispatch.facts
        for digest, tried in _of_records(recording.find(facts.workload, facts.residence, objects)).items():
            dispatch.learn(digest, tried)

    # In threads that compile.

    def _compile_all(self) -> None:
        while (candidate := self._to_compile.get()) is not None:
            if self._is_over:
                continue
            try:
                with self._cores.compiling() if self._cores else nullcontext():
                    if self._is_over:
                        continue
                    (result,) = self._compile(candidate.dispatch.facts, [candidate.schedule])
            except Exception as error:
                result = error
            self._to_measure.put((candidate, result))

    # In threads that measure.

    def _measure_all(self, bench: Bench) -> None:
        try:
            self._measure_on(bench, self._opened())
        except BaseException as error:
            self._done.put(error)
            raise

    def _measure_on(self, bench: Bench, recording: Recording) -> None:
        try:
            while (asked := self._to_measure.get()) is not None:
                if self._is_over:
                    continue
                try:
                    with self._cores.measuring() if self._cores else nullcontext():
                        if isinstance(asked, _Race):
                            asked.done.put(self._race(bench, recording, asked))
                        else:
                            self._take(bench, recording, *asked)
                except Exception as error:
                    (asked.done if isinstance(asked, _Race) else self._done).put(error)
        finally:
            bench.stop()
            recording.close()

    def _take(self, bench: Bench, recording: Recording, candidate: _Candidate, result: Any) -> None:
        """A candidate as its compilation left it."""
        dispatch, facts, reason = candidate.dispatch, candidate.dispatch.facts, refusal(result)
        if isinstance(result, MachineLost):
            self._lose(candidate, result)
        elif candidate.is_first:
            with self._knowledge:
                dispatch.first = result if reason is None else _no_first(reason)
                waiting, dispatch.waiting = dispatch.waiting, []
            for other in waiting:
                self._to_measure.put(other)
        elif reason is not None:
            recording.append(facts, [recording.record(facts, candidate.schedule, "", error=reason)])
            self._done.put(_outcome(candidate, Tried(error=reason), ""))
        else:
            digest = _digest(result)
            recording.keep_objects(facts.code, self._code, [(candidate.schedule, digest)])
            if self._is_to_measure(recording, candidate, result, digest):
                self._try(bench, recording, candidate, result, digest)

    def _lose(self, candidate: _Candidate, lost: MachineLost) -> None:
        """Answers for a candidate that was lost while it was compiled; without the first kernel, for all that wait for it."""
        dispatch, open_ = candidate.dispatch, [candidate]
        if candidate.is_first:
            with self._knowledge:
                dispatch.is_begun = dispatch.first is not None
                waiting, dispatch.waiting = dispatch.waiting, []
            open_ = [other for other, _ in waiting]
        for one in open_:
            self._done.put(_outcome(one, Tried(error=str(lost), is_own=False, is_final=False), ""))

    def _is_to_measure(
        self, recording: Recording, candidate: _Candidate, kernel: LoweredKernel, digest: str
    ) -> bool:
        """Whether nothing is known of an object, nobody measures it, and there is something to compare it with."""
        dispatch = candidate.dispatch
        with self._knowledge:
            if dispatch.first is None and dispatch.is_begun:
                dispatch.waiting.append((candidate, kernel))
                return False
            if digest in dispatch.alike:
                dispatch.alike[digest].append(candidate)
                return False
            if digest not in dispatch.tried:
                self._learn_records(recording, dispatch, {digest})
            tried = dispatch.tried.get(digest)
            if tried is None and isinstance(dispatch.first, str):
                tried = Tried(error=dispatch.first, is_own=False)
            elif tried is None and dispatch.first is None:
                tried = Tried(error=_no_first("it was lost"), is_own=False, is_final=False)
            if tried is not None:
                self._done.put(_outcome(candidate, tried, digest))
                return False
            dispatch.alike[digest] = []
            return True

    def _try(
        self, bench: Bench, recording: Recording, candidate: _Candidate, kernel: LoweredKernel, digest: str
    ) -> None:
        """Measures a kernel, records what became of it, and answers for all that have the same."""
        dispatch = candidate.dispatch
        assert isinstance(dispatch.first, LoweredKernel)
        try:
            tried = bench.measure(dispatch.facts, dispatch.first, kernel, dispatch.best_us)
            self._keep(recording, dispatch, candidate.schedule, digest, tried, now())
        finally:
            with self._knowledge:
                alike = dispatch.alike.pop(digest)
        if self._is_over and not tried.is_final:
            return
        for one in (candidate, *alike):
            self._done.put(_outcome(one, tried, digest))

    def _race(self, bench: Bench, recording: Recording, race: _Race) -> list[Tried]:
        assert isinstance(race.dispatch.first, LoweredKernel)
        facts, at = race.dispatch.facts, now()
        found = bench.race(facts, race.dispatch.first, race.kernels, race.rounds)
        for schedule, kernel, tried in zip(race.schedules, race.kernels, found):
            digest = _digest(kernel)
            recording.keep_objects(facts.code, self._code, [(schedule, digest)])
            self._keep(recording, race.dispatch, schedule, digest, tried, at)
        return found

    def _keep(
        self,
        recording: Recording,
        dispatch: _Dispatch,
        schedule: Schedule,
        digest: str,
        tried: Tried,
        at: str,
    ) -> None:
        """Records what an object did, but for what is no fault of its own."""
        if tried.is_own and (tried.rounds_us or tried.error):
            facts = dispatch.facts
            recording.append(
                facts,
                [recording.record(facts, schedule, digest, tried.rounds_us, tried.error, at, tried.host)],
            )
            with self._knowledge:
                dispatch.learn(digest, tried)


def _first(task: DispatchTask) -> Schedule:
    """What results are compared with: the schedule that is used without a search, as a point of its space."""
    return task.space.schedule(task.space.point(task.space.default()))


def _no_first(reason: str) -> str:
    return f"the first schedule, which results are compared with: {reason}"


def _digest(kernel: LoweredKernel) -> str:
    return object_digest(kernel.kernel, kernel.tasks)


def _of_records(records: Sequence[Record]) -> dict[str, Tried]:
    """What became of each object: all its rounds, or the reason of a failure, which is never forgiven."""
    found: dict[str, Tried] = {}
    for record in records:
        before = found.get(record.object, Tried())
        found[record.object] = Tried(before.rounds_us + record.rounds_us, before.error or record.error)
    return {d: Tried(error=tried.error) if tried.error else tried for d, tried in found.items()}


def _outcome(candidate: _Candidate, tried: Tried, digest: str) -> Outcome:
    seconds = time.monotonic() - candidate.since
    key = candidate.dispatch.task.key
    return Outcome(key, candidate.point, tried.rounds_us, tried.error, digest, tried.is_final, seconds)
