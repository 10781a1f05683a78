"""The loop of a search: propose a batch, measure it, learn from it, over all tasks of a model.

    result = tune(tasks, device, "pruner", trials=1000, seed=0)
    result.tasks[0].chosen.point        // the schedule to use

While a batch of one task is measured, one of another task is proposed and compiled, unless the first one is worth more
than all others: it waits for what the batch teaches. What a batch brought is taken in when all of it is there, in the order
in which batches were asked for: a device that measures the same gives the same search.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.tuning.cost_models.cost_model import CostModel
from tilewright.compiler.tuning.search.finalists import decide
from tilewright.compiler.tuning.search.interruptible import Interruptible, holding_interrupts
from tilewright.compiler.tuning.search.search_task import Device, Outcome, SearchTask
from tilewright.compiler.tuning.search.strategies import Strategy, strategy_named
from tilewright.compiler.tuning.search.task_search import Point, TaskSearch
from tilewright.compiler.tuning.search.tune_result import OnEvent, TaskResult, TuneEvent, TuneResult

FIRST = 4
"""Candidates of a task's first batch where there are other tasks: what it is worth is known after that."""
_AT_ONCE = 2
"""Batches in flight: one is measured while the next one is compiled."""


def tune(
    tasks: Sequence[SearchTask],
    device: Device,
    strategy: str | Strategy,
    *,
    trials: int | None = None,
    seconds: float | None = None,
    patience: int | None = None,
    seed: int = 0,
    records: Mapping[str, Sequence[Outcome]] | None = None,
    model: CostModel | None = None,
    on_event: OnEvent | None = None,
) -> TuneResult:
    """Searches until `trials` candidates were tried in all, `seconds` have passed, or no task has any left.

    A task ends where `patience` trials of it in a row brought nothing faster; what is left is for the others.
    `records` are outcomes of earlier searches by the key of their task: they count as trials, and are learned from. A
    `model` given stands in place of the strategy's; it keeps what it knows, and is updated. Ctrl-C ends the search with
    what it has. The device stays open. Raises TilewrightError for a search without an end, and for tasks with equal keys.
    """
    found = strategy_named(strategy) if isinstance(strategy, str) else strategy
    if trials is None and seconds is None and patience is None:
        raise TilewrightError("a search needs an end; give it trials, seconds or patience")
    for name, value in (("trials", trials), ("seconds", seconds), ("patience", patience)):
        if value is not None and value <= 0:
            raise TilewrightError(f"expected {name} > 0, found {value}")
    if seed < 0:
        raise TilewrightError(f"expected seed >= 0, found {seed}")
    if len({task.key for task in tasks}) < len(tasks):
        raise TilewrightError(
            "two tasks have the same key; let one of them stand for both, with the calls of both"
        )
    return _Tuner(tasks, device, found, trials, seconds, patience, seed, records or {}, model, on_event).run()


class _Batch:
    """Candidates of one task that were asked for, and what came of them."""

    def __init__(self, search: TaskSearch, points: Sequence[np.ndarray]):
        self.search = search
        self.asked: list[Point] = [tuple(map(int, point)) for point in points]
        self.came: dict[Point, Outcome] = {}

    @property
    def is_complete(self) -> bool:
        return len(self.came) == len(self.asked)

    def outcomes(self) -> list[Outcome]:
        """What came, in the order of the proposals."""
        return [self.came[point] for point in self.asked if point in self.came]


class _Tuner:
    def __init__(
        self,
        tasks: Sequence[SearchTask],
        device: Device,
        strategy: Strategy,
        trials: int | None,
        seconds: float | None,
        patience: int | None,
        seed: int,
        records: Mapping[str, Sequence[Outcome]],
        model: CostModel | None,
        on_event: OnEvent | None,
    ):
        self._device, self._strategy, self._trials, self._on_event = device, strategy, trials, on_event
        self._patience = patience
        self._start = time.monotonic()
        self._end = None if seconds is None else self._start + seconds
        self._knows = model is not None
        shared = model if model is not None else strategy.make_model(seed)
        # The knobs of one space mean nothing to a model of another one.
        is_shared = shared is None or "knobs" not in shared.reads or len(tasks) == 1
        if self._knows and not is_shared:
            raise TilewrightError(
                f"the cost model `{model.name if model else ''}` reads knobs, which differ from task to task; tune one task"
            )
        self._searches = [
            TaskSearch(
                task,
                strategy.explorer(),
                shared if is_shared else strategy.make_model(seed),
                device.name,
                seed,
                records.get(task.key, ()),
            )
            for task in tasks
        ]
        self._flying: deque[_Batch] = deque()

    def run(self) -> TuneResult:
        with holding_interrupts() as interrupts:
            result = self._run()
        return replace(result, is_interrupted=result.is_interrupted or interrupts.is_interrupted)

    def _run(self) -> TuneResult:
        with Interruptible() as searching:
            searching.check()
            self._search(searching)
        is_interrupted = searching.is_interrupted
        if is_interrupted:
            for batch in self._flying:
                # By identity: one that was lost before has come for the second time.
                taken = set(map(id, batch.search.state.outcomes))
                if came := [outcome for outcome in batch.outcomes() if id(outcome) not in taken]:
                    batch.search.take(came)
        results = []
        for search in self._searches:
            outcomes = search.state.outcomes
            final = None
            with Interruptible() as deciding:
                # Who interrupted a search does not want to wait for a race.
                is_interrupted |= deciding.is_interrupted
                final = decide(search.task, outcomes, None if is_interrupted else self._device)
            is_interrupted |= deciding.is_interrupted
            final = final or decide(search.task, outcomes, None)
            stopped = "interrupted" if is_interrupted else self._stopped(search)
            results.append(TaskResult(search.task, tuple(outcomes), final.chosen, stopped, final.raced))
        return TuneResult(tuple(results), time.monotonic() - self._start, is_interrupted)

    def _stopped(self, search: TaskSearch) -> str:
        """Why a task that nobody interrupted has no more trials."""
        return "exhausted" if search.is_exhausted else "budget" if self._patient(search) else "patience"

    def _patient(self, search: TaskSearch) -> int:
        """How many more trials of a task may bring nothing; more than any batch has where nobody counts."""
        return self._strategy.batch if self._patience is None else max(0, self._patience - search.fruitless)

    def _search(self, part: Interruptible) -> None:
        if any(search.state.outcomes for search in self._searches):
            self._learn()
        self._launch()
        while self._flying:
            is_silent = True
            for outcome in self._device.outcomes():
                is_silent = False
                self._deliver(outcome)
                part.check()
                while self._flying and self._flying[0].is_complete:
                    self._take(self._flying[0])
                    self._flying.popleft()
                    self._launch()
            if self._flying and is_silent:
                missing = sum(len(batch.asked) - len(batch.came) for batch in self._flying)
                raise TilewrightError(
                    f"the device `{self._device.name}` lost {missing} candidates without a word"
                )

    def _deliver(self, outcome: Outcome) -> None:
        for batch in self._flying:
            if batch.search.task.key == outcome.task and outcome.point in batch.asked:
                batch.came[outcome.point] = outcome
                return
        raise TilewrightError(
            f"the device `{self._device.name}` answered for {outcome.point} of {outcome.task}, which nobody asked for"
        )

    def _launch(self) -> None:
        """Asks for further batches, of the tasks with the largest gains, the first one of equals."""
        while len(self._flying) < _AT_ONCE and (count := self._left()) > 0:
            open_ = [search for search in self._searches if not search.is_exhausted and self._patient(search)]
            if not open_:
                return
            search = max(open_, key=lambda search: (search.gain, search.least_us))
            if search.state.in_flight:  # it learns from that batch first
                return
            is_known = search.state.outcomes or len(self._searches) == 1
            batch = self._strategy.batch if is_known else min(FIRST, self._strategy.batch)
            points = search.propose(min(count, batch, self._patient(search)))
            if points:
                self._flying.append(_Batch(search, points))
                self._device.submit(search.task, points)

    def _left(self) -> int:
        """How many candidates may still be asked for."""
        if self._end is not None and time.monotonic() >= self._end:
            return 0
        if self._trials is None:
            return self._strategy.batch
        return self._trials - self._tried() - sum(len(batch.asked) for batch in self._flying)

    def _tried(self) -> int:
        return sum(len(search.state.outcomes) for search in self._searches)

    def _take(self, batch: _Batch) -> None:
        outcomes, search = batch.outcomes(), batch.search
        error = search.model_error(outcomes)
        search.take(outcomes)
        self._learn(search)
        if self._on_event is not None:
            self._on_event(
                TuneEvent(
                    search.task,
                    tuple(outcomes),
                    len(search.state.outcomes),
                    search.best_us,
                    error,
                    self._tried(),
                    time.monotonic() - self._start,
                )
            )

    def _learn(self, latest: TaskSearch | None = None) -> None:
        """Fits each model to what is known of its tasks; one that knew something before is updated with the latest task."""
        for model, searches in self._models(latest):
            samples = [s for search in searches if (s := search.samples()) is not None]
            if not samples:
                continue
            if self._knows:
                model.update([s for s in samples if latest is None or s.task == latest.task.key])
            else:
                model.fit(samples)

    def _models(self, latest: TaskSearch | None) -> list[tuple[CostModel, list[TaskSearch]]]:
        """Each model with the tasks that it scores; those alone that score the latest task where there is one."""
        models = {id(search.state.model): search.state.model for search in self._searches}
        if latest is not None:
            models = {id(latest.state.model): latest.state.model}
        return [
            (model, [search for search in self._searches if search.state.model is model])
            for model in models.values()
            if model is not None
        ]
