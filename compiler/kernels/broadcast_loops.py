"""Reductions vectorised along the output: a register tile of accumulators, one operand broadcast, one loaded.

scf.for n0 step 32 { scf.for m0 step 12 {
  %acc:12 = scf.for k iter_args(12 x vector<32xf32>) {
    %b = vector.load B[k, n0]
    %acc_t += broadcast(A[m0 + t, k]) * %b                   // t = 0 .. 11
  }
  vector.store %acc_t, C[m0 + t, n0]
} }
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.affine_access import map_dims
from tilewright.compiler.ir import ir, memref, vector
from tilewright.compiler.kernels.loop_nest import LoopNest
from tilewright.compiler.kernels.reduction import Structure, vectorize_body
from tilewright.compiler.kernels.vector_epilogue import Store
from tilewright.compiler.tuning.register_tile import register_pieces


@dataclass(frozen=True)
class BroadcastPlan:
    """Which loops are kept in registers, and by how much."""

    unroll_dim: int | None
    vector_dim: int
    unroll: int
    vector: int
    lanes: int


Point = tuple[int, int, int]
"""One accumulator of a register tile: step of the unrolled loop, offset in the vector loop, lanes."""


class BroadcastLoops(LoopNest):
    """Writes the loops of one reduction at the current insertion point."""

    def __init__(
        self, reduction: Structure, plan: BroadcastPlan, fill: ir.Value | None, store: Store | None = None
    ):
        super().__init__(reduction.maps, reduction.extents)
        self.r, self.plan, self.fill = reduction, plan, fill
        self.operands = list(reduction.op.operands)
        self.store = store or (lambda value, place: vector.store(value, self.operands[-1], place))

    def emit(self) -> None:
        tiled = {self.plan.vector_dim, self.plan.unroll_dim}
        self.nest([d for d in self.r.parallel if d not in tiled], self._vector_tiles)

    def _vector_tiles(self) -> None:
        def unrolled(width: int) -> None:
            self.segments(self.plan.unroll_dim, self.plan.unroll, lambda count: self._tile(count, width))

        self.segments(self.plan.vector_dim, self.plan.vector, unrolled)

    def _tile(self, count: int, width: int) -> None:
        element = ir.ShapedType(self.operands[-1].type).element_type
        points = [
            (t, offset, lanes)
            for t in range(count)
            for offset, lanes in register_pieces(width, self.plan.lanes)
        ]
        types = [ir.VectorType.get([lanes], element) for _, _, lanes in points]
        places = [self._address(len(self.maps) - 1, t, offset) for t, offset, _ in points]
        if self.fill is None:
            starts = [vector.load(type_, self.operands[-1], place) for type_, place in zip(types, places)]
        else:
            starts = [vector.broadcast(type_, self.fill) for type_ in types]
        results = self._reduce(list(self.r.reduction), starts, points)
        for place, value in zip(places, results):
            self.store(value, place)

    def _reduce(self, loops: list[int], accumulators: list[ir.Value], points: list[Point]) -> list[ir.Value]:
        if not loops:
            return self._step(accumulators, points)
        return self.reduce(
            loops[0],
            0,
            self.extents[loops[0]],
            1,
            accumulators,
            lambda inner: self._reduce(loops[1:], inner, points),
        )

    def _step(self, accumulators: list[ir.Value], points: list[Point]) -> list[ir.Value]:
        """One step of the reduction; what does not change from one point of the tile to the next is loaded once."""
        body = self.r.body
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
            results.append(vectorize_body(body, values, lanes)[0])
        return results

    def _address(self, operand: int, t: int, offset: int) -> list[ir.Value]:
        moved = {self.plan.vector_dim: offset}
        if self.plan.unroll_dim is not None:
            moved[self.plan.unroll_dim] = t
        return self.address(operand, moved)
