"""Pruner's parameterised static analyser, a cost model that is not trained: work over peaks, under penalties.

    L_c = ops x P_thread / (T_p x P_kernel x P_warp)      L_m = bytes / (T_m x P_mem)      score = -log sum (L_c + L_m)

P_thread is the excess of registers times the accesses of them per operation. Source: Pruner (ASPLOS'25), §2.3, eq. 3 and 4.
A fifth penalty, `residency`, is not the paper's: L_c is divided by it too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from tilewright.compiler.errors import CostModelError
from tilewright.compiler.tuning.cost_models.cost_model import Prediction, Samples
from tilewright.compiler.tuning.cost_models.model_file import parsed
from tilewright.compiler.tuning.cost_models.samples import steps_of
from tilewright.compiler.tuning.features.feature_set import Features, Steps

PENALTIES = ("thread", "warp", "kernel", "memory", "residency")
_COLUMNS = frozenset(
    {"compute", "memory", "registers", "accesses", "warp", "kernel", "residency", "transactions"}
)
_KIND, _VERSION, _SET = "static-analyser", 1, "static-analysis"


class StaticAnalyser:
    """Scores candidates by the estimated latency of their statements; `penalties` are those that count."""

    name = "static-analyser"
    reads = frozenset({_SET})

    def __init__(self, penalties: Sequence[str] = PENALTIES):
        unknown = [name for name in penalties if name not in PENALTIES]
        if unknown:
            raise CostModelError(f"no penalty is named `{unknown[0]}`; there are {', '.join(PENALTIES)}")
        self.penalties = tuple(name for name in PENALTIES if name in penalties)

    def fit(self, samples: Sequence[Samples]) -> None:
        pass

    def update(self, samples: Sequence[Samples]) -> None:
        pass

    def predict(self, features: Features) -> Prediction:
        us = self.latency_us(steps_of(features, _SET))
        return Prediction(-np.log(np.maximum(us, 1e-9)), np.zeros(len(us)))

    def latency_us(self, statements: Steps) -> np.ndarray:
        """L_total of every candidate: [n]."""
        column = dict(zip(statements.names, np.moveaxis(statements.values, 2, 0)))
        missing = _COLUMNS - set(column)
        if missing:
            raise CostModelError(f"the set `{_SET}` has no column {', '.join(sorted(missing))}")
        compute, memory = column["compute"], column["memory"]
        if "thread" in self.penalties:
            compute = compute * column["registers"] * column["accesses"]
        there = np.arange(compute.shape[1]) < statements.lengths[:, None]
        for name in ("warp", "kernel", "residency"):
            if name in self.penalties:
                compute = compute / np.where(there, column[name], 1.0)
        if "memory" in self.penalties:
            memory = memory / np.where(there, column["transactions"], 1.0)
        return np.where(there, compute + memory, 0.0).sum(axis=1)

    def save(self, path: Path) -> None:
        record = {"kind": _KIND, "version": _VERSION, "penalties": list(self.penalties)}
        path.write_text(json.dumps(record), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(parsed(path, _KIND, _VERSION, {"penalties": list})["penalties"])
