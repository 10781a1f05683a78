"""The kernel profiler of `O1`: the few constructed candidates of every dispatch compiled, checked, timed; the best kept.

Candidates are compiled by the compiler's workers and run in one process of their own, so that one that crashes or hangs
is dropped and the compiler goes on. A candidate is trusted only when it computes what the first one does. What was
measured is kept in records, by the object that ran: an object that is on record is not run again, whichever
schedule or version of the compiler it came of.
Source: Roller, OSDI'22, §4, "Performance profiling".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.compiler import debug
from tilewright.compiler.cache.store import KernelCache
from tilewright.compiler.codegen.lower_cpu import LoweredKernel, code_key, compiler_version, kernel_key
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.nouns.record import Record, schedule_text
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.profiler.candidate_bench import MEASURING
from tilewright.compiler.profiler.compile import refusal
from tilewright.compiler.profiler.decisions import Decision, Measured
from tilewright.compiler.profiler.kernel_messages import object_digest
from tilewright.compiler.profiler.measurement_tasks import (
    CandidatesOf,
    MeasurementTask,
    measurement_tasks,
)
from tilewright.compiler.profiler.processes import ChildLost, MeasuringChild, Message
from tilewright.compiler.profiler.recording import Recording, now
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.record_store import RecordStore
from tilewright.compiler.tuning.recorded_choice import fastest
from tilewright.compiler.workers.pool import Job, pool

COMPILING = "tilewright.compiler.profiler.compile:compile_candidate"


@dataclass(frozen=True)
class ProfilerOptions:
    """How long the profiler may take: seconds to compile one candidate, for one run, and of timing per dispatch.

    A candidate replaces the first one only when it is faster by the factor `gain` in a duel of several rounds, by its
    best round and by most of them: less may be noise. There are at most `rounds`; `kept` are (rounds, factor): after so
    many, candidates slower than the best by more than the factor are not timed further. `device` names the processor or
    GPU that measures, and is part of what its records are kept under.
    """

    threads: int = 1
    compile_timeout_s: int = 120
    run_timeout_s: float = 20.0
    seconds: float = 0.4
    gain: float = 1.02
    rounds: int = 12
    kept: tuple[tuple[int, float], ...] = ((2, 1.25), (4, 1.08))
    compiling: str = COMPILING
    measuring: str = MEASURING
    device: str = ""
    device_index: int = 0


Say = Callable[[int, int, str], None]
"""Told of progress: steps done, steps in all, and what is going on."""


def profile(
    module: ir.Module,
    target: Target,
    candidates_of: CandidatesOf,
    options: ProfilerOptions,
    say: Say = lambda done, total, text: None,
    store: RecordStore | None = None,
) -> dict[str, Decision]:
    """Puts the fastest of its candidates on every dispatch that @main calls; returns the decisions by dispatch.

    `candidates_of(function)` lists the candidates, first the one that is there already: a dispatch that carries another
    schedule was written by hand, and keeps it. Records go to `store`, or to that of the cache folder, dispatch by
    dispatch, so an interrupted profile resumes.
    """
    profiler = _Profiler(target, options, say, store)
    try:
        found = list(measurement_tasks(module, target, candidates_of))
        profiler.decide(found)
    finally:
        profiler.close()
    decisions = {}
    for task in found:
        decision = decisions[task.name] = _decision(task, options.gain)
        debug.log(2, f"profiler: {task.name}: {decision.rows()}")
        chosen = task.candidates[decision.chosen]
        schedule_attribute.write(task.function, chosen.schedule)
        schedule_attribute.write_prediction(task.function, chosen.us, chosen.bound)
    return decisions


def _decision(task: MeasurementTask, gain: float) -> Decision:
    """What the records of a task say."""
    numbers = range(len(task.candidates))
    usable = ["" if n in task.errors else task.objects.get(n, "") for n in numbers]
    times, medians = task.known_us(), task.medians_us()
    rows = tuple(
        Measured(candidate.schedule, times.get(usable[n]), task.errors.get(n, ""), medians.get(usable[n]))
        for n, candidate in enumerate(task.candidates)
    )
    return Decision(rows, fastest(usable, task.records, gain))


class _Profiler:
    """Finds out of every task's candidates what is not on record."""

    def __init__(self, target: Target, options: ProfilerOptions, say: Say, store: RecordStore | None):
        self.target, self.options, self.say = target, options, say
        self.code = code_key(target)
        self.recording = Recording(target, options.device, options.threads, store)
        self.bench = MeasuringChild(options.measuring)

    def close(self) -> None:
        self.bench.stop()
        self.recording.close()

    def decide(self, asked: Sequence[MeasurementTask]) -> None:
        """Compiles candidates that are not known, and measures objects that are not."""
        for task in asked:
            self.recall(task)
        self.compile([(task, task.unknown()) for task in asked])
        for task in asked:
            self.look_up(task)
        open_ = [task for task in asked if task.unmeasured()]
        if not open_:
            return
        debug.log(1, f"profiler: {len(asked) - len(open_)} dispatches on record, {len(open_)} to measure")
        self.compile([(task, task.missing()) for task in open_])
        for number, task in enumerate(open_):
            self.say(number, len(open_), f"measuring {task.name}")
            self.measure(task)
        self.say(len(open_), len(open_), "measured")

    def recall(self, task: MeasurementTask) -> None:
        """Takes in what this compiler made of the candidates when it met them before."""
        schedules = [candidate.schedule for candidate in task.candidates]
        objects = self.recording.objects(task.facts.code, self.code, schedules)
        task.objects = {number: digest for number, digest in enumerate(objects) if digest}
        refused = self.recording.refusals(task.facts.workload, compiler_version())
        errors = {record.schedule: record.error for record in refused}
        for number in task.unknown():
            reason = errors.get(schedule_text(schedules[number]))
            if reason is not None:
                task.errors[number] = reason

    def look_up(self, task: MeasurementTask) -> None:
        """Takes in what is on record of the candidates' objects."""
        found = self.recording.find(task.facts.workload, task.facts.residence, set(task.objects.values()))
        known = set(task.records)
        task.learn([record for record in found if record not in known])

    def compile(self, wanted: Sequence[tuple[MeasurementTask, Sequence[int]]]) -> None:
        """Gives candidates their kernels and objects, from the cache or from a worker."""
        cache = KernelCache.open()
        jobs: list[Job] = []
        places: list[tuple[MeasurementTask, int, str]] = []
        for task, numbers in wanted:
            for number in numbers:
                schedule = task.candidates[number].schedule
                key = _key(task.facts.text, schedule, self.target)
                found = cache.find(key, task.name)
                if found is None:
                    what = f"candidate {number} of `{task.name}`"
                    arguments = (task.facts.text, schedule.as_dict(), self.target)
                    limit_s = self.options.compile_timeout_s
                    jobs.append(Job(self.options.compiling, arguments, what, limit_s=limit_s))
                    places.append((task, number, key))
                else:
                    self.take(task, number, found)
        count = 0

        def done(job: int, result: Any) -> None:
            nonlocal count
            count += 1
            task, number, key = places[job]
            reason = refusal(result)
            if reason is not None:
                self.fail(task, number, reason)
            else:
                kernel = replace(result, kernel=replace(result.kernel, name=task.name))
                self.take(task, number, kernel)
                cache.store(key, kernel)
            self.say(count, len(jobs), "compiling candidates")

        if jobs:
            pool().run(jobs, done)
        for task, numbers in wanted:
            made = [(task.candidates[n].schedule, task.objects[n]) for n in numbers if n in task.kernels]
            if made:
                self.recording.keep_objects(task.facts.code, self.code, made)

    @staticmethod
    def take(task: MeasurementTask, number: int, kernel: LoweredKernel) -> None:
        """A candidate's kernel, which is out if its object is known to fail."""
        task.kernels[number] = kernel
        task.objects[number] = object_digest(kernel.kernel, kernel.tasks)
        task.learn()

    def measure(self, task: MeasurementTask) -> None:
        """Runs what has no record until all of it is measured or has failed.

        The child says what it is about to run; where it dies or hangs, that object is blamed and the rest start anew.
        """
        # Another dispatch may have been the same workload, and another process may have met it.
        self.look_up(task)
        while task.unmeasured():
            if missing := task.missing():
                self.compile([(task, missing)])
                continue
            alive = task.to_run()
            running: int | None = None
            started = now()
            process = self.bench.get()
            try:
                process.send(self.request(task, alive))
                while True:
                    message = process.receive(self.options.run_timeout_s)
                    if message.get("done"):
                        self.keep(task, alive, message["times_us"], started)
                        self.keep(task, alive, message["duel_us"], now())
                        return
                    if message.get("error"):
                        self.fail(task, alive[message["checked"]], str(message["error"]))
                        if message.get("last"):
                            self.bench.stop()
                            break
                    elif "running" in message:
                        running = alive[message["running"]]
            except ChildLost as lost:
                self.bench.stop()
                if running is None:
                    # It never came to run anything: no fault of a kernel's, so nothing to remember.
                    debug.log(1, f"profiler: {task.name}: the measuring process {lost}")
                    task.errors[0] = str(lost)
                else:
                    self.fail(task, running, str(lost))

    def request(self, task: MeasurementTask, alive: Sequence[int]) -> Message:
        """What the child is told: the kernels, which of them to time, and what is known of the others."""
        unmeasured, known = task.unmeasured(), task.known_us()
        return {
            **task.facts.request([task.kernels[number] for number in alive], self.target),
            "threads": self.options.threads,
            "device_index": self.options.device_index,
            "seconds": self.options.seconds,
            "rounds": self.options.rounds,
            "kept": self.options.kept,
            "timed": [place for place, number in enumerate(alive) if number in unmeasured],
            "known_us": {
                str(place): known[task.objects[number]]
                for place, number in enumerate(alive)
                if task.objects[number] in known
            },
            "best_us": min(known.values(), default=None),
        }

    def keep(
        self, task: MeasurementTask, alive: Sequence[int], rounds: dict[str, list[float]], at: str
    ) -> None:
        """Records the kernels that took turns in one sitting."""
        self.append(
            task,
            [
                self.record(task, alive[int(place)], [max(0.001, round(v, 3)) for v in values], at=at)
                for place, values in rounds.items()
                if values
            ],
        )

    def fail(self, task: MeasurementTask, number: int, reason: str) -> None:
        """Records that a candidate was not compiled, or that its object does not do its work."""
        debug.log(1, f"profiler: {task.name}, candidate {number}: {reason}")
        task.errors[number] = reason
        self.append(task, [self.record(task, number, error=reason)])

    def record(
        self,
        task: MeasurementTask,
        number: int,
        rounds_us: Sequence[float] = (),
        error: str = "",
        at: str = "",
    ) -> Record:
        schedule, digest = task.candidates[number].schedule, task.objects.get(number, "")
        return self.recording.record(task.facts, schedule, digest, rounds_us, error, at)

    def append(self, task: MeasurementTask, records: Sequence[Record]) -> None:
        if records:
            self.recording.append(task.facts, records)
            task.learn(records)


def _key(text: str, schedule: Schedule, target: Target) -> str:
    """The kernel cache's key of a dispatch under a schedule."""
    module = parse(text)
    with module.context:
        function = next(functions(module))
        schedule_attribute.write(function, schedule)
        return kernel_key(function, target)
