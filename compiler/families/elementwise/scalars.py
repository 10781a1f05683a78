"""Scalar operations of a body written once per lane.

Sums of bf16, and functions of f16 and bf16, are computed in f32 and rounded after every operation: the result is
that of exact arithmetic in the short type, which no GPU before sm_90 has for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.compiler.families.contract import Declined
from tilewright.compiler.ir import arith, ir

if TYPE_CHECKING:
    from tilewright.compiler.families.elementwise.elements import Elements

_CASTS = ("arith.extf", "arith.truncf", "arith.bitcast", "arith.select", "arith.constant")
"""Operations that move or convert numbers of short types as they are."""


class Unwritable(Declined):
    """An element is computed in a way that this family does not write; the message says which."""


def apply(elements: Elements, op: ir.Operation, operands: Sequence[Sequence[ir.Value]]) -> list[ir.Value]:
    """The values of a scalar operation of one result: one per lane where any operand has one per lane."""
    if op.name.split(".")[0] not in ("affine", "arith", "math", "complex") or len(op.results) != 1:
        raise Unwritable(f"{op.name} in an element's computation")
    found = []
    for lane in range(max((len(values) for values in operands), default=1)):
        own = [values[lane if len(values) > 1 else 0] for values in operands]
        key = ("applied", op, *own)
        value = elements.remembered(key, lambda own=own: _applied(op, own))
        elements.depends[value] = tuple(sorted({d for v in own for d in elements.depends.get(v, ())}))
        found.append(value)
    return found


def _applied(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    if op.name == "math.absi":
        (value,) = operands
        return arith.maxsi(value, arith.subi(arith.constant(value.type, 0), value))
    if not _is_widened(op):
        return written(op.name, [op.results[0].type], operands, op)
    f32 = ir.F32Type.get()
    wide = [arith.extf(f32, value) if _is_short(value.type) else value for value in operands]
    short = _is_short(op.results[0].type)
    result = written(op.name, [f32 if short else op.results[0].type], wide, op)
    return arith.truncf(op.results[0].type, result) if short else result


def written(name: str, types: list[ir.Type], operands: list[ir.Value], like: ir.Operation) -> ir.Value:
    """Operation `name` with the attributes of `like`."""
    attributes = {named: like.attributes[named] for named in like.attributes}
    return ir.Operation.create(name, types, operands, attributes).results[0]


def _is_short(type_: ir.Type) -> bool:
    return isinstance(type_, (ir.F16Type, ir.BF16Type))


def _is_widened(op: ir.Operation) -> bool:
    types = {v.type for v in (*op.operands, *op.results) if _is_short(v.type)}
    if not types or op.name in _CASTS:
        return False
    return op.name.startswith("math.") or any(isinstance(type_, ir.BF16Type) for type_ in types)
