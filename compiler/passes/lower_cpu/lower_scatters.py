"""lower-scatters: scatters of slices on buffers combine vectors of a slice with where it goes, one slice after the other.

    tm_tensor.scatter {dimension_map = [0]} ins(%u, %at : memref<900x1x64xf32>, memref<900x1xi64>) outs(%x : memref<20x64xf32>)
      =>
    scf.for %i = 0 to 900 {
      %row = %at[%i, 0]
      scf.for %j = 0 to 64 step 16 { %x[%row, %j .. %j + 16] += %u[%i, 0, %j .. %j + 16] }
    }

Upstream's loops read the slice's number again for every element, which LLVM can make no vectors of. A scatter into several
lines is one into each of them:

    tm_tensor.scatter {tilewright.lines = 8} ins(%u, %at : memref<24xf32>, memref<24x1xi64>) outs(%x : memref<2048xf32>)
      =>
    scf.for %l = 0 to 8 { tm_tensor.scatter ins(%u[3 %l] [3], %at[3 %l, 0] [3, 1]) outs(%x[256 %l] [256]) }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.line_operations import LINES, SCATTER, line_count
from tilewright.compiler.families.cpu.index_loops import index, loop, plus, scaled
from tilewright.compiler.families.cpu.reduction import vectorize_body
from tilewright.compiler.ir import arith, ir, memref, static_shape, vector, walk
from tilewright.compiler.nouns.register_tiles import register_pieces
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.buffer_casts import read_through_casts


@dataclass(frozen=True)
class LowerScatters(Pass):
    """Replaces scatters of whole slices that are numbered along other dimensions than their last; leaves others to upstream."""

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512

    def run(self, op: ir.Operation) -> None:
        for scatter in walk(op, SCATTER):
            read_through_casts(scatter)
            if _are_buffers(scatter) and line_count(scatter) > 1:
                scatter = _of_each_line(scatter)
            if _is_of_slices(scatter):
                with ir.InsertionPoint(scatter), scatter.location:
                    _ScatterLoops(scatter, self.vector_bits).emit()
                scatter.erase()


def _are_buffers(scatter: ir.Operation) -> bool:
    types = (value.type for value in scatter.operands)
    return all(isinstance(t, ir.MemRefType) and ir.ShapedType(t).has_static_shape for t in types)


def _of_each_line(scatter: ir.Operation) -> ir.Operation:
    """Replaces the scatter by a loop over its lines; returns the scatter into one of them."""
    count = line_count(scatter)
    found = []

    def line(number: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        parts = [_part(operand, number, count) for operand in scatter.operands]
        attributes = {name: scatter.attributes[name] for name in scatter.attributes if name != LINES}
        one = ir.Operation.create(scatter.name, [], parts, attributes, regions=1)
        scatter.regions[0].blocks[0].append_to(one.regions[0])
        found.append(one)
        return []

    with ir.InsertionPoint(scatter), scatter.location:
        loop(0, count, 1, line)
    scatter.erase()
    return found[0]


def _part(buffer: ir.Value, number: ir.Value, count: int) -> ir.Value:
    """One of `count` parts of as many rows each."""
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    type_ = ir.MemRefType(buffer.type)
    rows, *rest = type_.shape
    strides, _ = type_.get_strides_and_offset()
    layout = ir.StridedLayoutAttr.get(dynamic, strides)
    sizes = [rows // count, *rest]
    result = ir.MemRefType.get(sizes, type_.element_type, layout, type_.memory_space)
    offsets, steps = [dynamic, *[0] * len(rest)], [1] * len(sizes)
    start = scaled(number, rows // count)
    return memref.SubViewOp(result, buffer, [start], [], [], offsets, sizes, steps).result


def _numbered(scatter: ir.Operation) -> list[int]:
    """The dimensions that the columns of the numbers are for."""
    return list(ir.DenseI64ArrayAttr(scatter.attributes["dimension_map"]))


def _is_of_slices(scatter: ir.Operation) -> bool:
    """Whether updates [n, 1 where numbered, extents of the result elsewhere, ..] lie dense, and are combined by plain arithmetic."""
    if not _are_buffers(scatter):
        return False
    types = [value.type for value in scatter.operands]
    updates, numbers, result = (list(static_shape(t)) for t in types)
    numbered = _numbered(scatter)
    if len(result) < 2 or len(updates) != len(result) + 1 or len(result) - 1 in numbered or len(numbers) != 2:
        return False
    window = [1 if dim in numbered else extent for dim, extent in enumerate(result)]
    element = ir.MemRefType(types[2]).element_type
    whole = isinstance(element, ir.IntegerType) and element.width >= 8
    *combining, _ = (view.operation.name for view in scatter.regions[0].blocks[0].operations)
    return (
        updates[1:] == window
        and min(result) > 0
        and (whole or isinstance(element, ir.FloatType))
        and ir.MemRefType(types[0]).element_type == element
        and all(ir.MemRefType(types[at]).get_strides_and_offset()[0][-1] == 1 for at in (0, 2))
        and all(name.startswith(("arith.", "math.")) for name in combining)
    )


class _ScatterLoops:
    """The loops of one scatter, at the current insertion point."""

    def __init__(self, scatter: ir.Operation, vector_bits: int):
        self.updates, self.numbers, self.result = scatter.operands
        self.body = scatter.regions[0].blocks[0]
        self.numbered = _numbered(scatter)
        self.shape = static_shape(self.result.type)
        self.element = ir.MemRefType(self.result.type).element_type
        self.lanes = max(1, vector_bits // self.element.width)

    def emit(self) -> None:
        def slice_of(number: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            columns = enumerate(self.numbered)
            starts = {dim: self._start(number, column) for column, dim in columns}
            self._dimensions(number, starts, [], [])
            return []

        loop(0, static_shape(self.updates.type)[0], 1, slice_of)

    def _start(self, number: ir.Value, column: int) -> ir.Value:
        value = memref.load(self.numbers, [number, index(column)])
        return arith.index_cast(ir.IndexType.get(), value)

    def _dimensions(
        self, number: ir.Value, starts: dict[int, ir.Value], source: list[ir.Value], target: list[ir.Value]
    ) -> None:
        """Loops over the dimensions that follow those of `source` and `target`, then the vectors of the last one."""
        dim = len(target)
        if dim == len(self.shape) - 1:
            self._vectors([number, *source], target)
        elif dim in starts:
            self._dimensions(number, starts, [*source, index(0)], [*target, starts[dim]])
        else:

            def inner(at: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                self._dimensions(number, starts, [*source, at], [*target, at])
                return []

            loop(0, self.shape[dim], 1, inner)

    def _vectors(self, source: list[ir.Value], target: list[ir.Value]) -> None:
        extent = self.shape[-1]
        whole = extent - extent % self.lanes

        def full(at: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            self._combine([*source, at], [*target, at], self.lanes)
            return []

        if whole:
            loop(0, whole, self.lanes, full)
        for offset, lanes in register_pieces(extent - whole, self.lanes):
            at = plus(index(whole), offset)
            self._combine([*source, at], [*target, at], lanes)

    def _combine(self, source: list[ir.Value], target: list[ir.Value], lanes: int) -> None:
        type_ = ir.VectorType.get([lanes], self.element)
        update, before = vector.load(type_, self.updates, source), vector.load(type_, self.result, target)
        new, *_ = vectorize_body(self.body, dict(zip(self.body.arguments, (update, before))), lanes)
        vector.store(new, self.result, target)
