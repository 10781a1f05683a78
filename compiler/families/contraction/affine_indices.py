"""Affine expressions of the IR as quasi-affine indices: sums of digits of loops."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.quasi_affine import NotLinear, QuasiAffine


def composed(expr: ir.AffineExpr, loops: Sequence[QuasiAffine]) -> QuasiAffine:
    """`expr` with `loops[i]` for dimension i; raises NotLinear where that is no sum of digits."""
    if isinstance(expr, ir.AffineDimExpr):
        return loops[expr.position]
    if isinstance(expr, ir.AffineConstantExpr):
        return QuasiAffine((), expr.value)
    left = composed(expr.lhs, loops)
    if isinstance(expr, ir.AffineAddExpr):
        return left + composed(expr.rhs, loops)
    right = composed(expr.rhs, loops)
    if isinstance(expr, ir.AffineMulExpr) and not left.digits:
        left, right = right, left
    if right.digits:
        raise NotLinear(f"the index `{expr}`")
    if isinstance(expr, ir.AffineMulExpr):
        return left.scaled(right.offset)
    if isinstance(expr, ir.AffineFloorDivExpr):
        return left.quotient(right.offset)
    if isinstance(expr, ir.AffineModExpr):
        return left.remainder(right.offset)
    raise NotLinear(f"the index `{expr}`")
