"""What is searched, and what measures: the two ends of a tuner that strategies and cost models lie between.

A candidate is a point of the task's space, a row of integers (`nouns/space.py`). Pools of stored programs are tasks as
well: their space has one knob, the number of the program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tilewright.compiler.nouns.space import Space
from tilewright.compiler.tuning.features.feature_set import Features

Point = tuple[int, ...]
"""A candidate as a key."""


class SearchTask(Protocol):
    """A dispatch to be tuned: `key` names its work, `name` it for people; `calls` is how often a model's run calls it."""

    key: str
    name: str
    calls: int

    @property
    def space(self) -> Space:
        """All candidates; its default is what was constructed without a search."""
        ...

    def features(self, points: np.ndarray, sets: frozenset[str]) -> Features:
        """These sets of features of candidates [n, knobs]."""
        ...

    def seeds(self, count: int) -> np.ndarray:
        """Candidates to begin with, best first, as Roller constructs them: [at most count, knobs]."""
        ...

    @property
    def limit_us(self) -> float:
        """What no schedule can be faster than on this machine, by its peak and its bandwidth."""
        ...


@dataclass(frozen=True)
class Outcome:
    """What became of one candidate: the microseconds of its rounds, or why there are none.

    `object` is the digest of its machine code, "" where none was made. `is_final` is false for a candidate that could not
    be tried through no fault of its own (the measuring process was lost, a machine went away): it may be tried again.
    """

    task: str
    point: tuple[int, ...]
    rounds_us: tuple[float, ...] = ()
    error: str = ""
    object: str = ""
    is_final: bool = True
    seconds: float = 0.0

    @property
    def us(self) -> float:
        """The best round; infinite for a failure."""
        return min(self.rounds_us, default=math.inf)


class Device(Protocol):
    """What measures candidates: a CPU or GPU of this machine or of another one, stored programs, or a simulation.

    Candidates are compiled while others are measured. Every submitted candidate comes back once, in any order.
    """

    name: str

    def submit(self, task: SearchTask, points: Sequence[np.ndarray]) -> None:
        """Asks for these candidates; returns at once."""
        ...

    def outcomes(self) -> Iterator[Outcome]:
        """What is asked for, as it comes; ends when nothing is left in flight."""
        ...

    def close(self) -> None:
        """Gives back processes and machines; what is in flight is lost."""
        ...
