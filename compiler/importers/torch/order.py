"""Decompositions of operators that follow an order: medians, running extremes, products and logarithms of sums, sorted rows."""

from __future__ import annotations

import math
from typing import Any

import torch

from tilewright.compiler.importers.torch.types import compute_dtype

aten = torch.ops.aten

_LIBRARY = torch.library.Library("tilewright", "FRAGMENT")
_LIBRARY.define("running(Tensor x, int dim, str how) -> Tensor")


def _of_all_before(x, dim, how):
    """What `how` makes of every element and those before it along `dim`."""
    if how == "logaddexp":
        return torch.logcumsumexp(x, dim)
    return (torch.cummax if how == "amax" else torch.cummin)(x, dim)[0]


_LIBRARY.impl("running", _of_all_before, "CompositeExplicitAutograd")
torch.library.register_fake("tilewright::running", lambda x, dim, how: x.new_empty(x.shape))


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


_FEWEST_TO_COMPARE = 8
"""Elements of a line from which looking for its extreme costs less than a place carried along with it."""


def _place_of(x, dim: int, extreme):
    """Where along `dim`, of elements next to each other in memory, the first `extreme` of each line stands, or the first NaN.

    Two reductions whose vectors run along the line: one of an element and its place together has none.
    """
    found = torch.where(_meets(x, extreme), _numbers(x, dim), x.shape[dim])
    return torch.amin(found, dim, keepdim=True).to(torch.int64)


def _meets(x, extreme):
    """Where elements are the extreme, or no numbers, which are that of their line."""
    met = x == extreme
    return met | torch.isnan(x) if x.dtype.is_floating_point else met


def _numbers(x, dim: int):
    """Places along `dim`, beside elements of `x`."""
    place = torch.arange(x.shape[dim], dtype=torch.int32)
    return place.reshape([-1 if d == dim % x.dim() else 1 for d in range(x.dim())])


def _is_line(x, dim: int) -> bool:
    n = x.shape[dim] if x.dim() and x.numel() else 0
    return _FEWEST_TO_COMPARE <= n < 1 << 31 and x.stride(dim) == 1


def _place(reduce: Any):
    """`argmax`, or `argmin`, by way of its value."""

    def decomposition(x, dim=None, keepdim=False):
        if dim is None:
            if not x.is_contiguous() or not x.dim():
                return NotImplemented
            found = decomposition(x.reshape(-1), 0)
            return found.reshape([1] * x.dim()) if keepdim and found is not NotImplemented else found
        if not _is_line(x, dim):
            return NotImplemented
        place = _place_of(x, dim, reduce(x, [dim], True))
        return place if keepdim else place.squeeze(dim)

    return decomposition


def _extreme(reduce: Any):
    """`max`, or `min`, along a dimension with its place, by way of its value."""

    def decomposition(x, dim, keepdim=False):
        if not _is_line(x, dim):
            return NotImplemented
        value = reduce(x, [dim], True)
        found = value, _place_of(x, dim, value)
        return found if keepdim else tuple(part.squeeze(dim) for part in found)

    return decomposition


def _running(x, dim: int, how: str):
    """Running extreme along `dim`, and the last place that met it."""
    if not x.dim() or not x.numel():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    if x.dtype == torch.bool:
        values, places = _running(x.to(torch.uint8), dim, how)
        return values != 0, places
    dim %= x.dim()
    values = torch.ops.tilewright.running(x, dim, how)
    return values, _last_places(_meets(x, values), dim)


def _last_places(met, dim: int):
    """Of every element along `dim` the last place up to it that has been met; 0 before there is one."""
    found = torch.where(met, _numbers(met, dim), 0)
    return torch.ops.tilewright.running(found, dim, "amax").to(torch.int64)


def cummax(x, dim):
    """Running maximum and its index."""
    return _running(x, dim, "amax")


def cummin(x, dim):
    """Running minimum and its index."""
    return _running(x, dim, "amin")


def logcumsumexp(x, dim):
    """Running logsumexp; f32 is computed in f64, as in eager PyTorch."""
    if not x.dim() or not x.numel():
        return x.clone()
    if x.dtype.is_complex:
        return NotImplemented
    wide = x.to(torch.float64 if x.dtype == torch.float32 else compute_dtype(x))
    return torch.ops.tilewright.running(wide, dim % x.dim(), "logaddexp").to(x.dtype)


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
    """The smallest of the most frequent elements, and the last index of it, where the first of the longest runs ends once sorted."""
    if not x.dim():
        return x.clone(), torch.zeros_like(x, dtype=torch.int64)
    if not x.numel():
        return NotImplemented
    moved = x.movedim(dim, -1)
    ordered, places = torch.sort(moved, -1)
    others = torch.logical_not(torch.eq(ordered[..., 1:], ordered[..., :-1]))
    begins = torch.cat([torch.zeros_like(ordered[..., :1], dtype=torch.bool), others], -1)
    runs = torch.arange(x.shape[dim]) - _last_places(begins, x.dim() - 1)
    last = torch.argmax(runs, -1, keepdim=True)
    found = [torch.gather(part, -1, last).movedim(-1, dim) for part in (ordered, places)]
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
    aten.argmax.default: _place(aten.amax),
    aten.argmin.default: _place(aten.amin),
    aten.max.dim: _extreme(aten.amax),
    aten.min.dim: _extreme(aten.amin),
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
