"""Scatters: of whole slices by the slices' numbers, of elements by one number each.

Networks on graphs sum what comes along edges at their nodes: `scatter_add` with the nodes' numbers, expanded to every feature.
Element by element each would have a tuple of numbers of its own, written to memory first.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException

from tilewright.compiler.importers.torch.indexing import index_add
from tilewright.compiler.importers.torch.promotion import WIDE

aten = torch.ops.aten
_COUNTED = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def scatter_add(x, dim, index, source):
    """Sums of slices where a number is meant for all of one, of elements otherwise."""
    if not index.numel():
        return x.clone()
    if x.dtype in WIDE:
        return NotImplemented
    numbers = _of_slices(x, dim, index, source)
    if numbers is None:
        return _of_elements(aten.scatter_add.default, x, dim, index, source)
    return index_add(x, dim, numbers, source)


def scatter_reduce(x, dim, index, source, reduce, *, include_self=True):
    """Means of whole slices by sums and one count for each; others element by element."""
    if not index.numel():
        return x.clone()
    if x.dtype in WIDE:
        return NotImplemented
    numbers = _of_slices(x, dim, index, source)
    if numbers is None or reduce != "mean" or not x.dtype.is_floating_point:
        return _of_elements(aten.scatter_reduce.two, x, dim, index, source, reduce, include_self=include_self)
    count = index_add(x.new_full((x.shape[dim],), int(include_self)), 0, numbers, x.new_ones(numbers.shape))
    count = count.reshape([-1 if d == dim % x.dim() else 1 for d in range(x.dim())])
    total = index_add(x if include_self else torch.zeros_like(x), dim, numbers, source)
    return torch.where(count == 0, x, total / torch.where(count == 0, 1.0, count))


def bincount(x, weights=None, minlength=0):
    """How often each number below `minlength` occurs; one beyond, with which eager PyTorch's result is longer, fails the call.

    Of numbers that tracing knows the result is as long as they need.
    """
    if x.dim() != 1 or x.dtype not in _COUNTED or minlength < 0:
        return NotImplemented
    if weights is not None and weights.shape != x.shape:
        return NotImplemented
    if not x.numel():  # eager PyTorch counts without the weights then
        return torch.zeros(minlength, dtype=torch.int64, device=x.device)
    length = minlength
    with contextlib.suppress(DataDependentOutputException):
        length = max(int(x.amax()) + 1, minlength)
    if not length:
        return NotImplemented
    single = weights is not None and weights.dtype == torch.float32
    dtype = torch.int64 if weights is None else torch.float32 if single else torch.float64
    counts = torch.zeros(length, dtype=dtype, device=x.device)
    ones = torch.ones(x.shape, dtype=dtype, device=x.device)
    return index_add(counts, 0, x.to(torch.int64), ones if weights is None else weights.to(dtype))


def _of_slices(x, dim, index, source) -> torch.Tensor | None:
    """The numbers [n] of the slices of `x` along `dim` that those of `source` [.., n, ..] are meant for, if one is for all of each."""
    if x.dim() < 2 or index.shape != source.shape:
        return None
    dim %= x.dim()
    others = [d for d in range(x.dim()) if d != dim]
    if any(index.shape[d] != x.shape[d] for d in others) or math.prod(x.shape[d] for d in others) == 1:
        return None
    if any(index.stride(d) and index.shape[d] > 1 for d in others):
        return None
    for d in reversed(others):
        index = index.select(d, 0)
    return index


def _of_elements(operator: Any, x, dim, index, source, *args, **kwargs):
    """A scatter of a matrix or more into the flattened tensor; numbers out of range stay so."""
    if x.dim() < 2 or not x.numel():
        return NotImplemented
    dim %= x.dim()
    source = source[tuple(slice(n) for n in index.shape)]
    place = torch.zeros((), dtype=index.dtype, device=index.device)
    for d, step in enumerate(_steps(x.shape)):
        own = torch.arange(index.shape[d], device=index.device).reshape(
            [-1 if e == d else 1 for e in range(x.dim())]
        )
        place = place + (index if d == dim else own) * step
    outside = (index < 0) | (index >= x.shape[dim])
    place = torch.where(outside, x.numel(), place)
    found = operator(x.reshape(-1), 0, place.reshape(-1), source.reshape(-1), *args, **kwargs)
    return found.reshape(x.shape)


def _steps(shape) -> list[int]:
    """Elements between neighbours along each dimension, in order of rows."""
    return [math.prod(shape[d + 1 :]) for d in range(len(shape))]


TABLE: dict[Any, Any] = {
    aten.scatter_add.default: scatter_add,
    aten.scatter_reduce.two: scatter_reduce,
    aten.bincount.default: bincount,
}
