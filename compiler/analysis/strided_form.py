"""Element-wise dispatches whose loops are known by extents and strides alone, so that one kernel can serve all of a body.

    %y = generic (d0, d1) -> (d1, d0), (d0, d1) -> (d0) { mulf }      a weight laid out otherwise, times a scale
      =>
    result[q, n, i] = mulf(in0[..], in1[..])                          one body, and a table of extents and strides

Loops are put in an order that suits memory: a line of the result is written at once, and what it reads stays in cache for the
lines after it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.analysis.affine_access import evaluate, stride_along
from tilewright.compiler.analysis.computation_text import ComputationText
from tilewright.compiler.analysis.placement import dense_strides, given_strides, shape_of
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import ir

OUTER = 4
"""Loops around a line beside that over lines of the same row."""
_LINE_BYTES = 64
_TASK_BYTES = 1 << 17
_SCALAR = ("arith.", "math.")
_ELEMENTS = (ir.F16Type, ir.BF16Type, ir.F32Type, ir.F64Type)
_INTEGER_BITS = (8, 16, 32, 64)


@dataclass(frozen=True, eq=False)
class StridedForm:
    """An element-wise dispatch: `op` is its generic or its fill, `reads` the arguments that the operands of a generic are.

    `strides` [operands][loops] are of the inputs, then of the result, in elements, `offsets` [operands] where they start.
    The last loop runs along a line of at most `line` elements, the first over these lines.
    """

    op: ir.Operation
    reads: tuple[int, ...]
    extents: tuple[int, ...]
    row: int
    line: int
    strides: tuple[tuple[int, ...], ...]
    offsets: tuple[int, ...]

    @property
    def chunk(self) -> int:
        """Turns of the first two loops that one rTask takes."""
        item = ir.RankedTensorType(self.op.results[0].type).element_type.width // 8
        turns, elements = self._turns, self.row * math.prod(self.extents[1:])
        return max(1, math.ceil(turns * _TASK_BYTES / max(1, elements * item)))

    @property
    def tasks(self) -> int:
        """rTasks of the dispatch."""
        return math.ceil(self._turns / self.chunk)

    @property
    def _turns(self) -> int:
        return self.extents[0] * self.extents[1]

    @property
    def neighbours(self) -> tuple[int | None, ...]:
        """By operand, how far the next element of a line is: 0, 1, or None for what only the table knows."""
        return tuple(own[-1] if own[-1] in (0, 1) else None for own in self.strides)

    def table(self) -> np.ndarray:
        """What the kernel is told: rTask size, turns, extents, row and line, then offset and strides of every operand: i64."""
        numbers = [self.chunk, self._turns, *self.extents[1:], self.row, self.line]
        for offset, own in zip(self.offsets, self.strides):
            numbers += [offset, *own]
        return np.array(numbers, dtype=np.int64)

    def text(self) -> str:
        """What the code depends on: the body, types, and which operands are contiguous along a line."""
        written = ComputationText(lambda value: str(value.type))
        types = ", ".join(str(_element(value)) for value in (*self.inputs, self.op.results[0]))
        written.add(self.op, read=[f"in{number}" for number in self.reads] if self.reads else None)
        body = written.lines[0].rpartition(" : ")[0]
        return f"{body} : {types} {self.neighbours}"

    @property
    def inputs(self) -> list[ir.Value]:
        return list(self.op.operands)[: len(self.reads)]


def strided_form(function: ir.Operation) -> StridedForm | None:
    """The form of a dispatch; None where it does anything else than one element-wise operation on its arguments."""
    *ops, terminator = (view.operation for view in function.regions[0].blocks[0].operations)
    work = [op for op in ops if op.name not in ("arith.constant", "tensor.empty")]
    if len(work) != 1 or list(terminator.operands) != [work[0].results[0]]:
        return None
    op, arguments = work[0], list(function.regions[0].blocks[0].arguments)
    tensors = [*arguments, *terminator.operands]
    if not all(_is_stored(value) for value in tensors):
        return None
    memory = [own or dense_strides(shape_of(value)) for own, value in zip(given_strides(function), tensors)]
    if op.name == "linalg.fill":
        scalar = op.operands[0].owner
        is_constant = not isinstance(scalar, ir.Block) and scalar.operation.name == "arith.constant"
        return (
            None if arguments or not is_constant else _arranged(op, (), shape_of(op.results[0]), memory, [0])
        )
    structured = Structured.read(op)
    if structured is None or not structured.is_elementwise or not _is_plain(structured):
        return None
    inputs = list(op.operands)[: structured.num_inputs]
    if len(op.results) != 1 or set(inputs) != set(arguments):
        return None
    reads = tuple(arguments.index(value) for value in inputs)
    if not all(_is_linear(expr) for map_ in structured.maps for expr in map_.results):
        return None
    of_memory = [memory[n] for n in (*reads, len(arguments))]
    loops = range(len(structured.extents))
    strides = [[stride_along(map_, i, own) for i in loops] for map_, own in zip(structured.maps, of_memory)]
    at = [0] * len(structured.extents)
    offsets = [
        sum(evaluate(expr, at) * s for expr, s in zip(map_.results, own))
        for map_, own in zip(structured.maps, of_memory)
    ]
    return _arranged(op, reads, structured.extents, strides, offsets)


def _is_plain(structured: Structured) -> bool:
    """Whether the body computes with scalars of its inputs and constants alone, and the result starts as nothing."""
    init = structured.op.operands[structured.num_inputs]
    if isinstance(init.owner, ir.Block) or init.owner.operation.name != "tensor.empty":
        return False
    body = structured.body
    known = set(list(body.arguments)[: structured.num_inputs])
    for view in body.operations:
        op = view.operation
        if op.name != "linalg.yield" and (not op.name.startswith(_SCALAR) or len(op.regions)):
            return False
        for value in op.operands:
            constant = (
                not isinstance(value.owner, ir.Block) and value.owner.operation.name == "arith.constant"
            )
            if value not in known and not constant:
                return False
        known.update(op.results)
    return True


def _is_linear(expr: ir.AffineExpr) -> bool:
    if isinstance(expr, (ir.AffineDimExpr, ir.AffineConstantExpr)):
        return True
    if isinstance(expr, (ir.AffineAddExpr, ir.AffineMulExpr)):
        return _is_linear(expr.lhs) and _is_linear(expr.rhs)
    return False


def _element(value: ir.Value) -> ir.Type:
    return ir.RankedTensorType(value.type).element_type


def _is_stored(value: ir.Value) -> bool:
    """Whether memory holds the elements as they are; bits of truth values are widened by other passes."""
    if not isinstance(value.type, ir.RankedTensorType):
        return False
    element = _element(value)
    is_integer = isinstance(element, ir.IntegerType) and element.width in _INTEGER_BITS
    return isinstance(element, _ELEMENTS) or is_integer


def _arranged(
    op: ir.Operation,
    reads: tuple[int, ...],
    extents: Sequence[int],
    strides: Sequence[Sequence[int]],
    offsets: Sequence[int],
) -> StridedForm | None:
    """The loops in the order in which the kernel has them; None for more of them than it has."""
    if math.prod(extents) == 0:
        return None
    loops = [
        (extent, tuple(own[i] for own in strides)) for i, extent in enumerate(extents) if extent != 1
    ] or [(1, (0,) * len(strides))]
    merged: list[tuple[int, tuple[int, ...]]] = []
    for extent, own in sorted(loops, key=lambda loop: -loop[1][-1]):
        if merged and all(outer == inner * extent for outer, inner in zip(merged[-1][1], own)):
            merged[-1] = (merged[-1][0] * extent, own)
        else:
            merged.append((extent, own))
    *rest, (row, along) = merged
    # What is read most of is reused from line to line if these follow each other in its memory.
    sizes = [math.prod(extent for extent, own in merged if own[n]) for n in range(len(reads))]
    main = max(range(len(reads)), key=lambda n: sizes[n], default=None)
    line = row
    if main is not None and along[main] not in (0, 1):
        line = min(row, max(1, _LINE_BYTES * 8 // ir.RankedTensorType(op.results[0].type).element_type.width))
    if main is not None:
        rest.sort(key=lambda loop: -abs(loop[1][main]))
    if len(rest) > OUTER:
        return None
    rest = [(1, (0,) * len(strides))] * (OUTER - len(rest)) + rest
    lines = (math.ceil(row / line), tuple(stride * line for stride in along))
    ordered = [lines, *rest]
    return StridedForm(
        op,
        reads,
        tuple(extent for extent, _ in ordered),
        row,
        line,
        tuple((*(own[n] for _, own in ordered), along[n]) for n in range(len(strides))),
        tuple(offsets),
    )
