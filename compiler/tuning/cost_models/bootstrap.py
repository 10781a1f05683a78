"""Uncertainty by bootstrap: several models, each fitted to samples drawn with replacement (AutoTVM, NeurIPS'18, §5).

The mean of their scores is the mean of the prediction, their standard deviation its std.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from tilewright.compiler.tuning.cost_models import registry
from tilewright.compiler.tuning.cost_models.cost_model import Prediction, Samples
from tilewright.compiler.tuning.cost_models.model_file import parsed
from tilewright.compiler.tuning.features.feature_set import Features

_KIND, _VERSION = "bootstrap", 1


class Bootstrap:
    """`count` models of the registry's name `of`. Scores are divided by their spread, since objectives have no scale."""

    name = "bootstrap"

    def __init__(self, of: str = "trees", count: int = 5, seed: int = 0):
        self.of, self.seed = of, seed
        self.models = [registry.make_cost_model(of, seed=seed * count + number) for number in range(count)]
        self.reads = self.models[0].reads
        self._samples: list[Samples] = []

    def fit(self, samples: Sequence[Samples]) -> None:
        self._samples = list(samples)
        for number, model in enumerate(self.models):
            model.fit(self._drawn(number, self._samples))

    def update(self, samples: Sequence[Samples]) -> None:
        if self._samples:
            self.fit([*self._samples, *samples])
            return
        for number, model in enumerate(self.models):
            model.update(self._drawn(number, samples))

    def _drawn(self, number: int, samples: Sequence[Samples]) -> list[Samples]:
        rng = np.random.default_rng((self.seed, number))
        return [s.rows(rng.integers(0, len(s), len(s))) for s in samples if len(s)]

    def predict(self, features: Features) -> Prediction:
        scores = np.stack([model.predict(features).mean for model in self.models])
        spread = scores.std(axis=1, keepdims=True)
        scores = (scores - scores.mean(axis=1, keepdims=True)) / np.where(spread > 0, spread, 1.0)
        return Prediction(scores.mean(axis=0), scores.std(axis=0))

    def save(self, path: Path) -> None:
        """Writes what it is made of, and each model beside it as `PATH.0`, `PATH.1`, .."""
        record = {
            "kind": _KIND,
            "version": _VERSION,
            "of": self.of,
            "count": len(self.models),
            "seed": self.seed,
        }
        path.write_text(json.dumps(record), encoding="utf-8")
        for number, model in enumerate(self.models):
            model.save(_beside(path, number))

    @classmethod
    def load(cls, path: Path) -> Self:
        record = parsed(path, _KIND, _VERSION, {"of": str, "count": int, "seed": int})
        found = cls(record["of"], record["count"], record["seed"])
        found.models = [type(model).load(_beside(path, i)) for i, model in enumerate(found.models)]
        return found


def _beside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
