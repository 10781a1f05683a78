"""Rows of a table that are looked up and reduced by bags, and the gradients of that.

Bags of one size are a dimension, over which rows are reduced as they are looked up. Bags between offsets add every row to its bag:
work in proportion to the rows, however many bags there are. Maxima between offsets compare every row with every bag.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional

from tilewright.compiler.importers.torch.types import compute_dtype

aten = torch.ops.aten

_SUM, _MEAN, _MAX = range(3)


def _bag_of_each(offsets, rows: int):
    """The number of the bag in which each of `rows` rows is: how many bags start up to it, less one."""
    starts = offsets.new_zeros(rows + 1).index_add(0, offsets, torch.ones_like(offsets))
    return torch.cumsum(starts, 0, dtype=offsets.dtype)[:rows] - 1


def _is_padding(indices, padding_idx):
    """Which rows count nowhere; None where all count."""
    return indices == padding_idx if padding_idx is not None and padding_idx >= 0 else None


def embedding_bag(
    weight, indices, offsets, scale=False, mode=0, sparse=False, per_sample=None, last=False, padding_idx=None
):
    """Rows gathered, then reduced per bag (mode 0 sum, 1 mean, 2 maximum); padding rows count nowhere.

    The other results are those of eager PyTorch on CPUs, which leaves out what the gradient of a sum does not need.
    """
    bags = offsets.shape[0] - (1 if last else 0)
    bag = _bag_of_each(offsets[:bags], indices.shape[0])
    is_padding = _is_padding(indices, padding_idx)
    rows = aten.embedding(weight, indices)
    if per_sample is not None:
        rows = rows * per_sample.unsqueeze(-1)
    if mode == _MAX:
        return _maxima(rows, indices, bag, bags, is_padding)
    if is_padding is not None:
        rows = torch.where(is_padding.unsqueeze(-1), 0, rows)
    out = torch.zeros((bags, weight.shape[1]), dtype=compute_dtype(weight)).index_add(
        0, bag, rows.to(compute_dtype(weight))
    )
    if mode == _MEAN:
        counted = torch.ones_like(bag) if is_padding is None else (~is_padding).to(bag.dtype)
        count = torch.zeros(bags, dtype=bag.dtype).index_add(0, bag, counted)
        out = out / torch.clamp_min(count.unsqueeze(-1), 1)
        return out.to(weight.dtype), bag, count, count.clone()
    if weight.dtype != torch.float64 and is_padding is None:
        bag = offsets.new_empty([0])
    return out.to(weight.dtype), bag, offsets.new_zeros([bags]), offsets.new_zeros([bags])


def _maxima(rows, indices, bag, bags: int, is_padding):
    """As in eager PyTorch, a bag's maximum starts with its first row, and NaN is greater than nothing."""
    inside = (bag.unsqueeze(0) == torch.arange(bags).unsqueeze(1)).unsqueeze(-1)
    if is_padding is not None:
        inside = inside & ~is_padding.unsqueeze(-1)
    count = torch.sum(inside, 1, dtype=bag.dtype)
    top = torch.amax(torch.where(inside & (rows == rows), rows, -math.inf), 1)
    start = torch.argmax(inside.to(torch.int32), 1)
    top = torch.where(aten.index(rows, [start.squeeze(-1)]).isnan(), math.nan, top)
    met = torch.argmax((inside & (rows == top.unsqueeze(1))).to(torch.int32), 1)
    met = torch.where(top.isnan(), start, met)
    first = torch.where(count == 0, 0, aten.index(indices, [met])).to(bag.dtype)
    return torch.where(count == 0, 0.0, top), bag, count.squeeze(-1), first


def embedding_bag_forward_only(
    weight, indices, offsets, scale=False, mode=0, sparse=False, per_sample=None, last=False, padding_idx=None
):
    """`embedding_bag`, which counts an offset more than bags where it counts nothing."""
    found = embedding_bag(weight, indices, offsets, scale, mode, sparse, per_sample, last, padding_idx)
    return found if mode else (*found[:2], torch.zeros_like(offsets), torch.zeros_like(offsets))


def embedding_bag_backward(
    grad, indices, offsets, bag, sizes, largest, rows, scale, mode, sparse, per_sample, padding_idx=-1
):
    """The gradient of the table: each bag's added to the rows that it was made of."""
    if sparse or scale:
        return NotImplemented
    wide = grad.to(compute_dtype(grad))
    made = torch.zeros((rows, grad.shape[1]), dtype=wide.dtype)
    if mode == _MAX:
        # Empty bags name row 0, and have no gradient.
        wide = torch.where(sizes.unsqueeze(-1) == 0, 0, wide)
        return torch.scatter_add(made, 0, largest.to(torch.int64), wide).to(grad.dtype)
    bag = bag if bag.shape == indices.shape else _bag_of_each(offsets, indices.shape[0])
    if mode == _MEAN:
        wide = wide / torch.clamp_min(sizes.unsqueeze(-1), 1)
    parts = wide.index_select(0, bag)
    if per_sample is not None:
        parts = parts * per_sample.unsqueeze(-1)
    is_padding = _is_padding(indices, padding_idx)
    if is_padding is not None:
        parts = torch.where(is_padding.unsqueeze(-1), 0, parts)
    return made.index_add(0, indices, parts).to(grad.dtype)


def per_sample_weights_backward(grad, weight, indices, offsets, bag, mode, padding_idx=-1):
    """The gradient of a sum's factors: what each row has in common with the gradient of its bag."""
    bag = bag if bag.shape == indices.shape else _bag_of_each(offsets, indices.shape[0])
    dtype = compute_dtype(grad)
    found = torch.sum(grad.index_select(0, bag).to(dtype) * aten.embedding(weight, indices).to(dtype), -1)
    is_padding = _is_padding(indices, padding_idx)
    return (found if is_padding is None else torch.where(is_padding, 0, found)).to(grad.dtype)


def functional_embedding_bag(
    input,
    weight,
    offsets=None,
    max_norm=None,
    norm_type=2,
    scale_grad_by_freq=False,
    mode="mean",
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """Bags of one size as a dimension, where nothing else is asked for; the gradient is that of looking rows up."""
    fits = isinstance(input, torch.Tensor) and input.dim() == 2 and input.numel() and weight.dim() == 2
    fits = fits and input.dtype in (torch.int32, torch.int64) and weight.is_floating_point()
    asked = (offsets, max_norm, padding_idx, per_sample_weights)
    if not fits or any(each is not None for each in asked) or scale_grad_by_freq or sparse:
        return functional.embedding_bag(
            input, weight, offsets, max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights,
            include_last_offset, padding_idx,
        )  # fmt: skip
    rows = functional.embedding(input, weight)
    if mode != "max":
        return torch.sum(rows, 1) if mode == "sum" else torch.mean(rows, 1)
    place = torch.argmax(torch.where(torch.isnan(rows), -math.inf, rows), 1, keepdim=True)
    place = torch.where(torch.isnan(rows[:, :1]), 0, place)
    return torch.gather(rows, 1, place).squeeze(1)


TABLE: dict[Any, Any] = {
    aten.embedding_bag.padding_idx: embedding_bag_forward_only,
    aten._embedding_bag.default: embedding_bag,
    aten._embedding_bag_forward_only.default: embedding_bag_forward_only,
    aten._embedding_bag_backward.default: embedding_bag_backward,
    aten._embedding_bag_per_sample_weights_backward.default: per_sample_weights_backward,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""

FUNCTIONS: dict[Any, Any] = {functional.embedding_bag: functional_embedding_bag}
"""Functions of PyTorch's interface -> our forms of them, called instead while a model is traced."""
