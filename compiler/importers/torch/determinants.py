"""Determinants, by elimination with partial pivoting, written out step by step."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

TOO_LARGE = "only determinants of real matrices of up to 16 rows are computed"
_MOST_ROWS = 16
"""Rows of the largest matrix whose steps are written out: each is about ten operations on all of it."""


def linalg_det(x):
    """The determinants of `x` [..., n, n], their factors L and U in one matrix, and the rows that changed places.

    torch-mlir eliminates without pivots, and fails where one is 0.
    Source: Golub & Van Loan, "Matrix Computations", 4th edition, algorithm 3.4.1.
    """
    size = x.shape[-1]
    if x.is_complex() or size > _MOST_ROWS:
        return NotImplemented
    rows = torch.arange(size, device=x.device)
    # Eager factors the transpose of what lies row by row, and gradients read these factors.
    factors, pivots = x.mT if x.is_contiguous() else x, []
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
    result = sign * factors.diagonal(dim1=-2, dim2=-1).prod(-1)
    return result, factors, torch.cat(pivots, -1).to(torch.int32)


TABLE: dict[Any, Any] = {aten._linalg_det.default: linalg_det}
