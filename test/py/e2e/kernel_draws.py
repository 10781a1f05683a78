"""Random shapes and values for kernels: odd, tiny, prime and ragged extents, from a fixed seed."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

TINY = (1, 2, 3)
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 19, 23, 29, 31, 32, 33, 37, 48, 61, 64, 65, 96, 101, 128)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SPECIAL = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0)


@dataclass(frozen=True)
class Case:
    """One computation: `function(*inputs, *weights)` gives a tensor or a tuple of them.

    `terms` is how many products or summands each result adds up, for a function that is linear in the absolute
    values of its arguments; 0 says that results agree bit for bit with eager; None that they agree to `slack`
    roundings of their dtype.
    """

    name: str
    function: Callable
    inputs: tuple[torch.Tensor, ...]
    weights: tuple[torch.Tensor, ...] = ()
    terms: int | None = None
    slack: float = 8.0


@dataclass
class Draw:
    """A seeded source of extents, choices and tensors."""

    random: random.Random
    generator: torch.Generator = field(default_factory=torch.Generator)

    @classmethod
    def seeded(cls, name: str) -> Draw:
        seed = zlib.crc32(name.encode())
        draw = cls(random.Random(seed))
        draw.generator.manual_seed(seed)
        return draw

    def pick(self, options: Sequence):
        return self.random.choice(options)

    def flip(self, likely: float = 0.5) -> bool:
        return self.random.random() < likely

    def extent(self, most: int = 128, least: int = 1) -> int:
        """An extent, tiny ones often."""
        source = TINY if self.flip(0.2) else EXTENTS
        return self.pick([e for e in source if least <= e <= most] or [least])

    def shape(self, rank: int, points: int = 4096) -> tuple[int, ...]:
        """A shape of `rank` extents with at most `points` elements."""
        found: list[int] = []
        for _ in range(rank):
            found.append(self.extent(max(1, points)))
            points //= found[-1]
        self.random.shuffle(found)
        return tuple(found)

    def dtype(self, options: Sequence[torch.dtype] = FLOATS) -> torch.dtype:
        """The first half of the time the first dtype, otherwise any."""
        return options[0] if self.flip(0.5) else self.pick(options)

    def tensor(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Normal numbers, integers (small ones, or every value that a byte holds), or coin flips."""
        if dtype == torch.bool:
            return torch.rand(tuple(shape), generator=self.generator) > 0.5
        if not dtype.is_floating_point:
            low, high = (-9, 10) if self.flip() else (-128, 128)
            values = torch.randint(low, high, tuple(shape), generator=self.generator)
            return (values - low if dtype == torch.uint8 else values).to(dtype)
        return torch.randn(tuple(shape), generator=self.generator, dtype=torch.float64).to(dtype)

    def special(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Normal numbers among which NaN, infinities and both zeros are strewn."""
        values = self.tensor(shape, dtype)
        pattern = torch.randint(0, 12, tuple(shape), generator=self.generator)
        for number, value in enumerate(SPECIAL):
            values[pattern == number] = value
        return values

    def index(self, shape: Sequence[int], limit: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        return torch.randint(0, limit, tuple(shape), generator=self.generator).to(dtype)
