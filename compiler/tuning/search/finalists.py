"""Which of a search's fastest candidates is used: they take turns, and a fixed order decides among those that are level.

Differences of a few percent between candidates that were measured at different times are noise. Finalists are measured
round by round, so that what slows the machine slows all of them, and are compared by the ratios within rounds. All that
are within `TIE` of the fastest are level; of these the schedule that was constructed wins, then the one whose point comes
first: one of the candidates that are level is chosen again by the next process, whatever the noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import numpy as np

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.tuning.search.search_task import Outcome, Point, SearchTask

NEAR, MOST, ROUNDS, TIE = 1.05, 5, 9, 1.01
"""How many times the best time a finalist takes at most, how many there are, the rounds they race, and what is level."""


@dataclass(frozen=True)
class Final:
    """`chosen` is the candidate to use, None where nothing ran; `raced` are those that took turns, if any did."""

    chosen: Outcome | None
    raced: tuple[Outcome, ...] = ()


@runtime_checkable
class RacingDevice(Protocol):
    """A device that measures candidates in turns."""

    def race(self, task: SearchTask, points: Sequence[np.ndarray], rounds: int = ...) -> list[Outcome]: ...


def finalists(task: SearchTask, outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The fastest candidates, in the order that decides among those that are level.

    Of each object there is one, the first in that order, with the rounds of the fastest: the order in which outcomes came
    decides nothing.
    """
    constructed = constructed_point(task)

    def place(outcome: Outcome) -> tuple[bool, tuple[int, ...]]:
        return outcome.point != constructed, outcome.point

    alike: dict[str, list[Outcome]] = {}
    for outcome in sorted((o for o in outcomes if o.rounds_us), key=place):
        alike.setdefault(outcome.object or repr(outcome.point), []).append(outcome)
    ran = [replace(same[0], rounds_us=min(same, key=lambda o: o.us).rounds_us) for same in alike.values()]
    ran.sort(key=lambda o: (o.us, place(o)))
    near = [outcome for outcome in ran[:MOST] if outcome.us <= NEAR * ran[0].us]
    return sorted(near, key=place)


def winner(rounds_us: np.ndarray, tie: float = TIE) -> int:
    """The first of the candidates [n, rounds] that are level with the one whose median is the best.

    One is level whose median ratio to that one, round by round, is at most `tie`.
    """
    best = rounds_us[int(np.median(rounds_us, axis=1).argmin())]
    return int(np.flatnonzero(np.median(rounds_us / best, axis=1) <= tie)[0])


def decide(task: SearchTask, outcomes: Sequence[Outcome], device: object, rounds: int = ROUNDS) -> Final:
    """Which candidate to use.

    A device that cannot race decides by the rounds that are known. On one that can, the constructed schedule races as
    well: nothing slower is used, whether the search came by it or not. A finalist that fails in the race is out.
    """
    final = finalists(task, outcomes)
    if not isinstance(device, RacingDevice):
        return Final(final[winner(np.asarray([[o.us] for o in final]))] if final else None)
    constructed = constructed_point(task)
    if constructed and all(o.point != constructed for o in final):
        final.insert(0, Outcome(task.key, constructed))
    if len(final) < 2:
        return Final(final[0] if final and final[0].rounds_us else None)
    raced = device.race(task, [np.asarray(o.point, dtype=np.int64) for o in final], rounds)
    ran = [outcome for outcome in raced if outcome.rounds_us]
    if not ran:
        return Final(None, tuple(raced))
    shared = min(len(outcome.rounds_us) for outcome in ran)
    number = winner(np.asarray([outcome.rounds_us[:shared] for outcome in ran]))
    return Final(ran[number], tuple(raced))


def constructed_point(task: SearchTask) -> Point:
    """The point that is used without a search; () where the space has none for it."""
    try:
        return tuple(map(int, task.space.point(task.space.default())))
    except ScheduleError:
        return ()
