"""What a cost model has to beat on stored programs: no model, Roller's prediction, trees on tile sizes or on all features.

make_model("roller", seed)     // any name of BASELINES, or of the compiler's registry
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.tuning.cost_models.cost_model import Prediction, Samples
from tilewright.compiler.tuning.cost_models.pacm import PatternAwareModel
from tilewright.compiler.tuning.cost_models.registry import COST_MODELS, make_cost_model
from tilewright.compiler.tuning.cost_models.trees import Trees
from tilewright.compiler.tuning.features.feature_set import Features, Steps, Table, joined_tables


class Ranker(Protocol):
    """What an evaluation needs of a cost model (`cost_model.py`)."""

    name: str
    reads: frozenset[str]

    def fit(self, samples: Sequence[Samples]) -> None: ...

    def update(self, samples: Sequence[Samples]) -> None: ...

    def predict(self, features: Features) -> Prediction: ...


class RandomOrder:
    """Draws every score."""

    name = "random"
    reads = frozenset({"knobs"})

    def __init__(self, seed: int = 0):
        self._rng = np.random.default_rng(seed)

    def fit(self, samples: Sequence[Samples]) -> None:
        """Learns nothing."""

    def update(self, samples: Sequence[Samples]) -> None:
        """Learns nothing."""

    def predict(self, features: Features) -> Prediction:
        count = len(features["knobs"])
        return Prediction(self._rng.random(count), np.zeros(count))


class RollerPrediction:
    """The negative logarithm of the time that Roller's micro-performance model predicts (OSDI'22, §3.3)."""

    name = "roller"
    reads = frozenset({"micro-performance"})

    def __init__(self, seed: int = 0):
        """Is the same for every seed."""

    def fit(self, samples: Sequence[Samples]) -> None:
        """Learns nothing."""

    def update(self, samples: Sequence[Samples]) -> None:
        """Learns nothing."""

    def predict(self, features: Features) -> Prediction:
        predicted = _predicted_us(features)
        return Prediction(-np.log(predicted), np.zeros(len(predicted)))


class TileTrees:
    """Boosted trees that rank programs by their tile sizes and Roller's prediction: no knowledge of accesses.

    The objective is pairwise on speed in 32 grades, within operators.
    """

    name = "tile-trees"
    reads = frozenset({"knobs", "micro-performance"})
    _ROUNDS, _MORE, _GRADES = 120, 20, 31
    _OPTIONS: ClassVar[dict[str, Any]] = {
        "objective": "rank:pairwise", "lambdarank_pair_method": "mean", "lambdarank_num_pair_per_sample": 4,
        "eta": 0.1, "min_child_weight": 0.1, "subsample": 0.8,
    }  # fmt: skip

    def __init__(self, seed: int = 0):
        self._seed, self._booster = seed, None

    def fit(self, samples: Sequence[Samples]) -> None:
        self._booster = self._boosted(samples, self._ROUNDS, None)

    def update(self, samples: Sequence[Samples]) -> None:
        """Adds trees that learn from these samples what the ones before miss; the sum is AutoTVM's (NeurIPS'18) eq. 4."""
        self._booster = self._boosted(samples, self._MORE if self._booster else self._ROUNDS, self._booster)

    def _boosted(self, samples: Sequence[Samples], rounds: int, start: Any) -> Any:
        try:
            import xgboost
        except ModuleNotFoundError:
            raise TilewrightError("tile-trees needs xgboost: pip install 'tilewright[tune]'") from None
        if not samples:
            return start
        data = xgboost.DMatrix(
            np.concatenate([self._inputs(s.features) for s in samples]),
            np.concatenate([np.floor(s.speeds() * self._GRADES) for s in samples]),
            qid=np.repeat(np.arange(len(samples)), [len(s) for s in samples]),
        )
        options = {
            **self._OPTIONS, "max_depth": 6, "tree_method": "hist", "nthread": 1, "seed": self._seed, "verbosity": 0,
        }  # fmt: skip
        return xgboost.train(options, data, rounds, xgb_model=start)

    def predict(self, features: Features) -> Prediction:
        inputs = self._inputs(features)
        if self._booster is None:
            return Prediction(np.zeros(len(inputs)), np.zeros(len(inputs)))
        return Prediction(self._booster.inplace_predict(inputs), np.zeros(len(inputs)))

    def _inputs(self, features: Features) -> np.ndarray:
        """Tile sizes, and Roller's microseconds per result and step of the reduction: [n, 19]."""
        knobs, predicted = features["knobs"], np.log2(_predicted_us(features))
        assert isinstance(knobs, Table)
        work = sum(knobs.matrix[:, knobs.names.index(name)] for name in ("results", "reduction"))
        return np.column_stack([knobs.matrix, predicted - work])


class FlowTrees:
    """The compiler's boosted trees on all that Pruner's model reads, the steps of the data flow side by side.

    What they are worse by is not for want of features. Candidates of all operators have equally many steps.
    """

    reads = frozenset({"statement", "data-flow"})
    _FLAT = "flat"

    def __init__(self, objective: str, seed: int = 0):
        self.name = "flow-trees" if objective == "rank" else f"flow-trees-{objective}"
        self._trees = Trees(objective, frozenset({self._FLAT}), seed)

    def fit(self, samples: Sequence[Samples]) -> None:
        self._trees.fit([replace(s, features=self._flat(s.features)) for s in samples])

    def update(self, samples: Sequence[Samples]) -> None:
        self._trees.update([replace(s, features=self._flat(s.features)) for s in samples])

    def predict(self, features: Features) -> Prediction:
        return self._trees.predict(self._flat(features))

    def _flat(self, features: Features) -> Features:
        return {self._FLAT: side_by_side(features)}


class GradedFlowTrees(TileTrees):
    """Boosted trees on the same, by LambdaMART with linear gains of 32 grades, half of the columns open to each tree.

    The objective is that of the protocol's LightGBM: a pair counts by what NDCG would lose were the two exchanged.
    """

    name = "flow-trees-graded"
    reads = frozenset({"statement", "data-flow"})
    _ROUNDS = 150
    _OPTIONS: ClassVar[dict[str, Any]] = {
        "objective": "rank:ndcg", "ndcg_exp_gain": False, "lambdarank_pair_method": "topk",
        "lambdarank_num_pair_per_sample": 100, "eta": 0.08, "colsample_bytree": 0.5,
    }  # fmt: skip

    def _inputs(self, features: Features) -> np.ndarray:
        return side_by_side(features).matrix


def side_by_side(features: Features) -> Table:
    """The columns of `statement`, and of `data-flow` those of one step behind those of another: [n, columns]."""
    table, steps = features["statement"], features["data-flow"]
    assert isinstance(table, Table) and isinstance(steps, Steps)
    count = steps.values.shape[1]
    names = tuple(f"{name} of step {step}" for step in range(count) for name in steps.names)
    return joined_tables(table, Table(names, steps.units * count, steps.values.reshape(len(steps), -1)))


def _predicted_us(features: Features) -> np.ndarray:
    found = features["micro-performance"]
    assert isinstance(found, Table)
    return found.matrix[:, found.names.index("us")]


class SteepPatternAwareModel(PatternAwareModel):
    """Pruner's model with the gains that documents are ranked with, `2^(5 speed) - 1`."""

    gain = 5.0


BASELINES: Mapping[str, Callable[[int], Ranker]] = {
    "random": RandomOrder,
    "roller": RollerPrediction,
    "tile-trees": TileTrees,
    "flow-trees": partial(FlowTrees, "rank"),
    "flow-trees-regression": partial(FlowTrees, "regression"),
    "flow-trees-graded": GradedFlowTrees,
    "pacm-steep": SteepPatternAwareModel,
}


_TRANSFERRED = ("global-local", "mlp-momentum", "pacm-momentum")
_OF_LOOPS = ("trees-relation", "tree-gru", "tree-gru-regression")
"""Those that read loops: stored programs are tile sizes, and have none."""


def model_names() -> list[str]:
    """All that stored programs can judge: the baselines, and the compiler's cost models but for the one that `roller` is, for
    those that differ from others only once they are updated, and for those that read loops."""
    left_out = {"micro-performance", *_TRANSFERRED, *_OF_LOOPS}
    return [*BASELINES, *(name for name in COST_MODELS if name not in left_out)]


def make_model(name: str, seed: int) -> Ranker:
    """A model by its name, with this seed; raises TilewrightError for one that there is not, with those there are."""
    if name in BASELINES:
        return BASELINES[name](seed)
    if name in COST_MODELS:
        return make_cost_model(name, seed=seed)
    raise TilewrightError(f"there is no cost model `{name}`; there are {', '.join(model_names())}")
