"""A `Workload` is one dispatch as schedulers see it: axes with extents, operands with index maps, no IR.

Matrix multiplication, `C[i, j] += A[i, k] * B[k, j]`, has the axes i, j (parallel) and k (reduction), and the operands
A, B and C. It is what Roller calls a tensor expression (OSDI'22, §3.1). Everything that asks how much data a tile
touches is a function of a workload and an array of many tiles at once.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Literal

import numpy as np

Kind = Literal["parallel", "reduction"]

BITS = {
    "f64": 64, "i64": 64, "f32": 32, "i32": 32, "tf32": 32, "f16": 16, "bf16": 16, "i16": 16, "i8": 8, "f8": 8, "i1": 8,
}  # fmt: skip
"""Bits that an element takes in memory; booleans are bytes."""


@dataclass(frozen=True)
class Axis:
    """One loop of the iteration space."""

    name: str
    extent: int
    kind: Kind = "parallel"


@dataclass(frozen=True)
class Term:
    """`scale * ((i // divisor) % modulus)` of the loop variable `i` of one axis; modulus 0 takes no remainder."""

    axis: int
    scale: int = 1
    divisor: int = 1
    modulus: int = 0


@dataclass(frozen=True)
class Index:
    """One dimension of an operand's index map: a sum of terms; no terms index a constant position."""

    terms: tuple[Term, ...] = ()
    offset: int = 0

    def spans(self, tiles: np.ndarray) -> np.ndarray:
        """How many consecutive positions the dimension covers for `tiles` [n, axes]: [n], before clipping to the shape.

        A tile is taken to start at a multiple of itself, so that blocks of a packed dimension are covered once.
        """
        total = np.ones(len(tiles), dtype=np.int64)
        for term in self.terms:
            steps = -(-tiles[:, term.axis] // term.divisor)
            if term.modulus:
                steps = np.minimum(steps, term.modulus)
            total += abs(term.scale) * (steps - 1)
        return total


@dataclass(frozen=True)
class Operand:
    """A tensor that the workload reads, or the one that it writes; `index_map` has one `Index` per dimension."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    index_map: tuple[Index, ...]
    output: bool = False

    @property
    def element_bytes(self) -> int:
        return BITS[self.dtype] // 8

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.element_bytes

    @cached_property
    def axes(self) -> frozenset[int]:
        """The axes that the operand moves along."""
        return frozenset(term.axis for index in self.index_map for term in index.terms)

    def tile_shape(self, tiles: np.ndarray) -> np.ndarray:
        """The data tiles that computing `tiles` [n, axes] touches: [n, rank] elements."""
        if not self.index_map:
            return np.ones((len(tiles), 0), dtype=np.int64)
        spans = np.stack([index.spans(tiles) for index in self.index_map], axis=1)
        return np.minimum(spans, np.asarray(self.shape, dtype=np.int64))

    def tile_bytes(self, tiles: np.ndarray) -> np.ndarray:
        """Bytes of the data tile of each of `tiles` [n, axes]: [n]."""
        return self.tile_shape(tiles).prod(axis=1) * self.element_bytes


@dataclass(frozen=True)
class Workload:
    """What one dispatch computes; parallel axes are those of the result, in its order.

    `flops_per_point` counts the arithmetic of one point of the whole iteration space, a multiply-add as two;
    `epilogue_flops` that of one element of the result, once all reductions are done. Operands of a fused epilogue
    index with parallel axes only.
    """

    op: str
    axes: tuple[Axis, ...]
    operands: tuple[Operand, ...]
    flops_per_point: float = 2.0
    epilogue_flops: float = 0.0

    def __post_init__(self) -> None:
        names = [axis.name for axis in self.axes]
        if len(set(names)) != len(names):
            raise ValueError(f"workload `{self.op}`: axes share a name: {', '.join(names)}")
        if sum(operand.output for operand in self.operands) != 1:
            raise ValueError(f"workload `{self.op}`: expected one output, found {self.operands}")
        for operand in self.operands:
            if len(operand.index_map) != len(operand.shape):
                raise ValueError(
                    f"workload `{self.op}`, operand `{operand.name}`: {len(operand.index_map)} indices for a shape of "
                    f"rank {len(operand.shape)}"
                )
            if operand.axes and max(operand.axes) >= len(self.axes):
                raise ValueError(
                    f"workload `{self.op}`, operand `{operand.name}`: indexes an axis that is not there"
                )

    @cached_property
    def extents(self) -> tuple[int, ...]:
        return tuple(axis.extent for axis in self.axes)

    @cached_property
    def parallel(self) -> tuple[int, ...]:
        return tuple(i for i, axis in enumerate(self.axes) if axis.kind == "parallel")

    @cached_property
    def reduction(self) -> tuple[int, ...]:
        return tuple(i for i, axis in enumerate(self.axes) if axis.kind == "reduction")

    @property
    def inputs(self) -> tuple[Operand, ...]:
        return tuple(operand for operand in self.operands if not operand.output)

    @property
    def output(self) -> Operand:
        return next(operand for operand in self.operands if operand.output)

    @property
    def flops(self) -> float:
        return (
            math.prod(self.extents) * self.flops_per_point
            + math.prod(self.extents[i] for i in self.parallel) * self.epilogue_flops
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all operands: the least that can move."""
        return sum(operand.nbytes for operand in self.operands)

    @cached_property
    def key(self) -> str:
        """A hash of the structure: equal for equal work, whatever operands and axes are called."""
        structure = {
            "axes": [(axis.extent, axis.kind) for axis in self.axes],
            "operands": [
                (o.shape, o.dtype, [asdict(index) for index in o.index_map], o.output) for o in self.operands
            ],
            "flops": (self.flops_per_point, self.epilogue_flops),
            "op": self.op,
        }
        return hashlib.sha256(json.dumps(structure, sort_keys=True).encode()).hexdigest()
