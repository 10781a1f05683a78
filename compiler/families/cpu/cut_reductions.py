"""Reads the reductions of a dispatch as they will be once it is cut: extents of one rTask, and where operands lie in memory.

    %m = linalg.generic // maximum, (r, c) over 64 x 100      tile = [8]     (r, c) over 8 x 100
    %s = linalg.generic // exp, sum, (r, c)                        =>        (r, c) over 8 x 100
    %y = linalg.generic // division, (r, c)    // the sink                   8 x 100 of the result

What a reduction's loops are made of can so be decided on the dispatch, before anything is cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import evaluate, is_dim, row_major
from tilewright.compiler.analysis.placement import buffer_types
from tilewright.compiler.analysis.sink import Loops, sink_of
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.dialects.reduction_attribute import reductions_of
from tilewright.compiler.families.cpu.reduction import Structure
from tilewright.compiler.ir import ir

Shape = tuple[int, ...]


@dataclass(frozen=True)
class CutDispatch:
    """The reductions of a dispatch in their order, and where the last rTask starts along each loop that it overlaps in.

    A reduction is None where its operands are no static tensors, or it has several results.
    """

    reductions: tuple[Structure | None, ...]
    last_starts: tuple[int, ...]


def cut_reductions(function: ir.Operation, tile: tuple[int, ...]) -> CutDispatch:
    """The dispatch cut into tiles of its sink's loops; 0, or nothing, leaves a loop whole."""
    sink = sink_of(function)
    if sink is None or not any(tile):
        return CutDispatch(tuple(_read(function, op, {}, sink) for op in reductions_of(function)), ())
    loops = Loops.of(sink)
    sizes = [*tile, *[0] * (len(loops.extents) - len(tile))]
    taken = tuple(size or extent for size, extent in zip(sizes, loops.extents))
    last_starts = tuple(extent - size for size, extent in zip(sizes, loops.extents) if size and extent % size)
    extents = _cut_extents(function, sink, taken)
    # Where rTasks overlap, a sink that accumulates does so in memory of its own.
    written = None if last_starts and loops.accumulates else sink
    found = tuple(_read(function, op, extents, written) for op in reductions_of(function))
    return CutDispatch(found, last_starts)


def _cut_extents(function: ir.Operation, sink: ir.Operation, taken: Shape) -> dict[ir.Operation, Shape]:
    """Loop extents of every structured operation that is cut with the sink, whose own are `taken`."""
    found: dict[ir.Operation, Shape] = {sink: taken}
    needed: dict[ir.Value, Shape] = {}
    for view in reversed(list(function.regions[0].blocks[0].operations)):
        structured = Structured.read(view.operation)
        if structured is None:
            continue
        op = structured.op
        if op not in found:
            shape = next((needed[result] for result in op.results if result in needed), None)
            if shape is None:
                continue
            own = list(structured.extents)
            for expr, size in zip(structured.result_map.results, shape):
                if is_dim(expr):
                    own[expr.position] = size
            found[op] = tuple(own)
        for operand, map_ in zip(op.operands, structured.maps):
            if not isinstance(operand.owner, ir.Block):
                needed.setdefault(operand, _span(operand, map_, structured.extents, found[op]))
    return found


def _span(operand: ir.Value, map_: ir.AffineMap, extents: Shape, taken: Shape) -> Shape:
    """The shape of what `taken` of the loops reads of an operand."""
    if not isinstance(operand.type, ir.ShapedType):
        return ()
    whole = tuple(ir.ShapedType(operand.type).shape)
    if taken == extents:
        return whole
    last = [extent - 1 for extent in taken]

    def size(expr: ir.AffineExpr, most: int) -> int:
        if is_dim(expr) and taken[expr.position] == extents[expr.position]:
            return most
        return min(most, evaluate(expr, last) + 1)

    return tuple(size(expr, most) for expr, most in zip(map_.results, whole))


def _read(
    function: ir.Operation, op: ir.Operation, extents: Mapping[ir.Operation, Shape], sink: ir.Operation | None
) -> Structure | None:
    """One reduction; `sink` writes its result to the dispatch's."""
    structured = Structured.read(op)
    if structured is None or len(op.results) != 1:
        return None
    if not all(isinstance(operand.type, ir.ShapedType) for operand in op.operands):
        return None
    taken = extents.get(op, structured.extents)
    shapes = tuple(
        _span(operand, map_, structured.extents, taken) for operand, map_ in zip(op.operands, structured.maps)
    )
    buffers = buffer_types(function)
    strides = [_strides(operand, shape, buffers) for operand, shape in zip(op.operands, shapes)]
    if sink is not None and op == sink:
        strides[-1] = tuple(buffers[-1].get_strides_and_offset()[0])
    return Structure.placed(op, shapes, tuple(strides))


def _strides(value: ir.Value, shape: Shape, buffers: list[ir.MemRefType]) -> Shape:
    """Where an operand lies: in the caller's buffer, in a slice of that, or in memory of the rTask's own."""
    steps: list[int] = [1] * len(shape)
    while not isinstance(value.owner, ir.Block):
        op = value.owner.operation
        if op.name != "tensor.extract_slice":
            return tuple(row_major(shape))
        static = list(ir.DenseI64ArrayAttr(op.attributes["static_strides"]))
        if len(static) != len(shape):
            return tuple(row_major(shape))
        steps = [step * own for step, own in zip(steps, static)]
        value = op.operands[0]
    strides, _ = buffers[ir.BlockArgument(value).arg_number].get_strides_and_offset()
    return tuple(stride * step for stride, step in zip(strides, steps))
