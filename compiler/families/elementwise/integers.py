"""Integer arithmetic on positions: sums, scalings, comparisons and selections whose outcome bounds decide.

linalg.index 0 : d0 in [0, 7]      subi 7, d0 => 7 - d0      cmpi slt d0, 0 => false      select false, x, y => y
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.analysis.affine_access import composed
from tilewright.compiler.families.elementwise.positions import Position, bounds, divided
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.quasi_affine import NotQuasiAffine, QuasiAffine

_SIGNED = {2: "lt", 3: "le", 4: "gt", 5: "ge"}
_UNSIGNED = {6: "lt", 7: "le", 8: "gt", 9: "ge"}
"""arith.cmpi's predicates by their numbers; 0 is eq, 1 is ne."""

_WIDENINGS = ("arith.index_cast", "arith.extsi")
_ZERO_EXTENSIONS = ("arith.index_castui", "arith.extui")


def folded(
    op: ir.Operation, operands: Sequence[Position | list[ir.Value]]
) -> Position | list[ir.Value] | None:
    """What an integer operation gives as a position, or which operand it chooses; None where code must compute it."""
    name = op.name
    if name == "arith.constant":
        return _constant(op.attributes["value"])
    if name == "arith.select":
        condition, yes, no = operands
        if isinstance(condition, QuasiAffine):
            return yes if condition.offset else no
        return yes if isinstance(yes, QuasiAffine) and yes == no else None
    if not operands or not all(isinstance(operand, QuasiAffine) for operand in operands):
        return None
    positions = [operand.merged() for operand in operands]
    found = _affine(op, positions) if name == "affine.apply" else _arithmetic(name, op, positions)
    return found if found is not None and _fits(found, op.results[0].type) else None


def _constant(value: ir.Attribute) -> Position | None:
    if not isinstance(value, ir.IntegerAttr):
        return None
    if isinstance(value.type, ir.IntegerType) and value.type.width == 1:
        return QuasiAffine((), int(bool(value.value)))
    return QuasiAffine((), value.value)


def _affine(op: ir.Operation, operands: list[Position]) -> Position | None:
    """`affine.apply` on dimensions and then symbols; None where its index has quotients that are none of positions."""
    map_ = ir.AffineMapAttr(op.attributes["map"]).value
    dims, symbols = map_.n_dims, map_.n_symbols
    for number in range(symbols):
        symbol, dim = ir.AffineExpr.get_symbol(number), ir.AffineExpr.get_dim(dims + number)
        map_ = map_.replace(symbol, dim, dims + symbols, symbols)
    try:
        return composed(map_.results[0], operands, divided)
    except NotQuasiAffine:
        return None


def _arithmetic(name: str, op: ir.Operation, operands: list[Position]) -> Position | None:
    left, right = operands[0], operands[-1]
    if name == "arith.addi" and not _is_boolean(op):
        return left + right
    if name == "arith.subi" and not _is_boolean(op):
        return left - right
    if name == "arith.muli" and not _is_boolean(op):
        if right.is_constant:
            return left.scaled(right.offset)
        return right.scaled(left.offset) if left.is_constant else None
    if name in _WIDENINGS and not _is_boolean_operand(op):
        return left
    if name == "arith.trunci" and not _is_boolean(op):
        return left
    if name in _ZERO_EXTENSIONS and bounds(left).low >= 0:
        return left
    if name in ("arith.divsi", "arith.divui", "arith.floordivsi", "arith.remsi", "arith.remui"):
        if not right.is_constant or right.offset <= 0 or bounds(left).low < 0:
            return None
        found = divided(left, right.offset)
        return None if found is None else found[name.startswith("arith.rem")]
    if name in ("arith.minsi", "arith.maxsi"):
        smaller, larger = (left, right) if bounds(left).high <= bounds(right).low else (right, left)
        if bounds(smaller).high > bounds(larger).low:
            return None
        return smaller if name == "arith.minsi" else larger
    if name == "arith.cmpi":
        return _compared(ir.IntegerAttr(op.attributes["predicate"]).value, left, right)
    return None


def _compared(predicate: int, left: Position, right: Position) -> Position | None:
    low, high, _ = bounds((left - right).merged())
    if predicate in (0, 1):
        if low == high == 0:
            return QuasiAffine((), int(predicate == 0))
        return QuasiAffine((), int(predicate == 1)) if low > 0 or high < 0 else None
    if predicate in _UNSIGNED and min(bounds(left).low, bounds(right).low) < 0:
        return None
    name = _SIGNED.get(predicate) or _UNSIGNED[predicate]
    holds = {"lt": high < 0, "le": high <= 0, "gt": low > 0, "ge": low >= 0}[name]
    fails = {"lt": low >= 0, "le": low > 0, "gt": high <= 0, "ge": high < 0}[name]
    return QuasiAffine((), int(holds)) if holds or fails else None


def _fits(position: Position, type_: ir.Type) -> bool:
    """Whether the bounds lie within a type, so that no operation on it wrapped around."""
    width = 64 if isinstance(type_, ir.IndexType) else ir.IntegerType(type_).width
    if width == 1:
        return position.is_constant
    low, high, _ = bounds(position)
    return -(1 << (width - 1)) <= low and high < 1 << (width - 1)


def _is_boolean(op: ir.Operation) -> bool:
    type_ = op.results[0].type
    return isinstance(type_, ir.IntegerType) and type_.width == 1


def _is_boolean_operand(op: ir.Operation) -> bool:
    type_ = op.operands[0].type
    return isinstance(type_, ir.IntegerType) and type_.width == 1
