"""Contractions that dot products and tiles can compute: their loops, and what a target's instructions take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import dims, is_dim, map_dims, terms
from tilewright.compiler.families.cpu.dot_product import (
    DotLoops,
    DotProduct,
    grouped,
    is_grouped_in_memory,
    is_row_major,
)
from tilewright.compiler.families.cpu.reduction import Structure
from tilewright.compiler.ir import ir

TILE_ROWS = 16
"""Rows of an AMX tile, and columns of one of 32-bit sums."""


@dataclass(frozen=True)
class Dots:
    """A contraction that dot products can compute; `block` is that of a packed column operand, `strides` those of each
    operand in memory."""

    op: ir.Operation
    product: DotProduct
    loops: DotLoops
    maps: list[ir.AffineMap]
    extents: tuple[int, ...]
    parallel: tuple[int, ...]
    reduction: tuple[int, ...]
    block: int | None
    strides: tuple[tuple[int, ...], ...]

    @classmethod
    def read(cls, op: ir.Operation) -> Dots | None:
        """Reads a generic on static memrefs; None for anything that the instructions cannot compute."""
        structure = Structure.read(op)
        return cls.of(structure) if structure is not None else None

    @classmethod
    def of(cls, structure: Structure) -> Dots | None:
        """The same of a reduction that was read."""
        op = structure.op
        product = DotProduct.read(structure.body)
        if product is None:
            return None
        maps, extents = structure.maps, structure.extents
        loops = DotLoops.of(maps)
        if loops is None or not all(structure.unit_stride) or min(extents) < 1:
            return None
        column = maps[loops.column]
        block = grouped(column, loops, product.group)
        if block is not None and not is_grouped_in_memory(
            structure.shapes[loops.column], structure.strides[loops.column], product.group
        ):
            return None
        if block is None and (product.group != 2 or not is_row_major(column, loops)):
            return None
        if product.element == "i8" and (product.signed[loops.row] or not product.signed[loops.column]):
            return None
        return cls(
            op=op,
            product=product,
            loops=loops,
            maps=maps,
            extents=extents,
            parallel=structure.parallel,
            reduction=structure.reduction,
            block=block,
            strides=structure.strides,
        )

    def is_of(self, types: tuple[bool, bool]) -> bool:
        """Whether instructions for (bf16, bytes) multiply its elements."""
        return types[self.product.element == "i8"]

    @property
    def unrolled(self) -> int | None:
        """The loop to unroll: of those that the column operand does not follow."""
        column = map_dims(self.maps[self.loops.column])
        rows = [d for d in self.parallel if d != self.loops.vector]
        found = max(rows, key=lambda d: (d not in column, min(self.extents[d], 8), d), default=None)
        return found if found is not None and found not in column and self.extents[found] > 1 else None

    @property
    def innermost_last(self) -> tuple[int, ...]:
        """The loops of the reduction, that of groups last."""
        return (*(d for d in self.reduction if d != self.loops.depth), self.loops.depth)

    @property
    def steps(self) -> tuple[int, ...]:
        """Extents of the loops that blocks are cut of; none where groups do not lie along the innermost one."""
        if self.reduction != self.innermost_last:
            return ()
        return tuple(self.extents[d] for d in self.reduction)

    def in_groups(self, cut: tuple[int, int]) -> tuple[tuple[int, ...], tuple[int, int]]:
        """The same extents, and what blocks are cut into, in steps of loops of which the innermost takes a group at once."""
        *outer, depth = self.steps
        position, size = cut
        whole = position == len(outer)
        return (*outer, -(-depth // self.group)), (position, size // self.group if whole else size)

    @property
    def group(self) -> int:
        """Steps of the innermost loop that one instruction takes."""
        return self.product.group

    @property
    def alike(self) -> bool:
        """A last block of fewer steps needs no loops of its own."""
        return False

    def most(self) -> tuple[int, int]:
        """The largest sizes of a tile: beyond, it is what a smaller one is."""
        unrolled = self.unrolled
        return 1 if unrolled is None else self.extents[unrolled], self.extents[self.loops.vector]

    def accumulators(self, sizes: Sequence[int]) -> int:
        """Vector registers of at most 512 bits that the sums of a tile take."""
        return sizes[0] * -(-sizes[1] // 16)


@dataclass(frozen=True)
class DotTiles:
    """A contraction on the tiles of the matrix unit, which has no sizes; all blocks of its steps take the same chunks."""

    steps: tuple[int, ...]
    group: int
    alike: bool = True
    block: int | None = None

    @classmethod
    def of(cls, dots: Dots) -> DotTiles:
        """That of a contraction which fits tiles."""
        return cls(dots.steps, dots.group)

    def most(self) -> tuple[int, ...]:
        """No sizes."""
        return ()

    def accumulators(self, sizes: Sequence[int]) -> int:
        """They are tiles, no vectors."""
        return 0


_FEWEST_ROWS = 4
"""Rows, and columns of a block, from which tiles are worth their configuration: fewer leave most of a tile empty."""


def tiled_rows(dots: Dots) -> int | None:
    """The loop that makes the rows of tiles; None where a contraction does not fit tiles."""
    columns = dots.extents[dots.loops.vector]
    if dots.block is None or min(dots.block, columns) < _FEWEST_ROWS:
        return None
    if columns % dots.block and dots.block % columns:
        return None
    if dots.extents[dots.loops.depth] % dots.product.group:
        return None
    column, row = dots.maps[dots.loops.column], dots.maps[dots.loops.row]
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    if any(dynamic in strides for strides in dots.strides):
        return None
    candidates = [
        d
        for d in dots.parallel
        if d != dots.loops.vector
        and d not in map_dims(column)
        and dots.extents[d] >= _FEWEST_ROWS
        and _steps_evenly(row, d)
        and _steps_evenly(dots.maps[2], d)
    ]
    return max(candidates, key=lambda d: (min(dots.extents[d], 2 * TILE_ROWS), d), default=None)


def _steps_evenly(map_: ir.AffineMap, loop: int) -> bool:
    """Whether every step of `loop` moves an operand by the same distance."""
    moved = [term for expr in map_.results for term in terms(expr) if loop in dims(term)]
    return bool(moved) and all(
        is_dim(t) or (isinstance(t, ir.AffineMulExpr) and is_dim(t.lhs)) for t in moved
    )
