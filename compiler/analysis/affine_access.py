"""Reading affine index maps: which loops an operand depends on, how it moves along one of them, and as quasi-affine indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.quasi_affine import NotQuasiAffine, QuasiAffine, V


def _children(expr: ir.AffineExpr) -> tuple[ir.AffineExpr, ...]:
    if isinstance(expr, (ir.AffineDimExpr, ir.AffineConstantExpr)):
        return ()
    return (expr.lhs, expr.rhs)


def dims(expr: ir.AffineExpr) -> set[int]:
    """Positions of the loops that `expr` depends on."""
    if isinstance(expr, ir.AffineDimExpr):
        return {expr.position}
    return set[int]().union(*(dims(child) for child in _children(expr)))


@lru_cache(maxsize=4096)
def map_dims(map_: ir.AffineMap) -> frozenset[int]:
    """Positions of the loops that any result of `map_` depends on."""
    return frozenset[int]().union(*(dims(expr) for expr in map_.results))


def is_dim(expr: ir.AffineExpr, position: int | None = None) -> bool:
    """Whether `expr` is a plain loop variable (the one at `position`, when given)."""
    return isinstance(expr, ir.AffineDimExpr) and position in (None, expr.position)


def terms(expr: ir.AffineExpr) -> Iterator[ir.AffineExpr]:
    """The summands of `expr`."""
    if isinstance(expr, ir.AffineAddExpr):
        for child in _children(expr):
            yield from terms(child)
    else:
        yield expr


def evaluate(expr: ir.AffineExpr, values: list[int]) -> int:
    """The value of `expr` at integer loop positions `values`."""
    if isinstance(expr, ir.AffineDimExpr):
        return values[expr.position]
    if isinstance(expr, ir.AffineConstantExpr):
        return expr.value
    left, right = (evaluate(child, values) for child in _children(expr))
    if isinstance(expr, ir.AffineAddExpr):
        return left + right
    if isinstance(expr, ir.AffineMulExpr):
        return left * right
    if isinstance(expr, ir.AffineModExpr):
        return left % right
    if isinstance(expr, ir.AffineFloorDivExpr):
        return left // right
    return -(-left // right)


def composed(
    expr: ir.AffineExpr,
    loops: Mapping[int, QuasiAffine[V]] | Sequence[QuasiAffine[V]],
    divided: Callable[
        [QuasiAffine[V], int], tuple[QuasiAffine[V], QuasiAffine[V]] | None
    ] = QuasiAffine.divided,
) -> QuasiAffine[V]:
    """`expr` with `loops[i]` for dimension i; `divided` gives quotients with remainders, None where there are none.

    Raises NotQuasiAffine where the result is no quasi-affine index.
    """
    if isinstance(expr, ir.AffineDimExpr):
        return loops[expr.position]
    if isinstance(expr, ir.AffineConstantExpr):
        return QuasiAffine((), expr.value)
    left, right = (composed(child, loops, divided) for child in _children(expr))
    if isinstance(expr, ir.AffineAddExpr):
        return left + right
    if isinstance(expr, ir.AffineMulExpr) and left.is_constant:
        left, right = right, left
    if isinstance(expr, ir.AffineMulExpr) and right.is_constant:
        return left.scaled(right.offset)
    if isinstance(expr, (ir.AffineFloorDivExpr, ir.AffineModExpr)) and right.is_constant:
        found = divided(left, right.offset)
        if found is not None:
            return found[isinstance(expr, ir.AffineModExpr)]
    raise NotQuasiAffine(f"the index `{expr}` is no sum of loops, their quotients and remainders")


def stride_along(map_: ir.AffineMap, position: int, strides: Sequence[int]) -> int:
    """Elements that one step of a loop moves an operand by, whose dimensions have these strides.

    For maps without floordiv and mod along that loop.
    """
    at = [0] * map_.n_dims
    first = [evaluate(expr, at) for expr in map_.results]
    at[position] = 1
    return sum((evaluate(expr, at) - start) * s for expr, start, s in zip(map_.results, first, strides))


def row_major(shape: Sequence[int]) -> list[int]:
    """Strides in elements of a tensor whose last dimension is contiguous."""
    return [math.prod(shape[d + 1 :]) for d in range(len(shape))]


def is_contiguous_along(map_: ir.AffineMap, position: int, block: int | None = None) -> bool:
    """Whether consecutive values of one loop address consecutive elements: `block` of them from a multiple of `block` on,
    or any, from anywhere on, where there is none.

    True for `... , d + other` in the last result and, with `block` dividing `p`, for the packed form
    `(d floordiv p, ..., d mod p)`; the loop may appear nowhere else.
    """
    *outer, last = map_.results
    moving = 0
    for term in terms(last):
        if is_dim(term, position):
            moving += 1
        elif position in dims(term):
            if not (isinstance(term, ir.AffineModExpr) and _packed(term, position, block)):
                return False
            moving += 1
    return moving == 1 and all(
        position not in dims(expr)
        or (isinstance(expr, ir.AffineFloorDivExpr) and _packed(expr, position, block))
        for expr in outer
    )


def _packed(expr: ir.AffineExpr, position: int, block: int | None) -> bool:
    left, right = _children(expr)
    whole = block is not None and isinstance(right, ir.AffineConstantExpr) and right.value % block == 0
    return whole and is_dim(left, position)


def packing(map_: ir.AffineMap, position: int) -> int | None:
    """The block `p` of an operand stored as `(d floordiv p, ..., d mod p)` along one loop, None if it is not."""
    for expr in map_.results:
        if isinstance(expr, ir.AffineFloorDivExpr) and position in dims(expr):
            return expr.rhs.value
    return None


def loop_extents(maps: list[ir.AffineMap], shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    """Extents of all loops, read off the operands that index with the plain loop variable.

    Loops that appear in no plain result (the window dims of a pooling without its window operand) are an
    error for linalg itself, so every loop is found.
    """
    extents: list[int] = [-1] * maps[0].n_dims
    for map_, shape in zip(maps, shapes):
        for expr, size in zip(map_.results, shape):
            if is_dim(expr):
                extents[expr.position] = size
    return tuple(extents)
