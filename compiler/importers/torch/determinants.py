"""Determinants, by elimination with partial pivoting, written out step by step."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

TOO_LARGE = (
    "of matrices only determinants, factors and solutions of real square ones of up to 16 rows are computed"
)
MOST_ROWS = 16
"""Rows of the largest matrix whose steps are written out: each is about ten operations on all of it."""


def linalg_det(x):
    """The determinants of `x` [..., n, n], their factors L and U in one matrix, and the rows that changed places.

    torch-mlir eliminates without pivots, and fails where one is 0.
    """
    if x.is_complex() or x.shape[-1] > MOST_ROWS:
        return NotImplemented
    sign, factors, pivots = factored(x)
    return sign * factors.diagonal(dim1=-2, dim2=-1).prod(-1) if x.shape[-1] else sign, factors, pivots


def linalg_slogdet(x):
    """The signs of determinants, the logarithms of their magnitudes, and what `linalg_det` gives beside them."""
    if x.is_complex() or x.shape[-1] > MOST_ROWS:
        return NotImplemented
    sign, factors, pivots = factored(x)
    if not x.shape[-1]:
        return sign, torch.zeros_like(sign), factors, pivots
    diagonal = factors.diagonal(dim1=-2, dim2=-1)
    return sign * diagonal.sign().prod(-1), diagonal.abs().log().sum(-1), factors, pivots


def factored(x):
    """Signs of the permutations, factors, and rows that changed places, counted from 1.

    Eager factors the transpose of what lies row by row, and gradients read these factors.
    """
    return eliminated(x.mT if x.is_contiguous() else x)


def eliminated(x):
    """What `factored` gives, of `x` as it is.

    Source: Golub & Van Loan, "Matrix Computations", 4th edition, algorithm 3.4.1.
    """
    size = x.shape[-1]
    rows = torch.arange(size, device=x.device)
    factors, pivots = x, []
    sign = torch.ones(x.shape[:-2], dtype=x.dtype, device=x.device)
    for step in range(size):
        largest = torch.where(rows >= step, factors[..., step].abs(), -1).argmax(-1, keepdim=True)
        order = torch.where(rows == step, largest, torch.where(rows == largest, step, rows))
        factors = factors.gather(-2, order.unsqueeze(-1).expand(factors.shape))
        pivots.append(largest + 1)
        sign = torch.where(largest.squeeze(-1) == step, sign, -sign)
        pivot = factors[..., step, step, None]
        # A column of zeros stays as it is.
        below = torch.where(rows > step, factors[..., step] / torch.where(pivot == 0, 1, pivot), 0)
        row = torch.where(rows > step, factors[..., step, :], 0)
        is_column = (rows == step) & (rows > step).unsqueeze(-1)
        factors = torch.where(
            is_column, below.unsqueeze(-1), factors - below.unsqueeze(-1) * row.unsqueeze(-2)
        )
    if not size:
        return sign, x.clone(), torch.zeros(x.shape[:-1], dtype=torch.int32, device=x.device)
    return sign, factors, torch.cat(pivots, -1).to(torch.int32)


TABLE: dict[Any, Any] = {aten._linalg_det.default: linalg_det, aten._linalg_slogdet.default: linalg_slogdet}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
