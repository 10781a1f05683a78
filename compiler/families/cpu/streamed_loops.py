"""Element-wise loops whose results are stored past the caches, whole lines at a time, without reading them first.

scf.for m {                                                   // y[m, n] = x[m, n] * s[m]
  if y[m, 0] is not aligned { vector.store the first 16 elements }
  scf.for n from the first aligned element, step 16 {
    vector.store %x * %s, y[m, n] {nontemporal, alignment = 64}
  }
  if elements are left { vector.store the last 16 elements }
}

An ordinary store reads its cache line first: a copy of 64 MiB moves 3 bytes for every 2 that count. A fence has to
order such stores before the word that tells other threads that rTasks are done. The kernel's entry has it, behind the last
of them: with one behind each, a core waits for memory as often.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import dims, is_contiguous_along, is_dim, map_dims
from tilewright.compiler.families.cpu.loop_nest import LoopNest, index
from tilewright.compiler.families.cpu.reduction import Structure, vectorize_body
from tilewright.compiler.ir import affine, arith, ir, memref, scf, vector

FEWEST_VECTORS = 16
"""Vectors of a row from which a loop with aligned stores pays for its first and last vector being stored twice."""


@dataclass(frozen=True)
class Streamed:
    """The loops of an element-wise operation along `inner`, the innermost dimension of its result, in vectors of `lanes`."""

    inner: int
    lanes: int

    @classmethod
    def read(cls, s: Structure, vector_bits: int) -> Streamed | None:
        """None where something is reduced or read back, results are no dense rows of `FEWEST_VECTORS` vectors or more,
        or an input moves along them in steps."""
        output = s.maps[-1]
        if s.reduction or not s.vectorizable or not output.results or list(list(s.body.arguments)[-1].uses):
            return None
        if not all(is_dim(e) for e in output.results) or len(map_dims(output)) != len(s.extents):
            return None
        inner = output.results[-1].position
        lanes = vector_bits // s.accumulator_bits
        for map_, unit in zip(s.maps, s.unit_stride):
            moves = inner in map_dims(map_)
            if moves and not (unit and is_contiguous_along(map_, inner) and inner in dims(map_.results[-1])):
                return None
        return cls(inner, lanes) if s.extents[inner] >= FEWEST_VECTORS * lanes else None


class StreamedLoops(LoopNest):
    """Writes the loops at the current insertion point."""

    def __init__(self, s: Structure, plan: Streamed, vector_bits: int):
        super().__init__(s.maps, s.extents)
        self.s, self.plan, self.vector_bytes = s, plan, vector_bits // 8
        self.operands = list(s.op.operands)
        self.item = s.accumulator_bits // 8

    def emit(self) -> None:
        metadata = memref.ExtractStridedMetadataOp(self.operands[-1])
        pointer = memref.extract_aligned_pointer_as_index(self.operands[-1])
        start = arith.addi(pointer, arith.muli(metadata.offset, index(self.item)))
        self.nest([d for d in range(len(self.extents)) if d != self.plan.inner], lambda: self._row(start))

    def _row(self, start: ir.Value) -> None:
        lanes, extent = self.plan.lanes, self.extents[self.plan.inner]
        self.ivs[self.plan.inner] = self.zero
        place = self.address(len(self.maps) - 1, {})
        strides = self.s.strides[-1]
        moved = sum(
            (ir.AffineExpr.get_dim(d) * (stride * self.item) for d, stride in enumerate(strides)),
            ir.AffineExpr.get_constant(0),
        )
        at = arith.addi(start, affine.apply(ir.AffineMap.get(len(strides), 0, [moved]), place))
        beyond = arith.andi(at, index(self.vector_bytes - 1))
        missing = arith.andi(arith.subi(index(self.vector_bytes), beyond), index(self.vector_bytes - 1))
        first = arith.divui(missing, index(self.item))
        left = arith.remui(arith.subi(index(extent), first), index(lanes))
        self._where(first, lambda: self._store(self.zero))
        loop = scf.ForOp(first, index(extent - lanes + 1), index(lanes))
        with ir.InsertionPoint(loop.body):
            self._store(loop.induction_variable, nontemporal=True, alignment=self.vector_bytes)
            scf.yield_([])
        self._where(left, lambda: self._store(index(extent - lanes)))

    @staticmethod
    def _where(count: ir.Value, body: Callable[[], None]) -> None:
        """Writes `body` for a count that is not zero."""
        branch = scf.IfOp(arith.cmpi(arith.CmpIPredicate.ne, count, index(0)))
        with ir.InsertionPoint(branch.then_block):
            body()
            scf.yield_([])

    def _store(self, at: ir.Value, **streaming) -> None:
        self.ivs[self.plan.inner] = at
        values = {}
        for i, argument in enumerate(list(self.s.body.arguments)[:-1]):
            type_ = ir.VectorType.get([self.plan.lanes], ir.ShapedType(self.operands[i].type).element_type)
            place = self.address(i, {})
            if self.plan.inner in map_dims(self.maps[i]):
                values[argument] = vector.load(type_, self.operands[i], place)
            else:
                values[argument] = vector.broadcast(type_, memref.load(self.operands[i], place))
        (result,) = vectorize_body(self.s.body, values, self.plan.lanes)
        vector.store(result, self.operands[-1], self.address(len(self.maps) - 1, {}), **streaming)
