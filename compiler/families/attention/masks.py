"""What is hidden from queries: which keys of a tile each sees, and when nothing but their positions hides any.

seen  <=>  n <= min(m + causal, keys - 1)
"""

from __future__ import annotations

import math

from tilewright.compiler.dialects.attention import Attention
from tilewright.compiler.ir import arith, ir
from tilewright.compiler.nouns.quasi_affine import QuasiAffine

_LESS = {
    int(arith.CmpIPredicate.slt): (False, 1),
    int(arith.CmpIPredicate.sle): (False, 0),
    int(arith.CmpIPredicate.sgt): (True, 1),
    int(arith.CmpIPredicate.sge): (True, 0),
}
"""Predicate -> whether its sides change places in `left + number <= right`, and that number."""


def keeps_seen_scores(attention: Attention) -> bool:
    """Whether the region gives back every score that `causal` does not hide: it is that mask, or nothing."""
    if attention.keeps_scores:
        return True
    if attention.causal is None or len(attention.body.arguments) != 3:
        return False
    score, row, column = attention.body.arguments
    *_, terminator = attention.body.operations
    chosen = terminator.operation.operands[0].owner
    if isinstance(chosen, ir.Block) or chosen.name != "arith.select":
        return False
    condition, yes, no = chosen.operation.operands
    compared = condition.owner
    if yes != score or not _is_lowest(no) or isinstance(compared, ir.Block) or compared.name != "arith.cmpi":
        return False
    predicate = ir.IntegerAttr(compared.operation.attributes["predicate"]).value
    if predicate not in _LESS:
        return False
    is_swapped, more = _LESS[predicate]
    left, right = (_linear(operand, row, column) for operand in compared.operation.operands)
    if left is None or right is None:
        return False
    if is_swapped:
        left, right = right, left
    # left + more <= right is to say column - row - causal <= 0.
    seen = QuasiAffine.of("column") - QuasiAffine.of("row").shifted(attention.causal)
    return (left - right).shifted(more) == seen


def _is_lowest(value: ir.Value) -> bool:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return False
    attribute = owner.operation.attributes["value"]
    return isinstance(attribute, ir.FloatAttr) and attribute.value == -math.inf


def _linear(value: ir.Value, row: ir.Value, column: ir.Value) -> QuasiAffine[str] | None:
    """A sum of a score's row, its column and constants; None for what is none."""
    if value in (row, column):
        return QuasiAffine.of("row" if value == row else "column")
    owner = value.owner
    if isinstance(owner, ir.Block):
        return None
    if owner.name == "arith.constant":
        return QuasiAffine((), ir.IntegerAttr(owner.operation.attributes["value"]).value)
    if owner.name in ("arith.index_cast", "arith.extsi", "arith.trunci"):
        return _linear(owner.operation.operands[0], row, column)
    if owner.name not in ("arith.addi", "arith.subi"):
        return None
    left, right = (_linear(operand, row, column) for operand in owner.operation.operands)
    if left is None or right is None:
        return None
    return left + right if owner.name == "arith.addi" else left - right
