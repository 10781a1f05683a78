"""The order of a `tm_tensor.sort`: what its region says of two elements, with NaN as the greatest number."""

from __future__ import annotations

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


FIRST = "tilewright.first"
"""On a `tm_tensor.sort`: how many elements along its dimension must come out in order; the others are not read."""
