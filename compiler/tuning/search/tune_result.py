"""What a search tells while it runs, and what is left of it."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.tuning.search.finalists import constructed_point
from tilewright.compiler.tuning.search.search_task import Outcome, Point, SearchTask


@dataclass(frozen=True)
class TuneEvent:
    """A batch of `task` came back: what is known now.

    `trials` and `best_us` are of the task, `all_trials` and `seconds` of the whole search. `model_error` is the share of the
    batch's pairs that the cost model had in the wrong order before it learned from them, None where it ordered none.
    """

    task: SearchTask
    batch: tuple[Outcome, ...]
    trials: int
    best_us: float
    model_error: float | None
    all_trials: int
    seconds: float


OnEvent = Callable[[TuneEvent], None]


@dataclass(frozen=True)
class TaskResult:
    """What a search found for one task: every outcome in the order of its proposals, and the one to use.

    `chosen` is None where nothing ran. `stopped` is why there are no more trials: "budget", "patience", "exhausted" or
    "interrupted".
    `raced` are those that took turns to decide it: their rounds compare, where times of the search may not.
    """

    task: SearchTask
    outcomes: tuple[Outcome, ...]
    chosen: Outcome | None
    stopped: str
    raced: tuple[Outcome, ...] = ()

    @property
    def trials(self) -> int:
        """Candidates that were tried."""
        return len(self.outcomes)

    @property
    def failures(self) -> int:
        """Candidates that did not run."""
        return sum(not outcome.rounds_us for outcome in self.outcomes)

    @property
    def best_us(self) -> float:
        """The fastest round; infinite where nothing ran."""
        return min((outcome.us for outcome in self.outcomes), default=float("inf"))

    @property
    def compared(self) -> dict[Point, Outcome]:
        """What the choice was among, by point, the constructed schedule first: those that raced, or else what is known of two."""
        constructed = constructed_point(self.task)
        known = {outcome.point: outcome for outcome in self.raced or self.outcomes}
        shown = {constructed: known.get(constructed, Outcome(self.task.key, constructed))}
        if self.chosen is not None:
            shown[self.chosen.point] = self.chosen
        return shown | known if self.raced else shown

    @property
    def constructed(self) -> Outcome:
        """What is used without a search, measured where the chosen one was."""
        return next(iter(self.compared.values()))

    @property
    def used(self) -> Outcome:
        """What is used: the constructed schedule where nothing ran."""
        return self.chosen or self.constructed

    @property
    def constructed_us(self) -> float:
        """The median round without a search; infinite where it never ran."""
        return _typical_us(self.constructed)

    @property
    def used_us(self) -> float:
        """The median round of what is used."""
        return _typical_us(self.used)

    @property
    def schedule(self) -> Schedule:
        """The schedule that is used."""
        return self.task.space.schedule(np.asarray(self.used.point))

    @property
    def gain(self) -> float | None:
        """How many times as fast as the constructed schedule the used one is; None where one of them never ran.

        Of those that took turns it is the median over the rounds.
        """
        if not (self.used.rounds_us and self.constructed.rounds_us):
            return None
        if not self.raced:
            return self.constructed_us / self.used_us
        shared = min(len(self.used.rounds_us), len(self.constructed.rounds_us))
        rounds = zip(self.constructed.rounds_us[:shared], self.used.rounds_us[:shared])
        return statistics.median(before / after for before, after in rounds)

    def curve(self) -> list[float]:
        """The best time behind each trial: [trials]."""
        return list(itertools.accumulate((outcome.us for outcome in self.outcomes), min))


@dataclass(frozen=True)
class TuneResult:
    """What a search found for all of its tasks, in their order. An interrupted one keeps what was measured until then."""

    tasks: Sequence[TaskResult]
    seconds: float
    is_interrupted: bool = False

    @property
    def trials(self) -> int:
        """Candidates that were tried, those on record included."""
        return sum(result.trials for result in self.tasks)

    @property
    def us(self) -> float:
        """What the tasks' calls take together with their best candidates."""
        return sum(result.task.calls * result.best_us for result in self.tasks)


def _typical_us(outcome: Outcome) -> float:
    return statistics.median(outcome.rounds_us) if outcome.rounds_us else float("inf")
