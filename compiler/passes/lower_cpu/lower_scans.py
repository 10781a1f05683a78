"""lower-scans: inclusive scans on buffers carry what they have in registers, several lines at a time, sums of f32 as f64.

    tm_tensor.scan dimension(1) inclusive(true) ins(%x : memref<64x300xf32>) outs(%y, %last : ...) { addf }
      =>
    scf.for %row = 0 to 64 step 4 {
      scf.for %i = 1 to 300 iter_args(%sum = f64(%x[%row, 0]), ...) {        // four rows side by side
        %sum + f64(%x[%row, %i]) is carried on, and rounded into %y[%row, %i]
    } }

Upstream's loops read the last result back from memory, one line after the other. Eager PyTorch adds and multiplies running
f32 in f64 too, so that a long line is not wrong by as many roundings as it has elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.line_operations import carries
from tilewright.compiler.families.cpu.loop_nest import LoopNest
from tilewright.compiler.ir import arith, ir, memref, static_shape, vector, walk
from tilewright.compiler.nouns.register_tiles import register_pieces
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.buffer_casts import read_through_casts

_LINES, _VECTORS = 4, 4
"""Lines, or vectors of them, that are computed side by side while one addition lasts. More lines that lie a power of two apart
would not stay in the first cache, whose sets have eight ways."""
_FLOAT_SUMS = ("arith.addf", "arith.mulf")


@dataclass(frozen=True)
class LowerScans(Pass):
    """Replaces inclusive scans by one operation, on buffers of static shape; leaves others to upstream."""

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512

    def run(self, op: ir.Operation) -> None:
        for scan in walk(op, "tm_tensor.scan"):
            read_through_casts(scan)
            if _is_plain(scan):
                _erase_fills(scan)
                with ir.InsertionPoint(scan), scan.location:
                    _ScanLoops(scan, self.vector_bits).emit()
                scan.erase()


def _erase_fills(scan: ir.Operation) -> None:
    """Erases what fills buffers right before the scan writes all of them."""
    for place in list(scan.operands)[1:]:
        for fill in [use.owner.operation for use in place.uses]:
            fills = fill.name == "linalg.fill" and fill.operands[1] == place and fill.block == scan.block
            if fills and fill.is_before_in_block(scan):
                fill.erase()


def _is_plain(scan: ir.Operation) -> bool:
    """Whether it carries what it has, on buffers of static shape with elements."""
    types = [value.type for value in scan.operands]
    return (
        all(isinstance(t, ir.MemRefType) and ir.ShapedType(t).has_static_shape for t in types)
        and min(static_shape(types[0])) > 0
        and carries(scan)
    )


class _ScanLoops(LoopNest):
    """The loops of one scan. Lines are carried on side by side along `lines`, in vectors where they lie side by side."""

    def __init__(self, scan: ir.Operation, vector_bits: int):
        self.source, self.result, self.last = scan.operands
        shape = static_shape(self.source.type)
        rank, self.along = len(shape), ir.IntegerAttr(scan.attributes["dimension"]).value
        across = [loop for loop in range(rank) if loop != self.along]
        identity = ir.AffineMap.get_identity(rank)
        ends = ir.AffineMap.get(rank, 0, [ir.AffineExpr.get_dim(loop) for loop in across])
        super().__init__([identity, identity, ends], shape)
        self.body = scan.regions[0].blocks[0]
        self.operation = self.body.operations[0].operation
        self.element = ir.MemRefType(self.source.type).element_type
        self.is_widened = isinstance(self.element, ir.F32Type) and self.operation.name in _FLOAT_SUMS
        *self.around, self.lines = across or [None]
        strides = (ir.MemRefType(value.type).get_strides_and_offset()[0] for value in scan.operands)
        is_dense = all(not steps or steps[-1] == 1 for steps in strides)
        is_number = isinstance(self.element, ir.FloatType) or (
            isinstance(self.element, ir.IntegerType) and self.element.width >= 8
        )
        self.lanes = 1
        if self.along < rank - 1 and is_dense and is_number:
            self.lanes = max(1, vector_bits // self.element.width)

    def emit(self) -> None:
        size = _VECTORS * self.lanes if self.lanes > 1 else _LINES
        self.nest(self.around, lambda: self.segments(self.lines, size, self._side_by_side))

    def _side_by_side(self, count: int) -> None:
        pieces = (
            list(register_pieces(count, self.lanes)) if self.lanes > 1 else [(t, 1) for t in range(count)]
        )
        self.ivs[self.along] = self.zero

        def loaded() -> list[ir.Value]:
            return [self._wide(self._load(offset, lanes)) for offset, lanes in pieces]

        def stored(values: list[ir.Value], operand: int, into: ir.Value) -> None:
            for (offset, lanes), value in zip(pieces, values):
                self._store(self._rounded(value), operand, into, offset, lanes)

        def step(carried: list[ir.Value]) -> list[ir.Value]:
            found = [self._combined(before, new) for before, new in zip(carried, loaded())]
            stored(found, 1, self.result)
            return found

        first = loaded()
        stored(first, 1, self.result)
        stored(self.reduce(self.along, 1, self.extents[self.along], 1, first, step), 2, self.last)

    def _place(self, operand: int, offset: int) -> list[ir.Value]:
        return self.address(operand, {} if self.lines is None else {self.lines: offset})

    def _load(self, offset: int, lanes: int) -> ir.Value:
        if self.lanes == 1:
            return memref.load(self.source, self._place(0, offset))
        return vector.load(ir.VectorType.get([lanes], self.element), self.source, self._place(0, offset))

    def _store(self, value: ir.Value, operand: int, into: ir.Value, offset: int, lanes: int) -> None:
        if self.lanes == 1:
            memref.store(value, into, self._place(operand, offset))
        else:
            vector.store(value, into, self._place(operand, offset))

    def _wide(self, value: ir.Value) -> ir.Value:
        return arith.extf(_like(value, ir.F64Type.get()), value) if self.is_widened else value

    def _rounded(self, value: ir.Value) -> ir.Value:
        return arith.truncf(_like(value, self.element), value) if self.is_widened else value

    def _combined(self, before: ir.Value, new: ir.Value) -> ir.Value:
        """The body's operation on what is carried and what is new."""
        values = dict(zip(self.body.arguments, (before, new)))
        operands = [values[operand] for operand in self.operation.operands]
        return ir.Operation.create(self.operation.name, [before.type], operands).results[0]


def _like(value: ir.Value, element: ir.Type) -> ir.Type:
    """The type of `value` with other elements."""
    return (
        ir.VectorType.get(ir.VectorType(value.type).shape, element)
        if isinstance(value.type, ir.VectorType)
        else element
    )
