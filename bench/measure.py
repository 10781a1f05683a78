"""Timing contenders in interleaved rounds, so that a machine's drift falls on all of them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SETTLE_S = 0.01
"""Pause between contenders: worker pools that spin after their last task have gone to sleep by then."""


@dataclass(frozen=True)
class Budget:
    """How long to measure: `rounds` of about `round_s` seconds per contender, `least_calls` or more calls."""

    rounds: int = 5
    round_s: float = 0.3
    least_calls: int = 3
    warm_up_s: float = 0.1


def interleave(contenders: Mapping[str, Callable[[], object]], budget: Budget) -> dict[str, list[float]]:
    """Times every contender in turn, round after round: name -> the median call of each round, in us.

    The first call after a switch of contender, which refills caches and wakes workers, is not counted.
    """
    calls = {name: _calibrate(call, budget) for name, call in contenders.items()}
    medians: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(budget.rounds):
        for name, call in contenders.items():
            time.sleep(SETTLE_S)
            call()
            medians[name].append(statistics.median(_time(call, calls[name])))
    return medians


def _calibrate(call: Callable[[], object], budget: Budget) -> int:
    """Warms up and returns how many calls fill a round."""
    call()
    start, count = time.perf_counter(), 0
    while count < 1 or time.perf_counter() - start < budget.warm_up_s:
        call()
        count += 1
    per_call = (time.perf_counter() - start) / count
    return max(budget.least_calls, int(budget.round_s / per_call))


def _time(call: Callable[[], object], count: int) -> list[float]:
    times = []
    for _ in range(count):
        start = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - start) / 1e3)
    return times


def ratio(theirs: list[float], ours: list[float]) -> float:
    """How many times longer theirs takes than ours: the median of the ratios round by round."""
    return statistics.median(a / b for a, b in zip(theirs, ours, strict=True))
