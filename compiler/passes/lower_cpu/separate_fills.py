"""separate-fills: reductions that start from one filled tensor start from one each, filled right in front of them.

    %z = linalg.fill ins(%zero) outs(%e)            %z = linalg.fill ins(%zero) outs(%e)
    %s = reduction outs(%z)                         %s = reduction outs(%z)
    %u = elementwise ins(%s, ..)            =>      %u = elementwise ins(%s, ..)
    %t = reduction ins(%u) outs(%z)                 %z2 = linalg.fill ins(%zero) outs(%e2)
                                                    %t = reduction ins(%u) outs(%z2)

Of one fill, bufferization would fill memory and copy it for each: accumulators could not begin in registers, and the copy
would stand between a reduction and the element-wise operation that it could take along.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.ir import ir, linalg, static_shape, tensor, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import input_count

SEGMENTS = "operandSegmentSizes"
"""The attribute of operations that say which of their operands they write into."""


@dataclass(frozen=True)
class SeparateFills(Pass):
    """Fills again, in memory of its own, what another operation of linalg already writes into."""

    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation) -> None:
        for fill in walk(op, "linalg.fill"):
            if not fill.results or not ir.RankedTensorType(fill.results[0].type).has_static_shape:
                continue
            uses = [(use.owner.operation, use.operand_number) for use in fill.results[0].uses]
            starts = [(user, at) for user, at in uses if _starts(user, at) and user.block == fill.block]
            for user, at in starts if len(uses) == len(starts) else []:
                if user != _first(starts):
                    user.operands[at] = _filled_again(fill, user)


def _starts(user: ir.Operation, at: int) -> bool:
    """Whether operand `at` is what an operation of linalg writes into."""
    return user.name.startswith("linalg.") and SEGMENTS in user.attributes and at >= input_count(user)


def _first(starts: list[tuple[ir.Operation, int]]) -> ir.Operation:
    """The user that comes before all others."""
    users = [user for user, _ in starts]
    return next(op.operation for op in users[0].block.operations if op.operation in users)


def _filled_again(fill: ir.Operation, user: ir.Operation) -> ir.Value:
    """A tensor like the filled one in front of `user`."""
    type_ = fill.results[0].type
    with ir.InsertionPoint(user), fill.location:
        empty = tensor.empty(static_shape(type_), ir.RankedTensorType(type_).element_type)
        return linalg.fill(fill.operands[0], outs=[empty])
