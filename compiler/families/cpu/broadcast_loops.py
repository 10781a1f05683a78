"""Reductions vectorised along the output: a register tile of accumulators, one operand broadcast, one loaded.

scf.for n0 step 32 { scf.for m0 step 12 {
  %acc:12 = scf.for k iter_args(12 x vector<32xf32>) {
    memref.prefetch B[k + 64, n0]                              // where the schedule says so
    %b = vector.load B[k, n0]
    %acc_t += broadcast(A[m0 + t, k]) * %b                   // t = 0 .. 11
  }
  vector.store %acc_t, C[m0 + t, n0]
} }

With blocks of steps all of this is in a loop over them, inside of loops that all operands follow, and results wait in memory for
the next block:

scf.for k0 step 256 { scf.for n0 step 32 { scf.for m0 step 12 {
  %acc_t = scf.if k0 == 0 { start } else { vector.load C[m0 + t, n0] }
  scf.for k = k0 to k0 + 256 { ... }
  scf.if k0 is the last { epilogue(%acc_t), stored } else { vector.store %acc_t, C[m0 + t, n0] }
} } }

Long sums are added up in parts, see `partial_sums.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import (
    dims,
    is_contiguous_along,
    is_dim,
    map_dims,
    packing,
    stride_along,
)
from tilewright.compiler.families.cpu.loop_nest import LoopNest, index
from tilewright.compiler.families.cpu.partial_sums import Parts
from tilewright.compiler.families.cpu.reduction import INDEX, Structure, loop_of, vectorize_body
from tilewright.compiler.families.cpu.step_blocks import Block, around_tiles, in_blocks
from tilewright.compiler.families.cpu.vector_epilogue import Store
from tilewright.compiler.ir import ir, memref, scf, vector
from tilewright.compiler.nouns.reduction_blocks import split
from tilewright.compiler.nouns.register_tiles import RegisterTile, register_count, register_pieces
from tilewright.compiler.nouns.schedule import Reduction

FEWEST_LANES = 4
LINE = 64
"""Bytes of a cache line."""
_MOST_STEPS = 4
"""Of a loop that is written out: as many as there are parts of a byte that a number can be."""
SECOND_LEVEL = 2
"""The locality of what is fetched into L2 and no nearer. Source: LLVM language reference, `llvm.prefetch`."""


@dataclass(frozen=True)
class Broadcast:
    """The loops of a reduction whose vectors run along its output: one to unroll, if there is one, and that of vectors.

    `block` is what an operand is packed in along the vector loop, None where none is. `steps` are the extents of the
    reduction's loops, `others` the steps of all further loops that a panel, what vectors are loaded of, does not follow.
    Blocks of them are of any number of steps.
    """

    unroll_dim: int | None
    vector_dim: int
    unroll_extent: int
    vector_extent: int
    block: int | None
    lanes: int
    steps: tuple[int, ...]
    followed: frozenset[int]
    others: int
    group: int = 1
    alike: bool = False

    @classmethod
    def read(cls, reduction: Structure, vector_bits: int) -> Broadcast | None:
        """None when the output cannot be vectorised: every input moves along it with unit stride or not at all."""
        output = reduction.maps[-1]
        if not reduction.plain or not reduction.counted.issubset(reduction.reduction):
            return None
        if not output.results or not is_dim(output.results[-1]):
            return None
        vector_dim = output.results[-1].position
        if len([r for r in output.results if vector_dim in dims(r)]) != 1:
            return None
        moving = [m for m in reduction.maps[:-1] if vector_dim in map_dims(m)]
        block = next((b for m in moving if (b := packing(m, vector_dim)) is not None), None)
        if not all(is_contiguous_along(m, vector_dim, block) for m in moving):
            return None
        extent = reduction.extents[vector_dim]
        if not moving or extent < FEWEST_LANES or not all(reduction.unit_stride):
            return None
        # The loop to unroll re-uses the most vector operands; ties go to the inner loop.
        candidates = [
            (sum(d not in map_dims(m) for m in moving), min(reduction.extents[d], 8), d)
            for d in reduction.parallel
            if d != vector_dim
        ]
        unroll_dim = max(candidates)[2] if candidates else None
        unroll_extent = reduction.extents[unroll_dim] if unroll_dim is not None else 1
        lanes = max(1, vector_bits // reduction.accumulator_bits)
        steps = tuple(reduction.extents[d] for d in reduction.reduction)
        followed = frozenset().union(*map(map_dims, moving))
        passing = (
            reduction.extents[d]
            for d in reduction.parallel
            if d not in (vector_dim, unroll_dim) and d not in followed
        )
        others = math.prod(passing)
        return cls(unroll_dim, vector_dim, unroll_extent, extent, block, lanes, steps, followed, others)

    def most(self) -> tuple[int, int]:
        """The largest sizes of a tile: beyond, it is what a smaller one is."""
        return self.unroll_extent, self.vector_extent

    def accumulators(self, sizes: Sequence[int]) -> int:
        """Vector registers that the sums of a tile take."""
        return sizes[0] * register_count(sizes[1], self.lanes)


Point = tuple[int, int, int]
"""One accumulator of a register tile: step of the unrolled loop, offset in the vector loop, lanes."""


class BroadcastLoops(LoopNest):
    """Writes the loops of one reduction, as a schedule says them, at the current insertion point."""

    def __init__(
        self,
        reduction: Structure,
        plan: Broadcast,
        said: Reduction,
        fill: ir.Value | None,
        store: Store | None = None,
        prefetch: int = 0,
    ):
        super().__init__(reduction.maps, reduction.extents)
        self.r, self.plan, self.fill, self.prefetch = reduction, plan, fill, prefetch
        self.tile, self.depth, self.order = RegisterTile(*said.sizes), said.depth, said.order
        self.operands = list(reduction.op.operands)
        self.finish = store
        self.block: Block | None = None
        self.parts = Parts.of(reduction, plan.steps)

    def _store(self, value: ir.Value, place: list[ir.Value]) -> None:
        vector.store(value, self.operands[-1], place)

    def emit(self) -> None:
        if not self.depth:
            self._tiles()
            return
        cut = split(self.plan.steps, self.depth)
        assert cut is not None, "blocks of no whole steps are refused"
        outer = around_tiles(self.r.parallel, self._tiled, None)
        in_blocks(self, outer, self.r.reduction, self.plan.steps, cut, self._tiles)

    @property
    def _tiled(self) -> tuple[int, int | None]:
        """The loops that a register tile steps along."""
        return self.plan.vector_dim, self.plan.unroll_dim

    def _tiles(self, block: Block | None = None) -> None:
        """The register tiles in their order."""
        self.block = block
        others = around_tiles(self.r.parallel, self._tiled, block)
        if self.order == "columns":
            self.nest(
                others, lambda: self._rows(lambda rows: self._columns(lambda width: self._tile(rows, width)))
            )
            return
        passing = [d for d in others if d not in self.plan.followed and self.order == "panels"]
        followed = [d for d in others if d not in passing]

        def panel(width: int) -> None:
            self.nest(passing, lambda: self._rows(lambda rows: self._tile(rows, width)))

        self.nest(followed, lambda: self._columns(panel))

    def _rows(self, body: Callable[[int], None]) -> None:
        self.segments(self.plan.unroll_dim, self.tile.unroll, body)

    def _columns(self, body: Callable[[int], None]) -> None:
        self.segments(self.plan.vector_dim, self.tile.vector, body)

    def _tile(self, count: int, width: int) -> None:
        element = ir.ShapedType(self.operands[-1].type).element_type
        points = [
            (t, offset, lanes)
            for t in range(count)
            for offset, lanes in register_pieces(width, self.plan.lanes)
        ]
        types = [ir.VectorType.get([lanes], element) for _, _, lanes in points]
        places = [self._address(len(self.maps) - 1, t, offset) for t, offset, _ in points]
        starts = self._starts(types, places)
        if self.block is not None:
            results = self._reduce_block(self.block, starts, points)
        elif self.parts is not None:
            results = self._reduce_parts(self.parts, starts, points)
        else:
            results = self._reduce(self.r.reduction, starts, points)
        self._finish(results, places)

    def _starts(self, types: list[ir.Type], places: list[list[ir.Value]]) -> list[ir.Value]:
        """What a register tile adds to: what is in memory, or the fill, of the first block only."""

        def loaded() -> list[ir.Value]:
            return [vector.load(type_, self.operands[-1], place) for type_, place in zip(types, places)]

        def filled() -> list[ir.Value]:
            return [vector.broadcast(type_, self.fill) for type_ in types]

        if self.fill is None:
            return loaded()
        if self.block is None:
            return filled()
        return self.block.starts(types, filled, loaded)

    def _finish(self, results: list[ir.Value], places: list[list[ir.Value]]) -> None:
        """Stores a register tile; the epilogue computes on it behind the last block."""

        def stored(store: Store) -> None:
            for value, place in zip(results, places):
                store(value, place)

        if self.finish is None or self.block is None:
            stored(self.finish or self._store)
            return
        branch = scf.IfOp(self.block.last, has_else=True)
        for block, store in ((branch.then_block, self.finish), (branch.else_block, self._store)):
            with ir.InsertionPoint(block):
                stored(store)
                scf.yield_([])

    def _reduce(
        self, loops: Sequence[int], accumulators: list[ir.Value], points: list[Point]
    ) -> list[ir.Value]:
        return self.reduce_nest(loops, accumulators, lambda inner: self._step(inner, points))

    def _reduce_parts(self, parts: Parts, starts: list[ir.Value], points: list[Point]) -> list[ir.Value]:
        """All steps, a part of them at a time."""
        *around, loop = self.r.reduction[: parts.position + 1]
        inside, extent = self.r.reduction[parts.position + 1 :], self.extents[loop]

        def part(totals: list[ir.Value], steps: int) -> list[ir.Value]:
            begin = self.ivs[loop]
            sums = self._from(loop, begin, index(steps), inside, parts.starts(totals), points)
            return parts.added(totals, sums)

        def all_parts(totals: list[ir.Value]) -> list[ir.Value]:
            full, rest = extent - extent % parts.size, extent % parts.size
            totals = self.reduce(loop, 0, full, parts.size, totals, lambda t: part(t, parts.size))
            return self.reduce(loop, full, extent, rest, totals, lambda t: part(t, rest))

        return self.reduce_nest(around, starts, all_parts)

    def _reduce_block(self, block: Block, starts: list[ir.Value], points: list[Point]) -> list[ir.Value]:
        """The steps of one block, which is a part of its own where there are parts."""
        inside = self.r.reduction[len(block.around) + 1 :]
        steps = block.steps()
        if self.parts is None:
            return self._from(block.loop, block.start, steps, inside, starts, points)
        sums = self._from(block.loop, block.start, steps, inside, self.parts.starts(starts), points)
        return self.parts.added(starts, sums)

    def _from(
        self,
        loop: int,
        start: ir.Value,
        steps: ir.Value,
        inside: Sequence[int],
        sums: list[ir.Value],
        points: list[Point],
    ) -> list[ir.Value]:
        """So many steps of a loop from where it starts, with all of the loops inside of it."""
        return self.counted(loop, start, steps, sums, lambda carried: self._reduce(inside, carried, points))

    def _step(self, accumulators: list[ir.Value], points: list[Point]) -> list[ir.Value]:
        """One step of the reduction; what does not change from one point of the tile to the next is loaded once."""
        body = self.r.body
        if self.prefetch:
            self._fetch_ahead(sum(lanes for t, _, lanes in points if t == 0))
        loaded: dict[tuple, ir.Value] = {}
        results = []
        for accumulator, (t, offset, lanes) in zip(accumulators, points):
            values = {}
            for i, map_ in enumerate(self.maps[:-1]):
                used = map_dims(map_)
                moves = self.plan.vector_dim in used
                key = (i, t if self.plan.unroll_dim in used else 0, offset if moves else 0, lanes)
                scalar = (*key[:2], "scalar")
                if key not in loaded:
                    type_ = ir.VectorType.get([lanes], ir.ShapedType(self.operands[i].type).element_type)
                    if moves:
                        loaded[key] = vector.load(type_, self.operands[i], self._address(i, t, offset))
                    else:
                        if scalar not in loaded:
                            loaded[scalar] = memref.load(self.operands[i], self._address(i, t, 0))
                        loaded[key] = vector.broadcast(type_, loaded[scalar])
                values[body.arguments[i]] = loaded[key]
            values[body.arguments[len(self.maps) - 1]] = accumulator
            values |= self._numbers(lanes)
            results.append(vectorize_body(body, values, lanes)[0])
        return results

    def _numbers(self, lanes: int) -> dict[ir.Value, ir.Value]:
        """The numbers of loops that the body reads, as vectors."""
        type_ = ir.VectorType.get([lanes], ir.IndexType.get())
        found = [view.operation for view in self.r.body.operations if view.operation.name == INDEX]
        return {op.results[0]: vector.broadcast(type_, self.ivs[loop_of(op)]) for op in found}

    def reduce_nest(
        self, loops: Sequence[int], carried: list[ir.Value], body: Callable[[list[ir.Value]], list[ir.Value]]
    ) -> list[ir.Value]:
        """Whole loops of step 1; of a short one whose number the body reads all steps, which are constants then."""
        if not loops or loops[0] not in self.r.counted or self.extents[loops[0]] > _MOST_STEPS:
            return super().reduce_nest(loops, carried, body)
        for step in range(self.extents[loops[0]]):
            self.ivs[loops[0]] = index(step)
            carried = self.reduce_nest(loops[1:], carried, body)
        return carried

    def _fetch_ahead(self, width: int) -> None:
        """Asks for the lines of the panels that are loaded `prefetch` bytes further on."""
        # Not along a loop whose number is read: what a panel holds for all of its steps is one element.
        inner = next((d for d in reversed(self.r.reduction) if d not in self.r.counted), self.r.reduction[-1])
        for i, map_ in enumerate(self.maps[:-1]):
            if self.plan.vector_dim not in map_dims(map_):
                continue
            bytes_ = self.r.element_bits[i] // 8
            step = stride_along(map_, inner, self.r.strides[i]) * bytes_
            for offset in range(0, width, LINE // bytes_) if step else ():
                moved = {inner: max(1, self.prefetch // step), self.plan.vector_dim: offset}
                memref.prefetch(self.operands[i], self.address(i, moved), False, SECOND_LEVEL, True)

    def _address(self, operand: int, t: int, offset: int) -> list[ir.Value]:
        moved = {self.plan.vector_dim: offset}
        if self.plan.unroll_dim is not None:
            moved[self.plan.unroll_dim] = t
        return self.address(operand, moved)
