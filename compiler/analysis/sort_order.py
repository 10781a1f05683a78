"""The order of a `tm_tensor.sort`: what its region says of two elements, with NaN as the greatest number."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.ir import arith, ir

_NAN_GREATEST = {"ole": 1, "ule": 1, "oge": 0, "uge": 0}
"""Comparisons that order floats without NaN -> which side holds when it is NaN: PyTorch sorts it as the greatest."""
_NAN_GREATEST_STRICT = {"olt": 1, "ult": 1, "ogt": 0, "ugt": 0}
"""The same for comparisons that hold for different elements only, as `topk` has them."""
_PREDICATES = [
    "false",
    "oeq",
    "ogt",
    "oge",
    "olt",
    "ole",
    "one",
    "ord",
    "ueq",
    "ugt",
    "uge",
    "ult",
    "ule",
    "une",
    "uno",
    "true",
]


def stays_before(sort: ir.Operation, lefts: list[ir.Value], rights: list[ir.Value]) -> ir.Value:
    """Whether `lefts` may stay before `rights`, by the region of the sort, NaN ordered as the greatest."""
    block = sort.regions[0].blocks[0]
    values = dict(zip(block.arguments, (side for pair in zip(lefts, rights) for side in pair)))
    *body, terminator = (view.operation for view in block.operations)
    for op in body:
        clone = op.clone().operation
        for number, value in enumerate(op.operands):
            clone.operands[number] = values.get(value, value)
        values[op.results[0]] = clone.results[0]
    yielded = terminator.operands[0]
    result = values.get(yielded, yielded)
    comparison = yielded.owner.operation if not isinstance(yielded.owner, ir.Block) else None
    if comparison is None or comparison.name != "arith.cmpf":
        return result
    predicate = _PREDICATES[ir.IntegerAttr(comparison.attributes["predicate"]).value]
    side = {**_NAN_GREATEST, **_NAN_GREATEST_STRICT}.get(predicate)
    if side is None:
        return result
    value, other = (values.get(comparison.operands[s], comparison.operands[s]) for s in (side, 1 - side))
    greatest = arith.cmpf(arith.CmpFPredicate.UNO, value, value)
    if predicate in _NAN_GREATEST_STRICT:
        greatest = arith.andi(greatest, arith.cmpf(arith.CmpFPredicate.ORD, other, other))
    return arith.ori(result, greatest)


@dataclass(frozen=True)
class Order:
    """The order of numbers, small ones first where it `is_ascending`; integers as unsigned where it `is_unsigned`."""

    is_ascending: bool
    is_unsigned: bool = False

    @classmethod
    def of(cls, sort: ir.Operation) -> Order | None:
        """That of a sort, or of the first elements of one; None where its region does not compare two elements as numbers."""
        block = sort.regions[0].blocks[0]
        comparison, *others = (view.operation for view in block.operations)
        compared = list(block.arguments)[:2]
        if len(others) != 1 or not comparison.results or others[0].operands[0] != comparison.results[0]:
            return None
        if comparison.name not in ("arith.cmpf", "arith.cmpi") or set(comparison.operands) != set(compared):
            return None
        predicates = _PREDICATES if comparison.name == "arith.cmpf" else _OF_INTEGERS
        name = predicates[ir.IntegerAttr(comparison.attributes["predicate"]).value]
        if name[0] not in "ous" or name[1:] not in ("lt", "le", "gt", "ge"):
            return None
        is_ascending = (name[1] == "l") == (comparison.operands[0] == compared[0])
        return cls(is_ascending, comparison.name == "arith.cmpi" and name[0] == "u")


_OF_INTEGERS = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]

FIRST = "tilewright.first"
"""On a `tm_tensor.sort`: how many elements along its dimension must come out in order; the others are not read."""
