"""Reads the reductions of a dispatch as they will be once it is cut: extents of one rTask, and where operands lie in memory.

    %m = linalg.generic // maximum, (r, c) over 64 x 100      tile = [8]     (r, c) over 8 x 100
    %s = linalg.generic // exp, sum, (r, c)                        =>        (r, c) over 8 x 100
    %y = linalg.generic // division, (r, c)    // the sink                   8 x 100 of the result

What a reduction's loops are made of can so be decided on the dispatch, before anything is cut. Extents are read for one
tile, or for arrays of them at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.compiler.analysis.affine_access import evaluate, is_dim, row_major
from tilewright.compiler.analysis.chosen_parts import Chosen, walked_loops
from tilewright.compiler.analysis.placement import buffer_types
from tilewright.compiler.analysis.sink import Loops, sink_of
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.dialects.reduction_attribute import reductions_of
from tilewright.compiler.families.cpu.reduction import Structure
from tilewright.compiler.ir import ir

Size = int | np.ndarray
"""One extent, or that under each of many tiles."""
Shape = tuple[int, ...]


@dataclass(frozen=True)
class CutReduction:
    """One reduction of a dispatch that is cut, the last of whose rTasks start at `last_starts` where they overlap others.

    `structure` is None for attention, and where operands are no static tensors or there are several results.
    """

    op: ir.Operation
    structure: Structure | None
    last_starts: tuple[int, ...] = ()


class Cuts:
    """The reductions of a dispatch under any tile of its sink's loops; 0, or nothing, leaves a loop whole."""

    def __init__(self, function: ir.Operation):
        self.function, self.sink = function, sink_of(function)

    @cached_property
    def ops(self) -> list[ir.Operation]:
        """The reductions, in their order."""
        return reductions_of(self.function)

    @cached_property
    def loops(self) -> Loops | None:
        """The sink's, None where there is none."""
        return None if self.sink is None else Loops.of(self.sink)

    @cached_property
    def walked(self) -> tuple[int, ...]:
        """The sink's loops that every rTask goes along by single steps: products take another part at each."""
        return walked_loops(self.function)

    @cached_property
    def buffers(self) -> list[ir.MemRefType]:
        """The memory of the dispatch's arguments and results."""
        return buffer_types(self.function)

    @cached_property
    def structures(self) -> list[Structured]:
        """The structured operations, consumers before their producers."""
        block = self.function.regions[0].blocks[0]
        found = (Structured.read(view.operation) for view in reversed(list(block.operations)))
        return [structured for structured in found if structured is not None]

    def under(self, tile: Shape) -> list[CutReduction]:
        """All reductions under one tile."""
        if self.loops is None or not (any(tile) or self.walked):
            return [self.read(number) for number in range(len(self.ops))]
        whole = self.loops.extents
        sizes = [*tile, *[0] * (len(whole) - len(tile))]
        taken = [size or extent for size, extent in zip(sizes, whole)]
        last_starts = tuple(extent - size for size, extent in zip(sizes, whole) if size and extent % size)
        extents = self.extents(taken)
        return [
            self.read(number, None if e is None else tuple(map(int, e)), last_starts)
            for number, e in enumerate(extents)
        ]

    def sink_under(self, tile: Shape) -> Structure | None:
        """The sink as one rTask has it; None where that is no operation on static tensors with one result."""
        if self.loops is None or self.sink is None:
            return None
        sizes = [*tile, *[0] * (len(self.loops.extents) - len(tile))]
        taken = tuple(size or extent for size, extent in zip(sizes, self.loops.extents))
        return self._structure(self.sink, tuple(map(int, self.stepped(taken))), True)

    def extents(self, taken: Sequence[Size]) -> list[tuple[Size, ...] | None]:
        """Loop extents of every reduction where an rTask has `taken` of the sink's loops; None where they are not cut."""
        found: dict[ir.Operation, tuple[Size, ...]] = {}
        if self.sink is not None:
            found[self.sink] = self.stepped(taken)
        needed: dict[ir.Value, tuple[Size, ...]] = {}
        for structured in self.structures:
            op = structured.op
            if op not in found:
                shape = next((needed[result] for result in op.results if result in needed), None)
                if shape is None:
                    continue
                own: list[Size] = list(structured.extents)
                for expr, size in zip(structured.result_map.results, shape):
                    if is_dim(expr):
                        own[expr.position] = size
                found[op] = tuple(own)
            for operand, map_ in zip(op.operands, structured.maps):
                if not isinstance(operand.owner, ir.Block):
                    needed.setdefault(operand, _span(operand, map_, structured.extents, found[op]))
        return [found.get(op) for op in self.ops]

    def stepped(self, taken: Sequence[Size]) -> tuple[Size, ...]:
        """What is computed at a time of what an rTask has of the sink's loops."""
        return tuple(1 + 0 * size if loop in self.walked else size for loop, size in enumerate(taken))

    def read(self, number: int, extents: Shape | None = None, last_starts: Shape = ()) -> CutReduction:
        """One reduction whose loops have these extents, those of the whole dispatch where none are given."""
        op, loops = self.ops[number], self.loops
        # Where rTasks overlap, a sink that accumulates does so in memory of its own.
        written = (
            self.sink is not None
            and op == self.sink
            and not (last_starts and loops is not None and loops.accumulates)
        )
        return CutReduction(op, self._structure(op, extents, written), last_starts)

    def _structure(self, op: ir.Operation, extents: Shape | None, written: bool) -> Structure | None:
        """One operation; `written` to the dispatch's result."""
        structured = Structured.read(op)
        if structured is None or len(op.results) != 1:
            return None
        if not all(isinstance(operand.type, ir.ShapedType) for operand in op.operands):
            return None
        taken = extents or structured.extents
        spans = (_span(value, m, structured.extents, taken) for value, m in zip(op.operands, structured.maps))
        shapes = tuple(tuple(map(int, span)) for span in spans)
        strides = [_strides(operand, shape, self.buffers) for operand, shape in zip(op.operands, shapes)]
        if written:
            strides[-1] = tuple(self.buffers[-1].get_strides_and_offset()[0])
        return Structure.placed(op, shapes, tuple(strides))


def _span(operand: ir.Value, map_: ir.AffineMap, extents: Shape, taken: Sequence[Size]) -> tuple[Size, ...]:
    """The shape of what `taken` of the loops reads of an operand."""
    if not isinstance(operand.type, ir.ShapedType):
        return ()
    whole: Size | bool = True
    for size, extent in zip(taken, extents):
        whole = whole & (size == extent)
    last = [size - 1 for size in taken]

    def size_of(expr: ir.AffineExpr, most: int) -> Size:
        all_ = whole | (taken[expr.position] == extents[expr.position]) if is_dim(expr) else whole
        if all_ is True:
            return most
        reach = evaluate(expr, last) + 1
        if not isinstance(all_, np.ndarray) and not isinstance(reach, np.ndarray):
            return most if all_ else min(most, reach)
        return np.where(all_, most, np.minimum(most, reach))

    return tuple(size_of(expr, most) for expr, most in zip(map_.results, ir.ShapedType(operand.type).shape))


def _strides(value: ir.Value, shape: Shape, buffers: list[ir.MemRefType]) -> Shape:
    """Where an operand lies: in the caller's buffer, in a slice of that, or in memory of the rTask's own."""
    steps: list[int] = [1] * len(shape)
    while not isinstance(value.owner, ir.Block):
        op = value.owner.operation
        chosen = Chosen.read(op)
        if chosen is not None and not isinstance(chosen.table.owner, ir.Block):
            return tuple(row_major(shape))
        if chosen is not None:  # parts are read where they lie
            strides, _ = buffers[ir.BlockArgument(chosen.table).arg_number].get_strides_and_offset()
            own = (strides[0],) * chosen.leading + tuple(strides[chosen.fixed :])
            return tuple(stride * step for stride, step in zip(own, steps))
        if op.name != "tensor.extract_slice":
            return tuple(row_major(shape))
        static = list(ir.DenseI64ArrayAttr(op.attributes["static_strides"]))
        if len(static) != len(shape):
            return tuple(row_major(shape))
        steps = [step * own for step, own in zip(steps, static)]
        value = op.operands[0]
    strides, _ = buffers[ir.BlockArgument(value).arg_number].get_strides_and_offset()
    return tuple(stride * step for stride, step in zip(strides, steps))
