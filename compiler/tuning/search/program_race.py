"""Which of a search's changes a whole program is faster with: programs race, and groups of changes are taken or left.

    result = race_programs(changes, race, seconds=6)
    result.kept           // changes that the program is faster with; none: the constructed program is used

Kernels race one by one, with caches that hold what they read; in a program the kernel before has filled them. So the program
with all changes races against the constructed one. Where it does not win, its changes are tested in groups: choices apart from
schedules, then halves by what they were measured to save, each on top of those that were taken before. A group that was measured
to save so little that nobody could tell is left. What is level stays as it was: every group that is taken made the program faster.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain

from tilewright.compiler.nouns.choices import Value
from tilewright.compiler.tuning.search.finalists import TIE
from tilewright.compiler.tuning.search.interruptible import Interruptible

SHARE = 0.2
"""Of a budget: no further group is begun when tests have taken so long. The first test is made in any case."""
MOST = 12
"""Tests of a race, however much time there is."""
HALF = 4
"""Sittings of a race that a program which is no faster is told by; one that is faster has twice as many. Memory of two processes
that run one and the same program lies elsewhere, so that they do not take the same time."""
INTERRUPTED = "the search was interrupted"


@dataclass(frozen=True)
class Change:
    """What a search changed: choices that were moved to `values`, or, where there are none, the schedule of the work `key`.

    `gain_us` is what it was measured to save in a call of the model, kernel by kernel.
    """

    name: str
    gain_us: float = 0.0
    key: str = ""
    values: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Sitting:
    """Microseconds of two programs, round by round, in turns, each in one process."""

    before_us: tuple[float, ...]
    after_us: tuple[float, ...]

    @property
    def gain(self) -> float:
        """How many times as fast the second program is: the median over the rounds."""
        return statistics.median(before / after for before, after in zip(self.before_us, self.after_us))


@dataclass(frozen=True)
class Raced:
    """What became of two programs in all sittings, or why there is nothing to compare."""

    sittings: tuple[Sitting, ...] = ()
    error: str = ""

    @property
    def gain(self) -> float | None:
        """How many times as fast the second program is: the median over the sittings; None where one did not run."""
        return None if self.error or not self.sittings else statistics.median(s.gain for s in self.sittings)

    @property
    def is_faster(self) -> bool:
        """Whether the second program is faster by more than level ones differ, when all sittings are over."""
        return not self.error and bool(verdict([sitting.gain for sitting in self.sittings]))

    @property
    def us(self) -> tuple[float, float] | None:
        """The median rounds of both."""
        if not self.sittings:
            return None
        before, after = zip(*((sitting.before_us, sitting.after_us) for sitting in self.sittings))
        return statistics.median(chain(*before)), statistics.median(chain(*after))


def verdict(gains: Sequence[float]) -> bool | None:
    """Whether a program is faster that was so many times as fast in each sitting; None where another sitting has to tell.

    It has to be faster by more than `TIE` in the median of the sittings, and faster at all in three of four. One that was so
    in `HALF` sittings has to be so again in twice as many, and by more than two standard errors of that median: on a busy machine
    sittings differ by more than a percent. One that never was faster in the first two is out.
    """

    def is_ahead(least: float = TIE) -> bool:
        return statistics.median(gains) > least and sum(gain > 1.0 for gain in gains) >= 0.75 * len(gains)

    count = len(gains)
    if count < HALF:
        return False if count >= 2 and max(gains) <= 1.0 else None
    if count < 2 * HALF:
        return None if count > HALF or is_ahead() else False
    return is_ahead(max(TIE, 1.0 + 2.0 * _standard_error(gains)))


def _standard_error(values: Sequence[float]) -> float:
    """Of the median of normal values whose deviation is told by the median of distances from it: 1.2533 * 1.4826 MAD / sqrt(n).

    Source: Rousseeuw and Croux, "Alternatives to the Median Absolute Deviation", JASA 88 (1993), §1 (1.4826); the median of
    normal values has sqrt(pi / 2) = 1.2533 times the mean's standard error.
    """
    middle = statistics.median(values)
    distance = statistics.median(abs(value - middle) for value in values)
    return 1.2533 * 1.4826 * distance / math.sqrt(len(values))


@dataclass(frozen=True)
class GroupTest:
    """A group of changes on top of those that were taken before, and how the programs with and without it raced."""

    changes: tuple[Change, ...]
    raced: Raced

    @property
    def is_taken(self) -> bool:
        """Whether the program is used with these changes."""
        return self.raced.is_faster

    def text(self) -> str:
        """`12 changes: 1.03x, taken`."""
        count = len(self.changes)
        what = self.changes[0].name if count == 1 else f"{count} changes"
        if self.raced.gain is None:
            return f"{what}: {self.raced.error}"
        return f"{what}: {self.raced.gain:.3f}x, {'taken' if self.is_taken else 'left'}"


@dataclass(frozen=True)
class RaceResult:
    """The changes that are `kept`, every test, and what it took; `why` no programs raced, where they did not."""

    kept: tuple[Change, ...]
    tests: tuple[GroupTest, ...] = ()
    seconds: float = 0.0
    why: str = ""
    is_interrupted: bool = False

    @property
    def gain(self) -> float | None:
        """How many times as fast as the constructed program the used one is; None where none raced."""
        if not any(test.raced.gain for test in self.tests):
            return None
        return math.prod(test.raced.gain for test in self.tests if test.is_taken and test.raced.gain)

    @property
    def used(self) -> str:
        """Which program is used: "searched", "constructed", or one with some of the changes."""
        changes = max((len(test.changes) for test in self.tests), default=len(self.kept))
        if not self.kept:
            return "constructed"
        return "searched" if len(self.kept) == changes else f"{len(self.kept)} of {changes} changes"

    def text(self) -> str:
        """What is used, and how it compares, in a line."""
        if self.why:
            return f"the program as searched, which did not race: {self.why}"
        if not self.tests:
            return "the constructed program is used: nothing is changed"
        if not self.kept:
            first = self.tests[0].raced
            told = f"failed: {first.error}" if first.gain is None else f"is {first.gain:.3f}x as fast"
            return f"the constructed program is used: the searched one {told}"
        what = "the searched program" if self.used == "searched" else f"the program with {self.used}"
        return f"{what} is used: {self.gain:.3f}x as fast as the constructed one"


Race = Callable[[Sequence[Change], Sequence[Change]], Raced | None]
"""Has the program with the first changes and the one with the second take turns; None where they are the same program."""
OnTest = Callable[[GroupTest], None]


def race_programs(
    changes: Sequence[Change],
    race: Race,
    seconds: float | None = None,
    on_test: OnTest = lambda test: None,
) -> RaceResult:
    """Takes the changes that the program is faster with; no group but the first is tested behind `seconds`.

    Ctrl-C ends the race with what is known: all changes are kept as long as no test has come to its end.
    """
    start, kept, tests = time.monotonic(), (), list[GroupTest]()
    groups = deque([tuple(changes)] if changes else [])
    with Interruptible() as racing:
        while groups and len(tests) < MOST:
            racing.check()
            passed = time.monotonic() - start
            if tests and seconds is not None and passed > seconds:
                break
            group = groups.popleft()
            raced = race(kept, (*kept, *group))
            if raced is None:  # such changes are of no dispatch that the program has
                continue
            test = GroupTest(group, raced)
            tests.append(test)
            on_test(test)
            if test.is_taken:
                kept = (*kept, *group)
            else:
                groups.extend(half for half in halves(group) if _matters(half, raced))
    seconds_passed = time.monotonic() - start
    if racing.is_interrupted and not tests:
        return RaceResult(tuple(changes), (), seconds_passed, INTERRUPTED, is_interrupted=True)
    return RaceResult(kept, tuple(tests), seconds_passed, is_interrupted=racing.is_interrupted)


def _matters(group: Sequence[Change], raced: Raced) -> bool:
    """Whether a program would not be level with and without a group, if it saved what was measured kernel by kernel."""
    return raced.us is None or sum(change.gain_us for change in group) > (TIE - 1.0) * raced.us[0]


def halves(group: Sequence[Change]) -> list[tuple[Change, ...]]:
    """The two groups that are tested next: choices and schedules; or those that were measured to save most, up to a half, and the rest."""
    if len(group) < 2:
        return []
    chosen = tuple(change for change in group if change.values)
    scheduled = tuple(change for change in group if not change.values)
    if chosen and scheduled:
        return [chosen, scheduled]
    ordered = sorted(group, key=lambda change: (-change.gain_us, change.name, change.key))
    sums = list(accumulate(max(0.0, change.gain_us) for change in ordered))
    first = next((n for n, sum_ in enumerate(sums, 1) if sum_ >= sums[-1] / 2), 1)
    first = min(max(1, first), len(ordered) - 1)
    return [tuple(ordered[:first]), tuple(ordered[first:])]
