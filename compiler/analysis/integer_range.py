"""Between which numbers the integers of a tensor lie, from the operations that compute it.

    %1 = linalg.generic ins(%w : i8) { shrui 4 }             // 0 to 15
    %2 = linalg.generic ins(%1) { extui i32, subi 8 }        // -8 to 7
    %3 = tensor.concat %1, %2                                // -8 to 15

Upstream's `int-range-analysis` follows scalars, not the elements of tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import arith, ir

_DEEPEST = 40
"""Operations behind each other that are looked through: loops that were written out are longer than Python's stack."""

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


def of_type(type_: ir.Type) -> Range:
    """All numbers of a type of integers, or of places, read as signed ones."""
    width = type_.width if isinstance(type_, ir.IntegerType) else 64
    return Range(-(1 << width - 1), (1 << width - 1) - 1)


Ranges = dict[ir.Value, Range]


def range_of(value: ir.Value, found: Ranges | None = None) -> Range:
    """Of the elements of a tensor of integers, read as signed ones; of `i1`, -1 and 0.

    With what was `found` of tensors before, to which this adds.
    """
    return _range(value, {} if found is None else found, 0)


def ranges_in(generic: Structured, found: Ranges) -> Ranges:
    """Of the numbers that a body computes, with what was `found` of tensors before, to which this adds."""
    return _in_body(generic, found, 0)


def _range(value: ir.Value, found: Ranges, depth: int) -> Range:
    """Of a tensor's elements, with what was `found` before: a value may be read along many paths."""
    if depth > _DEEPEST:
        return of_type(ir.RankedTensorType(value.type).element_type)
    if value not in found:
        found[value] = _computed(value, found, depth + 1)
    return found[value]


def _computed(value: ir.Value, found: Ranges, depth: int) -> Range:
    type_ = ir.IntegerType(ir.RankedTensorType(value.type).element_type)
    owner = value.owner
    if isinstance(owner, ir.Block):
        return of_type(type_)
    if owner.name in _RESHAPES:
        return _range(owner.operands[0], found, depth)
    if owner.name == "tensor.concat":
        parts = [_range(operand, found, depth) for operand in owner.operands]
        return Range(min(part.low for part in parts), max(part.high for part in parts))
    constant = _constant(owner)
    if constant is not None:
        return constant
    if owner.name == "linalg.fill":
        return _number(owner.operands[0], {})
    generic = Structured.read(owner.operation)
    if generic is None or not generic.is_elementwise or len(generic.op.results) != 1:
        return of_type(type_)
    *_, last = generic.body.operations
    return _number(last.operation.operands[0], _in_body(generic, found, depth))


def _in_body(generic: Structured, found: Ranges, depth: int) -> Ranges:
    known: Ranges = {}
    for number, (argument, operand) in enumerate(zip(generic.body.arguments, generic.op.operands)):
        if isinstance(argument.type, ir.IntegerType):
            is_tensor = isinstance(operand.type, ir.RankedTensorType) and any(True for _ in argument.uses)
            is_sum = number >= generic.num_inputs and not generic.is_elementwise
            known[argument] = (
                _range(operand, found, depth) if is_tensor and not is_sum else of_type(argument.type)
            )
    for view in generic.body.operations:
        op = view.operation
        if len(op.results) == 1 and _is_number(op.results[0].type):
            if op.name == "linalg.index":
                known[op.results[0]] = Range(
                    0, generic.extents[ir.IntegerAttr(op.attributes["dim"]).value] - 1
                )
                continue
            made, whole = _result(op, known), of_type(op.results[0].type)
            # What may have wrapped around is any number.
            known[op.results[0]] = made if whole.low <= made.low and made.high <= whole.high else whole
    return known


def _number(value: ir.Value, known: Ranges) -> Range:
    """Of one number, of which a body knows something, or which is a constant outside of it."""
    is_outside = value not in known and not isinstance(value.owner, ir.Block)
    constant = _constant(value.owner) if is_outside else None
    return known.get(value) or constant or of_type(value.type)


def _is_number(type_: ir.Type) -> bool:
    return isinstance(type_, (ir.IntegerType, ir.IndexType))


def _constant(op: ir.Operation) -> Range | None:
    if op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        attribute = attribute.get_splat_value()
    if not isinstance(attribute, ir.IntegerAttr) or attribute.type == ir.IntegerType.get_signless(1):
        return None  # a true boolean is 1 as a Python number
    return Range(attribute.value, attribute.value)


def _result(op: ir.Operation, known: Ranges) -> Range:
    """Of an operation on integers; all numbers of its type where it is not known here."""
    anything = of_type(op.results[0].type)
    if op.name == "arith.constant":
        return _constant(op) or anything
    operands = []
    for value in op.operands:
        if not _is_number(value.type):
            return anything
        operands.append(_number(value, known))
    first, second = (*operands, anything, anything)[:2]
    match op.name:
        case "arith.andi":
            positive = [r.high for r in (first, second) if not r.is_negative]
            return Range(0, min(positive)) if positive else anything
        case "arith.shrui" | "arith.shrsi" if second.low == second.high >= 0:
            width = of_type(op.operands[0].type).high.bit_length() + 1
            if first.is_negative and op.name == "arith.shrui":
                return Range(0, ((1 << width) - 1) >> second.low) if second.low else anything
            return Range(first.low >> second.low, first.high >> second.low)
        case "arith.addi":
            return Range(first.low + second.low, first.high + second.high)
        case "arith.subi":
            return Range(first.low - second.high, first.high - second.low)
        case "arith.muli":
            corners = [a * b for a in (first.low, first.high) for b in (second.low, second.high)]
            return Range(min(corners), max(corners))
        case "arith.minsi":
            return Range(min(first.low, second.low), min(first.high, second.high))
        case "arith.maxsi":
            return Range(max(first.low, second.low), max(first.high, second.high))
        case "arith.extsi" | "arith.trunci" | "arith.index_cast":
            return first
        case "arith.extui":
            width = op.operands[0].type.width
            return Range(0, (1 << width) - 1) if first.is_negative else first
        case "arith.cmpi":
            return _compared(ir.IntegerAttr(op.attributes["predicate"]).value, first, second)
        case "arith.select" if first.low == first.high:
            return second if first.low else operands[2]
        case "arith.select":
            return second | operands[2]
        case _:
            return anything


_EITHER = Range(-1, 0)


def _compared(predicate: int, first: Range, second: Range) -> Range:
    """-1 where a comparison of signed numbers is true of all, 0 where it is of none."""
    match arith.CmpIPredicate(predicate):
        case arith.CmpIPredicate.slt:
            holds, fails = first.high < second.low, first.low >= second.high
        case arith.CmpIPredicate.sle:
            holds, fails = first.high <= second.low, first.low > second.high
        case arith.CmpIPredicate.sgt:
            holds, fails = first.low > second.high, first.high <= second.low
        case arith.CmpIPredicate.sge:
            holds, fails = first.low >= second.high, first.high < second.low
        case _:
            return _EITHER
    return Range(-1, -1) if holds else Range(0, 0) if fails else _EITHER
