"""The suite `few-trials`: what 16 measurements of a strategy find, against 1,000 random ones of the same dispatch.

    tilewright bench --suite few-trials [--cases C3,C4] [--quick] [--threads 1] [--records FILE] [-o FILE]

Nothing is replayed: random search measures its candidates on this CPU, and keeps them in `--records`, from which the command
goes on where it was stopped. The strategies know nothing of these records, so that their wall time is that of a search. At the end the
constructed schedule, the fastest of the random ones and what each strategy has chosen take turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.tuning.search.finalists import TIE, constructed_point, finalists
from tilewright.compiler.tuning.search.search_task import Device, Outcome, Point, SearchTask
from tilewright.compiler.tuning.search.tuner import tune

TRIALS, QUICK_TRIALS = 1000, 24
"""Random candidates of a case."""
FEW = 16
LIMIT_S = 60.0
"""What a strategy may measure of a case, and what it may take."""
STRATEGIES = ("pruner", "roller")
SEEDS = 3
"""Searches of each strategy."""
ROUNDS = 25
"""Turns of the race at the end."""


class Racing(Device, Protocol):
    """A device that has candidates take turns."""

    def race(self, task: SearchTask, points: Sequence[np.ndarray], rounds: int = 9) -> list[Outcome]:
        """Rounds of every candidate."""
        ...


MakeDevice = Callable[[Path | None], Racing]
"""A device that keeps its records in a file, or knows of none and keeps none."""


@dataclass(frozen=True)
class FewTrials:
    """A search of few trials with one seed: what it measured, what it took, and how its choice compares.

    `gain` is how many times as fast its choice is as the fastest of the random ones: the median over the rounds.
    """

    strategy: str
    seed: int
    trials: int
    seconds: float
    us: float
    gain: float

    @property
    def is_reached(self) -> bool:
        """Whether its choice is level with the fastest of the random ones or faster, in no more time than it may take."""
        return self.gain >= 1.0 / TIE and self.trials <= FEW and self.seconds <= LIMIT_S


@dataclass(frozen=True)
class CaseResult:
    """A case: what random search measured, and the searches of few trials. Microseconds are medians of the race."""

    name: str
    space: int
    trials: int
    failures: int
    seconds: float
    constructed_us: float
    random_us: float
    searches: tuple[FewTrials, ...]

    def to_json(self) -> dict[str, Any]:
        """A row of the record."""
        return {
            "case": self.name,
            "space": self.space,
            "random": {"trials": self.trials, "failures": self.failures, "seconds": round(self.seconds, 1)},
            "constructed_us": round(self.constructed_us, 2),
            "random_us": round(self.random_us, 2),
            "searches": [
                {
                    "strategy": found.strategy,
                    "seed": found.seed,
                    "trials": found.trials,
                    "seconds": round(found.seconds, 2),
                    "us": round(found.us, 2),
                    "gain": round(found.gain, 4),
                    "reached": found.is_reached,
                }
                for found in self.searches
            ],
        }


def measure_case(
    name: str,
    task: SearchTask,
    make_device: MakeDevice,
    records: Path | None = None,
    trials: int = TRIALS,
    few: int = FEW,
    strategies: Sequence[str] = STRATEGIES,
    seeds: int = SEEDS,
    say: Callable[[str], object] = lambda text: None,
) -> CaseResult:
    """Searches a task by random, then by each strategy with few trials, and races what they found.

    Raises TilewrightError where no random candidate runs.
    """
    started = time.perf_counter()
    with closing(make_device(records)) as device:
        (drawn,) = tune(
            [task],
            device,
            "random",
            trials=trials,
            on_event=lambda event: say(f"{name}: {event.trials} of {trials} random trials"),
        ).tasks
    seconds = time.perf_counter() - started
    fastest = finalists(task, drawn.outcomes)
    if not fastest:
        raise TilewrightError(f"{name}: none of {trials} random candidates runs: {drawn.outcomes[0].error}")
    searches = []
    for strategy in strategies:
        for seed in range(seeds):
            say(f"{name}: {strategy}, {few} trials, seed {seed}")
            searches.append((strategy, seed, *_few(task, make_device, strategy, few, seed)))
    say(f"{name}: what was found takes turns")
    constructed, random = constructed_point(task), [outcome.point for outcome in fastest]
    rounds = _raced(task, make_device, [constructed, *random, *(point for *_, point in searches)])
    best = min(random, key=lambda point: (statistics.median(rounds[point]), point))
    return CaseResult(
        name,
        task.space.size,
        drawn.trials,
        drawn.failures,
        seconds,
        statistics.median(rounds[constructed]),
        statistics.median(rounds[best]),
        tuple(
            FewTrials(
                strategy,
                seed,
                count,
                took_s,
                statistics.median(rounds[point]),
                statistics.median(a / b for a, b in zip(rounds[best], rounds[point])),
            )
            for strategy, seed, count, took_s, point in searches
        ),
    )


def _few(
    task: SearchTask, make_device: MakeDevice, strategy: str, few: int, seed: int
) -> tuple[int, float, Point]:
    """The trials of one search, its seconds with the race of its finalists, and its choice."""
    started = time.perf_counter()
    with closing(make_device(None)) as device:
        (found,) = tune([task], device, strategy, trials=few, seed=seed).tasks
    return found.trials, time.perf_counter() - started, found.used.point


def _raced(
    task: SearchTask, make_device: MakeDevice, points: Sequence[Point]
) -> dict[Point, tuple[float, ...]]:
    """The rounds of candidates that took turns, by point; raises TilewrightError where one fails now."""
    distinct = list(dict.fromkeys(points))
    with closing(make_device(None)) as device:
        raced = device.race(task, [np.asarray(point, dtype=np.int64) for point in distinct], ROUNDS)
    for outcome in raced:
        if not outcome.rounds_us:
            raise TilewrightError(f"{task.name}: a candidate fails that ran before: {outcome.error}")
    return {outcome.point: outcome.rounds_us for outcome in raced}
