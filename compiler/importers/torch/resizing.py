"""Images resized by the few elements beside each new place, weighed in the steps in which eager PyTorch rounds them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
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
    is_ours = rank and isinstance(x, torch.Tensor) and x.dim() == 2 + rank == 2 + len(each) and not antialias
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
        places = _places(extent, sizes[d], factors[d], align_corners, dtype)
        weighed = [taps_at(*place) for place in places]
        if extent == sizes[d] and taps_at is _beside:  # what eager multiplies by 0 is the element itself
            weighed = [[(number, Fraction(1)), (number, Fraction(0))] for number in range(extent)]
        total: Any = None
        for taps in zip(*weighed):
            numbers = torch.tensor([min(max(number, 0), extent - 1) for number, _ in taps], device=x.device)
            weights = torch.tensor([float(weight) for _, weight in taps], dtype=dtype, device=x.device)
            part = y.index_select(2 + d, numbers) * weights.reshape([-1] + [1] * (rank - 1 - d))
            total = part if total is None else total + part
        y = total
    return like_image(y.to(x.dtype), x)


def _places(
    extent: int, out: int, factor: float | None, align_corners: bool | None, dtype: torch.dtype
) -> list[tuple[int, Fraction]]:
    """Where each new element lies among the old ones: behind which, and how far; rounded in `dtype`, once."""

    def rounded(number: Fraction | float) -> Fraction:
        return Fraction(torch.tensor(float(number), dtype=dtype).item())

    if align_corners:
        step = rounded(Fraction(extent - 1, out - 1)) if out > 1 else Fraction(0)
        places = [rounded(number * step) for number in range(out)]
    else:
        step = rounded(1 / factor if factor else Fraction(extent, out))
        places = [rounded((number + Fraction(1, 2)) * step - Fraction(1, 2)) for number in range(out)]
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


_MODES: dict[str, tuple[int, Callable[[int, Fraction], Taps]]] = {
    "linear": (1, _beside),
    "bilinear": (2, _beside),
    "trilinear": (3, _beside),
    "bicubic": (2, _around),
}

FUNCTIONS: dict[Any, Any] = {functional.interpolate: interpolate, functional.upsample: interpolate}
"""Functions of PyTorch's interface -> our forms of them, called instead while a model is traced."""
