"""Tiles of registers as Roller's recursion sees them: what the loops of a reduction take and load, for arrays of sizes.

    products  [unroll, vector]          a grid of accumulators; a row is broadcast, a column of vectors loaded
    windows   [rows, columns, vectors]  an image of accumulators that shares what its windows read
    along     [rows, columns, chains]   accumulators that are vectors along the reduction
    groups    [unroll]                  steps beside each other that share a window's weights

Each is plain data of one reduction; sizes and the extents of their loops are arrays [n, sizes].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tilewright.compiler.nouns.register_tiles import Window, register_count
from tilewright.compiler.tuning.cpu.register_tile import LATENCY_X_THROUGHPUT, VECTOR_LOAD

_MOST_SHARING, _MOST_ALONE = 8, 4
"""Rows, or columns, along memory that are summed at once: of those that share nothing four are enough to overlap."""


class RegisterLayer(Protocol):
    """The registers of one reduction's loops; `extents` are those of the loops that its sizes step along."""

    extents: tuple[int, ...]

    def accumulators(self, sizes: np.ndarray) -> np.ndarray:
        """Sums that are in flight at once: [n]."""
        ...

    def taken(self, sizes: np.ndarray) -> np.ndarray:
        """Vector registers, those of operands too: [n]."""
        ...

    def loads(self, sizes: np.ndarray) -> np.ndarray:
        """Vectors loaded per multiply-add of a vector: [n]."""
        ...

    def cycles(self, sizes: np.ndarray) -> np.ndarray:
        """Cycles per useful multiply-add of a vector, on one unit: [n]."""
        ...

    def ties(self, sizes: np.ndarray) -> tuple[np.ndarray, ...]:
        """Of tiles that take equally many cycles, which come first: keys [n], the most important one first."""
        ...


def _useful(extents: tuple[int, ...], sizes: np.ndarray, computed: np.ndarray | None = None) -> np.ndarray:
    """The part of what tiles compute that is not computed twice, or for nothing: [n]."""
    whole = np.asarray(extents)
    stepped = sizes if computed is None else computed
    return np.prod(whole / (-(-whole // sizes) * stepped), axis=1)


def _busy(accumulators: np.ndarray) -> np.ndarray:
    return np.minimum(1.0, accumulators / LATENCY_X_THROUGHPUT)


@dataclass(frozen=True)
class Grid:
    """Products: vectors of `lanes`; `most_rows` bounds the rows that L1 keeps side by side, None where it keeps any, and
    `most_vectors` the vectors of a row; `vector_load` is that of the target."""

    extents: tuple[int, ...]
    lanes: int
    most_rows: int | None = None
    most_vectors: int | None = None
    vector_load: float = VECTOR_LOAD

    def _vectors(self, sizes: np.ndarray) -> np.ndarray:
        return register_count(sizes[:, 1], self.lanes)

    def accumulators(self, sizes: np.ndarray) -> np.ndarray:
        return sizes[:, 0] * self._vectors(sizes)

    def taken(self, sizes: np.ndarray) -> np.ndarray:
        vectors = self._vectors(sizes)
        taken = self.accumulators(sizes) + vectors + 1
        beyond = np.zeros(len(sizes), dtype=bool)
        for size, most in ((sizes[:, 0], self.most_rows), (vectors, self.most_vectors)):
            beyond |= size > (size if most is None else most)
        return np.where(beyond, np.iinfo(np.int64).max, taken)

    def loads(self, sizes: np.ndarray) -> np.ndarray:
        vectors = self._vectors(sizes)
        return (sizes[:, 0] + self.vector_load * vectors) / (sizes[:, 0] * vectors)

    def cycles(self, sizes: np.ndarray) -> np.ndarray:
        computed = np.stack([sizes[:, 0], self._vectors(sizes) * self.lanes], axis=1)
        useful = _useful(self.extents, sizes, computed)
        return (1 + self.loads(sizes)) / (useful * _busy(self.accumulators(sizes)))

    def ties(self, sizes: np.ndarray) -> tuple[np.ndarray, ...]:
        return self.accumulators(sizes), sizes[:, 1], sizes[:, 0]


@dataclass(frozen=True)
class Image:
    """Windows: rows and columns of results of `width` channels, or lanes along memory `lane_step` inputs apart."""

    rows: Window
    columns: Window
    width: int
    lanes: int
    weights: bool
    lane_step: int = 1

    @property
    def extents(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.rows.extent, self.columns.extent, -(-self.width // self.lanes)

    @property
    def taps(self) -> int:
        """Of one window."""
        return self.rows.taps * self.columns.taps

    def accumulators(self, sizes: np.ndarray) -> np.ndarray:
        return sizes.prod(axis=1)

    def _inputs(self, sizes: np.ndarray) -> np.ndarray:
        """Vectors that one input row of the tile's windows spans."""
        spans = (sizes[:, 1] - 1) * self.columns.stride + (self.columns.taps - 1) * self.columns.dilation + 1
        return spans * sizes[:, 2]

    def taken(self, sizes: np.ndarray) -> np.ndarray:
        taken = self.accumulators(sizes) + self._inputs(sizes) + 1
        longer = (sizes[:, 2] > 1) & (sizes[:, 2] * self.lanes > self.width)
        return np.where(longer, np.iinfo(np.int64).max, taken)

    def _loaded(self, sizes: np.ndarray) -> np.ndarray:
        high = (sizes[:, 0] - 1) * self.rows.stride + (self.rows.taps - 1) * self.rows.dilation + 1
        weights = self.taps * sizes[:, 2] if self.weights else 0
        return high * self._inputs(sizes) * (2 * self.lane_step - 1) + weights

    def loads(self, sizes: np.ndarray) -> np.ndarray:
        return self._loaded(sizes) / (self.taps * self.accumulators(sizes))

    def cycles(self, sizes: np.ndarray) -> np.ndarray:
        sums = self.accumulators(sizes)
        products = self.taps * sums / _busy(sums)
        every = np.maximum(products, self._loaded(sizes)) + sums
        return every / (self.taps * sums * _useful(self.extents, sizes))

    def ties(self, sizes: np.ndarray) -> tuple[np.ndarray, ...]:
        return sizes[:, 0], sizes[:, 2], sizes[:, 1]


@dataclass(frozen=True)
class Chains:
    """Rows along memory: `steps` vectors along the reduction; without `reuses` results share nothing that is loaded."""

    rows: int
    columns: int
    steps: int
    reuses: bool

    @property
    def extents(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.rows, self.columns, max(1, self.steps)

    def accumulators(self, sizes: np.ndarray) -> np.ndarray:
        return sizes.prod(axis=1)

    def taken(self, sizes: np.ndarray) -> np.ndarray:
        taken = self.accumulators(sizes) + sizes[:, :2].min(axis=1) + 2
        most = _MOST_SHARING if self.reuses else _MOST_ALONE
        beyond = (sizes[:, :2] > most).any(axis=1) | ((sizes[:, 2] > 1) & (sizes[:, 2] > self.steps))
        return np.where(beyond, np.iinfo(np.int64).max, taken)

    def loads(self, sizes: np.ndarray) -> np.ndarray:
        if not self.reuses:
            return np.ones(len(sizes))
        return sizes[:, :2].sum(axis=1) / sizes[:, :2].prod(axis=1)

    def cycles(self, sizes: np.ndarray) -> np.ndarray:
        useful = _useful(self.extents[:2], sizes[:, :2])
        return (1 + self.loads(sizes)) / (useful * _busy(self.accumulators(sizes)))

    def ties(self, sizes: np.ndarray) -> tuple[np.ndarray, ...]:
        return sizes[:, 2], self.accumulators(sizes), sizes[:, 0]


@dataclass(frozen=True)
class Steps:
    """Groups: neighbours along a row that share `taps` weights, each kept in a register."""

    steps: int
    taps: int

    @property
    def extents(self) -> tuple[int, ...]:  # type: ignore[override]
        return (self.steps,)

    def accumulators(self, sizes: np.ndarray) -> np.ndarray:
        return sizes[:, 0]

    def taken(self, sizes: np.ndarray) -> np.ndarray:
        return sizes[:, 0] + self.taps + 3

    def loads(self, sizes: np.ndarray) -> np.ndarray:
        return 1 + self.taps / sizes[:, 0]

    def cycles(self, sizes: np.ndarray) -> np.ndarray:
        return (1 + self.loads(sizes)) / (_useful(self.extents, sizes) * _busy(sizes[:, 0]))

    def ties(self, sizes: np.ndarray) -> tuple[np.ndarray, ...]:
        return (sizes[:, 0],)
