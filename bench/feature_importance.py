"""Which features a cost model lives on: how much worse it ranks operators that it has not seen once one column is shuffled.

A column's values change places among the candidates of an operator, in all steps of a sequence together; the rest stays. What
the rank correlation with the measured times then loses, on the debiased pool, is the column's importance (Breiman, "Random
Forests", Machine Learning 45, 2001, §10). Columns that say the same cover for each other: whole sets are shuffled too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.bench.baseline_models import Ranker
from tilewright.bench.cost_models import Make, Sizes, each_fold
from tilewright.bench.ranking_scores import Spread, pool
from tilewright.bench.roller_construct import spearman
from tilewright.bench.stored_programs import StoredOperator
from tilewright.compiler.tuning.features.feature_set import Features, Table, rows


@dataclass(frozen=True)
class Importance:
    """What a model loses of its correlation without a column of a set, or without the whole set, where `column` is ""."""

    model: str
    device: str
    set: str
    column: str
    lost: Spread

    def to_json(self) -> dict:
        return {
            "model": self.model,
            "device": self.device,
            "set": self.set,
            "column": self.column,
            "lost": self.lost.to_json(),
        }


def importance(operators: Sequence[StoredOperator], name: str, make: Make, sizes: Sizes) -> list[Importance]:
    """Of every column and every set that the model reads, the most important first."""
    found: dict[tuple[str, str], list[float]] = {}
    for seed in range(sizes.seeds):
        lost: dict[tuple[str, str], list[float]] = {}
        for model, held in each_fold(operators, name, make, sizes, seed):
            for number in held:
                operator = operators[number]
                at = pool(operator, "debiased", seed)
                features = rows(operator.features(model.reads), at)
                for key, value in _lost(model, features, operator.us[at], seed).items():
                    lost.setdefault(key, []).append(value)
        for key, values in lost.items():
            found.setdefault(key, []).append(float(np.mean(values)))
    device = operators[0].target.name
    results = [Importance(name, device, *key, Spread(tuple(values))) for key, values in found.items()]
    return sorted(results, key=lambda r: (-r.lost.mean, r.set, r.column))


def _lost(model: Ranker, features: Features, us: np.ndarray, seed: int) -> dict[tuple[str, str], float]:
    whole = _agreement(model, features, us)
    order = np.random.default_rng(seed).permutation(len(us))
    lost = {}
    for name, found in features.items():
        lost[name, ""] = whole - _agreement(model, {**features, name: found.rows(order)}, us)
        for number, column in enumerate(found.names):
            values = (found.matrix if isinstance(found, Table) else found.values).copy()
            values[..., number] = values[order][..., number]
            shuffled = (
                replace(found, matrix=values) if isinstance(found, Table) else replace(found, values=values)
            )
            lost[name, column] = whole - _agreement(model, {**features, name: shuffled}, us)
    return lost


def _agreement(model: Ranker, features: Features, us: np.ndarray) -> float:
    """The rank correlation of scores and speeds; 0 where one of the two is the same for all."""
    scores = model.predict(features).mean
    return spearman(-scores, us) if np.ptp(scores) and np.ptp(us) else 0.0
