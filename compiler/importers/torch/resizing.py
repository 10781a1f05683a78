"""Images resized by the few elements beside each new place, weighed in the steps in which eager PyTorch rounds them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import zip_longest
from typing import Any

import torch
from torch.nn import functional

from tilewright.compiler.importers.torch.result_memory import like_image
from tilewright.compiler.importers.torch.types import compute_dtype

Taps = list[tuple[int, Fraction]]
"""The elements that are read for a new one, by number, with their weights."""


def interpolate(
    x,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
    antialias=False,
):
    """`x` [N, C, *extents] resized: PyTorch's own decompositions leave out elements whose weight is zero.

    Such an element may be infinite, and 0 times it is NaN in eager PyTorch.
    """
    rank, taps_at = _MODES.get(mode, (0, _beside))
    given = scale_factor if size is None else size
    each: list[Any] = list(given) if isinstance(given, (list, tuple)) else [given] * rank
    is_ours = rank and isinstance(x, torch.Tensor) and x.dim() == 2 + rank == 2 + len(each)
    if antialias:
        is_ours = is_ours and mode in _FILTERS and x.dtype in (torch.float32, torch.float64)
    is_known = is_ours and all(isinstance(number, (int, float)) for number in (*x.shape, *each))
    sizes, factors = each, [None] * rank
    if is_known and size is None:
        sizes = [math.floor(float(extent * factor)) for extent, factor in zip(x.shape[2:], each)]
        factors = factors if recompute_scale_factor else each
    is_legal = is_known and (size is None or scale_factor is None) and min(*x.shape, *sizes) > 0
    if not is_legal or not x.dtype.is_floating_point:
        return functional.interpolate(
            x, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias
        )
    dtype = compute_dtype(x)
    y = x.to(dtype)
    for d in reversed(range(rank)):
        extent = x.shape[2 + d]
        if antialias:
            if extent == sizes[d]:  # eager leaves the dimension alone, whatever the factor was
                continue
            step = _step(extent, sizes[d], factors[d], align_corners, dtype)
            weighed = _filtered(extent, sizes[d], step, mode, dtype)
        else:
            places = _places(extent, sizes[d], factors[d], align_corners, dtype)
            weighed = [taps_at(*place) for place in places]
            if extent == sizes[d] and taps_at is _beside:  # what eager multiplies by 0 is the element itself
                weighed = [[(number, Fraction(1)), (number, Fraction(0))] for number in range(extent)]
        total: Any = None
        for taps in zip_longest(*weighed):
            read = [(0, Fraction(0)) if tap is None else tap for tap in taps]
            numbers = torch.tensor([min(max(number, 0), extent - 1) for number, _ in read], device=x.device)
            weights = torch.tensor([float(weight) for _, weight in read], dtype=dtype, device=x.device)
            along = [-1] + [1] * (rank - 1 - d)
            part = y.index_select(2 + d, numbers) * weights.reshape(along)
            if None in taps:  # 0 times an infinity that eager does not read is NaN
                part = torch.where(torch.tensor([tap is not None for tap in taps]).reshape(along), part, 0.0)
            total = part if total is None else total + part
        y = total
    return like_image(y.to(x.dtype), x)


def _step(
    extent: int, out: int, factor: float | None, align_corners: bool | None, dtype: torch.dtype
) -> Fraction:
    """How far two new elements lie apart among the old ones, rounded in `dtype`."""
    if align_corners:
        return _rounded(Fraction(extent - 1, out - 1), dtype) if out > 1 else Fraction(0)
    return _rounded(1 / factor if factor else Fraction(extent, out), dtype)


def _rounded(number: Fraction | float, dtype: torch.dtype) -> Fraction:
    return Fraction(torch.tensor(float(number), dtype=dtype).item())


def _places(
    extent: int, out: int, factor: float | None, align_corners: bool | None, dtype: torch.dtype
) -> list[tuple[int, Fraction]]:
    """Where each new element lies among the old ones: behind which, and how far; rounded in `dtype`, once."""
    step = _step(extent, out, factor, align_corners, dtype)
    half = Fraction(0) if align_corners else Fraction(1, 2)
    places = [_rounded((number + half) * step - half, dtype) for number in range(out)]
    first = [min(math.floor(place), extent - 1) for place in places]
    return [
        (number, min(max(place - number, Fraction(0)), Fraction(1))) for number, place in zip(first, places)
    ]


def _beside(first: int, share: Fraction) -> Taps:
    """The two elements beside a place; the last one is beside itself."""
    return [(first, 1 - share), (first + 1, share)] if first >= 0 else _beside(0, Fraction(0))


def _around(first: int, share: Fraction) -> Taps:
    """The four elements around a place, weighed by cubic convolution with -3/4 as R. Keys' parameter a.

    Source: "Cubic convolution interpolation for digital image processing", IEEE Transactions ASSP 29, 1981.
    """

    def inner(t: Fraction) -> Fraction:
        return (5 * t - 9) * t * t / 4 + 1

    def outer(t: Fraction) -> Fraction:
        return ((-3 * t + 15) * t - 24) * t / 4 + 3

    weights = (outer(share + 1), inner(share), inner(1 - share), outer(2 - share))
    return [(first + tap, weight) for tap, weight in enumerate(weights, -1)]


def _filtered(extent: int, out: int, step: Fraction, mode: str, dtype: torch.dtype) -> list[Taps]:
    """The elements under a filter as wide as a step, where that is more than one element: what antialiasing weighs.

    Places and widths are rounded in `dtype` as in eager PyTorch's `HelperInterpBase`, so that the same elements are read.
    """
    reach, weight_at = _FILTERS[mode]
    support = _rounded(reach * max(step, Fraction(1)), dtype)
    shrunk = _rounded(1 / step, dtype) if step >= 1 else Fraction(1)
    found = []
    for number in range(out):
        centre = _rounded(step * (number + Fraction(1, 2)), dtype)
        first = max(int(_rounded(centre - support + Fraction(1, 2), dtype)), 0)
        end = min(int(_rounded(centre + support + Fraction(1, 2), dtype)), extent)
        weights = [weight_at((at - centre + Fraction(1, 2)) * shrunk) for at in range(first, end)]
        total = sum(weights) or Fraction(1)
        found.append([(at, weight / total) for at, weight in zip(range(first, end), weights)])
    return found


def _triangle(x: Fraction) -> Fraction:
    return max(1 - abs(x), Fraction(0))


def _cubic(x: Fraction) -> Fraction:
    """Keys' filter with -1/2 as parameter a, which is what antialiasing takes."""
    t = abs(x)
    if t < 1:
        return (3 * t - 5) * t * t / 2 + 1
    return (((5 - t) * t - 8) * t + 4) / 2 if t < 2 else Fraction(0)


_FILTERS: dict[str, tuple[int, Callable[[Fraction], Fraction]]] = {
    "bilinear": (1, _triangle),
    "bicubic": (2, _cubic),
}
"""Filters of antialiasing by mode: how far they reach, and their weight at a distance."""
_MODES: dict[str, tuple[int, Callable[[int, Fraction], Taps]]] = {
    "linear": (1, _beside),
    "bilinear": (2, _beside),
    "trilinear": (3, _beside),
    "bicubic": (2, _around),
}

FUNCTIONS: dict[Any, Any] = {functional.interpolate: interpolate, functional.upsample: interpolate}
"""Functions of PyTorch's interface -> our forms of them, called instead while a model is traced."""
