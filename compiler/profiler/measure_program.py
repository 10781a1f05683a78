"""The child process that runs one whole program: its weights are bound, its results compared, its calls timed.

    {"load": package, "weights": file, "threads": 2}            -> {"loaded": true}
    {"compute": {"integers": [1, 4], "positive": false}, "save": file}  -> {"finite": 1.0}    results are written down
    {"compute": ..., "compare": file, "exact": false}           -> {"wrong": ""}      or why they are others than those
    {"visit": true}                                             -> {"us": 812.5}

Any of them is answered by {"error": why} instead. Needs the runtime and numpy only. One process runs one program: whatever it
does, it does to itself.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.compiler.profiler.comparison import EPSILON
from tilewright.compiler.profiler.guarded_buffers import Strided, random_values
from tilewright.compiler.profiler.processes import Message, requests
from tilewright.runtime import arrays, container
from tilewright.runtime.artifact import load_package
from tilewright.runtime.errors import TilewrightError
from tilewright.runtime.executable import Executable
from tilewright.runtime.program import ALIGNMENT_BYTES, TensorSpec

OFF = 0.02
"""What the results of two right programs differ by at most, relative to their root mean square: other algorithms and orders of
sums round otherwise in every layer, and a wrong program is off by as much as there is."""
_CALLS, _VISIT_S = 99, 0.02
"""The calls of a visit, and what they take where more than one fit in."""


class Program:
    """A program with its weights, and memory for arguments and results."""

    def __init__(self, request: Message):
        package = load_package(request["load"])
        held = container.read(request["weights"]).tensors
        # Copied: a model's weights lie in ordinary memory, and pages of a file are smaller.
        weights = [_shaped(_filled(spec, held[str(n)]), spec) for n, spec in enumerate(package.weights)]
        self._executable = Executable(package, weights, request["threads"])
        self._inputs = [_memory(spec) for spec in package.inputs]
        self._outputs = [_memory(spec) for spec in package.outputs]

    def run(self) -> None:
        self._executable.run(
            [memory.ctypes.data for memory in self._inputs], [memory.ctypes.data for memory in self._outputs]
        )

    def compute(self, request: Message) -> Message:
        """Results of arguments that are drawn as asked; raises TilewrightError where the program refuses them."""
        rng, drawn, package = np.random.default_rng(0), request["compute"], self._executable.package
        for memory, spec in zip(self._inputs, package.inputs):
            values = _drawn(spec, rng, drawn["positive"], drawn["integers"])
            memory[...] = np.frombuffer(values.tobytes(), np.uint8)
        for memory in self._outputs:
            memory[...] = 0xFF
        self.run()
        results = [_shaped(memory, spec) for memory, spec in zip(self._outputs, package.outputs)]
        if "compare" in request:
            held = container.read(request["compare"]).tensors
            expected = [_shaped(_filled(spec, held[str(n)]), spec) for n, spec in enumerate(package.outputs)]
            return {"wrong": difference(results, expected, package.outputs, request["exact"])}
        entries = {
            str(number): container.Entry("u8", (spec.nbytes,), memory.tobytes())
            for number, (spec, memory) in enumerate(zip(package.outputs, self._outputs))
        }
        container.write(request["save"], entries, {})
        return {"finite": _finite(results)}

    def visit(self) -> float:
        """The median microseconds of a few calls in a row, after one that brings code and weights back."""
        once = self._once()
        calls = max(1, min(_CALLS, int(_VISIT_S * 1e6 / max(1.0, once))))
        return float(np.median([self._once() for _ in range(calls)]))

    def _once(self) -> float:
        start = time.perf_counter()
        self.run()
        return (time.perf_counter() - start) * 1e6


def difference(
    found: Sequence[np.ndarray], expected: Sequence[np.ndarray], specs: Sequence[TensorSpec], exact: bool
) -> str:
    """Why these are other results; "" where rounding explains it.

    Floats are compared as a whole: where rounding decides a comparison, single elements are others. Of what is no float an element in
    fifty may be another one, for the same reason. What is `exact` has the same bytes.
    """
    for number, (one, other, spec) in enumerate(zip(found, expected, specs)):
        reason = "its bits are others" if exact and one.tobytes() != other.tobytes() else ""
        reason = reason or _differs(one, other, spec.dtype)
        if reason:
            return f"wrong result {number}: {reason}"
    return ""


def _differs(found: np.ndarray, expected: np.ndarray, dtype: str) -> str:
    if not expected.size:
        return ""
    if dtype not in EPSILON:
        off = float((found != expected).mean())
        return f"{off:.0%} of its elements differ" if off > OFF else ""
    wide = np.complex128 if dtype in ("c64", "c128") else np.float64
    found, expected = found.astype(wide), expected.astype(wide)
    finite = np.isfinite(expected) & np.isfinite(found)
    if (np.isfinite(expected) != np.isfinite(found)).mean() > OFF:
        return "other elements are infinite or not a number"
    if not finite.any():
        return ""
    error = np.sqrt(np.mean(np.abs(found[finite] - expected[finite]) ** 2))
    scale = np.sqrt(np.mean(np.abs(expected[finite]) ** 2))
    if error <= OFF * scale:
        return ""
    return f"it is off by {error / scale:.2g} of its size" if scale else "it is not 0 all over"


def _drawn(
    spec: TensorSpec, rng: np.random.Generator, positive: bool, integers: Sequence[int]
) -> np.ndarray[Any, Any]:
    if spec.dtype != "i1" and spec.dtype not in EPSILON:
        return rng.integers(*integers, size=spec.shape).astype(arrays.numpy_dtype(spec.dtype))
    return random_values(Strided(spec.dtype, spec.shape, ()), rng, positive, indexes=False)


def _finite(results: Sequence[np.ndarray]) -> float:
    """The share of floats that are finite; 1 where there are none."""
    floats = [array for array in results if array.dtype.kind not in "biu"]
    size = sum(array.size for array in floats)
    return float(sum(np.isfinite(array).sum() for array in floats) / size) if size else 1.0


def _memory(spec: TensorSpec) -> np.ndarray[Any, Any]:
    """The bytes of a tensor in memory of its own, which begins where a cache line does."""
    memory = np.zeros(spec.nbytes + ALIGNMENT_BYTES, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    return memory[start : start + spec.nbytes]


def _filled(spec: TensorSpec, data: memoryview) -> np.ndarray[Any, Any]:
    """`_memory` with these bytes."""
    memory = _memory(spec)
    memory[...] = np.frombuffer(data, np.uint8)
    return memory


def _shaped(memory: np.ndarray, spec: TensorSpec) -> np.ndarray[Any, Any]:
    return memory.view(arrays.numpy_dtype(spec.dtype)).reshape(spec.shape)


def serve() -> None:
    """Answers requests until the parent is gone."""
    program: Program | None = None
    for request, answer in requests():
        try:
            if "load" in request:
                program = Program(request)
                answer({"loaded": True})
            elif program is None:
                answer({"error": "no program is loaded"})
            elif "compute" in request:
                answer(program.compute(request))
            else:
                answer({"us": program.visit()})
        except (TilewrightError, MemoryError, OSError) as error:
            answer({"error": f"{error}" or type(error).__name__})


if __name__ == "__main__":
    serve()
