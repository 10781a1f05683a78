"""Decompositions of operators that follow an order: medians, running extremes and products, sorted rows."""

from __future__ import annotations

import math
from typing import Any

import torch

from tilewright.compiler.importers.torch.types import compute_dtype

aten = torch.ops.aten

LARGEST_SQUARE = 1 << 24
"""Most elements of the [n, n] comparison that stands in for a scan without a lowering of its own."""


def kthvalue(x, k, dim=-1, keepdim=False):
    """The last of the `k` smallest elements: torch-mlir's own form has no order for NaN, nor for what infinity meets."""
    if not x.dim():
        return NotImplemented
    values, indices = torch.topk(x, k, dim, largest=False, sorted=True)
    last = tuple(part.narrow(dim, k - 1, 1) for part in (values, indices))
    return last if keepdim else tuple(part.squeeze(dim) for part in last)


def topk(x, k, dim=-1, largest=True, sorted=True):
    """In order where any order will do: torch-mlir has no other."""
    return NotImplemented if sorted else aten.topk(x, k, dim, largest, True)


def median_dim(x, dim, keepdim=False):
    """The lower median along `dim`, NaN where there is one."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    values, indices = torch.kthvalue(x, (x.shape[dim] + 1) // 2, dim, keepdim)
    if x.dtype.is_floating_point:
        is_nan = torch.isnan(x)
        any_nan = is_nan.any(dim, keepdim)
        values = torch.where(any_nan, math.nan, values)
        indices = torch.where(any_nan, torch.argmax(is_nan.to(torch.int32), dim, keepdim), indices)
    return values, indices


def median(x):
    """The lower median of all elements; of none it is NaN, of integers what a CPU makes of NaN."""
    if not x.numel():
        is_wide = x.dtype in (torch.int32, torch.int64)
        none = math.nan if x.dtype.is_floating_point else torch.iinfo(x.dtype).min if is_wide else 0
        return x.new_full((), none)
    return torch.median(x.reshape(-1), 0)[0]


def nanmedian_dim(x, dim, keepdim=False):
    """The lower median of the numbers along `dim`, which sort before NaN."""
    if not x.dtype.is_floating_point or not x.dim():
        return torch.median(x, dim, keepdim)
    values, indices = torch.sort(x, dim)
    numbers = torch.sum(torch.logical_not(torch.isnan(x)), dim, keepdim=True)
    middle = torch.clamp_min(numbers - 1, 0) // 2
    found = torch.gather(values, dim, middle), torch.gather(indices, dim, middle)
    return found if keepdim else tuple(part.squeeze(dim) for part in found)


def nanmedian(x):
    """The lower median of all elements that are numbers, as of a median where there are none."""
    if not x.numel():
        return median(x)
    return torch.nanmedian(x.reshape(-1), 0)[0]


def _running(x, dim: int, largest: bool):
    """Running extreme and the last index that met it, by comparing every element with all earlier ones."""
    if not x.dim() or not x.numel():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    n = x.shape[dim]
    if x.numel() * n > LARGEST_SQUARE:
        return NotImplemented
    worst = (-math.inf if largest else math.inf) if x.dtype.is_floating_point else None
    if worst is None:
        worst = torch.iinfo(x.dtype).min if largest else torch.iinfo(x.dtype).max
    moved = x.movedim(dim, -1)
    position = torch.arange(n)
    seen = position.unsqueeze(0) <= position.unsqueeze(1)
    spread = torch.where(seen, moved.unsqueeze(-2), worst)
    values = (torch.amax if largest else torch.amin)(spread, -1)
    element = moved.unsqueeze(-2)
    met = element == values.unsqueeze(-1)
    met = seen & (met | torch.isnan(element) if x.dtype.is_floating_point else met)
    indices = torch.amax(torch.where(met, position, 0), -1)
    return values.movedim(-1, dim), indices.movedim(-1, dim)


def cummax(x, dim):
    """Running maximum and its index."""
    return _running(x, dim, True)


def cummin(x, dim):
    """Running minimum and its index."""
    return _running(x, dim, False)


def logcumsumexp(x, dim):
    """Running logsumexp: the running maximum, and log1p of what all other elements up to here are of it.

    The two cancel where the sum is near 1: f32 is computed in f64, as in eager PyTorch.
    """
    if not x.dim() or not x.numel():
        return x.clone()
    n = x.shape[dim]
    if x.numel() * n > LARGEST_SQUARE or x.dtype.is_complex:
        return NotImplemented
    wide = x.to(torch.float64 if x.dtype == torch.float32 else compute_dtype(x))
    largest, place = cummax(wide, dim)
    largest, place = largest.movedim(dim, -1).unsqueeze(-1), place.movedim(dim, -1).unsqueeze(-1)
    position = torch.arange(n)
    is_other = (position.unsqueeze(0) <= position.unsqueeze(1)) & (position != place)
    scale = torch.where(torch.isinf(largest), 0, largest)
    others = torch.where(is_other, wide.movedim(dim, -1).unsqueeze(-2) - scale, -math.inf)
    found = largest.squeeze(-1) + torch.log1p(torch.sum(torch.exp(others), -1))
    return found.movedim(-1, dim).to(x.dtype)


def searchsorted(sorted_sequence, values, *, out_int32=False, right=False, side=None, sorter=None):
    """How many elements of the sorted sequence come before each value.

    It is eager PyTorch's binary search, step by step: where the sequence holds NaN or is not sorted, what it finds
    depends on the elements that it compares.
    """
    if sorter is not None:
        sorted_sequence = torch.gather(sorted_sequence, -1, sorter)
    if not isinstance(values, torch.Tensor):
        values = torch.full([], values, dtype=torch.result_type(sorted_sequence, values))
    length, is_flat = sorted_sequence.shape[-1], sorted_sequence.dim() == 1
    sought = values.reshape(-1) if is_flat else values
    first = torch.zeros(sought.shape, dtype=torch.int64)
    end = torch.full(sought.shape, length, dtype=torch.int64)
    for _ in range(length.bit_length()):
        middle = first + ((end - first) >> 1)
        met = torch.gather(sorted_sequence, -1, middle.clamp_max(length - 1))
        is_before = ~(met > sought if right or side == "right" else met >= sought) & (first < end)
        first, end = torch.where(is_before, middle + 1, first), torch.where(is_before, end, middle)
    return first.reshape(values.shape).to(torch.int32 if out_int32 else torch.int64)


def bucketize(values, boundaries, *, out_int32=False, right=False):
    """`searchsorted` with its operands in the other order."""
    return torch.searchsorted(boundaries, values, out_int32=out_int32, right=right)


def cumprod(x, dim, *, dtype=None):
    """Running products of `x` in the type that is asked for."""
    if dtype is not None:
        return aten.cumprod(x.to(dtype), dim).to(dtype)
    return aten.cumprod(x.unsqueeze(0), 0).reshape([]) if not x.dim() else NotImplemented


def mode(x, dim=-1, keepdim=False):
    """The smallest of the most frequent elements, and the last index of it, by comparing all pairs."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    if not x.numel() or x.numel() * x.shape[dim] > LARGEST_SQUARE:
        return NotImplemented
    moved = x.movedim(dim, -1)
    ordered, places = torch.sort(moved, -1)
    count = torch.sum(ordered.unsqueeze(-1) == ordered.unsqueeze(-2), -1, dtype=torch.int64)
    first = torch.argmax(count, -1, keepdim=True)
    last = first + torch.clamp_min(torch.gather(count, -1, first) - 1, 0)
    found = torch.gather(ordered, -1, first), torch.gather(places, -1, last)
    found = [part.movedim(-1, dim) for part in found]
    return tuple(found) if keepdim else tuple(part.squeeze(dim) for part in found)


def _histogram(x, edges, weight, density):
    """The weight of the elements in each interval, the last of which holds its upper bound too."""
    bins, flat = edges.shape[0] - 1, x.reshape(-1)
    place = torch.searchsorted(edges, flat, right=True) - 1
    is_inside = (flat >= edges[0]) & (flat <= edges[-1])
    place = torch.where(is_inside, torch.clamp_max(place, bins - 1), bins)
    weight = torch.ones_like(flat) if weight is None else weight.reshape(-1)
    found = x.new_zeros(bins + 1).index_put((place,), weight, accumulate=True)[:bins]
    return (found / found.sum() / (edges[1:] - edges[:-1]) if density else found), edges


def histogram_between(x, bins, weight=None, density=False):
    """A histogram of intervals between the given bounds."""
    return _histogram(x, bins.clone(), weight, density)


def histogram(x, bins=100, *, range=None, weight=None, density=False):
    """A histogram of even intervals, by default from the smallest to the largest element."""
    if not x.numel() and range is None:
        return NotImplemented
    low, high = (x.min(), x.max()) if range is None else (x.new_full((), n) for n in range)
    is_one = low == high
    low, high = torch.where(is_one, low - 0.5, low), torch.where(is_one, high + 0.5, high)
    place = torch.arange(bins + 1, dtype=x.dtype)
    step = (high - low) / bins
    edges = torch.where(place < (bins + 1) // 2, low + place * step, high - (bins - place) * step)
    return _histogram(x, edges, weight, density)


TABLE: dict[Any, Any] = {
    aten.kthvalue.default: kthvalue,
    aten.topk.default: topk,
    aten.median.default: median,
    aten.median.dim: median_dim,
    aten.nanmedian.default: nanmedian,
    aten.nanmedian.dim: nanmedian_dim,
    aten.cummax.default: cummax,
    aten.cummin.default: cummin,
    aten.searchsorted.Tensor: searchsorted,
    aten.searchsorted.Scalar: searchsorted,
    aten.bucketize.Tensor: bucketize,
    aten.bucketize.Scalar: bucketize,
    aten.cumprod.default: cumprod,
    aten.mode.default: mode,
    aten.histogram.bins_tensor: histogram_between,
    aten.histogram.bin_ct: histogram,
    aten.logcumsumexp.default: logcumsumexp,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
