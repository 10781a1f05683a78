"""Products of matrices that are added to something."""

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
    """`addmm` of each matrix of a batch; torch-mlir has a form for what reads the bias and is no 16-bit float."""
    if left.dtype in _HALVES and (beta != 0 or alpha != 1):
        return _rounded_once(bias, left, right, beta, alpha)
    if beta != 0:
        return NotImplemented
    product = torch.bmm(left, right)
    if not bias.dtype.is_floating_point and not bias.dtype.is_complex:
        alpha = int(alpha)
    return product if alpha == 1 else product * alpha


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


TABLE: dict[Any, Any] = {
    aten.addmm.default: addmm,
    aten.addbmm.default: addbmm,
    aten.baddbmm.default: baddbmm,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
