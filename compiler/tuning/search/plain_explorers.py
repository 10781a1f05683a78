"""Explorers that learn nothing: all candidates in their order, candidates drawn, and those that Roller constructs."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.nouns.space import KEPT
from tilewright.compiler.tuning.search.candidates import drawn, fresh
from tilewright.compiler.tuning.search.explorer import Explorer, SearchState

LISTED = 1 << 20
"""Points of the largest space that is listed whole."""
_SEEDS = 64
"""Candidates that Roller is asked for at once: constructing one more costs as much as constructing all."""


class Exhaustive:
    """Every legal point once, in the order of the space; raises ScheduleError for a space of more than `LISTED` points."""

    def __init__(self) -> None:
        self._legal: np.ndarray | None = None

    def propose(self, state: SearchState, count: int) -> np.ndarray:
        if self._legal is None:
            space = state.task.space
            if space.size > LISTED:
                raise ScheduleError(
                    f"the space of `{state.task.name}` has {space.size} points, of which at most {LISTED} are measured one "
                    "by one; choose another strategy than `exhaustive`"
                )
            every = space.every()
            self._legal = every[space.legal(every) == KEPT]
        return fresh(self._legal, state.tried())[:count]


class Random:
    """Legal points as they are drawn."""

    def propose(self, state: SearchState, count: int) -> np.ndarray:
        return drawn(state.task.space, count, state.tried(), state.rng)


class Constructed:
    """The schedules that Roller constructs, best first, and nothing behind them. Source: Roller (OSDI'22), §3."""

    def __init__(self, most: int = _SEEDS):
        self._most = most
        self._seeds: np.ndarray | None = None

    def propose(self, state: SearchState, count: int) -> np.ndarray:
        if self._seeds is None:
            self._seeds = state.task.seeds(self._most)
        return fresh(self._seeds, state.tried())[:count]


class Seeded:
    """Another explorer, behind the best `seeds` schedules that Roller constructs."""

    def __init__(self, then: Explorer, seeds: int = 8):
        self._first, self._then = Constructed(seeds), then

    def propose(self, state: SearchState, count: int) -> np.ndarray:
        first = self._first.propose(state, count)
        if len(first) == count:
            return first
        # What is proposed now must not be proposed by the other as well.
        proposed = {tuple(map(int, point)) for point in first}
        after = SearchState(state.task, state.rng, state.model, state.outcomes, state.in_flight | proposed)
        return np.concatenate([first, self._then.propose(after, count - len(first))])
