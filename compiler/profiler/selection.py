"""The kernel profiler of `O1`: the few constructed candidates of every dispatch compiled, checked, timed; the best kept.

Candidates are compiled by the compiler's workers and run in one process of their own, so that one that crashes or hangs
is dropped and the compiler goes on. A candidate is trusted only when it computes what the first one does.
Source: Roller, OSDI'22, §4, "Performance profiling".
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.compiler import debug, plan
from tilewright.compiler.cache import KernelCache
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import CompilerCrashError, TilewrightError
from tilewright.compiler.ir import functions, ir, parse, walk
from tilewright.compiler.lower import LoweredKernel, bare_text, compiler_digest, kernel_key
from tilewright.compiler.placement import STRIDES, dense_strides
from tilewright.compiler.profiler.decisions import Decision, DecisionStore, Measured
from tilewright.compiler.profiler.kernel_messages import to_message
from tilewright.compiler.profiler.processes import Child, ChildLost, Message
from tilewright.compiler.schedule import Schedule
from tilewright.compiler.structure import Structured
from tilewright.compiler.target import Target
from tilewright.compiler.tuning.cpu_candidates import Candidate
from tilewright.compiler.winograd_form import ATTRIBUTE, Convolution2d
from tilewright.compiler.workers.pool import Job, pool

_TRANSFORMED = 16
"""What Winograd's transforms add to rounding errors, as a factor of summed terms: four times the error of a sum."""
COMPILING = "tilewright.compiler.profiler.compile:compile_candidate"
MEASURING = "tilewright.compiler.profiler.measure"
MEASURING_ON_GPU = "tilewright.compiler.profiler.measure_cuda"


@dataclass(frozen=True)
class ProfilerOptions:
    """How long the profiler may take: seconds to compile one candidate, for one run, and of timing per dispatch.

    A candidate replaces the first one only when it is faster by the factor `gain` in a duel of several rounds, by its
    best round and by most of them: less may be noise. `device` describes the GPU that measures, and is part of what
    a decision is kept under.
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


@dataclass
class Question:
    """A dispatch that is to be decided: its candidates, and a kernel or the reason there is none for each."""

    name: str
    function: ir.Operation
    key: str
    candidates: Sequence[Candidate]
    weights: Sequence[bool]
    kernels: dict[int, LoweredKernel] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)


Say = Callable[[int, int, str], None]
"""Told of progress: steps done, steps in all, and what is going on."""


def profile(
    module: ir.Module,
    target: Target,
    offer: Callable[[ir.Operation], Sequence[Candidate]],
    options: ProfilerOptions,
    say: Say = lambda done, total, text: None,
) -> dict[str, Decision]:
    """Puts the fastest of its candidates on every dispatch that @main calls; returns the decisions by dispatch.

    `offer(function)` lists the candidates, first the one that is there already: a dispatch that carries another
    schedule was written by hand, and keeps it. Decisions are stored one by one, so an interrupted profile resumes.
    """
    store = DecisionStore.open()
    decisions: dict[str, Decision] = {}
    open_: list[Question] = []
    rotate_bytes = _weight_bytes(module)
    for question in _questions(module, target, offer, options, rotate_bytes):
        found = store.find(question.key)
        if found is None:
            open_.append(question)
        else:
            decisions[question.name] = found
    if open_:
        debug.log(1, f"profiler: {len(decisions)} dispatches decided before, {len(open_)} to measure")
        _compile(open_, target, options, say)
        bench = MeasuringChild(options.measuring)
        try:
            for number, question in enumerate(open_):
                say(number, len(open_), f"measuring {question.name}")
                decision = _decide(question, bench, target, options, rotate_bytes)
                store.store(question.key, decision)
                decisions[question.name] = decision
        finally:
            bench.stop()
        say(len(open_), len(open_), "measured")
    for function in functions(module):
        decision = decisions.get(_name(function))
        if decision is not None:
            schedule_attribute.write(function, decision.schedule)
            for candidate in offer(function):
                if candidate.schedule == decision.schedule:
                    schedule_attribute.write_prediction(function, candidate.us, candidate.bound)
    return decisions


def _questions(
    module: ir.Module,
    target: Target,
    offer: Callable[[ir.Operation], Sequence[Candidate]],
    options: ProfilerOptions,
    rotate_bytes: int,
) -> Iterable[Question]:
    calls = _calls_of_main(module)
    for function in functions(module):
        name = _name(function)
        if name not in calls:
            continue
        candidates = list({candidate.schedule: candidate for candidate in reversed(offer(function))}.values())
        candidates.reverse()
        if len(candidates) < 2 or schedule_attribute.read(function) != candidates[0].schedule:
            continue
        facts = {
            **({"device": options.device} if options.device else {}),
            "dispatch": bare_text(function, schedule=False),
            "target": target.to_json(),
            "threads": options.threads,
            "candidates": [candidate.schedule.as_dict() for candidate in candidates],
            "weights": calls[name],
            "rotate_bytes": rotate_bytes,
            "compiler": compiler_digest(),
        }
        key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        yield Question(name, function, key, candidates, calls[name])


def _calls_of_main(module: ir.Module) -> dict[str, list[bool]]:
    """The dispatches that @main calls, with what is a weight of their arguments."""
    found: dict[str, list[bool]] = {}
    for function in functions(module):
        if _name(function) != "main":
            continue
        attributes = list(function.attributes["arg_attrs"]) if "arg_attrs" in function.attributes else []
        roles = {
            argument: "tilewright.role" in entry and entry["tilewright.role"].value != "input"
            for argument, entry in zip(function.regions[0].blocks[0].arguments, attributes)
        }
        for call in walk(function, "func.call"):
            name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
            found.setdefault(name, [roles.get(_source(operand), False) for operand in call.operands])
    return found


def _source(value: ir.Value) -> ir.Value:
    """What a chain of reshapes and slices is a view of."""
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name.startswith("tensor."):
        if not value.owner.operation.operands:
            break
        value = value.owner.operation.operands[0]
    return value


def _weight_bytes(module: ir.Module) -> int:
    """Bytes of all that @main reads and no call changes: they pass through the caches once per call."""
    total = 0
    for function in functions(module):
        if _name(function) == "main" and "arg_attrs" in function.attributes:
            types = function.attributes["function_type"].value.inputs
            for type_, entry in zip(types, function.attributes["arg_attrs"]):
                if "tilewright.role" in entry and entry["tilewright.role"].value != "input":
                    total += plan.tensor_spec(type_, "").nbytes
    return total


def _name(function: ir.Operation) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value


def _compile(questions: Sequence[Question], target: Target, options: ProfilerOptions, say: Say) -> None:
    """Gives every candidate of every question its kernel, from the cache or from a child."""
    cache = KernelCache.open()
    jobs: list[Job] = []
    places: list[tuple[Question, int, str]] = []
    for question in questions:
        text = bare_text(question.function, schedule=False)
        for number, candidate in enumerate(question.candidates):
            schedule = candidate.schedule
            key = _key(text, schedule, target)
            found = cache.find(key, question.name)
            if found is not None:
                if found.whole:
                    question.errors[number] = f"lowered whole: {found.whole}"
                else:
                    question.kernels[number] = found
                continue
            what = f"candidate {number} of `{question.name}`"
            arguments = (text, schedule.as_dict(), target)
            jobs.append(Job(options.compiling, arguments, what, limit_s=options.compile_timeout_s))
            places.append((question, number, key))
    count = 0

    def done(job: int, result: Any) -> None:
        nonlocal count
        count += 1
        question, number, key = places[job]
        if isinstance(result, TilewrightError):
            reason = result.how if isinstance(result, CompilerCrashError) else str(result).splitlines()[0]
            question.errors[number] = reason
            debug.log(2, f"profiler: {question.name}, candidate {number}: {reason}")
        elif isinstance(result, Exception):
            raise result
        else:
            kernel = replace(result.kernel, name=question.name)
            question.kernels[number] = replace(result, kernel=kernel)
            cache.store(key, question.kernels[number])
        say(count, len(jobs), "compiling candidates")

    pool().run(jobs, done)


def _key(text: str, schedule: Schedule, target: Target) -> str:
    """The kernel cache's key of a dispatch under a schedule."""
    module = parse(text)
    with module.context:
        function = next(functions(module))
        schedule_attribute.write(function, schedule)
        return kernel_key(function, target)


def _decide(
    question: Question, bench: MeasuringChild, target: Target, options: ProfilerOptions, rotate_bytes: int
) -> Decision:
    """Measures what compiled; the first candidate stays where nothing is faster by enough."""
    times: dict[int, float] = {}
    winner = 0
    if 0 in question.kernels and len(question.kernels) > 1:
        times, winner = _measure(question, bench, target, options, rotate_bytes)
    rows = tuple(
        Measured(candidate.schedule, times.get(number), question.errors.get(number, ""))
        for number, candidate in enumerate(question.candidates)
    )
    debug.log(2, f"profiler: {question.name}: candidate {winner} of {len(rows)}, {times}")
    return Decision(rows, winner)


def winner_of(duel: dict[int, list[float]], gain: float) -> int:
    """The candidate that beat the first one, by its best round and by its median; 0 where none did."""
    challenger = next((number for number in duel if number), 0)
    if not challenger or not all(duel.values()):
        return 0
    first, other = duel[0], duel[challenger]
    beaten = all(of(other) * gain <= of(first) for of in (min, statistics.median))
    return challenger if beaten else 0


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


def _measure(
    question: Question, bench: MeasuringChild, target: Target, options: ProfilerOptions, rotate_bytes: int
) -> tuple[dict[int, float], int]:
    """Microseconds by candidate, of those that run and compute the right thing, and the number of the winner.

    The child says what it is about to run; where it dies or hangs, that candidate is blamed and the rest start anew.
    """
    alive = sorted(question.kernels)
    while len(alive) > 1 and alive[0] == 0:
        running = alive[0]
        process = bench.get()
        try:
            process.send(_request(question, alive, target, options, rotate_bytes))
            while True:
                message = process.receive(options.run_timeout_s)
                if message.get("done"):
                    times = {alive[int(n)]: min(v) for n, v in message["times_us"].items() if v}
                    duel = {alive[int(n)]: values for n, values in message["duel_us"].items()}
                    return {n: round(us, 3) for n, us in times.items()}, winner_of(duel, options.gain)
                if message.get("error"):
                    question.errors[alive[message["checked"]]] = str(message["error"])
                    debug.log(1, f"profiler: {question.name}: {message['error']}")
                    if message.get("last"):
                        bench.stop()
                        break
                elif "running" in message:
                    running = alive[message["running"]]
        except ChildLost as lost:
            bench.stop()
            question.errors[running] = str(lost)
            debug.log(1, f"profiler: {question.name}, candidate {running}: {lost}")
        alive = [number for number in alive if number not in question.errors]
    return {}, 0


def _request(
    question: Question, alive: Sequence[int], target: Target, options: ProfilerOptions, rotate_bytes: int
) -> Message:
    types = question.function.attributes["function_type"].value
    inputs = _tensors(question.function, types.inputs, "arg_attrs")
    planes = _transformed_filters(question.function)
    group = [
        s
        for view in question.function.regions[0].blocks[0].operations
        if (s := Structured.read(view.operation)) is not None
    ]
    return {
        "target": target.name,
        "features": [target.arch] if target.is_cuda else list(target.cpu_features),
        "threads": options.threads,
        "device_index": options.device_index,
        "seconds": options.seconds,
        "inputs": [
            {**tensor, "weight": weight, "planes": planes.get(number, [])}
            for number, (tensor, weight) in enumerate(zip(inputs, question.weights))
        ],
        "outputs": _tensors(question.function, types.results, "res_attrs"),
        # Weights come from as far away as when the whole model runs, but need not be more than twice the last cache.
        "rotate_bytes": min(rotate_bytes, 2 * max(level.capacity_bytes for level in target.memory[1:])),
        "steps": max((_steps(s) for s in group), default=1) * (_TRANSFORMED if planes else 1),
        "indexes": any(op.name == "tensor.extract" for op in walk(question.function)),
        "kernels": [to_message(question.kernels[n].kernel, question.kernels[n].tasks) for n in alive],
    }


def _transformed_filters(function: ir.Operation) -> dict[int, list]:
    """Arguments that hold filters with their Winograd transforms behind them: the matrix that makes these of those."""
    arguments = list(function.regions[0].blocks[0].arguments)
    found: dict[int, list] = {}
    for op in walk(function, "linalg.generic"):
        convolution = Convolution2d.read(op) if ATTRIBUTE in op.attributes else None
        transforms = convolution.transforms if convolution is not None else None
        if transforms is not None and op.operands[1] in arguments:
            found[arguments.index(op.operands[1])] = [list(row) for row in transforms.planes]
    return found


def _tensors(function: ir.Operation, types: Sequence[ir.Type], attributes: str) -> list[Message]:
    """Arguments or results of a dispatch: dtype, shape, and strides in elements."""
    entries = (
        list(function.attributes[attributes]) if attributes in function.attributes else [{}] * len(types)
    )
    found = []
    for type_, entry in zip(types, entries):
        spec = plan.tensor_spec(type_, "")
        strides = list(entry[STRIDES]) if STRIDES in entry else list(dense_strides(spec.shape))
        found.append({"dtype": spec.dtype, "shape": list(spec.shape), "strides": strides})
    return found


def _steps(structured: Structured) -> int:
    return math.prod(e for e, kind in zip(structured.extents, structured.kinds) if kind == "reduction")
