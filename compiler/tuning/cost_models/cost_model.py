"""What a cost model is: it learns from measured candidates of any number of tasks, and orders those of one.

    model.fit(samples)                    // forgets what it knew
    model.update(more)                    // keeps what it knew, where the model can
    prediction = model.predict(features)  // prediction.mean [n]: larger is faster; prediction.std [n]
    model.save(path); Model.load(path)    // plain data, parsed and checked, never unpickled

Scores of different tasks cannot be compared. A model that is not learned ignores `fit` and `update`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np

from tilewright.compiler.tuning.features.feature_set import Features, rows


@dataclass(frozen=True)
class Samples:
    """Measured candidates of one task: their features, and the microseconds of each, infinite for a failure: [n].

    `device` names what measured, for models that learn from more than one.
    """

    task: str
    features: Features
    us: np.ndarray
    device: str = ""

    def __len__(self) -> int:
        return len(self.us)

    def speeds(self) -> np.ndarray:
        """Throughput over that of the fastest, 0 for a failure: [n]."""
        best = float(self.us.min(initial=np.inf))
        return np.zeros(len(self.us)) if np.isinf(best) else best / self.us

    def rows(self, places: np.ndarray) -> Samples:
        """The candidates at these places."""
        return Samples(self.task, rows(self.features, places), self.us[places], self.device)


@dataclass(frozen=True)
class Prediction:
    """Scores, larger for a faster candidate, and how uncertain each is, 0 where the model does not say: both [n]."""

    mean: np.ndarray
    std: np.ndarray


class CostModel(Protocol):
    """A model under a name; `reads` are the sets of features that it needs (`feature_set.py`)."""

    name: str
    reads: frozenset[str]

    def fit(self, samples: Sequence[Samples]) -> None:
        """Learns from these measurements alone; the same samples in the same order give the same model."""
        ...

    def update(self, samples: Sequence[Samples]) -> None:
        """Learns from further measurements on top of what it was fitted to."""
        ...

    def predict(self, features: Features) -> Prediction:
        """Scores of the candidates of one task; all equal where nothing was learned yet."""
        ...

    def save(self, path: Path) -> None:
        """Writes a file that says all that the model is."""
        ...

    @classmethod
    def load(cls, path: Path) -> Self:
        """The model in a file; raises CostModelError for one that is damaged, or of another kind or version."""
        ...
