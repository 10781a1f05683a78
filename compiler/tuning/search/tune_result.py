"""What a search tells while it runs, and what is left of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.compiler.tuning.search.search_task import Outcome, SearchTask


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

    `chosen` is None where nothing ran. `stopped` is why there are no more trials: "budget", "exhausted" or "interrupted".
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
