"""Convolutions and poolings that torch-mlir refuses or lowers wrongly, as ones that it takes."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from tilewright.compiler.importers.torch.known_sums import sums_at
from tilewright.compiler.importers.torch.promotion import either
from tilewright.compiler.importers.torch.transposed_convolutions import padded, transposed_convolution
from tilewright.compiler.importers.torch.types import compute_dtype

aten = torch.ops.aten


def sums_of_windows(x, size):
    """Sums over windows of nearly even size in the last dimensions.

    Not a product with a matrix of zeros and ones: what is outside of a window may be infinite.
    """
    for d, outside in zip(range(x.dim() - len(size), x.dim()), size):
        if x.shape[d] != outside:
            x = sums_at(x, d, _even_windows(x.shape[d], outside))
    return x.contiguous()


def divided_by_windows(x, inside, outside):
    """`x` [..., *outside] by the sizes of windows of nearly even size, one dimension after the other as in eager."""
    for d, n, m in zip(range(-len(inside), 0), inside, outside):
        sizes = torch.tensor([len(window) for window in _even_windows(n, m)], dtype=x.dtype, device=x.device)
        x = x / sizes.reshape([m] + [1] * (-1 - d))
    return x


def adaptive_avg_pool(x, size):
    """A mean, an average pooling with equal windows, or sums of windows divided by their sizes."""
    rank = len(size)
    inside = x.shape[-rank:]
    wide = x.to(compute_dtype(x))
    if not all(size):
        return x.new_zeros([*x.shape[:-rank], *size])
    if all(n == 1 for n in size):
        return torch.mean(wide, list(range(-rank, 0)), keepdim=True).to(x.dtype)
    if all(n % m == 0 for n, m in zip(inside, size)):
        kernel = [n // m for n, m in zip(inside, size)]
        pool = aten.avg_pool2d if rank == 2 else aten.avg_pool3d
        return pool(wide, kernel, kernel).to(x.dtype)
    return divided_by_windows(sums_of_windows(wide, size), inside, size).to(x.dtype)


def convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """A transposed convolution as plain ones of its phases, or with the kernel mirrored where the stride is 1; of one element as
    a product."""
    if not transposed:
        return NotImplemented
    if max(stride) > 1 or all(n == 1 for n in x.shape[2:]):
        return transposed_convolution(x, weight, bias, stride, padding, dilation, output_padding, groups)
    if groups == 1 or groups != x.shape[1] or weight.shape[1] != 1:
        return NotImplemented
    rank = x.dim() - 2
    border = [d * (k - 1) - p for d, k, p in zip(dilation, weight.shape[2:], padding)]
    x = padded(x, [(b, b + more) for b, more in zip(border, output_padding)])
    mirrored = torch.flip(weight, list(range(2, 2 + rank)))
    zeros, ones = [0] * rank, [1] * rank
    return aten.convolution(x, mirrored, bias, ones, zeros, dilation, False, zeros, groups)


def adaptive_max_pool(x, output_size):
    """Maxima of windows of nearly even size, and where in the plane they stand."""
    rank = len(output_size)
    size = x.shape[x.dim() - rank :]
    if not all(output_size):
        shape = [*x.shape[: x.dim() - rank], *output_size]
        return x.new_zeros(shape), x.new_zeros(shape, dtype=torch.int64)
    if all(extent % out == 0 for extent, out in zip(size, output_size)):
        window = [extent // out for extent, out in zip(size, output_size)]
        pool = aten.max_pool2d_with_indices if rank == 2 else aten.max_pool3d_with_indices
        return pool(x, window, window)
    windows = [_even_windows(extent, out) for extent, out in zip(size, output_size)]
    if max(map(len, itertools.chain(*windows))) <= _MOST_COMPARED:
        return _maxima_by_dimension(x, windows)
    # Windows are gathered at their largest size; shorter ones repeat their last element, which never wins.
    axes = [torch.tensor([_elements(w, max(map(len, along))) for w in along]) for along in windows]
    return _maxima(x, _joined(size, [axis.to(x.device) for axis in axes]), output_size)


_MOST_COMPARED = 32
"""Elements of a window along one dimension that are compared one after the other, all of them in one loop."""


def _maxima_by_dimension(x, windows: Sequence[Sequence[range]]):
    """The largest elements of windows of the last dimensions, and their places in a plane or volume; rows before columns.

    Of equal elements it is the first that stands, of several NaN the last, in eager PyTorch's pooling.
    """
    rank = len(windows)
    size = x.shape[x.dim() - rank :]
    places: Any = torch.arange(math.prod(size), device=x.device).reshape(size)
    for behind, along in zip(range(rank, 0, -1), windows):
        read = [_elements(window, max(map(len, along))) for window in along]
        taps = [torch.tensor(numbers, device=x.device) for numbers in zip(*read)]
        candidates = [tuple(t.index_select(t.dim() - behind, tap) for t in (x, places)) for tap in taps]
        x, places = functools.reduce(_greater, candidates)
    return x, places.expand(x.shape)


def _greater(old, new):
    """Of two elements with their places the greater one."""
    (best, at), (value, place) = old, new
    wins = (value > best) | ((value == best) & (place < at))
    if best.dtype.is_floating_point:
        wins = torch.where(best != best, (value != value) & (place > at), wins | (value != value))
    return torch.where(wins, value, best), torch.where(wins, place, at)


def _elements(window: range, longest: int) -> list[int]:
    """The elements of a window, the last one again where others are longer."""
    return [min(window.start + k, window.stop - 1) for k in range(longest)]


def _maxima(x, places, output_size):
    """The largest element of each of the windows at `places` of every plane or volume, and where it stands.

    Of several NaN it is the last one that stands, in eager PyTorch's pooling.
    """
    rank = len(output_size)
    lead = list(x.shape[: x.dim() - rank])
    flat = x.reshape(*lead, math.prod(x.shape[x.dim() - rank :]))
    windows = flat[..., places.reshape(-1)].reshape(*lead, *places.shape)
    values, winner = torch.max(windows, -1)
    if x.dtype.is_floating_point:
        number = torch.arange(1, windows.shape[-1] + 1, device=x.device)
        last = torch.where(windows != windows, number, 0).amax(-1)
        winner = torch.where(last > 0, last - 1, winner)
    indices = torch.gather(places.expand(*lead, *places.shape), -1, winner.unsqueeze(-1)).squeeze(-1)
    return values.reshape(*lead, *output_size), indices.reshape(*lead, *output_size)


def _of_one_image(operator: Any, rank: int):
    """A pooling of images without a batch, by way of a batch of one."""

    def decomposition(x, *args, **kwargs):
        if x.dim() != rank + 1:
            return NotImplemented
        found = operator(x.unsqueeze(0), *args, **kwargs)
        return (
            found.squeeze(0) if isinstance(found, torch.Tensor) else tuple(part.squeeze(0) for part in found)
        )

    return decomposition


def _clipped(operator: Any, rank: int):
    """A pooling in ceil mode whose windows end where the image does, out of ceil mode where all of them lie inside.

    torch-mlir pads the image by a whole window: an average over 2,560 x 2,560 pixels of an image of 2 x 2, as models write
    that take a mean whatever the image, would fill gigabytes.
    """

    place = 1 if operator in _MAXIMA else 0  # of `ceil_mode`, which stands behind a dilation there

    def decomposition(x, kernel_size, stride=(), padding=0, *others):
        is_dilated = any(n != 1 for dilation in others[:place] for n in _of_rank(dilation, rank))
        if is_dilated or not any(others[place : place + 1]):
            return NotImplemented
        kernel, step, pads = (_of_rank(n, rank) for n in (kernel_size, stride or kernel_size, padding))
        extents = [n + 2 * pad for n, pad in zip(x.shape[-rank:], pads)]
        steps = [(k, s) if k <= n else (n, n) for k, s, n in zip(kernel, step, extents)]
        inside = all((n - k) % s == 0 for (k, s), n in zip(steps, extents))
        if not inside and [k for k, _ in steps] == kernel:
            return NotImplemented
        kernel, step = [k for k, _ in steps], [s for _, s in steps]
        return operator(x, kernel, step, pads, *others[:place], not inside, *others[place + 1 :])

    return decomposition


def _of_rank(value: int | list[int], rank: int) -> list[int]:
    return [value] * rank if isinstance(value, int) else list(value) * (rank // len(value))


def _even_windows(inside: int, outside: int) -> list[range]:
    """The elements in each of `outside` windows of nearly even size in a dimension of `inside`."""
    return [range(i * inside // outside, -(-(i + 1) * inside // outside)) for i in range(outside)]


def _joined(size, axes) -> torch.Tensor:
    """[windows, elements]: flat places out of those in every dimension."""
    places = torch.zeros((1, 1), dtype=torch.int64, device=axes[0].device)
    for extent, axis in zip(size, axes):
        joined = places[:, None, :, None] * extent + axis[None, :, None, :]
        places = joined.reshape(places.shape[0] * axis.shape[0], places.shape[1] * axis.shape[1])
    return places


def max_pool_of_integers(rank: int):
    """Maxima of windows of 64-bit integers, gathered as in `adaptive_max_pool`; what is padding repeats an element."""

    def decomposition(x, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
        if x.dtype != torch.int64:
            return NotImplemented
        kernel, step, pads, dilations = (
            _of_rank(n, rank) for n in (kernel_size, stride or kernel_size, padding, dilation)
        )
        size, axes = x.shape[x.dim() - rank :], []
        for extent, k, s, pad, d in zip(size, kernel, step, pads, dilations):
            out = (extent + 2 * pad - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
            out -= ceil_mode and (out - 1) * s >= extent + pad
            first = torch.arange(out, device=x.device).unsqueeze(1) * s - pad
            last = torch.clamp_max(first + d * (k - 1), extent - 1)
            first = torch.where(first < 0, torch.remainder(first, d), first)
            last = first + torch.div(last - first, d, rounding_mode="floor") * d
            axes.append(torch.minimum(first + d * torch.arange(k, device=x.device), last))
        return _maxima(x, _joined(size, axes), [axis.shape[0] for axis in axes])

    return decomposition


def conv_tbc(x, weight, bias, pad=0):
    """[T, B, C] and [K, C, O] as a convolution of [B, C, T] and [O, C, K]: torch-mlir leaves the result so."""
    found = torch.conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return found.permute(2, 0, 1).contiguous()


_MAXIMA = (aten.max_pool2d_with_indices.default, aten.max_pool3d_with_indices.default)

TABLE: dict[Any, Any] = {
    aten.conv_tbc.default: conv_tbc,
    **{
        pool: either(_clipped(pool, rank), _of_one_image(pool, rank))
        for rank, pool in ((2, aten.avg_pool2d.default), (3, aten.avg_pool3d.default))
    },
    **{
        pool: either(max_pool_of_integers(rank), either(_clipped(pool, rank), _of_one_image(pool, rank)))
        for rank, pool in zip((2, 3), _MAXIMA)
    },
    aten.adaptive_max_pool2d.default: adaptive_max_pool,
    aten.adaptive_max_pool3d.default: adaptive_max_pool,
    aten._adaptive_avg_pool2d.default: adaptive_avg_pool,
    aten._adaptive_avg_pool3d.default: adaptive_avg_pool,
    aten.convolution.default: convolution,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
