"""A processor of this machine as a device of a search: candidates are compiled in workers while others are measured.

    device = LocalCpuDevice(target, options, records)
    device.submit(task, points)                      // returns at once
    for outcome in device.outcomes(): ...            // as they come
    device.race(task, points, rounds)                // a few of them in turns, when a search has come down to them

What is on record is not measured again, and of equal objects one is. Compiling and measuring have threads of their own;
every measurement is in the store before its outcome is handed out.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.compiler.codegen.lower_cpu import LoweredKernel, code_key, compiler_version
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.families.tasks.dispatch_task import DispatchTask
from tilewright.compiler.nouns.record import Record, schedule_text
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.profiler.candidate_bench import CandidateBench, MeasureOptions, Tried
from tilewright.compiler.profiler.compile import refusal
from tilewright.compiler.profiler.dispatch_facts import DispatchFacts, read_facts
from tilewright.compiler.profiler.kernel_messages import object_digest
from tilewright.compiler.profiler.recording import Recording, now
from tilewright.compiler.settings import settings
from tilewright.compiler.targets.host import processor
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.search.search_task import Outcome
from tilewright.compiler.workers.pool import Job, pool
from tilewright.runtime.settings import num_threads, physical_cores


@dataclass(eq=False)
class _Dispatch:
    """What is known of a task: `tried` by object, and the first kernel, which others are compared with, or why there is none."""

    task: DispatchTask
    facts: DispatchFacts
    tried: dict[str, Tried] = field(default_factory=dict)
    best_us: float | None = None
    is_begun: bool = False
    first: LoweredKernel | str | None = None
    waiting: list[tuple[_Candidate, LoweredKernel]] = field(default_factory=list)

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


class LocalDevice:
    """What measures candidates on this machine; records go to the file `records`, or to that of the cache folder."""

    def __init__(self, target: Target, options: MeasureOptions, records: Path | None = None):
        self.name = options.device
        self._target, self._options, self._records = target, options, records
        self._code = code_key(target)
        self._dispatches: dict[str, _Dispatch] = {}
        self._in_flight = 0
        self._to_compile: queue.Queue[_Candidate | None] = queue.Queue()
        self._to_measure: queue.Queue[tuple[_Candidate, Any] | _Race | None] = queue.Queue()
        self._done: queue.Queue[Outcome | BaseException] = queue.Queue()
        self._bench = CandidateBench(target, options)
        self._recording: Recording | None = None
        self._threads: list[threading.Thread] = []
        self._measuring: threading.Thread | None = None
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
        if not self._threads:  # nothing here compiles but this process, which has one thread for its IR
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
        """Measures candidates in turns, whatever is on record of them: differences of a few percent are true then."""
        self._start()
        dispatch, since = self._dispatch(task), time.monotonic()
        schedules = [task.space.schedule(point) for point in points]
        compiled = self._compiled(dispatch, [_first(task), *schedules])
        refusals = [refusal(result) for result in compiled]
        if refusals[0] is not None:
            return [Outcome(task.key, tuple(map(int, p)), error=_no_first(refusals[0])) for p in points]
        dispatch.is_begun, dispatch.first = True, compiled[0]
        racing = [n for n, reason in enumerate(refusals[1:]) if reason is None]
        done: queue.Queue[list[Tried] | BaseException] = queue.Queue()
        kernels = [compiled[1 + n] for n in racing]
        self._to_measure.put(_Race(dispatch, [schedules[n] for n in racing], kernels, rounds, done))
        found = done.get()
        if isinstance(found, BaseException):
            raise found
        tried = dict(zip(racing, found))
        outcomes = []
        for n, point in enumerate(points):
            one = tried.get(n) or Tried(error=str(refusals[1 + n]))
            digest = _digest(compiled[1 + n]) if n in tried else ""
            outcomes.append(_outcome(task.key, tuple(map(int, point)), one, digest, since))
        return outcomes

    def close(self) -> None:
        """Ends the processes; what is in flight is lost, what was measured is kept."""
        if self._is_over:
            return
        self._is_over = True
        self._bench.kill()
        for _ in self._threads:
            self._to_compile.put(None)
        self._to_measure.put(None)
        if self._measuring is not None:
            self._measuring.join()
        if self._recording is not None:
            self._recording.close()

    def __enter__(self) -> LocalDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        if self._is_over:
            raise TilewrightError(f"device {self.name} is closed; make another one")
        if self._measuring is not None:
            return
        self._recording = self._opened()
        count = self._options.compilers or max(1, physical_cores() - self._options.threads)
        if settings().compile_workers != 0:
            self._threads = [
                threading.Thread(target=self._compile_all, name="compiling candidates", daemon=True)
                for _ in range(count)
            ]
        self._measuring = threading.Thread(target=self._measure_all, name="measuring candidates", daemon=True)
        for thread in (*self._threads, self._measuring):
            thread.start()

    def _dispatch(self, task: DispatchTask) -> _Dispatch:
        if task.key not in self._dispatches:
            facts = read_facts(task.function, task.workload, task.residence, task.rotate_bytes)
            self._dispatches[task.key] = _Dispatch(task, facts)
        return self._dispatches[task.key]

    def _opened(self) -> Recording:
        """Records for the thread that calls this."""
        return Recording(self._target, self.name, self._options.threads, path=self._records)

    def _recall(self, dispatch: _Dispatch, asked: Sequence[_Candidate]) -> list[_Candidate]:
        """Answers for what is on record; returns the others."""
        assert self._recording is not None
        facts = dispatch.facts
        objects = self._recording.objects(facts.code, self._code, [c.schedule for c in asked])
        unmet = set(objects) - {"", *dispatch.tried}
        for digest, tried in _of_records(
            self._recording.find(facts.workload, facts.residence, unmet)
        ).items():
            dispatch.learn(digest, tried)
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
                self._answer(candidate, tried, digest)
        return unknown

    def _answer(self, candidate: _Candidate, tried: Tried, digest: str) -> None:
        if not candidate.is_first:
            key = candidate.dispatch.task.key
            self._done.put(_outcome(key, candidate.point, tried, digest, candidate.since))

    # Compiling, in threads of its own.

    def _compile_all(self) -> None:
        while (candidate := self._to_compile.get()) is not None:
            if self._is_over:
                continue
            try:
                (result,) = self._compiled(candidate.dispatch, [candidate.schedule])
            except Exception as error:
                result = error
            self._to_measure.put((candidate, result))

    def _compiled(self, dispatch: _Dispatch, schedules: Sequence[Schedule]) -> list[Any]:
        """The kernel of each schedule, or the error that there is none for."""
        results: list[Any] = [None] * len(schedules)
        facts = dispatch.facts
        jobs = [
            Job(
                self._options.compiling,
                (facts.text, schedule.as_dict(), self._target),
                f"a candidate of `{facts.name}`",
                limit_s=self._options.compile_timeout_s,
            )
            for schedule in schedules
        ]
        pool().run(jobs, results.__setitem__)
        return results

    # Measuring, in a thread of its own.

    def _measure_all(self) -> None:
        recording = self._opened()
        try:
            while (asked := self._to_measure.get()) is not None:
                if self._is_over:
                    continue
                try:
                    if isinstance(asked, _Race):
                        asked.done.put(self._race(recording, asked))
                    else:
                        self._take(recording, *asked)
                except Exception as error:
                    (asked.done if isinstance(asked, _Race) else self._done).put(error)
        finally:
            self._bench.stop()
            recording.close()

    def _take(self, recording: Recording, candidate: _Candidate, result: Any) -> None:
        """A candidate as its compilation left it."""
        dispatch = candidate.dispatch
        reason = refusal(result)
        if candidate.is_first:
            dispatch.first = result if reason is None else _no_first(reason)
            waiting, dispatch.waiting = dispatch.waiting, []
            for other, kernel in waiting:
                self._try(recording, other, kernel)
        elif reason is not None:
            facts = dispatch.facts
            recording.append(facts, [recording.record(facts, candidate.schedule, "", error=reason)])
            self._answer(candidate, Tried(error=reason), "")
        elif dispatch.first is None:
            dispatch.waiting.append((candidate, result))
        else:
            self._try(recording, candidate, result)

    def _try(self, recording: Recording, candidate: _Candidate, kernel: LoweredKernel) -> None:
        """Measures a kernel whose object is not known, and records what became of it."""
        dispatch, digest = candidate.dispatch, _digest(kernel)
        facts = dispatch.facts
        recording.keep_objects(facts.code, self._code, [(candidate.schedule, digest)])
        if digest not in dispatch.tried:
            for found, tried in _of_records(
                recording.find(facts.workload, facts.residence, {digest})
            ).items():
                dispatch.learn(found, tried)
        tried = dispatch.tried.get(digest)
        if tried is None:
            if isinstance(dispatch.first, str) or dispatch.first is None:
                tried = Tried(error=dispatch.first or "", is_own=False)
            else:
                tried = self._bench.measure(facts, dispatch.first, kernel, dispatch.best_us)
            self._keep(recording, dispatch, candidate.schedule, digest, tried, now())
        self._answer(candidate, tried, digest)

    def _race(self, recording: Recording, race: _Race) -> list[Tried]:
        assert isinstance(race.dispatch.first, LoweredKernel)
        facts, at = race.dispatch.facts, now()
        found = self._bench.race(facts, race.dispatch.first, race.kernels, race.rounds)
        for schedule, kernel, tried in zip(race.schedules, race.kernels, found):
            digest = _digest(kernel)
            recording.keep_objects(facts.code, self._code, [(schedule, digest)])
            self._keep(recording, race.dispatch, schedule, digest, tried, at)
        return found

    @staticmethod
    def _keep(
        recording: Recording, dispatch: _Dispatch, schedule: Schedule, digest: str, tried: Tried, at: str
    ) -> None:
        """Records what an object did, but for what is no fault of its own."""
        if tried.is_own and (tried.rounds_us or tried.error):
            facts = dispatch.facts
            recording.append(
                facts, [recording.record(facts, schedule, digest, tried.rounds_us, tried.error, at)]
            )
            dispatch.learn(digest, tried)


class LocalCpuDevice(LocalDevice):
    """The CPU of this machine; `options` leave out what measures."""

    def __init__(self, target: Target, options: MeasureOptions | None = None, records: Path | None = None):
        given = options or MeasureOptions(threads=num_threads())
        super().__init__(target, replace(given, device=given.device or processor()), records)


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


def _outcome(key: str, point: tuple[int, ...], tried: Tried, digest: str, since: float) -> Outcome:
    seconds = time.monotonic() - since
    return Outcome(key, point, tried.rounds_us, tried.error, digest, tried.is_final, seconds)
