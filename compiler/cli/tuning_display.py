"""What a search looks like while it runs, task by task, and what it found."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tilewright.compiler.explain.report import duration
from tilewright.compiler.explain.tuning_page import best_moves, slowest_first, totals
from tilewright.compiler.tuning.search.choice_search import ChoiceResult, Move
from tilewright.compiler.tuning.search.program_race import GroupTest, RaceResult
from tilewright.compiler.tuning.search.search_task import SearchTask
from tilewright.compiler.tuning.search.tune_result import TuneEvent, TuneResult

if TYPE_CHECKING:  # what searches is many modules
    from tilewright.compiler.searched_programs import Reports

_SHOWN = 16
"""Rows of the table that moves: the tasks that take the longest."""
_SILENT_S = 10.0
"""Where there is no terminal, a line is written so often."""


@dataclass
class _Row:
    """What is known of a task."""

    task: SearchTask
    first_us: float = math.inf
    best_us: float = math.inf
    trials: int = 0
    failed: int = 0
    model_error: float | None = None

    @property
    def total_us(self) -> float:
        """What a call of the model spends on it; by its limit as long as nothing ran."""
        return self.task.calls * (self.task.limit_us if math.isinf(self.best_us) else self.best_us)


class Display:
    """A table that moves on a terminal, and a line every few seconds elsewhere. Ends with the block that it is opened by."""

    def __init__(self, console: Console, model: str, seconds: float | None, trials: int | None):
        self._console, self._model, self._seconds, self._trials = console, model, seconds, trials
        self._rows: dict[str, _Row] = {}
        self._tried = 0
        self._choosing = "making graphs of other choices"
        self._racing = ""
        self._start = self._said = time.monotonic()
        self._live: Live | None = None

    def __enter__(self) -> Display:
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._drawn, console=self._console, transient=True, refresh_per_second=4
            )
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def reports(self) -> Reports:
        """What a search tells it."""
        from tilewright.compiler.searched_programs import Reports

        return Reports(self.on_move, self.on_tasks, self.on_event, self.on_race, self.on_test)

    def on_move(self, move: Move, done: int, total: int) -> None:
        """Told of every choice that was moved."""
        self._choosing = f"choices: {done} of {total}, {move.text()} {_change(move)}"
        if self._live is None and time.monotonic() - self._said > _SILENT_S:
            self._said = time.monotonic()
            self._console.print(self._choosing)

    def on_tasks(self, tasks: Sequence[SearchTask]) -> None:
        """Told once what is searched."""
        self._rows = {task.key: _Row(task) for task in tasks}
        self._start = time.monotonic()
        if self._live is None:
            self._console.print(f"{self._model}: {len(tasks)} kinds of work to tune")

    def on_event(self, event: TuneEvent) -> None:
        """Told of every batch."""
        row = self._rows[event.task.key]
        if math.isinf(row.first_us):
            row.first_us = next((outcome.us for outcome in event.batch if outcome.rounds_us), math.inf)
        row.best_us, row.trials = event.best_us, event.trials
        row.failed += sum(bool(outcome.error) for outcome in event.batch)
        row.model_error = event.model_error if event.model_error is not None else row.model_error
        self._tried = event.all_trials
        if self._live is None and time.monotonic() - self._said > _SILENT_S:
            self._said = time.monotonic()
            self._console.print(
                f"{self._tried} trials, {self._left()}: {event.task.name} {duration(event.best_us)} after {event.trials}"
            )

    def on_race(self, changes: int) -> None:
        """Told once that whole programs race."""
        self._racing = f"whole programs race for {changes} changes"

    def on_test(self, test: GroupTest) -> None:
        """Told of every pair of programs that raced."""
        self._racing = f"whole programs: {test.text()}"
        if self._live is None:
            self._console.print(self._racing)

    def _left(self) -> str:
        """How long it goes on, as well as that is known."""
        passed, left = time.monotonic() - self._start, []
        if self._seconds is not None:
            left.append(self._seconds - passed)
        if self._trials is not None and self._tried:
            left.append(passed / self._tried * (self._trials - self._tried))
        return f"{duration(max(0.0, min(left)) * 1e6)} left" if left else "no end known yet"

    def _share(self) -> float:
        """How much of the search is behind."""
        of_time = (time.monotonic() - self._start) / self._seconds if self._seconds else 0.0
        return min(1.0, max(of_time, self._tried / self._trials if self._trials else 0.0))

    def _drawn(self) -> RenderableType:
        if not self._rows:
            return Text(f"tuning {self._model}: {self._choosing}")
        rows = sorted(self._rows.values(), key=lambda row: -row.total_us)
        total = sum(row.total_us for row in rows) or 1.0
        table = Table(title=f"tuning {self._model}", title_justify="left")
        table.add_column("work")
        for column in ("calls", "share", "first", "best", "limit", "trials", "failed", "model's error"):
            table.add_column(column, justify="right")
        for row in rows[:_SHOWN]:
            table.add_row(
                row.task.name,
                str(row.task.calls),
                f"{row.total_us / total:.0%}",
                _us(row.first_us),
                _us(row.best_us),
                _us(row.task.limit_us),
                str(row.trials),
                str(row.failed),
                "-" if row.model_error is None else f"{row.model_error:.0%}",
            )
        hidden = len(rows) - _SHOWN
        more = [Text(f"and {hidden} that take less", style="dim")] if hidden > 0 else []
        line = Table.grid(padding=(0, 1))
        line.add_row(
            ProgressBar(total=1.0, completed=self._share(), width=40), f"{self._tried} trials, {self._left()}"
        )
        return Group(table, *more, Text(self._racing) if self._racing else line)


def choices_table(result: ChoiceResult) -> Table:
    """What moving choices was measured to bring, most first."""
    taken = sum(move.is_taken for move in result.moves)
    table = Table(
        title=f"{len(result.measured)} of {len(result.moves)} choices measured in {duration(result.seconds * 1e6)}: "
        f"{taken} moved",
        title_justify="left",
    )
    table.add_column("choice", overflow="fold")
    for column in ("instead of", "before", "after", "taken"):
        table.add_column(column, justify="right", overflow="fold")
    for move in best_moves(result)[:_SHOWN]:
        before, after = move.us or (math.inf, math.inf)
        instead = ", ".join(map(str, move.before.values()))
        table.add_row(move.text(), instead, _us(before), _us(after), "yes" if move.is_taken else "")
    return table


def race_table(raced: RaceResult) -> Table:
    """The pairs of programs that raced: with some changes and without them, on top of those that were taken before."""
    table = Table(
        title=f"races of whole programs: {len(raced.tests)}, in {duration(raced.seconds * 1e6)}",
        title_justify="left",
    )
    table.add_column("changes", overflow="fold")
    for column in ("without", "with", "gain", "taken"):
        table.add_column(column, justify="right", overflow="fold")
    for test in raced.tests:
        names = [change.name for change in test.changes]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        table.add_row(
            ", ".join(names[:3]) + more,
            *map(duration, test.raced.us or (None, None)),
            test.raced.error if test.raced.gain is None else f"{test.raced.gain:.3f}x",
            "yes" if test.is_taken else "",
        )
    return table


def _change(move: Move) -> str:
    """What a move was measured to change, in short."""
    return move.why if move.us is None else f"{_us(move.us[0])} -> {_us(move.us[1])}"


def result_table(result: TuneResult) -> Table:
    """What a search found: per task what was constructed, what is used, and how they compare."""
    before, after = totals(result)
    gain = f", {before / after:.2f}x" if after else ""
    table = Table(
        title=f"{result.trials} trials in {duration(result.seconds * 1e6)}: kernels {duration(before)} -> {duration(after)}{gain}",
        title_justify="left",
    )
    table.add_column("work")
    for column in ("calls", "constructed", "used", "gain", "limit", "trials", "failed"):
        table.add_column(column, justify="right")
    table.add_column("ended by")
    table.add_column("schedule", overflow="fold")
    for found in slowest_first(result):
        table.add_row(
            found.task.name,
            str(found.task.calls),
            _us(found.constructed_us),
            _us(found.used_us),
            "-" if found.gain is None else f"{found.gain:.2f}x",
            _us(found.task.limit_us),
            str(found.trials),
            str(found.failures),
            found.stopped,
            found.schedule.text(),
        )
    return table


def _us(us: float) -> str:
    return duration(None if math.isinf(us) else us)
