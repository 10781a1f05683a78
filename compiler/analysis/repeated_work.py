"""Element-wise work that costs no more where it is repeated than where its result is written and read.

    %c = x - mean        // a row's mean: %c has the elements of x, which lies in memory anyway
    %v = sum of %c * %c ; %y = %c * scale

Whatever reads %c can read x instead, as often, and subtract for itself: nothing is written.
"""

from __future__ import annotations

import math

from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import ir, static_shape

_ARITHMETIC = (
    *("addf", "subf", "mulf", "negf", "maximumf", "minimumf", "cmpf", "extf", "truncf"),
    *("addi", "subi", "muli", "andi", "ori", "xori", "cmpi", "select", "constant"),
)
_CHEAP = {*(f"arith.{name}" for name in _ARITHMETIC), "linalg.yield"}
_MOST_OPS = 4
"""Operations on an element that reading it from memory is counted to hide: a choice, not a measurement."""
_SMALL = 8
"""An operand of fewer elements than the result by this factor is counted as none: caches keep it."""


def is_cheap(structured: Structured) -> bool:
    """Whether an operation is a few additions, products and choices of every element, and reads no more bytes than it gives."""
    names = {view.operation.name for view in structured.body.operations}
    if not structured.is_elementwise or not names <= _CHEAP or structured.body_ops > _MOST_OPS:
        return False
    given = sum(tensor_bytes(result.type) for result in structured.op.results)
    return (
        not structured.accumulates and sum(tensor_bytes(v.type) for v in large_operands(structured)) <= given
    )


def large_operands(structured: Structured) -> list[ir.Value]:
    """The operands that are read from memory as the result would be, and not again and again out of a cache."""
    inputs = list(dict.fromkeys(list(structured.op.operands)[: structured.num_inputs]))
    tensors = [value for value in inputs if isinstance(value.type, ir.RankedTensorType)]
    return [value for value in tensors if math.prod(static_shape(value.type)) * _SMALL > structured.points]


def tensor_bytes(type_: ir.Type) -> int:
    """The bytes of a tensor in memory; numbers of any index type take eight each."""
    tensor = ir.RankedTensorType(type_)
    return math.prod(static_shape(tensor)) * -(-getattr(tensor.element_type, "width", 64) // 8)
