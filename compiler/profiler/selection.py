"""The kernel profiler of `O1`: the few constructed candidates of every dispatch compiled, checked, timed; the best kept.

Candidates are compiled by the compiler's workers and run in one process of their own, so that one that crashes or hangs
is dropped and the compiler goes on. A candidate is trusted only when it computes what the first one does. What was
measured is kept in records, by the object that ran: an object that is on record is not run again, whichever
schedule or version of the compiler it came of.
Source: Roller, OSDI'22, §4, "Performance profiling".
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.compiler import debug
from tilewright.compiler.cache.store import KernelCache
from tilewright.compiler.codegen.lower_cpu import LoweredKernel, code_key, compiler_version, kernel_key
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import CompilerCrashError, TilewrightError
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.nouns.record import Record, key_of, schedule_text, target_text
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.profiler.decisions import Decision, Measured
from tilewright.compiler.profiler.kernel_messages import object_digest
from tilewright.compiler.profiler.processes import Child, ChildLost, Message
from tilewright.compiler.profiler.questions import Offer, Question, describe, questions
from tilewright.compiler.profiler.recording import Recording, now
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.record_store import RecordStore
from tilewright.compiler.tuning.recorded_choice import fastest
from tilewright.compiler.workers.pool import Job, pool

COMPILING = "tilewright.compiler.profiler.compile:compile_candidate"
MEASURING = "tilewright.compiler.profiler.measure"
MEASURING_ON_GPU = "tilewright.compiler.profiler.measure_cuda"


@dataclass(frozen=True)
class ProfilerOptions:
    """How long the profiler may take: seconds to compile one candidate, for one run, and of timing per dispatch.

    A candidate replaces the first one only when it is faster by the factor `gain` in a duel of several rounds, by its
    best round and by most of them: less may be noise. `device` names the processor or GPU that measures, and is part
    of what its records are kept under.
    """

    threads: int = 1
    compile_timeout_s: int = 120
    run_timeout_s: float = 20.0
    seconds: float = 0.4
    gain: float = 1.02
    compiling: str = COMPILING
    measuring: str = MEASURING
    device: str = ""
    device_index: int = 0


Say = Callable[[int, int, str], None]
"""Told of progress: steps done, steps in all, and what is going on."""


def profile(
    module: ir.Module,
    target: Target,
    offer: Offer,
    options: ProfilerOptions,
    say: Say = lambda done, total, text: None,
    store: RecordStore | None = None,
) -> dict[str, Decision]:
    """Puts the fastest of its candidates on every dispatch that @main calls; returns the decisions by dispatch.

    `offer(function)` lists the candidates, first the one that is there already: a dispatch that carries another
    schedule was written by hand, and keeps it. Records go to `store`, or to that of the cache folder, dispatch by
    dispatch, so an interrupted profile resumes.
    """
    profiler = _Profiler(target, options, say, store)
    try:
        found = list(questions(module, target, offer))
        profiler.answer(found)
    finally:
        profiler.close()
    decisions = {}
    for question in found:
        decision = decisions[question.name] = _decision(question, options.gain)
        debug.log(2, f"profiler: {question.name}: {decision.rows()}")
        chosen = question.candidates[decision.chosen]
        schedule_attribute.write(question.function, chosen.schedule)
        schedule_attribute.write_prediction(question.function, chosen.us, chosen.bound)
    return decisions


def _decision(question: Question, gain: float) -> Decision:
    """What the records of a question say."""
    numbers = range(len(question.candidates))
    usable = ["" if n in question.errors else question.objects.get(n, "") for n in numbers]
    times = question.known_us()
    rows = tuple(
        Measured(candidate.schedule, times.get(usable[n]), question.errors.get(n, ""))
        for n, candidate in enumerate(question.candidates)
    )
    return Decision(rows, fastest(usable, question.records, gain))


class _Profiler:
    """Finds out of every question's candidates what is not on record."""

    def __init__(self, target: Target, options: ProfilerOptions, say: Say, store: RecordStore | None):
        self.target, self.options, self.say = target, options, say
        self.target_text = target_text(target)
        self.code = code_key(target)
        self.recording = Recording(key_of(self.target_text), options.device, options.threads, store)
        self.bench = MeasuringChild(options.measuring)

    def close(self) -> None:
        self.bench.stop()
        self.recording.close()

    def answer(self, asked: Sequence[Question]) -> None:
        """Compiles candidates that are not known, and measures objects that are not."""
        for question in asked:
            self.recall(question)
        self.compile([(question, question.unknown()) for question in asked])
        for question in asked:
            self.look_up(question)
        open_ = [question for question in asked if question.unmeasured()]
        if not open_:
            return
        debug.log(1, f"profiler: {len(asked) - len(open_)} dispatches on record, {len(open_)} to measure")
        self.compile([(question, question.missing()) for question in open_])
        for number, question in enumerate(open_):
            self.say(number, len(open_), f"measuring {question.name}")
            self.measure(question)
        self.say(len(open_), len(open_), "measured")

    def recall(self, question: Question) -> None:
        """Takes in what this compiler made of the candidates when it met them before."""
        schedules = [candidate.schedule for candidate in question.candidates]
        objects = self.recording.objects(question.code, self.code, schedules)
        question.objects = {number: digest for number, digest in enumerate(objects) if digest}
        refused = self.recording.refusals(question.workload.key, compiler_version())
        errors = {record.schedule: record.error for record in refused}
        for number in question.unknown():
            reason = errors.get(schedule_text(schedules[number]))
            if reason is not None:
                question.errors[number] = reason

    def look_up(self, question: Question) -> None:
        """Takes in what is on record of the candidates' objects."""
        found = self.recording.find(question.workload.key, question.residence, set(question.objects.values()))
        known = set(question.records)
        question.learn([record for record in found if record not in known])

    def compile(self, wanted: Sequence[tuple[Question, Sequence[int]]]) -> None:
        """Gives candidates their kernels and objects, from the cache or from a worker."""
        cache = KernelCache.open()
        jobs: list[Job] = []
        places: list[tuple[Question, int, str]] = []
        for question, numbers in wanted:
            for number in numbers:
                schedule = question.candidates[number].schedule
                key = _key(question.text, schedule, self.target)
                found = cache.find(key, question.name)
                if found is None:
                    what = f"candidate {number} of `{question.name}`"
                    arguments = (question.text, schedule.as_dict(), self.target)
                    limit_s = self.options.compile_timeout_s
                    jobs.append(Job(self.options.compiling, arguments, what, limit_s=limit_s))
                    places.append((question, number, key))
                else:
                    self.take(question, number, found)
        count = 0

        def done(job: int, result: Any) -> None:
            nonlocal count
            count += 1
            question, number, key = places[job]
            if isinstance(result, TilewrightError):
                reason = result.how if isinstance(result, CompilerCrashError) else str(result).splitlines()[0]
                self.fail(question, number, reason)
            elif isinstance(result, Exception):
                raise result
            else:
                kernel = replace(result, kernel=replace(result.kernel, name=question.name))
                self.take(question, number, kernel)
                cache.store(key, kernel)
            self.say(count, len(jobs), "compiling candidates")

        if jobs:
            pool().run(jobs, done)
        for question, numbers in wanted:
            made = [
                (question.candidates[n].schedule, question.objects[n])
                for n in numbers
                if n in question.kernels
            ]
            if made:
                self.recording.keep_objects(question.code, self.code, made)

    @staticmethod
    def take(question: Question, number: int, kernel: LoweredKernel) -> None:
        """A candidate's kernel, which is out if its object is known to fail."""
        question.kernels[number] = kernel
        question.objects[number] = object_digest(kernel.kernel, kernel.tasks)
        question.learn()

    def measure(self, question: Question) -> None:
        """Runs what has no record until all of it is measured or has failed.

        The child says what it is about to run; where it dies or hangs, that object is blamed and the rest start anew.
        """
        # Another dispatch may have been the same workload, and another process may have met it.
        self.look_up(question)
        while question.unmeasured():
            if missing := question.missing():
                self.compile([(question, missing)])
                continue
            alive = question.to_run()
            running: int | None = None
            started = now()
            process = self.bench.get()
            try:
                process.send(self.request(question, alive))
                while True:
                    message = process.receive(self.options.run_timeout_s)
                    if message.get("done"):
                        self.keep(question, alive, message["times_us"], started)
                        self.keep(question, alive, message["duel_us"], now())
                        return
                    if message.get("error"):
                        self.fail(question, alive[message["checked"]], str(message["error"]))
                        if message.get("last"):
                            self.bench.stop()
                            break
                    elif "running" in message:
                        running = alive[message["running"]]
            except ChildLost as lost:
                self.bench.stop()
                if running is None:
                    # It never came to run anything: no fault of a kernel's, so nothing to remember.
                    debug.log(1, f"profiler: {question.name}: the measuring process {lost}")
                    question.errors[0] = str(lost)
                else:
                    self.fail(question, running, str(lost))

    def request(self, question: Question, alive: Sequence[int]) -> Message:
        """What the child is told: the kernels, which of them to time, and what is known of the others."""
        unmeasured, known = question.unmeasured(), question.known_us()
        return {
            **describe(question, alive, self.target),
            "threads": self.options.threads,
            "device_index": self.options.device_index,
            "seconds": self.options.seconds,
            "timed": [place for place, number in enumerate(alive) if number in unmeasured],
            "known_us": {
                str(place): known[question.objects[number]]
                for place, number in enumerate(alive)
                if question.objects[number] in known
            },
            "best_us": min(known.values(), default=None),
        }

    def keep(self, question: Question, alive: Sequence[int], rounds: dict[str, list[float]], at: str) -> None:
        """Records the kernels that took turns in one sitting."""
        self.append(
            question,
            [
                self.record(
                    question,
                    alive[int(place)],
                    rounds_us=tuple(max(0.001, round(v, 3)) for v in values),
                    at=at,
                )
                for place, values in rounds.items()
                if values
            ],
        )

    def fail(self, question: Question, number: int, reason: str) -> None:
        """Records that a candidate was not compiled, or that its object does not do its work."""
        debug.log(1, f"profiler: {question.name}, candidate {number}: {reason}")
        question.errors[number] = reason
        self.append(question, [self.record(question, number, error=reason, at=now())])

    def record(
        self,
        question: Question,
        number: int,
        rounds_us: tuple[float, ...] = (),
        error: str = "",
        at: str = "",
    ) -> Record:
        return Record(
            workload=question.workload.key,
            target=self.recording.target,
            device=self.options.device,
            threads=self.options.threads,
            residence=question.residence,
            schedule=schedule_text(question.candidates[number].schedule),
            object=question.objects.get(number, ""),
            rounds_us=rounds_us,
            error=error,
            compiler=compiler_version(),
            host=platform.node(),
            at=at,
        )

    def append(self, question: Question, records: Sequence[Record]) -> None:
        if records:
            self.recording.append(records, (question.workload.to_text(), self.target_text))
            question.learn(records)


def _key(text: str, schedule: Schedule, target: Target) -> str:
    """The kernel cache's key of a dispatch under a schedule."""
    module = parse(text)
    with module.context:
        function = next(functions(module))
        schedule_attribute.write(function, schedule)
        return kernel_key(function, target)


class MeasuringChild:
    """The process that candidates run in, started when needed and anew after one was lost."""

    def __init__(self, module: str):
        self.module = module
        self._child: Child | None = None

    def get(self) -> Child:
        if self._child is None:
            self._child = Child(self.module)
        return self._child

    def stop(self) -> None:
        if self._child is not None:
            self._child.stop()
            self._child = None
