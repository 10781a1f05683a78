"""Which task the next batch is for: the one that a model's time is expected to fall most by.

    gain = calls * (alpha * backward + (1 - alpha) * min(best / trials, best - limit))    // microseconds a trial

`backward` is what the best fell by, per trial, over the last `WINDOW` batches; best / trials is the optimistic guess that the
time falls to nothing with twice the trials. Source: Ansor (OSDI'20), §6.2, where a guess from similar tasks stands in place of
the task's limit. What is near its limit gains little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

WINDOW = 3
_ALPHA = 0.2
_HOPELESS = 3
"""Batches without any candidate that ran, behind which a task comes last."""


def gain(calls: int, best_us: Sequence[float], trials: Sequence[int], limit_us: float) -> float:
    """The expected gain in microseconds a trial, of the best time and the trials behind each batch of a task, oldest first.

    Infinite before the first batch; 0 for a task of which nothing runs.
    """
    if not best_us:
        return math.inf
    best, asked = best_us[-1], trials[-1]
    if math.isinf(best):
        return math.inf if len(best_us) < _HOPELESS else 0.0
    before = max(0, len(best_us) - 1 - WINDOW)
    backward = 0.0
    if not math.isinf(best_us[before]) and asked > trials[before]:
        backward = (best_us[before] - best) / (asked - trials[before])
    optimistic = max(0.0, min(best / max(1, asked), best - limit_us))
    return calls * (_ALPHA * backward + (1.0 - _ALPHA) * optimistic)
