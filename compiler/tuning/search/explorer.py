"""What an explorer is: from what a search knows of a task to the candidates that it would measure next.

    points = explorer.propose(state, count)          // [at most count, knobs], legal, distinct, none measured before

Fewer come where the space has no more. An explorer keeps what it carries from batch to batch in itself: there is one for
every task. Everything random comes from `state.rng`, so that the same seed and the same times give the same candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tilewright.compiler.tuning.cost_models.cost_model import CostModel, Prediction
from tilewright.compiler.tuning.search.search_task import Outcome, SearchTask


@dataclass
class SearchState:
    """What a search knows of one task: what was measured, in that order, what is on its way, and the cost model."""

    task: SearchTask
    rng: np.random.Generator
    model: CostModel | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    in_flight: set[tuple[int, ...]] = field(default_factory=set)

    def tried(self) -> set[tuple[int, ...]]:
        """The points that are not to be proposed again."""
        return {outcome.point for outcome in self.outcomes if outcome.is_final} | self.in_flight

    @property
    def best(self) -> Outcome | None:
        """The fastest so far, the earlier one of equals; None where nothing ran."""
        return min((o for o in self.outcomes if o.rounds_us), key=lambda outcome: outcome.us, default=None)

    def predict(self, points: np.ndarray) -> Prediction:
        """The model's scores of candidates [n, knobs]; equal ones where there is no model."""
        if self.model is None or not len(points):
            return Prediction(np.zeros(len(points)), np.zeros(len(points)))
        return self.model.predict(self.task.features(points, self.model.reads))


class Explorer(Protocol):
    """A way through the space of one task."""

    def propose(self, state: SearchState, count: int) -> np.ndarray:
        """The next candidates to measure, the most promising first."""
        ...


MakeExplorer = Callable[[], Explorer]
