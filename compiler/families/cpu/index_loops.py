"""Loops and index arithmetic at the insertion point, for kernels that are written by hand: counts may be known or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.compiler.ir import affine, arith, ir, scf


def index(value: int) -> ir.Value:
    return arith.constant(ir.IndexType.get(), value)


def loop(
    start: ir.Value | int,
    end: ir.Value | int,
    step: int,
    body: Callable[[ir.Value, list[ir.Value]], Sequence[ir.Value]],
    carried: Sequence[ir.Value] = (),
) -> list[ir.Value]:
    """`scf.for` with `body(i, carried)`, which gives the next carried values; a single round is written without it."""
    if isinstance(start, int) and isinstance(end, int) and end - start == step:
        return list(body(index(start), list(carried)))
    low, high = (index(bound) if isinstance(bound, int) else bound for bound in (start, end))
    op = scf.ForOp(low, high, index(step), list(carried))
    with ir.InsertionPoint(op.body):
        scf.YieldOp(list(body(op.induction_variable, list(op.inner_iter_args))))
    return list(op.results)


def plus(base: ir.Value, offset: int) -> ir.Value:
    if not offset:
        return base
    d0 = ir.AffineExpr.get_dim(0)
    return affine.apply(ir.AffineMap.get(1, 0, [d0 + offset]), [base])


def scaled(value: ir.Value, factor: int) -> ir.Value:
    if factor == 1:
        return value
    return affine.apply(ir.AffineMap.get(1, 0, [ir.AffineExpr.get_dim(0) * factor]), [value])


def sum_of(left: ir.Value, right: ir.Value) -> ir.Value:
    d = ir.AffineExpr.get_dim
    return affine.apply(ir.AffineMap.get(2, 0, [d(0) + d(1)]), [left, right])


def at_most(value: ir.Value, factor: int, limit: int) -> ir.Value:
    """`min(value * factor, limit)`."""
    d0 = ir.AffineExpr.get_dim(0)
    exprs = [d0 * factor, ir.AffineExpr.get_constant(limit)]
    return affine.AffineMinOp(ir.AffineMap.get(1, 0, exprs), [value]).result
