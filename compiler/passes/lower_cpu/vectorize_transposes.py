"""Moves square blocks through registers where an element-wise operation reads along one loop and writes along another.

    linalg.generic (i, j) %y[i, j] = f(%x[j, i], %z[i, j])       // memrefs

becomes

    scf.for i0 step 16 { scf.for j0 step 16 {
      %in_j = vector.load %x[j0 + j, i0]                         // 16 vectors along i
      %t_i = the transpose of %in                                // 4 rounds of 16 shuffles
      vector.store f(%t_i, vector.load %z[i0 + i, j0]), %y[i0 + i, j0]
    } }

so that every cache line is read and written whole. Loops that lie side by side in all operands count as one. Scalar loops, which is what LLVM makes of such an operation,
gather one element per load. A last block that does not fit is moved back and overlaps the one before; both write the
same values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.affine_access import dims, is_contiguous_along, is_dim, map_dims, packing
from tilewright.compiler.families.cpu.joined_loops import Joined
from tilewright.compiler.families.cpu.loop_nest import LoopNest
from tilewright.compiler.families.cpu.reduction import Structure, vectorize_body
from tilewright.compiler.families.cpu.vector_memory import memory_of
from tilewright.compiler.ir import ir, memref, vector, walk
from tilewright.compiler.nouns.register_tiles import power_below
from tilewright.compiler.pipeline.pass_base import Pass

_LEAST_BLOCK = 4


@dataclass(frozen=True)
class VectorizeTransposes(Pass):
    """Transposes in blocks as wide as a vector of `vector_bits`."""

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            structure = Structure.read(generic)
            if structure is None or structure.reduction or _reads_result(structure):
                continue
            joined = Joined.of(structure)
            plan = self.plan(joined.structure)
            if plan is not None:
                with ir.InsertionPoint(generic), generic.location:
                    _Blocks(joined.structure, plan, joined.operands()).emit()
                generic.erase()

    def plan(self, structure: Structure) -> TransposePlan | None:
        """The two loops of the transpose, None when there is none or an operand fits neither."""
        output = structure.maps[-1]
        if not structure.vectorizable or not structure.unit_stride[-1]:
            return None
        if not len(output.results) or not is_dim(output.results[-1]):
            return None
        column = output.results[-1].position
        inputs = list(zip(structure.maps[:-1], structure.unit_stride))
        rows = {
            map_.results[-1].position
            for map_, unit in inputs
            if column in map_dims(map_) and unit and is_dim(map_.results[-1])
        } - {column}
        if len(rows) != 1 or sum(column in dims(expr) for expr in output.results) != 1:
            return None
        (row,) = rows
        if not _is_plain(output, row):
            return None
        for map_, unit in inputs:
            along_row, along_column = (d in map_dims(map_) for d in (row, column))
            if along_column and not (
                unit
                and _is_plain(map_, column)
                and (is_contiguous_along(map_, column) or is_contiguous_along(map_, row))
                and (not along_row or _is_plain(map_, row))
            ):
                return None
        lanes = self.vector_bits // max(32, *structure.element_bits)
        sizes = [min(lanes, power_below(structure.extents[d])) for d in (row, column)]
        return TransposePlan(row, column, *sizes) if min(sizes) >= _LEAST_BLOCK else None


@dataclass(frozen=True)
class TransposePlan:
    """Blocks of `rows` x `columns`, powers of two, of the loops `row` and `column`; the result lies along `column`."""

    row: int
    column: int
    rows: int
    columns: int


def _is_plain(map_: ir.AffineMap, loop: int) -> bool:
    """Whether a step along `loop` moves an operand by a constant."""
    return packing(map_, loop) is None and all(
        is_dim(expr) or isinstance(expr, ir.AffineAddExpr) for expr in map_.results if loop in dims(expr)
    )


def _reads_result(structure: Structure) -> bool:
    """Whether a block computed twice could differ: the body reads the result, or an input shares its memory."""
    *inputs, output = list(structure.op.operands)
    *_, accumulator = structure.body.arguments
    return bool(list(accumulator.uses)) or any(memory_of(value) == memory_of(output) for value in inputs)


class _Blocks(LoopNest):
    """Writes the loops of one transposing operation at the current insertion point."""

    def __init__(self, structure: Structure, plan: TransposePlan, operands: list[ir.Value]):
        super().__init__(structure.maps, structure.extents)
        self.s, self.plan, self.operands = structure, plan, operands

    def emit(self) -> None:
        plan = self.plan

        def blocks() -> None:
            self.overlapping(
                plan.row, plan.rows, lambda: self.overlapping(plan.column, plan.columns, self._block)
            )

        self.nest([d for d in range(len(self.extents)) if d not in (plan.row, plan.column)], blocks)

    def _block(self) -> None:
        plan, body = self.plan, self.s.body
        loaded = [self._load(i) for i in range(len(self.maps) - 1)]
        for t in range(plan.rows):
            values = {body.arguments[i]: vectors[t] for i, vectors in enumerate(loaded)}
            (result,) = vectorize_body(body, values, plan.columns)
            vector.store(result, self.operands[-1], self.address(len(self.maps) - 1, {plan.row: t}))

    def _load(self, operand: int) -> list[ir.Value]:
        """The operand's part of the block: one vector along the columns for each row."""
        plan, map_, value = self.plan, self.maps[operand], self.operands[operand]
        element = ir.ShapedType(value.type).element_type
        used = map_dims(map_)
        wide = ir.VectorType.get([plan.columns], element)

        def address(row: int, column: int) -> list[ir.Value]:
            moved = {plan.row: row, plan.column: column}
            return self.address(operand, {d: step for d, step in moved.items() if d in used and step})

        if plan.column in used and not is_contiguous_along(map_, plan.column):
            tall = ir.VectorType.get([plan.rows], element)
            return transposed(
                [vector.load(tall, value, address(0, column)) for column in range(plan.columns)], plan.rows
            )
        vectors: list[ir.Value] = []
        for row in range(plan.rows if plan.row in used else 1):
            if plan.column in used:
                vectors.append(vector.load(wide, value, address(row, 0)))
            else:
                vectors.append(vector.broadcast(wide, memref.load(value, address(row, 0))))
        return vectors * (plan.rows // len(vectors))


def transposed(vectors: list[ir.Value], length: int) -> list[ir.Value]:
    """`length` vectors, the i-th of which holds element i of all `vectors`; both counts are powers of two.

    Round s exchanges the halves of blocks of 2^(s+1) x 2^(s+1) elements, two vectors at a time.
    """
    count = len(vectors)
    if length > count:
        pieces = [
            [vector.shuffle(v, v, range(at, at + count)) for v in vectors] for at in range(0, length, count)
        ]
        return [result for piece in pieces for result in transposed(piece, count)]
    if count > length:
        pieces = [transposed(vectors[at : at + length], length) for at in range(0, count, length)]
        while len(pieces) > 1:
            both = list(range(2 * length))
            pieces = [
                [vector.shuffle(a, b, both) for a, b in zip(*pair)] for pair in zip(pieces[::2], pieces[1::2])
            ]
            length *= 2
        return pieces[0]
    bit = 1
    while bit < count:
        low = [lane if not lane & bit else count + lane - bit for lane in range(count)]
        high = [lane + bit if not lane & bit else count + lane for lane in range(count)]
        exchanged = list(vectors)
        for i in range(count):
            if not i & bit:
                exchanged[i] = vector.shuffle(vectors[i], vectors[i + bit], low)
                exchanged[i + bit] = vector.shuffle(vectors[i], vectors[i + bit], high)
        vectors = exchanged
        bit *= 2
    return vectors
