"""rTiles: the tile shape over all axes of a workload, its storage padding, and the data tiles that it implies.

A tile [4, 4, 2] of `C[i, j] += A[i, k] * B[k, j]` loads A[4, 2] and B[2, 4], and stores C[4, 4]
(Roller, OSDI'22, §3.1, Figures 3 and 4). `TileGeometry` infers the same for arrays of many tiles at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.compiler.nouns.workload import Operand, Workload


class TileGeometry:
    """Data tiles of all operands of one workload, for arrays of tiles [n, axes], through the index maps.

    Columns of results are operands in the workload's order, or the dimensions of all operands one after another.
    """

    def __init__(self, workload: Workload):
        self.workload = workload
        self.extents = np.asarray(workload.extents, dtype=np.int64)
        terms: list[tuple[int, int, int, int, int]] = []
        shape: list[int] = []
        self.slices: list[slice] = []
        for operand in workload.operands:
            start = len(shape)
            for index, extent in zip(operand.index_map, operand.shape):
                for term in index.terms:
                    terms.append((term.variable, abs(term.scale), term.divisor, term.modulus, len(shape)))
                shape.append(extent)
            self.slices.append(slice(start, len(shape)))
        table = np.asarray(terms, dtype=np.int64).reshape(-1, 5)
        self._axis, scale, divisor, modulus, dim = table.T
        self._divisor = divisor if (divisor > 1).any() else None
        self._limit = np.where(modulus > 0, modulus, np.iinfo(np.int64).max) if (modulus > 0).any() else None
        self._weights = np.zeros((len(terms), len(shape)), dtype=np.int64)
        self._weights[np.arange(len(terms)), dim] = scale
        self.shape = np.asarray(shape, dtype=np.int64)
        # One call for all operands; scalars have no dimension to start at.
        whole = all(part.stop > part.start for part in self.slices)
        self._starts = np.asarray([part.start for part in self.slices]) if whole else None
        self.element_bytes = np.asarray([o.element_bytes for o in workload.operands], dtype=np.int64)
        self.is_output = np.asarray([o.output for o in workload.operands])
        self.moves = np.zeros((len(workload.operands), len(workload.axes)), dtype=bool)
        for row, operand in enumerate(workload.operands):
            self.moves[row, list(operand.axes)] = True

    def spans(self, tiles: np.ndarray) -> np.ndarray:
        """Extents of every dimension of every operand's data tile: [n, all dimensions], clipped to the shapes."""
        steps = tiles[:, self._axis]
        if self._divisor is not None:
            steps = -(-steps // self._divisor)
        if self._limit is not None:
            steps = np.minimum(steps, self._limit)
        return np.minimum((steps - 1) @ self._weights + 1, self.shape)

    def elements(self, tiles: np.ndarray) -> np.ndarray:
        """Elements of every operand's data tile: [n, operands]."""
        spans = self.spans(tiles)
        if self._starts is not None:
            return np.multiply.reduceat(spans, self._starts, axis=1)
        return np.stack([spans[:, part].prod(axis=1) for part in self.slices], axis=1)

    def nbytes(self, tiles: np.ndarray) -> np.ndarray:
        """Bytes of every operand's data tile: [n, operands]."""
        return self.elements(tiles) * self.element_bytes


def innermost_axes(operand: Operand, workload: Workload) -> tuple[int, ...]:
    """The axes that move `operand` along its innermost dimension that anything moves along."""
    for index, extent in zip(reversed(operand.index_map), reversed(operand.shape)):
        found = tuple(t.variable for t in index.terms if workload.extents[t.variable] > 1)
        if found or extent > 1:
            return found
    return ()


def unit_stride_axis(operand: Operand, workload: Workload) -> int | None:
    """The axis that walks `operand` contiguously, or None: of its innermost axes one of scale 1, a parallel one first."""
    innermost = innermost_axes(operand, workload)
    terms = [t for index in operand.index_map for t in index.terms if t.variable in innermost]
    unit = [t.variable for t in terms if t.scale == 1 and t.divisor == 1]
    parallel = [axis for axis in unit if workload.axes[axis].kind == "parallel"]
    return (parallel or unit or [None])[0]


@dataclass(frozen=True)
class RTile:
    """A tile of a workload: `shape[a]` steps of axis `a`, and the elements padded to stored input tiles.

    `storage_padding` holds one tuple per input, one number per dimension of its data tile; empty means none.
    """

    workload: Workload
    shape: tuple[int, ...]
    storage_padding: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.workload.axes):
            raise ValueError(
                f"a tile of {self.workload.op} needs {len(self.workload.axes)} sizes, found {self.shape}"
            )

    @cached_property
    def _spans(self) -> tuple[tuple[int, ...], ...]:
        geometry = TileGeometry(self.workload)
        spans = geometry.spans(np.asarray([self.shape], dtype=np.int64))[0]
        return tuple(tuple(int(s) for s in spans[part]) for part in geometry.slices)

    @property
    def input_tiles(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the data tiles that computing the tile reads, one per input."""
        return tuple(s for s, o in zip(self._spans, self.workload.operands) if not o.output)

    @property
    def output_tile(self) -> tuple[int, ...]:
        """The shape of the data tile that computing the tile writes."""
        return next(s for s, o in zip(self._spans, self.workload.operands) if o.output)

    @property
    def stored_bytes(self) -> int:
        """Bytes that the input tiles take with their padding."""
        padding = self.storage_padding or tuple((0,) * len(s) for s in self.input_tiles)
        return sum(
            math.prod(size + pad for size, pad in zip(shape, pads)) * operand.element_bytes
            for shape, pads, operand in zip(self.input_tiles, padding, self.workload.inputs)
        )
