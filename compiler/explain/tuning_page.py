"""A search as one self-contained HTML page: what every task gained, and the curves of how it came to that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.explain.page import page_environment
from tilewright.compiler.tuning.search.choice_search import ChoiceResult, Move
from tilewright.compiler.tuning.search.program_race import RaceResult
from tilewright.compiler.tuning.search.tune_result import TaskResult, TuneResult

_WIDTH, _HEIGHT = 420.0, 150.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 10.0, 10.0, 22.0


@dataclass(frozen=True)
class Curve:
    """The best time behind every trial as SVG: a path, a dot for each trial that ran, and lines across.

    Time is on a scale of logarithms. `ticks` are (x or y, text); `failed` are the places of trials that did not run.
    """

    path: str
    dots: tuple[tuple[float, float], ...]
    failed: tuple[float, ...]
    constructed: float | None
    limit: float | None
    times: tuple[tuple[float, float], ...]
    trials: tuple[tuple[float, int], ...]
    width: float = _WIDTH
    height: float = _HEIGHT
    left: float = _LEFT
    right: float = _WIDTH - _RIGHT
    bottom: float = _HEIGHT - _BOTTOM


def totals(result: TuneResult) -> tuple[float, float]:
    """Microseconds that a call of the model spends in what was measured, as constructed and as it is used."""
    known = [found for found in result.tasks if found.gain is not None]
    return (
        sum(found.task.calls * found.constructed_us for found in known),
        sum(found.task.calls * found.used_us for found in known),
    )


def slowest_first(result: TuneResult) -> list[TaskResult]:
    """The tasks by what a call of the model spends on them."""

    def spent(found: TaskResult) -> float:
        return found.task.calls * (found.task.limit_us if math.isinf(found.used_us) else found.used_us)

    return sorted(result.tasks, key=lambda found: (-spent(found), found.task.name))


def curve(found: TaskResult) -> Curve:
    """The curve of a task that at least one candidate ran of."""
    constructed, limit = found.constructed.us, found.task.limit_us
    ran = [(number, outcome.us) for number, outcome in enumerate(found.outcomes, 1) if outcome.rounds_us]
    shown = [us for _, us in ran] + ([constructed] if math.isfinite(constructed) else [])
    low, high = min([*shown, limit]), max(shown)
    # Half a percent of room keeps a flat curve off the edges.
    bottom, top = math.log(low * 0.995), math.log(high * 1.005)
    last = max(2, found.trials)

    def x(number: float) -> float:
        return _LEFT + (number - 1) / (last - 1) * (_WIDTH - _LEFT - _RIGHT)

    def y(us: float) -> float:
        return _TOP + (top - math.log(us)) / (top - bottom) * (_HEIGHT - _TOP - _BOTTOM)

    steps, before = [], math.inf
    for number, us in enumerate(found.curve(), 1):
        if math.isinf(us):
            continue
        if us < before:
            steps.append(
                f"{'M' if math.isinf(before) else 'H'}{x(number):.1f}"
                + (f",{y(us):.1f}" if math.isinf(before) else f"V{y(us):.1f}")
            )
        before = us
    steps.append(f"H{x(last):.1f}")
    return Curve(
        "".join(steps),
        tuple((x(number), y(us)) for number, us in ran),
        tuple(x(number) for number, outcome in enumerate(found.outcomes, 1) if outcome.error),
        y(constructed) if math.isfinite(constructed) else None,
        y(limit),
        tuple((y(us), us) for us in _ticks(low, high)),
        tuple((x(number), number) for number in sorted({1, (1 + last) // 2, last})),
    )


def _ticks(low: float, high: float) -> Sequence[float]:
    """The lowest and the highest time, and what lies halfway between their logarithms."""
    return (low, math.sqrt(low * high), high) if high > 1.05 * low else (low,)


def best_moves(choices: ChoiceResult) -> list[Move]:
    """The moves of choices that were measured, those that save most first."""
    return sorted(choices.measured, key=lambda move: -move.gain_us)


def page(
    model: str,
    target: str,
    result: TuneResult,
    choices: ChoiceResult | None = None,
    raced: RaceResult | None = None,
) -> str:
    """The whole page as text, which loads nothing from anywhere. Raises TilewrightError without jinja2."""
    before, after = totals(result)
    tasks = [
        (found, curve(found) if any(outcome.rounds_us for outcome in found.outcomes) else None)
        for found in slowest_first(result)
    ]
    return (
        page_environment()
        .get_template("tuning.html.jinja")
        .render(
            model=model,
            target=target,
            result=result,
            tasks=tasks,
            before=before,
            after=after,
            choices=choices,
            moves=best_moves(choices) if choices else [],
            raced=raced,
        )
    )
