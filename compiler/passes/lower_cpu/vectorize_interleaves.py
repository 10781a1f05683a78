"""Writes operands of dot products in groups, several registers at a time.

    linalg.generic (a, q, c, e) %p[a, q, c, e] = %w[q, e, a, c]         // memrefs, e < 2
      =>
    scf.for a, q { scf.for c0 step 32 {
      %r0, %r1 = vector.load %w[q, 0, a, c0], %w[q, 1, a, c0]          // two rows
      vector.store interleave(%r0, %r1), %p[a, q, c0, 0]
    } }

Where the groups lie together in the source already, `%p[a, q, c, e] = %w[a, c, q, e]`, they are words, blocks of which
are transposed in registers. The loops over pairs or quads that LLVM would make of either write two bytes at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.affine_access import is_contiguous_along, is_dim, map_dims
from tilewright.compiler.families.cpu.dot_product import flattened, interleaved
from tilewright.compiler.families.cpu.loop_nest import LoopNest, index
from tilewright.compiler.families.cpu.reduction import Structure, vectorize_body
from tilewright.compiler.ir import arith, ir, vector, walk
from tilewright.compiler.nouns.register_tiles import power_below
from tilewright.compiler.passes.lower_cpu.vectorize_transposes import transposed
from tilewright.compiler.pipeline.pass_base import Pass

_GROUPS = (2, 4)


@dataclass(frozen=True)
class VectorizeInterleaves(Pass):
    """Rewrites element-wise operations on memrefs that read one operand, with vectors of `vector_bits`."""

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            structure = Structure.read(generic)
            plan = None if structure is None else InterleavePlan.of(structure)
            if structure is not None and plan is not None:
                with ir.InsertionPoint(generic), generic.location:
                    _Groups(structure, plan, self.vector_bits).emit()
                generic.erase()


@dataclass(frozen=True)
class InterleavePlan:
    """`group` is the loop over the members of a group, `column` the one over the groups beside each other in the
    result; where the members lie together in the source, `along` is the one over groups beside each other there."""

    column: int
    group: int
    along: int | None

    @classmethod
    def of(cls, s: Structure) -> InterleavePlan | None:
        """The loops of an interleaving copy; None for any other operation."""
        if s.reduction or len(s.maps) != 2 or not s.vectorizable or not all(s.unit_stride):
            return None
        source, result = s.maps
        if len(result.results) < 2 or not all(is_dim(expr) for expr in result.results):
            return None
        column, group = (expr.position for expr in list(result.results)[-2:])
        bits = s.element_bits
        if s.extents[group] not in _GROUPS or bits[0] > 16 or bits[1] * s.extents[group] != 32:
            return None
        if list(s.body.arguments[1].uses) or not {column, group} <= map_dims(source):
            return None
        if not _is_dense(s.op.operands[1].type):
            return None
        if is_contiguous_along(source, column):
            return cls(column, group, None)
        if len(source.results) < 2 or not is_dim(source.results[-1], group) or not is_dim(source.results[-2]):
            return None
        along = source.results[-2].position
        return cls(column, group, along) if along != column and _is_dense(s.op.operands[0].type) else None


def _is_dense(type_: ir.MemRefType) -> bool:
    """Whether the last two dimensions lie together."""
    strides, _ = type_.get_strides_and_offset()
    return strides[-2] == type_.shape[-1] and strides[-1] == 1


class _Groups(LoopNest):
    """Writes the loops of one copy at the current insertion point."""

    def __init__(self, structure: Structure, plan: InterleavePlan, vector_bits: int):
        super().__init__(structure.maps, structure.extents)
        self.s, self.plan = structure, plan
        self.lanes = vector_bits // structure.element_bits[1]
        self.source, self.result = structure.op.operands
        self.flat = flattened(self.result, structure.extents[plan.group])
        self.words = (
            self.source if plan.along is None else flattened(self.source, structure.extents[plan.group])
        )

    def emit(self) -> None:
        plan = self.plan
        outer = [d for d in range(len(self.extents)) if d not in (plan.column, plan.group, plan.along)]
        self.ivs[plan.group] = self.zero
        if plan.along is None:
            self.nest(outer, lambda: self.segments(plan.column, self.lanes, self._rows))
            return
        along, group = plan.along, self.extents[plan.group]
        width, height = (power_below(min(self.lanes // group, self.extents[d])) for d in (plan.column, along))

        def blocks() -> None:
            self.overlapping(plan.column, width, lambda: self._words(along, width, height))

        self.nest(outer, lambda: self.overlapping(along, height, blocks))

    def _words(self, along: int, width: int, height: int) -> None:
        """A block of `width` columns of `height` words each."""
        plan, group = self.plan, self.extents[self.plan.group]
        words = ir.VectorType.get([height], ir.IntegerType.get_signless(32))
        element = ir.ShapedType(self.source.type).element_type
        loaded = []
        for column in range(width):
            *outer, word, _ = self.address(0, {plan.column: column} if column else {})
            place = [*outer, arith.muli(word, index(group))]
            value = vector.load(ir.VectorType.get([height * group], element), self.words, place)
            loaded.append(vector.bitcast(words, self._computed(value, height * group)))
        result = ir.ShapedType(self.result.type).element_type
        for row, value in enumerate(transposed(loaded, height)):
            *outer, column, _ = self.address(1, {along: row} if row else {})
            groups = vector.bitcast(ir.VectorType.get([width * group], result), value)
            vector.store(groups, self.flat, [*outer, arith.muli(column, index(group))])

    def _rows(self, count: int) -> None:
        group = self.extents[self.plan.group]
        rows = [self._computed(self._load(t, count), count) for t in range(group)]
        *outer, column, _ = self.address(1, {})
        vector.store(interleaved(rows), self.flat, [*outer, arith.muli(column, index(group))])

    def _load(self, member: int, count: int) -> ir.Value:
        element = ir.ShapedType(self.source.type).element_type
        place = self.address(0, {self.plan.group: member} if member else {})
        return vector.load(ir.VectorType.get([count], element), self.source, place)

    def _computed(self, value: ir.Value, count: int) -> ir.Value:
        return vectorize_body(self.s.body, {self.s.body.arguments[0]: value}, count)[0]
