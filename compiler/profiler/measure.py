"""The child process that runs candidates of one dispatch: checks each against the first, then times them in turn.

Needs the runtime and numpy only. What it is about to run it says first, so that the parent knows whom to blame.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from tilewright.compiler.profiler.comparison import OTHER_BITS, difference
from tilewright.compiler.profiler.guarded_buffers import (
    Buffer,
    Strided,
    Untrusted,
    WildWrite,
    random_values,
    store_transforms,
)
from tilewright.compiler.profiler.kernel_messages import from_message
from tilewright.compiler.profiler.processes import Message, requests
from tilewright.compiler.profiler.stream import Stream
from tilewright.runtime.errors import DeviceError, TilewrightError
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import BufferRef, Package, Program, Step

_UNWRITTEN = 0xFF
_DUEL_ROUNDS = 5
_MOST_COPIES = 64


class Bench:
    """Candidates of one dispatch with the buffers they run on."""

    def __init__(self, request: Message):
        self.request = request
        self.inputs = [Strided.of(entry) for entry in request["inputs"]]
        self.outputs = [Strided.of(entry) for entry in request["outputs"]]
        self.results = [self.make_buffer(tensor) for tensor in self.outputs]
        self.arguments = [self._copies(i) for i in range(len(self.inputs))]
        self.turn = 0
        self.executables: dict[int, Any] = {}
        self.right: list[int] = []
        self.expected: list[np.ndarray] = []
        self.filled: list[np.ndarray] = []
        self.checked_us: float | None = None
        """What the last call that was checked took at least."""

    def _copies(self, number: int) -> list[Buffer]:
        """As many copies of a weight as a pass over all of the model's weights takes to come back to it."""
        tensor, count = self.inputs[number], 1
        nbytes = tensor.spec("").nbytes
        if self.request["inputs"][number]["weight"] and nbytes:
            count = max(1, min(_MOST_COPIES, self.request["rotate_bytes"] // nbytes))
        return [self.make_buffer(tensor) for _ in range(count)]

    def fill(self, positive: bool) -> None:
        rng = np.random.default_rng(0)
        self.filled.clear()
        for spec, copies, entry in zip(self.inputs, self.arguments, self.request["inputs"]):
            values = random_values(spec, rng, positive, self.request["indexes"])
            if entry["planes"]:
                store_transforms(values, np.asarray(entry["planes"], values.dtype))
            self.filled.append(values)
            for copy in copies:
                copy.array[...] = values
                copy.push()

    def load(self, number: int) -> None:
        """Makes a candidate ready to run; raises PackageError."""
        entry = self.request["kernels"][number]
        kernel = from_message(f"candidate{number}", entry)
        buffers = [BufferRef("input", i) for i in range(len(self.inputs))]
        buffers += [BufferRef("output", i) for i in range(len(self.outputs))]
        program = Program((Step(0, tuple(buffers), entry["tasks"]),))
        package = Package(
            self.request["target"],
            tuple(self.request["features"]),
            tuple(tensor.spec(f"in{i}") for i, tensor in enumerate(self.inputs)),
            tuple(tensor.spec(f"out{i}") for i, tensor in enumerate(self.outputs)),
            (),
            (),
            (kernel,),
            program,
        )
        self.executables[number] = self.executable(package)

    def make_buffer(self, tensor: Strided) -> Buffer:
        """Memory where the machine that measures sees it."""
        return Buffer.of(tensor)

    def executable(self, package: Package) -> Any:
        """The package on the machine that measures."""
        return Executable(package, num_threads=self.request["threads"])

    def run(self, number: int) -> None:
        self.turn += 1
        self.executables[number].run(
            [copies[self.turn % len(copies)].address for copies in self.arguments],
            [result.address for result in self.results],
        )

    def compute(self, number: int) -> list[np.ndarray]:
        """A candidate's results, on outputs that held other bytes before; raises TilewrightError, WildWrite."""
        for result in self.results:
            result.span[...] = _UNWRITTEN
            result.push()
        self.checked_us = self.run_clocked(number)
        for buffer in chain(self.results, *self.arguments):
            buffer.pull()
        if not all(buffer.is_intact() for buffer in chain(self.results, *self.arguments)):
            raise WildWrite("it wrote outside of its buffers")
        if not all(result.gaps_hold(_UNWRITTEN) for result in self.results):
            raise WildWrite("it wrote between the rows of its result")
        for copies, values in zip(self.arguments, self.filled):
            if not np.array_equal(copies[self.turn % len(copies)].array, values):
                raise WildWrite("it changed what it reads")
        return [result.array.copy() for result in self.results]

    def judge(self, number: int, exact: bool = False) -> str | None:
        """Why a candidate is not used; None where it computes what the first one does. Raises Untrusted.

        What is `exact` computes the same bits: no other order of sums.
        """
        try:
            self.load(number)
            if number == 0:
                self.expected = self.reference()
                return None
            found = self.compute(number)
        except WildWrite as error:
            raise Untrusted(str(error)) from error
        except TilewrightError as error:
            if isinstance(error, DeviceError) and error.is_fatal:
                raise Untrusted(str(error)) from error
            return str(error)
        wrong = self.differs(found)
        if wrong is not None:
            return f"wrong result: {wrong}"
        if exact and any(a.tobytes() != b.tobytes() for a, b in zip(found, self.expected)):
            return OTHER_BITS
        return None

    def differs(self, found: Sequence[np.ndarray]) -> str | None:
        """Why these are other results than the first candidate's; None where rounding explains it."""
        steps = self.request["steps"]
        reasons = [difference(a, b, o.dtype, steps) for a, b, o in zip(found, self.expected, self.outputs)]
        return next((reason for reason in reasons if reason), None)

    def check(self, say: Callable[[Message], None]) -> None:
        """Puts the numbers of the candidates that compute what the first one does into `right`."""
        for number in range(len(self.request["kernels"])):
            say({"running": number})
            try:
                error = self.judge(number)
            except Untrusted as untrusted:
                # The parent starts another process.
                say({"checked": number, "error": str(untrusted), "last": True})
                raise
            say({"checked": number, "error": error})
            if error is None:
                self.right.append(number)
            elif number == 0:
                return

    def reference(self) -> list[np.ndarray]:
        """What the first candidate computes, on positive values where signed ones give mostly no numbers."""
        self.fill(positive=False)
        expected = self.compute(0)
        sizes = [(np.isfinite(a).sum(), a.size) for a in expected if a.dtype.kind in "fc"]
        if sizes and sum(finite for finite, _ in sizes) < sum(size for _, size in sizes) / 2:
            self.fill(positive=True)
            expected = self.compute(0)
        return expected

    def time(self, alive: Sequence[int], say: Callable[[Message], None]) -> dict[int, list[float]]:
        """Microseconds of each candidate per round; rounds go on until `seconds` are used up.

        `best_us` is the best that was measured before, which they race against as well; `kept` says who drops out.
        """
        times: dict[int, list[float]] = {number: [] for number in alive}
        racing = list(alive)
        deadline = time.perf_counter() + self.request["seconds"]
        for done in range(self.request["rounds"]):
            for number in racing:
                say({"running": number})
                times[number].append(self.visit(number))
            best = min(
                [*filter(None, [self.request["best_us"]]), *(min(v) for v in times.values() if v)],
                default=0.0,
            )
            for rounds, factor in self.request["kept"]:
                if done + 1 >= rounds:
                    racing = [n for n in racing if min(times[n]) <= factor * best]
            if done >= 1 and (len(racing) < 2 or time.perf_counter() > deadline):
                break
        return times

    def duel(self, times: dict[int, list[float]], say: Callable[[Message], None]) -> dict[int, list[float]]:
        """Microseconds of the first and of the fastest candidate, in turns: what a race of many found may be luck.

        None where the fastest is the first, or is not here: it has been through that.
        """
        found = {int(number): us for number, us in self.request["known_us"].items()}
        found |= {number: min(values) for number, values in times.items()}
        found = {number: us for number, us in found.items() if number in self.right}
        best = min(found, key=lambda number: (found[number], number), default=0)
        before = self.request["best_us"]
        if best == 0 or 0 not in self.right or (before is not None and before < found[best]):
            return {}
        rounds: dict[int, list[float]] = {0: [], best: []}
        for _ in range(_DUEL_ROUNDS):
            for number, values in rounds.items():
                say({"running": number})
                values.append(self.visit(number))
        return rounds

    def forget(self, number: int) -> None:
        """Lets go of a candidate's code."""
        self.executables.pop(number, None)

    def run_clocked(self, number: int) -> float | None:
        """Runs a candidate; returns the microseconds that it takes at least, None where that cannot be told.

        Of the time that passed that is what its threads were busy, whatever else the machine did meanwhile.
        """
        start, busy = time.perf_counter(), time.process_time()
        self.run(number)
        busy, passed = time.process_time() - busy, time.perf_counter() - start
        return min(passed, busy / self.request["threads"]) * 1e6

    def at_least(self, number: int) -> float:
        """The microseconds that one call takes at least."""
        found = self.run_clocked(number)
        assert found is not None
        return found

    def once(self, number: int) -> float:
        """Microseconds of one call."""
        start = time.perf_counter()
        self.run(number)
        return (time.perf_counter() - start) * 1e6

    def visit(self, number: int) -> float:
        """The median of a few calls in a row, after one that brings the code and its buffers back."""
        calls = max(1, min(9, int(400 / max(0.1, self.once(number)))))
        return float(np.median([self.once(number) for _ in range(calls)]))


def measure(
    request: Message, say: Callable[[Message], None], make: Callable[[Message], Bench] = Bench
) -> dict[str, Any]:
    """Checks and times the candidates of one request."""
    bench = make(request)
    bench.check(say)
    times = bench.time([number for number in request["timed"] if number in bench.right], say)
    duel = bench.duel(times, say)
    return {
        "done": True,
        "times_us": {str(number): values for number, values in times.items()},
        "duel_us": {str(number): values for number, values in duel.items()},
    }


def serve(make: Callable[[Message], Bench] = Bench) -> None:
    """Answers requests until the parent is gone: of all candidates of a dispatch at once, or of a stream of them."""
    stream = Stream(make)
    for request, answer in requests():
        if "stream" in request:
            stream.answer(request, answer)
        else:
            answer(measure(request, answer, make))


if __name__ == "__main__":
    serve()
