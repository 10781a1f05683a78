"""Reads a dispatch that is fused attention: where each operand's elements lie, and what is done to a score.

element (row, k) of the queries of head b lies at [base(b) + row * row_stride + k], and so on
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import evaluate
from tilewright.compiler.analysis.placement import buffer_types
from tilewright.compiler.dialects.attention import ATTENTION, Attention
from tilewright.compiler.families.contract import Declined
from tilewright.compiler.gpu.alignment import buffer_alignments
from tilewright.compiler.gpu.builder import Operand, Value
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.nouns.workload import BITS


class NotAttention(Declined):
    """The dispatch is no attention that the kernels read; the message says why."""


@dataclass(frozen=True)
class Access:
    """Where value `number` of the operation lies: buffer `buffer`, and per dimension a constant and one stride per loop.

    Loops are those of the operation: batch loops, then rows, columns, inner and width.
    """

    buffer: int
    type: ir.MemRefType
    starts: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    alignment: int

    def at(self, loops: Sequence[Operand]) -> list[Operand]:
        """The position of an element, a value or number per dimension."""
        found: list[Operand] = []
        for start, strides in zip(self.starts, self.strides):
            total: Operand = start
            for stride, loop in zip(strides, loops):
                if stride and not (isinstance(loop, int) and loop == 0):
                    total = total + loop * stride
            found.append(total)
        return found

    @property
    def dtype(self) -> str:
        return str(self.type.element_type)

    @property
    def element_bytes(self) -> int:
        return BITS[self.dtype] // 8

    def vector(self, along: int, extent: int, limit_bytes: int = 16) -> int:
        """The most neighbours along loop `along`, of `extent` steps, that one aligned access takes from a multiple on."""
        memory, _ = self.type.get_strides_and_offset()
        last = self.strides[-1] if self.strides else ()
        moves = [strides[along] for strides in self.strides]
        if not moves or moves[-1] != 1 or any(moves[:-1]) or memory[-1] != 1:
            return 1
        # Everything but this loop must keep to multiples: rows of the buffer, the other loops and the start.
        steps = [self.starts[-1], *(s for loop, s in enumerate(last) if loop != along)]
        steps += [memory[d] for d in range(len(memory) - 1) if self.starts[d] or any(self.strides[d])]
        lanes = min(limit_bytes, self.alignment) // self.element_bytes
        while lanes > 1 and (extent % lanes or any(step % lanes for step in steps)):
            lanes //= 2
        return max(1, lanes)


@dataclass(frozen=True)
class AttentionProblem:
    """One attention on buffers: `accesses` of queries, keys, values, what scores are changed by, and the result.

    `function` holds the operation.
    """

    function: ir.Operation
    name: str
    attention: Attention
    buffers: tuple[ir.MemRefType, ...]
    accesses: tuple[Access, ...]

    @property
    def heads(self) -> int:
        """Products of all batch loops."""
        count = 1
        for extent in self.attention.extents:
            count *= extent
        return count

    @property
    def real(self) -> ir.Type:
        """What scores are computed in."""
        return self.attention.body.arguments[0].type

    def batch(self, head: Value) -> list[Operand]:
        """The batch loops of head number `head`."""
        found: list[Operand] = []
        for extent in reversed(self.attention.extents):
            found.append(head % extent if extent > 1 else 0)
            head = head // extent
        return found[::-1]


def read_attention(function: ir.Operation) -> AttentionProblem:
    """Reads the dispatch; raises NotAttention."""
    function = _with_constants(function)
    found = walk(function, ATTENTION)
    if len(found) != 1:
        raise NotAttention(f"it holds {len(found)} operations `{ATTENTION}`")
    (op,) = found
    block = function.regions[0].blocks[0]
    arguments = list(block.arguments)
    *others, terminator = [view.operation for view in block.operations]
    strange = [other.name for other in others if other != op and other.name != "arith.constant"]
    if strange or list(terminator.operands) != list(op.results):
        raise NotAttention(
            f"other operations stand around it: {', '.join(strange) or 'its result is not returned'}"
        )
    if any(operand not in arguments for operand in op.operands):
        raise NotAttention("an operand is no argument of the dispatch")
    attention = Attention.read(op)
    types = buffer_types(function)
    alignments = buffer_alignments(function)
    numbers = [*(arguments.index(operand) for operand in op.operands), len(arguments)]
    loops = len(attention.loops)
    accesses = []
    for number, map_ in zip(numbers, attention.maps):
        zero = [0] * loops
        starts = tuple(evaluate(expr, zero) for expr in map_.results)
        strides = tuple(
            tuple(evaluate(expr, [int(i == loop) for i in range(loops)]) - start for loop in range(loops))
            for expr, start in zip(map_.results, starts)
        )
        accesses.append(Access(number, types[number], starts, strides, alignments[number]))
    name = ir.StringAttr(function.attributes["sym_name"]).value
    return AttentionProblem(function, name, attention, tuple(types), tuple(accesses))


def _with_constants(function: ir.Operation) -> ir.Operation:
    """A copy of the dispatch in which the op's region holds the constants that it reads."""
    copy = function.clone().operation
    for attention in walk(copy, ATTENTION):
        block = attention.regions[0].blocks[0]
        for op in walk(attention):
            for number, operand in enumerate(op.operands if op != attention else ()):
                owner = operand.owner
                if isinstance(owner, ir.Block) or owner.operation.block == block:
                    continue
                with ir.InsertionPoint.at_block_begin(block), attention.location:
                    op.operands[number] = owner.operation.clone().operation.results[0]
    return copy
