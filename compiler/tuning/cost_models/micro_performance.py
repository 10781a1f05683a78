"""The micro-performance model as a cost model that is not trained: the shorter the predicted time, the better.

Source: Roller (OSDI'22), §3.3.
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
from tilewright.compiler.tuning.features.feature_set import Features, Table

_KIND, _VERSION = "micro-performance", 1


class MicroPerformance:
    """Scores candidates by the column `us` of the set `micro-performance`."""

    name = "micro-performance"
    reads = frozenset({"micro-performance"})

    def fit(self, samples: Sequence[Samples]) -> None:
        pass

    def update(self, samples: Sequence[Samples]) -> None:
        pass

    def predict(self, features: Features) -> Prediction:
        table = features.get("micro-performance")
        if not isinstance(table, Table) or "us" not in table.names:
            raise CostModelError(
                "the model reads the column `us` of the set `micro-performance`, which is not there"
            )
        us = table.matrix[:, table.names.index("us")]
        return Prediction(-np.log(np.maximum(us, 1e-9)), np.zeros(len(us)))

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"kind": _KIND, "version": _VERSION}), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        parsed(path, _KIND, _VERSION, {})
        return cls()
