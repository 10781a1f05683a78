"""Products of matrices that are added to something, and of three tensors, summed in eager PyTorch's order."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

_HALVES = {torch.float16, torch.bfloat16}

_LIBRARY = torch.library.Library("tilewright", "FRAGMENT")
_LIBRARY.define("product(Tensor x, Tensor y) -> Tensor")
_LIBRARY.impl("product", lambda x, y: torch.matmul(x.float(), y.float()), "CompositeExplicitAutograd")
torch.library.register_fake(
    "tilewright::product",
    lambda x, y: x.new_empty((*x.shape[:-1], y.shape[-1]), dtype=torch.float32),
)


def _added(product, bias, beta, alpha):
    """`beta * bias + alpha * product` without multiplications by one."""
    if alpha != 1:
        product = product * alpha
    if beta == 0:
        return product
    return product + (bias if beta == 1 else bias * beta)


def _rounded_once(bias, left, right, beta, alpha):
    """The sum in single precision, rounded to the type of 16-bit factors as in eager PyTorch."""
    product = torch.ops.tilewright.product(left, right)
    return _added(product, bias.to(torch.float32), beta, alpha).to(left.dtype)


def addmm(bias, left, right, *, beta=1, alpha=1):
    """`beta * bias + alpha * (left @ right)`, on 16-bit floats rounded once."""
    if left.dtype in _HALVES and (beta != 0 or alpha != 1):
        return _rounded_once(bias, left, right, beta, alpha)
    return _added(torch.mm(left, right), bias, beta, alpha)


def baddbmm(bias, left, right, *, beta=1, alpha=1):
    """`addmm` of each matrix of a batch; torch-mlir has a form for wide floats that reads the bias."""
    if left.dtype in _HALVES and (beta != 0 or alpha != 1):
        return _rounded_once(bias, left, right, beta, alpha)
    if not left.dtype.is_floating_point and not left.dtype.is_complex:
        beta, alpha = int(beta), int(alpha)
    elif beta != 0:
        return NotImplemented
    return _added(torch.bmm(left, right), bias, beta, alpha)


def addbmm(bias, left, right, *, beta=1, alpha=1):
    """`addmm` of matrices side by side: the sum of a batch of products is one product."""
    if not bias.dtype.is_floating_point and not bias.dtype.is_complex:
        beta, alpha = int(beta), int(alpha)
    batch, rows, inner = left.shape
    left, right = (
        left.movedim(0, 1).reshape(rows, batch * inner),
        right.reshape(batch * inner, right.shape[2]),
    )
    return torch.addmm(bias, left, right, beta=beta, alpha=alpha)


def trilinear(first, second, third, expand1, expand2, expand3, sumdim, unroll_dim=1):
    """Sums over `sumdim` of the product of three tensors, which get dimensions where they `expand`.

    What the third lacks is summed before it is multiplied, as in eager PyTorch: infinities of both signs may meet there or not.
    """
    for expand, number in ((expand1, 0), (expand2, 1), (expand3, 2)):
        for d in sorted(expand):
            first, second, third = (
                x.unsqueeze(d) if i == number else x for i, x in enumerate((first, second, third))
            )
    early = [d for d in sumdim if d in expand3 and d != unroll_dim]
    late = [d for d in sumdim if d not in early]
    found = _summed_product(_summed_product(first, second, early), third, late)
    for d in sorted(sumdim, reverse=True):
        found = found.squeeze(d)
    return found


def _summed_product(left, right, dims):
    """The sums over `dims`, which stay with one step; of 16-bit floats rounded once."""
    dtype = left.dtype
    wide = torch.float32 if dtype in _HALVES else dtype
    product = left.to(wide) * right.to(wide)
    return (torch.sum(product, dims, keepdim=True) if dims else product).to(dtype)


TABLE: dict[Any, Any] = {
    aten._trilinear.default: trilinear,
    aten.addmm.default: addmm,
    aten.addbmm.default: addbmm,
    aten.baddbmm.default: baddbmm,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
