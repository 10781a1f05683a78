"""A cost model: a candidate is as fast as the nearest one that was measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.spatial import KDTree

from tilewright.compiler.errors import CostModelError
from tilewright.compiler.tuning.cost_models.cost_model import Prediction, Samples
from tilewright.compiler.tuning.features.feature_set import Features


class Nearest:
    """Scores are the negative logarithm of the nearest candidate's time over the best, by statement features."""

    name = "nearest"
    reads = frozenset({"statement"})

    def __init__(self) -> None:
        self._points, self._scores = np.zeros((0, 0)), np.zeros(0)

    def fit(self, samples: Sequence[Samples]) -> None:
        """Forgets everything, and keeps all candidates of all tasks."""
        ran = [np.isfinite(each.us) for each in samples]
        self._points = np.concatenate([_matrix(s.features)[kept] for s, kept in zip(samples, ran)])
        self._scores = np.concatenate(
            [-np.log(s.us[kept] / s.us[kept].min()) for s, kept in zip(samples, ran)]
        )

    def update(self, samples: Sequence[Samples]) -> None:
        """As `fit`: whoever holds nothing but candidates learns nothing slowly."""
        self.fit(samples)

    def predict(self, features: Features) -> Prediction:
        """Scores [n], larger is faster, and how far away the neighbour is [n]."""
        points = _matrix(features)
        if not len(self._points):
            return Prediction(np.zeros(len(points)), np.zeros(len(points)))
        distances, places = KDTree(self._points).query(points)
        return Prediction(self._scores[places], np.asarray(distances))

    def save(self, path: Path) -> None:
        values = {"kind": self.name, "points": self._points.tolist(), "scores": self._scores.tolist()}
        path.write_text(json.dumps(values), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Nearest:
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            made = cls()
            made._points = np.asarray(values["points"], dtype=float)
            made._scores = np.asarray(values["scores"], dtype=float)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CostModelError(f"{path}: no file of `{cls.name}`: {error}") from None
        if values.get("kind") != cls.name or made._points.ndim != 2 or len(made._points) != len(made._scores):
            raise CostModelError(f"{path}: no file of `{cls.name}`")
        return made


def _matrix(features: Features) -> np.ndarray:
    return np.log1p(np.abs(features["statement"].matrix))  # type: ignore[union-attr]
