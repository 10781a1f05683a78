"""Tasks that are nothing but a space and a formula: how long a candidate takes is known, and so is the fastest one."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import KEPT, Knob, Space, rule
from tilewright.compiler.tuning.features.feature_set import Features, Table

TILES = tuple(1 << n for n in range(8))
ORDERS = ("rows", "columns", "blocks")


class BowlTask:
    """Tiles m and n, an order, and an unroll that has a meaning for blocks only: m * n is at most 4096.

    The time is least at m = 32, n = 16, blocks, unroll 4. `hint` is the set `micro-performance`: the time, but for the order.
    """

    calls = 1

    def __init__(self, key: str = "bowl", scale: float = 1.0, calls: int = 1, limit_us: float = 1.0):
        self.key, self.name, self.scale, self.calls, self.limit_us = key, key, scale, calls, limit_us
        self.asked = 0

    @cached_property
    def space(self) -> Space:
        return Space(
            (
                Knob("m", TILES),
                Knob("n", TILES),
                Knob("order", ORDERS),
                Knob("unroll", (1, 2, 4, 8, 16), ("order", "blocks")),
            ),
            (rule("m", "too large", lambda columns: columns["m"] * columns["n"] > 4096),),
            lambda values: Schedule(
                tile=(int(values["m"]), int(values["n"])), unroll=int(values.get("unroll", 0))
            ),
            lambda made: {"m": made.tile[0], "n": made.tile[1], "order": "blocks", "unroll": made.unroll},
            Schedule(tile=(8, 8), unroll=1),
        )

    def us(self, points: np.ndarray) -> np.ndarray:
        """Microseconds of candidates: [n]."""
        m, n = points[:, 0], points[:, 1]
        smooth = 1.0 + 0.2 * (m - 5) ** 2 + 0.1 * (n - 4) ** 2
        order = np.asarray([2.0, 1.5, 1.0])[points[:, 2]]
        unroll = np.where(points[:, 3] < 0, 0.0, 0.15 * np.abs(points[:, 3] - 2))
        return 10.0 * self.scale * (smooth * order + unroll)

    def features(self, points: np.ndarray, sets: frozenset[str]) -> Features:
        self.asked += len(points)
        found = {}
        names = self.space.features
        if "knobs" in sets:
            found["knobs"] = Table(names, ("",) * len(names), self.space.encode(points))
        if "statement" in sets:
            found["statement"] = Table(names, ("",) * len(names), self.space.encode(points))
        if "micro-performance" in sets:
            same = points.copy()
            same[:, 2] = 0
            found["micro-performance"] = Table(("us",), ("us",), self.us(same)[:, None])
        return found

    def seeds(self, count: int) -> np.ndarray:
        """Tiles on the diagonal in blocks."""
        return np.asarray([[n, n, 2, 0] for n in (3, 4, 5, 6)], dtype=np.int64)[:count]

    @cached_property
    def legal(self) -> np.ndarray:
        """All candidates."""
        every = self.space.every()
        return every[self.space.legal(every) == KEPT]

    @property
    def fastest_us(self) -> float:
        return float(self.us(self.legal).min())


def bowl_us(task, points: np.ndarray) -> np.ndarray:
    return task.us(points)


class KnobModel:
    """Least squares of log(us) on squares and products of the set `knobs`: enough for a bowl."""

    name = "knob-model"
    reads = frozenset({"knobs"})

    def __init__(self):
        self.weights: np.ndarray | None = None
        self.fits = 0

    @staticmethod
    def _columns(features: Features) -> np.ndarray:
        table = features["knobs"]
        assert isinstance(table, Table)
        x = table.matrix
        return np.concatenate([np.ones((len(x), 1)), x, x**2], axis=1)

    def fit(self, samples) -> None:
        self.fits += 1
        x = np.concatenate([self._columns(s.features) for s in samples])
        y = np.concatenate([np.log(np.where(np.isinf(s.us), 1e4, s.us)) for s in samples])
        self.weights = np.linalg.solve(x.T @ x + 1e-3 * np.eye(x.shape[1]), x.T @ y)

    def update(self, samples) -> None:
        self.fit(samples)

    def predict(self, features: Features):
        from tilewright.compiler.tuning.cost_models.cost_model import Prediction

        x = self._columns(features)
        scores = np.zeros(len(x)) if self.weights is None else -(x @ self.weights)
        return Prediction(scores, 0.1 + 0.0 * scores)

    def save(self, path) -> None:
        raise NotImplementedError

    @classmethod
    def load(cls, path):
        raise NotImplementedError
