"""Solutions, inverses and factors of small matrices, written out step by step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from tilewright.compiler.importers.torch.checks import checked
from tilewright.compiler.importers.torch.determinants import MOST_ROWS, eliminated

aten = torch.ops.aten


def _covers(*matrices: torch.Tensor) -> bool:
    """Whether steps of `matrices`, the first of which is eliminated, are written out."""
    return 0 < matrices[0].shape[-1] <= MOST_ROWS and not any(x.is_complex() for x in matrices)


def _square(*matrices: torch.Tensor) -> bool:
    x = matrices[0]
    return x.dim() > 1 and x.shape[-1] == x.shape[-2] and _covers(*matrices)


def _by_columns(x):
    """`x` as eager PyTorch lays out matrices that come from LAPACK."""
    return x.mT.contiguous().mT if x.dim() > 1 else x


def _order(pivots, size: int):
    """Which row of a matrix is where once rows have changed places as `pivots` say."""
    rows = torch.arange(size, device=pivots.device)
    order = rows.expand(*pivots.shape[:-1], size)
    for step in range(pivots.shape[-1]):
        other = pivots[..., step, None].to(torch.int64) - 1
        there, here = order.gather(-1, other), order[..., step, None]
        order = torch.where(rows == step, there, torch.where(rows == other, here, order))
    return order


def _picked(x, order):
    """Rows of `x` [..., n, m] in `order` [..., n]."""
    return x.gather(-2, order.unsqueeze(-1).expand(*order.shape, x.shape[-1]).expand(x.shape))


def _unpicked(x, order):
    """`x` whose `_picked` is given."""
    rows = torch.arange(x.shape[-2], device=x.device)
    back = (order.unsqueeze(-2) == rows.unsqueeze(-1)).to(torch.int32).argmax(-1)
    return _picked(x, back)


def _substituted(triangle, x, upper: bool, unit: bool):
    """The solution y of triangle @ y = x, column by column; only one half of `triangle` is read.

    Source: Golub & Van Loan, "Matrix Computations", 4th edition, algorithms 3.1.3 and 3.1.4.
    """
    size = triangle.shape[-1]
    rows = torch.arange(size, device=x.device).unsqueeze(-1)
    x = x.expand(*torch.broadcast_shapes(triangle.shape[:-2], x.shape[:-2]), *x.shape[-2:])
    for step in reversed(range(size)) if upper else range(size):
        row = x[..., step, None, :]
        if not unit:
            row = row / triangle[..., step, step, None, None]
            x = torch.where(rows == step, row, x)
        left = rows < step if upper else rows > step
        x = torch.where(left, x - triangle[..., :, step, None] * row, x)
    return x


def _solved(factors, pivots, x, adjoint: bool):
    """The solution of what has these factors, or of its transpose."""
    x = x.expand(*torch.broadcast_shapes(factors.shape[:-2], x.shape[:-2]), *x.shape[-2:])
    order = _order(pivots, factors.shape[-1]).expand(x.shape[:-1])
    if adjoint:
        x = _substituted(factors.mT, x, upper=False, unit=False)
        return _unpicked(_substituted(factors.mT, x, upper=True, unit=True), order)
    x = _substituted(factors, _picked(x, order), upper=False, unit=True)
    return _substituted(factors, x, upper=True, unit=False)


def _first_where(is_wrong):
    """The number of the first step, counted from 1, at which a boolean of the last dimension holds; 0 if none does."""
    return torch.where(is_wrong.any(-1), is_wrong.to(torch.int32).argmax(-1) + 1, 0).to(torch.int32)


def _singular(factors):
    return _first_where(factors.diagonal(dim1=-2, dim2=-1) == 0)


def linalg_lu_factor_ex(x, pivot=True, check_errors=False):
    """Both factors in one matrix, rows that changed places, and the first pivot of 0."""
    if not pivot or check_errors or not _square(x):
        return NotImplemented
    _, factors, pivots = eliminated(x)
    return _by_columns(factors), pivots, _singular(factors)


def linalg_lu_solve(factors, pivots, x, left=True, adjoint=False):
    """The solution of a system from its factors; from the right, that of the transposes."""
    if not _square(factors, x):
        return NotImplemented
    if left:
        return _by_columns(_solved(factors, pivots, x, adjoint))
    return _by_columns(_solved(factors, pivots, x.mT, not adjoint)).mT


def linalg_solve_ex(x, b, left=True, check_errors=False):
    """The solution, and what `linalg_lu_factor_ex` gives."""
    if check_errors or not _square(x, b):
        return NotImplemented
    is_vector = b.dim() == 1 or (x.dim() - 1 == b.dim() and x.shape[:-1] == b.shape)
    right = b.unsqueeze(-1) if is_vector else b
    _, factors, pivots = eliminated(x)
    found = _solved(factors, pivots, right if left else right.mT, not left)
    found = found if left else found.mT
    found = found.squeeze(-1) if is_vector else found
    laid = _by_columns(found) if left else found.contiguous()
    return laid, _by_columns(factors), pivots, _singular(factors)


def linalg_inv_ex(x, check_errors=False):
    """Inverses, and the first pivots of 0."""
    if check_errors or not _square(x):
        return NotImplemented
    _, factors, pivots = eliminated(x)
    unit = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand(x.shape)
    return _by_columns(_solved(factors, pivots, unit, False)), _singular(factors)


def linalg_solve_triangular(triangle, x, *, upper, left=True, unitriangular=False):
    """The solution of a triangular system, of whose matrix one half is read."""
    if not _square(triangle, x) or x.dim() < 2:
        return NotImplemented
    if left:
        return _by_columns(_substituted(triangle, x, upper, unitriangular))
    return _by_columns(_substituted(triangle.mT, x.mT, not upper, unitriangular).mT)


def triangular_solve(x, triangle, upper=True, transpose=False, unitriangular=False):
    """What `linalg_solve_triangular` gives, of the matrix or its transpose, and a copy of the matrix."""
    if not _square(triangle, x) or x.dim() < 2:
        return NotImplemented
    matrix = triangle.mT if transpose else triangle
    shape = (*torch.broadcast_shapes(triangle.shape[:-2], x.shape[:-2]), *triangle.shape[-2:])
    found = _substituted(matrix, x, upper != transpose, unitriangular)
    return _by_columns(found), _by_columns(triangle.expand(shape).clone())


def linalg_cholesky_ex(x, upper=False, check_errors=False):
    """The lower factor, from one half of `x`, or its transpose; and the first pivot that is not positive.

    Source: Golub & Van Loan, "Matrix Computations", 4th edition, algorithm 4.2.2.
    """
    if check_errors or not _square(x):
        return NotImplemented
    rest = x.mT if upper else x
    rows = torch.arange(x.shape[-1], device=x.device)
    columns, wrong = [], []
    for step in range(x.shape[-1]):
        pivot = rest[..., step, step, None]
        wrong.append(~(pivot > 0))
        column = torch.where(rows == step, pivot.sqrt(), rest[..., step] / pivot.sqrt())
        columns.append(torch.where(rows < step, 0, column))
        rest = rest - columns[-1].unsqueeze(-1) * columns[-1].unsqueeze(-2)
    factor = torch.stack(columns, -1)
    return _by_columns(factor.mT if upper else factor), _first_where(torch.cat(wrong, -1))


def lu_unpack(factors, pivots, unpack_data=True, unpack_pivots=True):
    """The permutation and both factors, each as a matrix."""
    if not (unpack_data and unpack_pivots and _square(factors)):
        return NotImplemented
    size = factors.shape[-1]
    unit = torch.eye(size, dtype=factors.dtype, device=factors.device)
    order = _order(pivots, size)
    rows = torch.arange(size, device=factors.device).unsqueeze(-1)
    permutation = (order.unsqueeze(-2) == rows).to(factors.dtype)
    return permutation, factors.tril(-1) + unit, factors.triu()


_SINGULAR = "The solver failed because the input matrix is singular."
_NOT_POSITIVE = "The factorization could not be completed because the input is not positive-definite."


def _or_else(ours: Callable, function: Callable) -> Callable:
    """`function` by `ours`, whose operators have their own checks taken apart; what these do not cover is as before."""

    @functools.wraps(ours)
    def called(*args: Any, **kwargs: Any):
        are_covered = all(isinstance(x, torch.Tensor) and x.is_floating_point() for x in args[:2])
        if not args or not are_covered or "out" in kwargs or not _square(args[0]):
            return function(*args, **kwargs)
        return ours(*args, **kwargs)

    return called


def _solve(x, b, *, left=True):
    found, _, _, info = aten._linalg_solve_ex(x, b, left=left)
    return checked(found, info == 0, f"linalg.solve: {_SINGULAR}")


def _inverse(x):
    found, info = aten.linalg_inv_ex(x)
    return checked(found, info == 0, "linalg.inv: The diagonal element of a factor is zero, singular input.")


def _cholesky(x, *, upper=False):
    found, info = aten.linalg_cholesky_ex(x, upper=upper)
    return checked(found, info == 0, f"linalg.cholesky: {_NOT_POSITIVE}")


FUNCTIONS: dict[Any, Any] = {
    torch.linalg.solve: _or_else(_solve, torch.linalg.solve),
    torch.linalg.cholesky: _or_else(_cholesky, torch.linalg.cholesky),
    **{
        function: _or_else(_inverse, function)
        for function in (torch.linalg.inv, torch.inverse, torch.Tensor.inverse)
    },
}
"""Functions of PyTorch's interface -> our forms of them, called instead while a model is traced."""

TABLE: dict[Any, Any] = {
    aten._linalg_solve_ex.default: linalg_solve_ex,
    aten.linalg_inv_ex.default: linalg_inv_ex,
    aten.linalg_lu_factor_ex.default: linalg_lu_factor_ex,
    aten.linalg_lu_solve.default: linalg_lu_solve,
    aten.linalg_solve_triangular.default: linalg_solve_triangular,
    aten.triangular_solve.default: triangular_solve,
    aten.linalg_cholesky_ex.default: linalg_cholesky_ex,
    aten.lu_unpack.default: lu_unpack,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
