"""Products of groups of rows, each with a matrix of its own: the experts of a mixture, as `torch.nn.functional.grouped_mm` has them.

    rows   a a a b b c ...   groups end at 3, 5, 6          blocks of 2   (a a) (a .) (b b) (c .)   matrix of each   a a b c

How long groups are is known when the program runs, all sizes of a program before. Rows are therefore laid out in blocks of one
group each, as in T. Gale et al., "MegaBlocks: Efficient Sparse Training with Mixture-of-Experts", MLSys 2023, and each block is
multiplied by its group's matrix: of `n` rows in `g` groups at most `g` blocks are not full, which bounds the number of blocks.
"""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

_HIGHEST = 16
"""Rows of a block, at most: the fewest that matrix instructions of GPUs have. A block reads its matrix where it lies, so that
many low blocks cost less than the rows that high ones leave empty."""
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def grouped_mm(left, right, offs=None, bias=None, out_dtype=None):
    """The products of groups that end at `offs`: of rows of `left`, of columns of `right`, or of what is summed over.

    Shapes: [n, k] and [g, k, m] give [n, m]; [g, n, k] and [k, m] give [n, m]; [n, k] and [k, m] give [g, n, m]; [g, n, k] and
    [g, k, m] take no `offs`. Rows and columns past the last group are zeros.
    """
    if left.dtype not in _FLOATS or bias is not None or out_dtype not in (None, left.dtype):
        return NotImplemented
    if offs is None:
        return torch.bmm(left, right)
    if left.dim() == 2 and right.dim() == 3:
        return of_rows(left, right, offs)
    if left.dim() == 3 and right.dim() == 2:
        return of_rows(right.t(), left.transpose(1, 2), offs).t()
    if left.dim() == right.dim() == 2:
        # Both are masked: 0 times what is infinite in another group would be NaN.
        members = _groups(offs, left.shape[1]) == torch.arange(len(offs)).unsqueeze(1)
        zero = torch.zeros((), dtype=left.dtype)
        own = torch.where(members.unsqueeze(1), left, zero), torch.where(members.unsqueeze(2), right, zero)
        return torch.bmm(*own)
    return NotImplemented


def of_rows(rows, matrices, offs):
    """Every row of `rows` [n, k] times its group's matrix of `matrices` [g, k, m], [n, m]; groups end at `offs` [g], ascending."""
    number, groups = rows.shape[0], matrices.shape[0]
    if number == 0 or groups == 0:
        return rows.new_zeros((number, matrices.shape[2]))
    found = _groups(offs, number)
    inside = found < groups
    own = found.clamp(max=groups - 1)
    # Half of what groups of one size have: blocks that are not full add at most half as many rows again, and few of many.
    height = max(1, min(_HIGHEST, number // (2 * groups)))
    if height == 1:
        products = torch.bmm(rows.unsqueeze(1), _chosen(matrices, own)).squeeze(1)
    else:
        ends = offs.to(torch.int64)
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), ends[:-1]])
        last = torch.cumsum((ends - starts + height - 1) // height, 0)
        first = torch.cat([torch.zeros(1, dtype=torch.int64), last[:-1]])
        nonempty = min(number, groups)
        blocks = (number - nonempty) // height + nonempty
        group = _groups(last, blocks).clamp(max=groups - 1)
        start = starts[group] + (torch.arange(blocks) - first[group]) * height
        taken = (start.unsqueeze(1) + torch.arange(height)).clamp(max=number - 1)
        filled = torch.bmm(rows[taken], _chosen(matrices, group))
        place = torch.arange(number) - starts[own] + first[own] * height
        products = filled.reshape(blocks * height, -1)[place.clamp(max=blocks * height - 1)]
    return torch.where(inside.unsqueeze(1), products, torch.zeros((), dtype=rows.dtype))


def _groups(ends, number):
    """Of every number below `number` its group: how many groups end at or before it."""
    return (ends.unsqueeze(0) <= torch.arange(number).unsqueeze(1)).sum(1)


def _chosen(matrices, numbers):
    """The matrices of these numbers, which keep the order in which their elements lie."""
    if matrices.stride(-1) > matrices.stride(-2):
        return matrices.transpose(1, 2)[numbers].transpose(1, 2)
    return matrices[numbers]


TABLE: dict[Any, Any] = {aten._grouped_mm.default: grouped_mm}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
