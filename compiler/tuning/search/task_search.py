"""The search of one task: its state, its explorer, and what its batches brought."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.nouns.space import KEPT
from tilewright.compiler.tuning.cost_models.cost_model import CostModel, Samples
from tilewright.compiler.tuning.search.explorer import Explorer, SearchState
from tilewright.compiler.tuning.search.finalists import TIE
from tilewright.compiler.tuning.search.search_task import Outcome, Point, SearchTask
from tilewright.compiler.tuning.search.task_scheduler import gain


class TaskSearch:
    """One task's part of a search; `known` outcomes count as its first batch."""

    def __init__(
        self,
        task: SearchTask,
        explorer: Explorer,
        model: CostModel | None,
        device: str,
        seed: int,
        known: Sequence[Outcome] = (),
    ):
        digest = hashlib.sha256(task.key.encode()).digest()[:8]
        rng = np.random.default_rng([seed, int.from_bytes(digest, "little")])
        self.state = SearchState(task, rng, model, _once(known))
        self.is_exhausted = False
        self._explorer, self._device = explorer, device
        self._samples: Samples | None = None
        self._best_us: list[float] = []
        self._trials: list[int] = []
        if self.state.outcomes:
            self._note()

    @property
    def task(self) -> SearchTask:
        return self.state.task

    @property
    def best_us(self) -> float:
        best = self.state.best
        return float("inf") if best is None else best.us

    @property
    def fruitless(self) -> int:
        """Trials behind the last one that was faster than what was best before by more than two level ones differ."""
        mark, since = float("inf"), 0
        for outcome in self.state.outcomes:
            since += 1
            if outcome.us * TIE < mark:
                mark, since = outcome.us, 0
        return since

    @property
    def gain(self) -> float:
        """What the next batch is expected to be worth (`task_scheduler.py`), behind the one that is in flight."""
        flying = len(self.state.in_flight)
        if flying and np.isinf(self.best_us):
            return 0.0
        trials = [*self._trials[:-1], self._trials[-1] + flying] if self._trials else []
        return gain(self.task.calls, self._best_us, trials, self.task.limit_us)

    @property
    def least_us(self) -> float:
        """What a model's run spends on the task at least, the longest first among those of which nothing is known."""
        return self.task.calls * self.task.limit_us

    def propose(self, count: int) -> list[np.ndarray]:
        """The next batch, which is in flight from now on; none, and the task is exhausted, where there are no more.

        Raises TilewrightError where the explorer does not keep to its contract.
        """
        points = self._explorer.propose(self.state, count)
        asked = [tuple(map(int, point)) for point in points]
        if len(asked) > count or len(set(asked)) < len(asked) or self.state.tried().intersection(asked):
            raise TilewrightError(
                f"{type(self._explorer).__name__} proposed {len(asked)} candidates of `{self.task.name}`; expected at most "
                f"{count}, distinct, none of which was tried"
            )
        if len(points) and (self.task.space.legal(points) != KEPT).any():
            raise TilewrightError(
                f"{type(self._explorer).__name__} proposed an illegal candidate of `{self.task.name}`"
            )
        self.is_exhausted = not asked
        self.state.in_flight |= set(asked)
        return list(points)

    def take(self, batch: Sequence[Outcome]) -> None:
        """Takes in what came of a batch."""
        self.state.outcomes += batch
        self.state.in_flight -= {outcome.point for outcome in batch}
        self._samples = None
        self._note()

    def samples(self) -> Samples | None:
        """What the model learns of this task; None where there is nothing to compare."""
        model = self.state.model
        final = [outcome for outcome in self.state.outcomes if outcome.is_final]
        if model is None or len(final) < 2 or not any(outcome.rounds_us for outcome in final):
            return None
        if self._samples is None:
            points = np.asarray([outcome.point for outcome in final], dtype=np.int64)
            us = np.asarray([outcome.us for outcome in final])
            self._samples = Samples(self.task.key, self.task.features(points, model.reads), us, self._device)
        return self._samples

    def model_error(self, batch: Sequence[Outcome]) -> float | None:
        """The share of a batch's pairs that the model has in the wrong order, None where it orders none."""
        ran = [outcome for outcome in batch if outcome.rounds_us]
        if self.state.model is None or len(ran) < 2:
            return None
        scores = self.state.predict(np.asarray([outcome.point for outcome in ran], dtype=np.int64)).mean
        us = np.asarray([outcome.us for outcome in ran])
        if not np.ptp(scores):  # nothing was learned yet
            return None
        slower = us[:, None] > us[None]
        wrong = slower & (scores[:, None] >= scores[None])
        return float(wrong.sum() / slower.sum()) if slower.any() else None

    def _note(self) -> None:
        self._best_us.append(self.best_us)
        self._trials.append(len(self.state.outcomes))


def _once(known: Sequence[Outcome]) -> list[Outcome]:
    """Of the outcomes of each point one: with all of its rounds, unless it failed once."""
    by_point: dict[Point, Outcome] = {}
    for outcome in known:
        before = by_point.get(outcome.point)
        if outcome.is_final and (before is None or not before.error):
            rounds = (before.rounds_us if before else ()) + outcome.rounds_us
            by_point[outcome.point] = Outcome(
                outcome.task,
                outcome.point,
                () if outcome.error else rounds,
                outcome.error,
                outcome.object,
                True,
                outcome.seconds,
            )
    return list(by_point.values())
