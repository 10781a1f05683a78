"""Functions that eager PyTorch refuses for some values of their tensors: compiled, the check fails the call."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

_LIBRARY = torch.library.Library("tilewright", "FRAGMENT")
_LIBRARY.define("checked(Tensor x, Tensor holds, str message) -> Tensor")


def _run_checked(x, holds, message):
    if not holds:
        raise RuntimeError(message)
    return x.clone()


_LIBRARY.impl("checked", _run_checked, "CompositeExplicitAutograd")
torch.library.register_fake("tilewright::checked", lambda x, holds, message: torch.empty_like(x))
torch.library.register_autograd("tilewright::checked", lambda context, grad: (grad, None, None))


def checked(x: torch.Tensor, holds: torch.Tensor, message: str) -> torch.Tensor:
    """`x`; a call in which a boolean of `holds` is false fails with `message`."""
    return torch.ops.tilewright.checked(x, torch.all(holds), message)


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    """Half the squared error over the variance, which must not be negative, and half its logarithm."""
    if not isinstance(var, torch.Tensor):
        var = torch.full_like(input, var)
    if var.shape != input.shape:
        if var.shape == input.shape[:-1]:
            var = var.unsqueeze(-1)
        elif var.dim() != input.dim() or sum(n for m, n in zip(input.shape, var.shape) if m != n) != 1:
            raise ValueError("var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not valid")
    var = checked(var, var >= 0, "gaussian_nll_loss: var has negative entries")
    var = torch.where(var < eps, eps, var)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def cov(x, *, correction=1, fweights=None, aweights=None):
    """The covariance of the rows of `x`; weights must not be negative, nor may their sum be zero."""
    if x.dim() > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions, found {x.dim()}")
    rows = x.unsqueeze(0) if x.dim() < 2 else x
    rows = rows.unsqueeze(1) if x.dim() == 0 else rows
    weights = [w for w in (fweights, aweights) if w is not None]
    for w in weights:
        if w.dim() > 1 or w.numel() != rows.shape[1]:
            raise RuntimeError("cov(): expected one weight for each observation")
    if not weights:
        total, norm = rows.shape[1], max(rows.shape[1] - correction, 0)
        weighted = rows
    else:
        weights = [checked(w, w >= 0, "cov(): weights cannot be negative") for w in weights]
        weight = weights[0] * weights[1] if len(weights) == 2 else weights[0]
        total = weight.sum()
        total = checked(total, total != 0, "cov(): weights sum to zero, can't be normalized")
        beside = (weight * weights[-1]).sum() / total if aweights is not None else 1
        norm = torch.clamp_min(total - correction * beside, 0)
        weighted = rows * weight
    mean = weighted.sum(1, keepdim=True) / total
    centred = (rows - mean).to(torch.result_type(mean, rows))
    scaled = centred if not weights else centred * weight
    return (torch.mm(centred, scaled.t().conj()) / norm).squeeze()


def corrcoef(x):
    """The covariance of the rows of `x` over the products of their deviations."""
    if x.dim() > 2:
        raise RuntimeError(f"corrcoef(): expected input to have two or fewer dimensions, found {x.dim()}")
    found = cov(x)
    if not found.dim():
        return found / found
    deviation = torch.sqrt(torch.real(found.diagonal()))
    found = found / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if not found.is_complex():
        return torch.clamp(found, -1, 1)
    return torch.complex(torch.clamp(found.real, -1, 1), torch.clamp(found.imag, -1, 1))


FUNCTIONS: dict[Any, Any] = {
    functional.gaussian_nll_loss: gaussian_nll_loss,
    **dict.fromkeys((torch.cov, torch.Tensor.cov), cov),
    **dict.fromkeys((torch.corrcoef, torch.Tensor.corrcoef), corrcoef),
}
"""Functions of PyTorch's interface -> our forms of them, called instead while a model is traced."""
