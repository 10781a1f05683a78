"""A model of other tasks and one of what it misses on the task at hand (AutoTVM, NeurIPS'18, §4, eq. 4).

    f(x) = f_global(x) + f_local(x)

`fit` gives the global model the samples of other tasks or devices, `update` the local one those of the target: it learns
their time over what the global model predicts, so that its objective may be any. A pair may be of any two cost models,
whose scores have no unit; both are therefore brought to logarithms of throughput, centred within tasks, by least squares:
the global one on what it was fitted to, the local one on target samples that it was not shown (`_FOLDS` folds, of
whole tasks where there are as many). A local model that says nothing about those has next to no weight.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from tilewright.compiler.errors import CostModelError
from tilewright.compiler.tuning.cost_models import registry
from tilewright.compiler.tuning.cost_models.cost_model import CostModel, Prediction, Samples
from tilewright.compiler.tuning.cost_models.model_file import parsed
from tilewright.compiler.tuning.features.feature_set import Features

_KIND, _VERSION = "global-local", 1
_FOLDS = 4
_LEAST = 1e-6
"""The weight of a model that was seen to say nothing: it still parts candidates that are equal to the other model."""
_MOST = 50.0
"""Bounds of what a global model may predict, as a logarithm: candidates from afar overflow nothing."""


class GlobalLocal:
    """Models of the registry's names `of_global` and `of_local`.

    A model that was loaded goes on with the weights of the sum that it has, for it no longer knows the samples.
    """

    name = "global-local"

    def __init__(self, of_global: str = "trees", of_local: str = "trees-regression", seed: int = 0):
        self.of_global, self.of_local, self.seed = of_global, of_local, seed
        self.scales = (0.0, 0.0)
        self._global = registry.make_cost_model(of_global, seed=seed)
        self._local = self._new_local()
        self.reads = self._global.reads | self._local.reads
        self._samples: list[Samples] = []
        self._is_loaded = False

    def _new_local(self) -> CostModel:
        return registry.make_cost_model(self.of_local, seed=self.seed)

    def fit(self, samples: Sequence[Samples]) -> None:
        self._local, self._samples, self._is_loaded = self._new_local(), [], False
        self._global.fit(samples)
        scores = [self._global.predict(s.features).mean for s in samples]
        self.scales = (_scale([_moments(samples, scores)]), 0.0)

    def update(self, samples: Sequence[Samples]) -> None:
        if not (missed := [self._missed(s) for s in samples if len(s)]):
            return
        self._samples += missed
        self._local.update(missed)
        if not self._is_loaded or not self.scales[1]:
            self.scales = (self.scales[0], self._local_scale())

    def _missed(self, samples: Samples) -> Samples:
        """The samples with their times over those that the global model predicts."""
        us = samples.us * np.exp(np.clip(self._of_global(samples.features).mean, -_MOST, _MOST))
        return Samples(samples.task, samples.features, us, samples.device)

    def _local_scale(self) -> float:
        folds, found = _folds(self._samples, self.seed), []
        for number in range(_FOLDS):
            model = self._new_local()
            model.fit([s.rows(np.flatnonzero(f != number)) for s, f in zip(self._samples, folds)])
            held = [s.rows(np.flatnonzero(f == number)) for s, f in zip(self._samples, folds)]
            found.append(_moments(held, [model.predict(s.features).mean for s in held]))
        return _scale(found)

    def _of_global(self, features: Features) -> Prediction:
        return _times(self._global.predict(features), self.scales[0])

    def predict(self, features: Features) -> Prediction:
        wide, near = self._of_global(features), _times(self._local.predict(features), self.scales[1])
        return Prediction(wide.mean + near.mean, np.hypot(wide.std, near.std))

    def save(self, path: Path) -> None:
        """Writes what it is made of, and the models beside it as `PATH.global` and `PATH.local`."""
        record = {
            "kind": _KIND,
            "version": _VERSION,
            "global": self.of_global,
            "local": self.of_local,
            "seed": self.seed,
            "scales": list(self.scales),
        }
        path.write_text(json.dumps(record), encoding="utf-8")
        self._global.save(_beside(path, "global"))
        self._local.save(_beside(path, "local"))

    @classmethod
    def load(cls, path: Path) -> Self:
        record = parsed(path, _KIND, _VERSION, {"global": str, "local": str, "seed": int, "scales": list})
        scales = record["scales"]
        if len(scales) != 2 or not all(isinstance(s, float) and 0 <= s < np.inf for s in scales):
            raise CostModelError(
                f"{path}: `scales` are to be two finite numbers, not below 0; found {scales}"
            )
        found = cls(record["global"], record["local"], record["seed"])
        found._global = type(found._global).load(_beside(path, "global"))
        found._local = type(found._local).load(_beside(path, "local"))
        found.scales, found._is_loaded = (scales[0], scales[1]), True
        return found


def _folds(samples: Sequence[Samples], seed: int) -> list[np.ndarray]:
    """A fold of every candidate: of its task and device where there are at least so many, else drawn."""
    keys = sorted({(s.task, s.device) for s in samples})
    if len(keys) >= _FOLDS:
        return [np.full(len(s), keys.index((s.task, s.device)) % _FOLDS) for s in samples]
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(sum(map(len, samples))) % _FOLDS
    return np.split(drawn, np.cumsum([len(s) for s in samples])[:-1])


def _moments(samples: Sequence[Samples], scores: Sequence[np.ndarray]) -> tuple[float, float]:
    """Products of scores with logarithms of throughput, and squares of scores, summed; both are centred within each task and
    device, and failures are left out."""
    product = square = 0.0
    for key in sorted({(s.task, s.device) for s in samples}):
        at = [n for n, s in enumerate(samples) if (s.task, s.device) == key]
        us, given = np.concatenate([samples[n].us for n in at]), np.concatenate([scores[n] for n in at])
        worked = np.isfinite(us)
        if worked.any():
            centred = given[worked] - given[worked].mean()
            product -= float(centred @ np.log(us[worked]))
            square += float(centred @ centred)
    return product, square


def _scale(moments: Sequence[tuple[float, float]]) -> float:
    """Logarithms of throughput per score, by least squares."""
    product, square = (sum(column) for column in zip(*moments))
    return max(product / square, _LEAST) if square > 0 else _LEAST


def _times(prediction: Prediction, scale: float) -> Prediction:
    return Prediction(prediction.mean * scale, prediction.std * scale)


def _beside(path: Path, part: str) -> Path:
    return path.with_name(f"{path.name}.{part}")
