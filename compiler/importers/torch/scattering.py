"""Scatters along one dimension: into the lines along it, each with numbers and updates of its own.

    x [8, 256].scatter_add(1, index [8, 3], source [8, 3])
      =>
    tilewright.scatter(x [8, 256, 1], index [8, 3], source [8, 3, 1], "sum")

Networks on graphs sum what comes along edges at their nodes: `scatter_add` with the nodes' numbers, expanded to every feature. A
number is meant for a whole slice there, [8, 256, n]. torch-mlir would write a tuple of numbers of its own for every element.
"""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException

from tilewright.compiler.importers.torch.indexing import index_add
from tilewright.compiler.importers.torch.promotion import WIDE
from tilewright.runtime.views import is_injective

aten = torch.ops.aten
_LIBRARY = torch.library.Library("tilewright", "FRAGMENT")
_LIBRARY.define("scatter(Tensor x, Tensor index, Tensor source, str how) -> Tensor")


def _scatter(x, index, source, how):
    """`source` [l, m, w] combined with slices of `x` [l, n, w] that `index` [l, m] numbers, in their order."""
    index = index.unsqueeze(-1).expand(source.shape)
    if how == "set":
        return x.scatter(1, index, source)
    return x.scatter_reduce(1, index, source, how)


_LIBRARY.impl("scatter", _scatter, "CompositeExplicitAutograd")
torch.library.register_fake("tilewright::scatter", lambda x, index, source, how: x.new_empty(x.shape))

_COUNTED = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def scatter_add(x, dim, index, source):
    """Sums of slices where a number is meant for all of one, of elements otherwise."""
    if x.dtype in WIDE:
        return NotImplemented
    numbers = None if x.dtype == torch.bool or not index.numel() else _of_slices(x, dim, index, source)
    return (
        _into_lines(x, dim, index, source, "sum") if numbers is None else index_add(x, dim, numbers, source)
    )


def scatter(x, dim, index, source):
    """Elements put where numbers say, the last of those that are meant for one place."""
    return _into_lines(x, dim, index, source, "set")


def scatter_value(x, dim, index, value):
    """One number put in many places."""
    return _into_lines(x, dim, index, x.new_full(index.shape, value), "set")


def scatter_reduce(x, dim, index, source, reduce, *, include_self=True):
    """Sums, products, maxima and minima by themselves, means by sums and a count for each element or slice.

    Where the old elements do not count, those that updates are meant for begin with what changes nothing.
    """
    if not index.numel():
        return x.clone()
    if x.dtype in WIDE:
        return NotImplemented
    if reduce == "mean":
        return _mean(x, dim, index, source, include_self)
    if not include_self:
        x = _begun(x, dim, index, source, _neutral(x.dtype, reduce))
    if x is NotImplemented or reduce == "sum":
        return x if x is NotImplemented else scatter_add(x, dim, index, source)
    return _into_lines(x, dim, index, source, reduce)


def _begun(x, dim, index, source, neutral):
    """`x` with a number in all that updates are meant for."""
    numbers = _of_slices(x, dim, index, source)
    if numbers is None:
        return scatter_value(x, dim, index, neutral)
    shape = [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]
    is_meant = scatter_value(x.new_zeros(x.shape[dim], dtype=torch.uint8), 0, numbers, 1)
    return torch.where(is_meant.reshape(shape) != 0, neutral, x)


def _mean(x, dim, index, source, include_self: bool):
    numbers = _of_slices(x, dim, index, source)
    if numbers is None:
        count = scatter_add(torch.full_like(x, int(include_self)), dim, index, torch.ones_like(source))
    else:
        count = index_add(
            x.new_full((x.shape[dim],), int(include_self)), 0, numbers, x.new_ones(numbers.shape)
        )
        count = count.reshape([-1 if d == dim % x.dim() else 1 for d in range(x.dim())])
    total = scatter_add(x if include_self else torch.zeros_like(x), dim, index, source)
    if total is NotImplemented:
        return total
    how = None if x.dtype.is_floating_point else "floor"
    is_old = torch.eq(count, 0)
    return torch.where(is_old, x, torch.div(total, torch.where(is_old, 1, count), rounding_mode=how))


def _neutral(dtype: torch.dtype, how: str) -> float | int:
    """What changes nothing that it is combined with."""
    if how in ("sum", "prod"):
        return 0 if how == "sum" else 1
    if dtype.is_floating_point:
        return -math.inf if how == "amax" else math.inf
    if dtype == torch.bool:
        return how == "amin"
    return torch.iinfo(dtype).min if how == "amax" else torch.iinfo(dtype).max


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


def _into_lines(x, dim, index, source, how: str):
    """`tilewright.scatter` into the lines of `x` along `dim`, as many of them as `index` has numbers for."""
    if not index.numel():
        return x.clone()
    if not x.dim() or not index.dim() or not x.numel() or x.dtype.is_complex:
        return NotImplemented
    if x.dtype == torch.bool:
        how = {"set": "set", "sum": "amax", "prod": "amin"}.get(how, how)
        return _into_lines(x.to(torch.uint8), dim, index, source.to(torch.uint8), how) != 0
    dim %= x.dim()
    if not is_injective(tuple(x.shape), tuple(x.stride())):
        # A part is written into a copy of the same strides, whose elements would share memory as those of x do.
        x = x.clone(memory_format=torch.contiguous_format)
    source = source[tuple(slice(n) for n in index.shape)]
    part = x[tuple(slice(x.shape[d] if d == dim else n) for d, n in enumerate(index.shape))]
    behind = range(dim + 1, x.dim())
    if all(index.shape[d] == 1 or not index.stride(d) for d in behind):
        index = index[(..., *[0] * len(behind))]
        found = _combined(part, dim, index, source, how)
    else:
        part, index, source = (value.movedim(dim, -1) for value in (part, index, source))
        found = _combined(part, x.dim() - 1, index, source, how).movedim(-1, dim)
    return _with_part(x, found, 0)


def _combined(x, dim: int, index, source, how: str):
    lines, width = math.prod(x.shape[:dim]), math.prod(x.shape[dim + 1 :])
    updates = source.reshape(lines, source.shape[dim], width)
    numbers = index.to(torch.int64).reshape(lines, index.shape[dim])
    found = torch.ops.tilewright.scatter(x.reshape(lines, x.shape[dim], width), numbers, updates, how)
    return found.reshape(x.shape)


def _with_part(x, part, dim: int):
    """`x` with its first elements along the dimensions from `dim` on replaced."""
    if x.shape == part.shape:
        return part
    extent = part.shape[dim]
    inner = part if dim == x.dim() - 1 else _with_part(x.narrow(dim, 0, extent), part, dim + 1)
    return inner if extent == x.shape[dim] else aten.slice_scatter(x, inner, dim, 0, extent)


TABLE: dict[Any, Any] = {
    aten.scatter.src: scatter,
    aten.scatter.value: scatter_value,
    aten.scatter_add.default: scatter_add,
    aten.scatter_reduce.two: scatter_reduce,
    aten.bincount.default: bincount,
}
