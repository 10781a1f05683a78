"""multiply-by-reciprocals: the quotients of a softmax are products with one reciprocal per row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.affine_access import map_dims
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.ir import arith, ir, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class MultiplyByReciprocals(Pass):
    """Rewrites `x / s` where `s` is a softmax's sum and stays the same along the innermost loop.

    Before: linalg.generic {(m, n), (m), (m, n)} { divf %x, %s }
    After:  linalg.generic {(m, n), (m), (m, n)} { %r = divf 1.0, %s ; mulf %x, %r }

    LLVM takes the reciprocal out of the innermost loop. The largest term of the sum is e^0, so that it lies between 1
    and the length of a row, or is NaN: no reciprocal is rounded to zero or infinity, and results are within 1.5 ulp of
    the quotient.
    """

    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            structured = Structured.read(generic)
            if structured is not None and structured.is_elementwise and len(structured.extents):
                _rewrite(structured)


def _rewrite(s: Structured) -> None:
    innermost = len(s.extents) - 1
    sums = {
        argument
        for argument, value, map_ in zip(s.body.arguments, s.op.operands, s.maps[: s.num_inputs])
        if innermost not in map_dims(map_) and _is_softmax_sum(value)
    }
    for view in list(s.body.operations):
        op = view.operation
        if op.name != "arith.divf" or op.operands[1] not in sums:
            continue
        with ir.InsertionPoint(op), op.location:
            one = arith.constant(op.results[0].type, 1.0)
            product = arith.mulf(op.operands[0], arith.divf(one, op.operands[1]))
        op.results[0].replace_all_uses_with(product)
        op.erase()


def _is_softmax_sum(value: ir.Value) -> bool:
    """Whether the value is the sum over e^(x - t), t being the maximum over the same x."""
    powers = _reduced(value, "arith.addf", 0.0)
    op = producer(powers) if powers is not None else None
    taken = Structured.read(op) if op is not None else None
    if taken is None or not taken.is_elementwise:
        return False
    *_, difference, power, end = [None, None, *(view.operation for view in taken.body.operations)]
    if difference is None or (difference.name, power.name) != ("arith.subf", "math.exp"):
        return False
    if power.operands[0] != difference.results[0] or end.operands[0] != power.results[0]:
        return False
    arguments = list(taken.body.arguments)
    if not all(side in arguments for side in difference.operands):
        return False
    scores, largest = (taken.op.operands[arguments.index(side)] for side in difference.operands)
    compared = _reduced(largest, "arith.maximumf", -math.inf)
    return compared is not None and compared == scores


def _reduced(value: ir.Value, combiner: str, start: float) -> ir.Value | None:
    """What the value is the reduction of, by `combiner` from `start` and over the last loop; None for anything else."""
    op = producer(value)
    s = Structured.read(op) if op is not None else None
    if s is None or s.num_inputs != 1 or len(s.op.results) != 1 or s.is_elementwise:
        return None
    names = [view.operation.name for view in s.body.operations]
    fill = producer(s.op.operands[1])
    if names != [combiner, "linalg.yield"] or fill is None or fill.name != "linalg.fill":
        return None
    if set(s.body.operations[0].operation.operands) != set(s.body.arguments):
        return None
    constant = producer(fill.operands[0])
    if constant is None or constant.name != "arith.constant" or constant.attributes["value"].value != start:
        return None
    innermost = len(s.extents) - 1
    kinds = [kind == "reduction" for kind in s.kinds]
    if s.maps[0] != ir.AffineMap.get_identity(len(kinds)) or kinds != [
        loop == innermost for loop in range(len(kinds))
    ]:
        return None
    return s.op.operands[0]
