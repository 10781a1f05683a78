"""Gradient-boosted trees on tables of features, as AutoTVM has them (NeurIPS'18, §3.1), by XGBoost.

The `rank` objective is AutoTVM's: of two candidates of one task the faster is to have the larger score (§3.1, RankNet's
loss over pairs). `graded` is LambdaMART (Burges, MSR-TR-2010-82, §7): a pair counts by what NDCG would lose were the two
exchanged, with gains in proportion to throughput. `regression` fits the throughput over that of the fastest by squares.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from tilewright.compiler.errors import CostModelError
from tilewright.compiler.tuning.cost_models.cost_model import Prediction, Samples
from tilewright.compiler.tuning.cost_models.model_file import parsed
from tilewright.compiler.tuning.cost_models.samples import Training, columns_of, joined
from tilewright.compiler.tuning.features.feature_set import Features

OBJECTIVES = {"rank": "rank:pairwise", "graded": "rank:ndcg", "regression": "reg:squarederror"}
_ROUNDS = 100
_TOP = 256
"""Candidates of a task that each is compared with: the fastest so far by the trees. XGBoost's default of 32 leaves the order
of the others open, from which a search chooses too."""
_GRADES = 31
"""The grade of the fastest: XGBoost's NDCG takes whole numbers, and none above 31."""
_PARAMETERS = {"max_depth": 6, "eta": 0.15, "min_child_weight": 1, "subsample": 1.0, "tree_method": "hist"}
_KIND, _VERSION = "trees", 1


class Trees:
    """Boosted trees over the tables `reads`; `objective` is one of `OBJECTIVES`.

    `update` fits anew to all samples since `fit`; a model that was loaded adds trees to those it has.
    """

    name = "trees"

    def __init__(
        self,
        objective: str = "rank",
        reads: frozenset[str] = frozenset({"statement", "micro-performance"}),
        seed: int = 0,
    ):
        if objective not in OBJECTIVES:
            raise ValueError(f"objectives are {', '.join(OBJECTIVES)}, found {objective}")
        self.objective, self.reads, self.seed = objective, reads, seed
        self.columns: tuple[str, ...] = ()
        self._booster: Any = None
        self._samples: list[Samples] = []
        self._is_loaded = False

    def fit(self, samples: Sequence[Samples]) -> None:
        self._samples, self._is_loaded, self._booster = list(samples), False, None
        self._train(joined(self._samples, self.reads), None)

    def update(self, samples: Sequence[Samples]) -> None:
        self._samples += samples
        self._train(joined(self._samples, self.reads), self._booster if self._is_loaded else None)

    def _train(self, training: Training, start: Any) -> None:
        if not len(training.speeds):
            return
        if start is not None and training.columns != self.columns:
            raise CostModelError("the samples have other columns than the model was trained on")
        xgboost = _xgboost()
        order = np.argsort(training.groups, kind="stable")
        speeds, by_pairs = training.speeds[order], self.objective != "regression"
        data = xgboost.DMatrix(
            training.matrix[order],
            label=np.floor(speeds * _GRADES) if self.objective == "graded" else speeds,
            qid=training.groups[order] if by_pairs else None,
            nthread=1,
        )
        parameters = {
            **_PARAMETERS,
            "objective": OBJECTIVES[self.objective],
            "seed": self.seed,
            "nthread": 1,
            "verbosity": 0,
        }
        if by_pairs:
            largest = int(np.bincount(training.groups).max())
            parameters |= {
                "lambdarank_pair_method": "topk",
                "lambdarank_num_pair_per_sample": min(largest, _TOP),
            }
        if self.objective == "graded":
            # Weights of pairs are parts of an NDCG: those of a few candidates add up to less than 1.
            parameters |= {"ndcg_exp_gain": False, "min_child_weight": 0.01}
        self._booster = xgboost.train(parameters, data, num_boost_round=_ROUNDS, xgb_model=start)
        self.columns = training.columns

    def predict(self, features: Features) -> Prediction:
        names, matrix = columns_of(features, self.reads)
        if self._booster is None:
            return Prediction(np.zeros(len(matrix)), np.zeros(len(matrix)))
        if names != self.columns:
            raise CostModelError("the candidates have other columns than the model was trained on")
        mean = self._booster.predict(_xgboost().DMatrix(matrix, nthread=1), output_margin=True)
        return Prediction(np.asarray(mean, dtype=np.float64), np.zeros(len(matrix)))

    def save(self, path: Path) -> None:
        trees = None if self._booster is None else json.loads(bytes(self._booster.save_raw("json")))
        record = {
            "kind": _KIND,
            "version": _VERSION,
            "objective": self.objective,
            "reads": sorted(self.reads),
            "seed": self.seed,
            "columns": list(self.columns),
            "trees": trees,
        }
        path.write_text(json.dumps(record), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        record = parsed(
            path, _KIND, _VERSION, {"objective": str, "reads": list, "seed": int, "columns": list}
        )
        if record["objective"] not in OBJECTIVES:
            raise CostModelError(
                f"{path}: objectives are {', '.join(OBJECTIVES)}, found {record['objective']}"
            )
        model = cls(record["objective"], frozenset(map(str, record["reads"])), record["seed"])
        model.columns = tuple(map(str, record["columns"]))
        if record.get("trees") is not None:
            xgboost = _xgboost()
            model._booster = xgboost.Booster({"nthread": 1, "verbosity": 0})
            try:
                model._booster.load_model(bytearray(json.dumps(record["trees"]).encode()))
                count = model._booster.num_features()
            except xgboost.core.XGBoostError as e:
                raise CostModelError(f"{path}: no trees that XGBoost can read") from e
            if count != len(model.columns):
                raise CostModelError(f"{path}: trees of {count} columns, {len(model.columns)} names")
            model._is_loaded = True
        return model


def _xgboost() -> Any:
    try:
        import xgboost
    except ImportError as e:
        raise CostModelError(
            "cost models of trees need XGBoost; install it with `pip install tilewright[tune]`"
        ) from e
    return xgboost
