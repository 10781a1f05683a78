"""Memory that candidates run on: the tensors of a dispatch between guards, and what they are filled with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.profiler.comparison import EPSILON
from tilewright.compiler.profiler.processes import Message
from tilewright.runtime.arrays import numpy_dtype
from tilewright.runtime.program import TensorSpec

GUARD_BYTES = 4096
_GUARD = 0xA5
_ALIGNMENT_BYTES = 64


class WildWrite(Exception):
    """A kernel wrote to memory that is not its own."""


class Untrusted(Exception):
    """A candidate did what leaves nothing in this process to be trusted; the message says what."""


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
    if spec.dtype in EPSILON:
        return rng.uniform(0.25 if positive else -1.0, 1.0, spec.shape).astype(dtype)
    return np.zeros(spec.shape, dtype) if indexes else rng.integers(1, 4, spec.shape).astype(dtype)


def store_transforms(filters: np.ndarray, planes: np.ndarray) -> None:
    """Makes filters [.., p, r, s, c, f] hold in p = 1, .. what `planes` [products, taps] makes of those in p = 0."""
    steps, rows, columns, channels, block = filters.shape[-5:]
    taps = rows * columns
    assert filters.flags.c_contiguous and planes.shape[1] == taps
    stored = filters.reshape(-1, steps * taps, channels * block)
    stored[:, taps : taps + len(planes)] = planes @ stored[:, :taps]
