"""Losses that PyTorch takes apart, while it traces, into something else than its kernels compute."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

_REDUCTIONS: dict[Any, str] = {0: "none", 1: "mean", 2: "sum"}
"""How PyTorch's own interface numbers reductions."""


def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """`sum(max(0, 1 - (x[target] - x[other]))) / C` of a row [C], or of each row of [N, C].

    The targets of a row end at its first -1. PyTorch's decomposition counts places behind that as class 0.
    """
    shape = tuple(input.shape)
    is_known = size_average is None and reduce is None and reduction in _REDUCTIONS.values()
    if not is_known or tuple(target.shape) != shape or len(shape) not in (1, 2) or not input.numel():
        return functional.multilabel_margin_loss(input, target, size_average, reduce, reduction)
    rows, numbers = torch.atleast_2d(input), torch.atleast_2d(target)
    is_named = torch.cumsum((numbers == -1).to(torch.int64), 1) == 0
    named = torch.gather(rows, 1, torch.where(is_named, numbers, 0)).unsqueeze(2)
    classes = torch.arange(shape[-1], device=input.device)
    is_target = (is_named.unsqueeze(2) & (numbers.unsqueeze(2) == classes)).any(1, keepdim=True)
    counted = torch.where(is_named.unsqueeze(2) & ~is_target, 1 - named + rows.unsqueeze(1), 0)
    loss = torch.where(counted > 0, counted, 0).sum((1, 2)) / shape[-1]
    if reduction == "none":
        return loss.reshape(shape[:-1])
    return loss.mean() if reduction == "mean" else loss.sum()


def multi_margin_loss(
    input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"
):
    """`sum(max(0, margin - x[target] + x[other]) ** p * weight[target]) / C` of a row [C], or of each row of [N, C].

    NaN is no loss, as in PyTorch's kernel; its decomposition keeps it.
    """
    given = (input, target, p, margin, weight, size_average, reduce, reduction)
    is_known = size_average is None and reduce is None and reduction in _REDUCTIONS.values() and p in (1, 2)
    rows, numbers = torch.atleast_2d(input), torch.atleast_1d(target)
    fits = rows.dim() == 2 and numbers.dim() == 1 and len(rows) == len(numbers) and rows.shape[1]
    if not is_known or not fits or (weight is not None and weight.numel() != rows.shape[1]):
        return functional.multi_margin_loss(*given)
    numbers = numbers.unsqueeze(1)
    over = margin - torch.gather(rows, 1, numbers) + rows
    counted = (over > 0) & (torch.arange(rows.shape[1], device=input.device) != numbers)
    # What does not count has no gradient, not one of 0 times infinity.
    over = torch.where(counted, over, 0)
    loss = over if p == 1 else over * over
    if weight is not None:
        loss = torch.where(counted, loss * weight.reshape(-1)[numbers], 0)
    loss = loss.sum(1) / rows.shape[1]
    if reduction == "none":
        return loss.reshape(target.shape)
    return loss.mean() if reduction == "mean" else loss.sum()


def binary_cross_entropy(x, target, weight=None, reduction=1):
    """In the type of `x`, whatever that of the weights is: eager PyTorch multiplies the losses by them where they lie."""
    if weight is None or weight.dtype == x.dtype:
        return NotImplemented
    losses = torch.ops.aten.binary_cross_entropy.default(x, target, None, 0)
    losses = (losses * weight).to(x.dtype)
    if _REDUCTIONS[reduction] == "none":
        return losses
    return losses.mean() if _REDUCTIONS[reduction] == "mean" else losses.sum()


def _numbered(input, target, reduction=1):
    """The loss as PyTorch's own interface, and TorchDynamo's graphs, call it."""
    return multilabel_margin_loss(input, target, reduction=_REDUCTIONS[reduction])


def _multi_numbered(input, target, p=1, margin=1.0, weight=None, reduction=1):
    """The loss as PyTorch's own interface, and TorchDynamo's graphs, call it."""
    return multi_margin_loss(input, target, p, margin, weight, reduction=_REDUCTIONS[reduction])


FUNCTIONS: dict[Any, Any] = {
    functional.multilabel_margin_loss: multilabel_margin_loss,
    functional.multi_margin_loss: multi_margin_loss,
    torch._C._nn.multilabel_margin_loss: _numbered,  # type: ignore[attr-defined]
    torch._C._nn.multi_margin_loss: _multi_numbered,  # type: ignore[attr-defined]
}
"""Functions of PyTorch's interface -> our forms of them, called instead while a model is traced."""

TABLE: dict[Any, Any] = {torch.ops.aten.binary_cross_entropy.default: binary_cross_entropy}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
