"""The child process that runs candidates of one dispatch: checks each against the first, then times them in turn.

Needs the runtime and numpy only. What it is about to run it says first, so that the parent knows whom to blame.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from tilewright.compiler.profiler.kernel_messages import from_message
from tilewright.compiler.profiler.processes import Message, requests
from tilewright.runtime.arrays import numpy_dtype
from tilewright.runtime.errors import DeviceError, TilewrightError
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import BufferRef, Package, Program, Step, TensorSpec

GUARD_BYTES = 4096
_GUARD, _UNWRITTEN = 0xA5, 0xFF
_ALIGNMENT_BYTES = 64
_EPSILON = {
    "f64": 2.0**-52,
    "f32": 2.0**-23,
    "f16": 2.0**-10,
    "bf16": 2.0**-7,
    "c64": 2.0**-23,
    "c128": 2.0**-52,
}
_DUEL_ROUNDS = 5
_MOST_COPIES = 64


class WildWrite(Exception):
    """A kernel wrote to memory that is not its own."""


@dataclass(frozen=True)
class Strided:
    """A tensor as a kernel sees it: `strides` in elements, with gaps where it lies inside of a larger one."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def of(cls, entry: Message) -> Strided:
        return cls(entry["dtype"], tuple(entry["shape"]), tuple(entry["strides"]))

    def spec(self, name: str) -> TensorSpec:
        """The memory from its first element to its last, as a dense tensor."""
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides))
        return TensorSpec(name, self.dtype, (last + 1 if all(self.shape) else 0,))


@dataclass
class Buffer:
    """Memory of one tensor with guards on both sides, which no kernel may touch."""

    tensor: Strided
    spec: TensorSpec
    memory: np.ndarray
    start: int

    @classmethod
    def of(cls, tensor: Strided) -> Buffer:
        spec = tensor.spec("")
        memory = np.full(spec.nbytes + 2 * GUARD_BYTES + _ALIGNMENT_BYTES, _GUARD, np.uint8)
        return cls(tensor, spec, memory, GUARD_BYTES + -memory.ctypes.data % _ALIGNMENT_BYTES)

    @property
    def address(self) -> int:
        return self.memory.ctypes.data + self.start

    @property
    def span(self) -> np.ndarray:
        """The bytes from the first element to the last."""
        return self.memory[self.start : self.start + self.spec.nbytes]

    @property
    def array(self) -> np.ndarray:
        flat = self.span.view(numpy_dtype(self.spec.dtype))
        strides = tuple(stride * flat.itemsize for stride in self.tensor.strides)
        return np.lib.stride_tricks.as_strided(flat, self.tensor.shape, strides)

    def push(self) -> None:
        """Brings what was written to `array` and `span` to where kernels see it."""

    def pull(self) -> None:
        """Brings what kernels wrote to where `array`, `span` and the checks see it."""

    def is_intact(self) -> bool:
        """Whether nothing was written outside of the memory from the first element to the last."""
        end = self.start + self.spec.nbytes
        return bool((self.memory[: self.start] == _GUARD).all() and (self.memory[end:] == _GUARD).all())

    def gaps_hold(self, byte: int) -> bool:
        """Whether every byte between the tensor's elements still is `byte`."""
        if self.spec.shape[0] == math.prod(self.tensor.shape):
            return True
        other = Buffer(self.tensor, self.spec, self.memory.copy(), self.start)
        other.array.view(np.dtype((np.void, other.array.itemsize)))[...] = (
            bytes([byte]) * other.array.itemsize
        )
        return bool((other.span == byte).all())


def random_values(spec: Strided, rng: np.random.Generator, positive: bool, indexes: bool) -> np.ndarray:
    """Values in [-1, 1), or [1/4, 1) when `positive`; integers are 1 to 3, and 0 when they are places in a tensor."""
    dtype = numpy_dtype(spec.dtype)
    if spec.dtype == "i1":
        return rng.integers(0, 2, spec.shape).astype(dtype)
    if spec.dtype in _EPSILON:
        return rng.uniform(0.25 if positive else -1.0, 1.0, spec.shape).astype(dtype)
    return np.zeros(spec.shape, dtype) if indexes else rng.integers(1, 4, spec.shape).astype(dtype)


def store_transforms(filters: np.ndarray, planes: np.ndarray) -> None:
    """Makes filters [.., p, r, s, c, f] hold in p = 1, .. what `planes` [products, taps] makes of those in p = 0."""
    steps, rows, columns, channels, block = filters.shape[-5:]
    taps = rows * columns
    assert filters.flags.c_contiguous and planes.shape[1] == taps
    stored = filters.reshape(-1, steps * taps, channels * block)
    stored[:, taps : taps + len(planes)] = planes @ stored[:, :taps]


def tolerance(dtype: str, steps: int) -> float:
    """What two orders of summing `steps` products may differ by, relative to the element or to the root mean square.

    Rounding errors of a sum add up like a random walk. Source: Higham, "Accuracy and Stability of Numerical
    Algorithms", §2.8 and §4.2.
    """
    epsilon = _EPSILON[dtype]
    bound = 16 * epsilon + 4 * epsilon * math.sqrt(steps)
    return min(bound, 0.25)


def difference(found: np.ndarray, expected: np.ndarray, dtype: str, steps: int) -> str | None:
    """Why `found` is another result than `expected`; None when rounding explains all of it."""
    if dtype not in _EPSILON:
        wrong = int((found != expected).sum())
        return f"{wrong} of {expected.size} elements differ" if wrong else None
    wide = np.complex128 if dtype in ("c64", "c128") else np.float64
    found, expected = found.astype(wide), expected.astype(wide)
    finite = np.isfinite(expected)
    if not np.array_equal(np.isfinite(found), finite):
        return "other elements are infinite or not a number"
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return "infinite elements differ"
    found, expected = np.abs(found[finite] - expected[finite]), np.abs(expected[finite])
    if not expected.size:
        return None
    scale = expected + math.sqrt(float(np.mean(expected**2)))
    allowed = tolerance(dtype, steps)
    worst = float((found / np.where(scale, scale, 1.0)).max())
    return None if worst <= allowed else f"an element is off by {worst:.2g}, rounding explains {allowed:.2g}"


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

    def _copies(self, number: int) -> list[Buffer]:
        """As many copies of a weight as a pass over all of the model's weights takes to come back to it."""
        tensor, count = self.inputs[number], 1
        nbytes = tensor.spec("").nbytes
        if self.request["inputs"][number]["weight"] and nbytes:
            count = max(1, min(_MOST_COPIES, self.request["rotate_bytes"] // nbytes))
        return [self.make_buffer(tensor) for _ in range(count)]

    def fill(self, positive: bool) -> None:
        rng = np.random.default_rng(0)
        for spec, copies, entry in zip(self.inputs, self.arguments, self.request["inputs"]):
            values = random_values(spec, rng, positive, self.request["indexes"])
            if entry["planes"]:
                store_transforms(values, np.asarray(entry["planes"], values.dtype))
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
        self.run(number)
        for buffer in chain(self.results, *self.arguments):
            buffer.pull()
        if not all(buffer.is_intact() for buffer in chain(self.results, *self.arguments)):
            raise WildWrite("it wrote outside of its buffers")
        if not all(result.gaps_hold(_UNWRITTEN) for result in self.results):
            raise WildWrite("it wrote between the rows of its result")
        return [result.array.copy() for result in self.results]

    def check(self, say: Callable[[Message], None]) -> None:
        """Puts the numbers of the candidates that compute what the first one does into `right`."""
        expected: list[np.ndarray] = []
        for number in range(len(self.request["kernels"])):
            say({"running": number})
            try:
                self.load(number)
                if number == 0:
                    expected = self.reference()
                    found = expected
                else:
                    found = self.compute(number)
            except WildWrite as error:
                # Nothing in this process can be trusted any more: the parent starts another.
                say({"checked": number, "error": str(error), "last": True})
                raise
            except TilewrightError as error:
                is_last = isinstance(error, DeviceError) and error.is_fatal
                say({"checked": number, "error": str(error), "last": is_last})
                if is_last:
                    raise
                if number == 0:
                    return
                continue
            reasons = [
                difference(a, b, spec.dtype, self.request["steps"])
                for a, b, spec in zip(found, expected, self.outputs)
            ]
            wrong = next((reason for reason in reasons if reason), None)
            say({"checked": number, "error": wrong and f"wrong result: {wrong}"})
            if wrong is None:
                self.right.append(number)

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

    def visit(self, number: int) -> float:
        """The median of a few calls in a row, after one that brings the code and its buffers back."""
        start = time.perf_counter()
        self.run(number)
        calls = max(1, min(9, int(400e-6 / max(1e-7, time.perf_counter() - start))))
        spent = []
        for _ in range(calls):
            start = time.perf_counter()
            self.run(number)
            spent.append(time.perf_counter() - start)
        return float(np.median(spent)) * 1e6


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


def serve() -> None:
    """Answers requests until the parent is gone."""
    for request, answer in requests():
        answer(measure(request, answer))


if __name__ == "__main__":
    serve()
