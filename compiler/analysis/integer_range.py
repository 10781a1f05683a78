"""Between which numbers the integers of a tensor lie, from the operations that compute it.

    %1 = linalg.generic ins(%w : i8) { shrui 4 }             // 0 to 15
    %2 = linalg.generic ins(%1) { extui i32, subi 8 }        // -8 to 7
    %3 = tensor.concat %1, %2                                // -8 to 15

Upstream's `int-range-analysis` follows scalars, not the elements of tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import ir

_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape", "tensor.extract_slice", "linalg.transpose")


@dataclass(frozen=True)
class Range:
    """Signed integers from `low` to `high`, both included."""

    low: int
    high: int

    def __or__(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))

    def fits(self, bits: int) -> bool:
        """Whether there are no more numbers than so many bits have, from one power of two or from its negative on."""
        return -(1 << bits - 1) <= self.low and self.high < (1 << bits - (self.low < 0))

    @property
    def is_negative(self) -> bool:
        return self.low < 0


def of_type(type_: ir.IntegerType) -> Range:
    """All numbers of a type, read as signed ones."""
    return Range(-(1 << type_.width - 1), (1 << type_.width - 1) - 1)


def range_of(value: ir.Value) -> Range:
    """Of the elements of a tensor of integers, read as signed ones; of `i1`, -1 and 0."""
    return _range(value, {})


def _range(value: ir.Value, found: dict[ir.Value, Range]) -> Range:
    """The same, with what was `found` before: a value may be read along many paths."""
    if value not in found:
        found[value] = _computed(value, found)
    return found[value]


def _computed(value: ir.Value, found: dict[ir.Value, Range]) -> Range:
    type_ = ir.IntegerType(ir.RankedTensorType(value.type).element_type)
    owner = value.owner
    if isinstance(owner, ir.Block):
        return of_type(type_)
    if owner.name in _RESHAPES:
        return _range(owner.operands[0], found)
    if owner.name == "tensor.concat":
        parts = [_range(operand, found) for operand in owner.operands]
        return Range(min(part.low for part in parts), max(part.high for part in parts))
    constant = _constant(owner)
    if constant is not None:
        return constant
    generic = Structured.read(owner.operation)
    if generic is None or not generic.is_elementwise or len(generic.op.results) != 1:
        return of_type(type_)
    known: dict[ir.Value, Range] = {}
    for argument, operand in zip(generic.body.arguments, generic.op.operands):
        if isinstance(argument.type, ir.IntegerType):
            is_tensor = isinstance(operand.type, ir.RankedTensorType) and any(True for _ in argument.uses)
            known[argument] = _range(operand, found) if is_tensor else of_type(argument.type)
    *inner, last = (view.operation for view in generic.body.operations)
    for op in inner:
        if len(op.results) == 1 and isinstance(op.results[0].type, ir.IntegerType):
            made, whole = _result(op, known), of_type(op.results[0].type)
            # What may have wrapped around is any number.
            known[op.results[0]] = made if whole.low <= made.low and made.high <= whole.high else whole
    return known.get(last.operands[0], of_type(type_))


def _constant(op: ir.Operation) -> Range | None:
    if op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        attribute = attribute.get_splat_value()
    if not isinstance(attribute, ir.IntegerAttr) or attribute.type == ir.IntegerType.get_signless(1):
        return None  # a true boolean is 1 as a Python number
    return Range(attribute.value, attribute.value)


def _result(op: ir.Operation, known: dict[ir.Value, Range]) -> Range:
    """Of an operation on integers; all numbers of its type where it is not known here."""
    anything = of_type(op.results[0].type)
    if op.name == "arith.constant":
        return _constant(op) or anything
    operands = []
    for value in op.operands:
        if not isinstance(value.type, ir.IntegerType):
            return anything
        is_outside = value not in known and not isinstance(value.owner, ir.Block)
        constant = _constant(value.owner) if is_outside else None
        operands.append(known.get(value) or constant or of_type(value.type))
    first, second = (*operands, anything, anything)[:2]
    match op.name:
        case "arith.andi":
            positive = [r.high for r in (first, second) if not r.is_negative]
            return Range(0, min(positive)) if positive else anything
        case "arith.shrui" | "arith.shrsi" if second.low == second.high >= 0:
            width = op.operands[0].type.width
            if first.is_negative and op.name == "arith.shrui":
                return Range(0, ((1 << width) - 1) >> second.low) if second.low else anything
            return Range(first.low >> second.low, first.high >> second.low)
        case "arith.addi":
            return Range(first.low + second.low, first.high + second.high)
        case "arith.subi":
            return Range(first.low - second.high, first.high - second.low)
        case "arith.extsi" | "arith.trunci":
            return first
        case "arith.extui":
            width = op.operands[0].type.width
            return Range(0, (1 << width) - 1) if first.is_negative else first
        case "arith.select":
            return second | operands[2]
        case _:
            return anything
