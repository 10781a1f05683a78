"""Fourier transforms as products with matrices of roots of unity, of lengths that are short or products of short ones.

    n <= 64:    X = x @ W_n                                     W_n[j, k] = exp(-2 pi i j k / n)
    n = a b:    X[k1 + a k2] = sum_j2 exp(-2 pi i j2 k1 / n) (sum_j1 x[b j1 + j2] W_a[j1, k1]) W_b[j2, k2]

Of what is real, half of the columns are multiplied, and parts that nobody reads are not.

Source: J. W. Cooley and J. W. Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965. A length whose
largest prime factor is p takes a product with a matrix of that many rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._mode_utils import no_dispatch

from tilewright.compiler.importers.torch.complex import Parts, multiply
from tilewright.compiler.importers.torch.result_memory import laid_out_as

aten = torch.ops.aten

_WHOLE = 64
"""Lengths up to this are one product: its matrix stays in a core's own cache."""
_LARGEST_PRIME = 2048
"""A prime factor that is larger would make a matrix of more than 64 MB."""

_REAL, _COMPLEX = (torch.float32, torch.float64), (torch.complex64, torch.complex128)


def c2c(x, dim, normalization, forward):
    """The transform along dimensions."""
    if x.dtype not in _COMPLEX or not _is_covered(x.shape[axis] for axis in dim):
        return NotImplemented
    parts = torch.real(x), torch.imag(x)
    for axis in dim:
        parts = _along(axis, parts, forward)
    return _complex(_scaled(parts, [x.shape[axis] for axis in dim], normalization))


def r2c(x, dim, normalization, onesided):
    """The transform of real numbers; the second half of the last of the dimensions mirrors the first, and may be left out."""
    if x.dtype not in _REAL or not _is_covered(x.shape[axis] for axis in dim):
        return NotImplemented
    *others, last = dim
    kept = x.shape[last] // 2 + 1 if onesided else x.shape[last]
    parts = _along(last, (x, None), True, kept)
    for axis in others:
        parts = _along(axis, parts, True)
    return _complex(_scaled(parts, [x.shape[axis] for axis in dim], normalization))


def c2r(x, dim, normalization, last_dim_size):
    """The inverse of what was real; of the last of the dimensions the half that mirrors the other is not there."""
    *others, last = dim
    extents = [*(x.shape[axis] for axis in others), last_dim_size]
    if x.dtype not in _COMPLEX or not _is_covered(extents):
        return NotImplemented
    parts = torch.real(x), torch.imag(x)
    for axis in others:
        parts = _along(axis, parts, False)
    kept = last_dim_size // 2 + 1
    re, im = (part.narrow(last, 0, kept) for part in parts)
    if _factor(last_dim_size) == 1:
        found = _from_half(re.transpose(last, -1), im.transpose(last, -1), last_dim_size).transpose(last, -1)
    else:
        mirrored = [part.narrow(last, 1, last_dim_size - kept).flip(last) for part in (re, im)]
        whole = torch.cat([re, mirrored[0]], last), torch.cat([im, -mirrored[1]], last)
        found, _ = _along(last, whole, False, real=True)
    return found * scale if (scale := _scale(extents, normalization)) != 1 else found


def _is_covered(extents) -> bool:
    return all(extent > 0 and _largest_prime(extent) <= _LARGEST_PRIME for extent in extents)


def _largest_prime(number: int) -> int:
    factor = 2
    while factor * factor <= number:
        if number % factor:
            factor += 1
        else:
            number //= factor
    return number


def _complex(parts: Parts):
    return aten.complex(*(part.contiguous() for part in parts))


def _scale(extents: Sequence[int], normalization: int) -> float:
    """One over the number of elements that were transformed (2), over its root (1), or 1 (0)."""
    count = math.prod(extents)
    return (1.0, 1.0 / math.sqrt(count), 1.0 / count)[normalization]


def _scaled(parts: tuple[Any, Any], extents: Sequence[int], normalization: int) -> tuple[Any, Any]:
    scale = _scale(extents, normalization)
    return parts if scale == 1.0 else (parts[0] * scale, parts[1] * scale)


def _along(
    axis: int, parts: tuple[Any, Any], forward: bool, kept: int = 0, real: bool = False
) -> tuple[Any, Any]:
    """The transform along one dimension, or its first `kept` elements; an imaginary part of None is zero.

    Where only the `real` part is asked for, None is given for the other.
    """
    re, im = (None if part is None else part.transpose(axis, -1) for part in parts)
    found = _transformed(re, im, forward, kept or parts[0].shape[axis], real)
    re, im = (None if part is None else part.transpose(axis, -1) for part in found)
    return re, im


def _transformed(re, im, forward: bool, kept: int, real: bool) -> tuple[Any, Any]:
    """The first `kept` elements of the transform along the last dimension."""
    extent = re.shape[-1]
    outer = _factor(extent)
    if outer == 1:
        return _multiplied(re, im, forward, kept, real)
    inner = extent // outer

    def columns(part):
        return None if part is None else part.reshape(*part.shape[:-1], outer, inner).transpose(-1, -2)

    found = _multiplied(columns(re), columns(im), forward, outer, False)
    angles = np.outer(np.arange(inner), np.arange(outer))
    found = multiply(found, _roots(angles, extent, forward, re.dtype))
    rows = -(-kept // outer)
    found = _transformed(*(part.transpose(-1, -2) for part in found), forward, rows, real)

    def in_order(part):
        if part is None:
            return None
        return part.transpose(-1, -2).reshape(*part.shape[:-2], rows * outer).narrow(-1, 0, kept)

    return in_order(found[0]), in_order(found[1])


def _factor(extent: int) -> int:
    """The factor that is taken out of a length: the largest up to its root that makes one product, 1 where it is one itself."""
    if extent <= _WHOLE:
        return 1
    return max(d for d in range(1, min(_WHOLE, math.isqrt(extent)) + 1) if extent % d == 0)


def _multiplied(re, im, forward: bool, kept: int, real: bool) -> tuple[Any, Any]:
    """The first `kept` elements of the transform along the last dimension as one product, of both parts side by side."""
    extent = re.shape[-1]
    cosines, sines = _roots(np.outer(np.arange(extent), np.arange(kept)), extent, forward, re.dtype)
    matrix = cosines if real else torch.cat([cosines, sines], 1)
    if im is not None:
        matrix = torch.cat([matrix, -sines if real else torch.cat([-sines, cosines], 1)])
        re = torch.cat([re, im], -1)
    found = torch.matmul(re, matrix)
    return (found, None) if real else (found.narrow(-1, 0, kept), found.narrow(-1, kept, kept))


def _from_half(re, im, extent: int):
    """What was real of the first half of its transform along the last dimension, whose elements but the ends count twice.

    The imaginary parts of the ends are those of nothing real, and are not read.
    """
    kept = extent // 2 + 1
    cosines, sines = _roots(np.outer(np.arange(kept), np.arange(extent)), extent, False, re.dtype)
    counted = [1.0 if k in (0, extent / 2) else 2.0 for k in range(kept)]
    twice = torch.tensor(counted, dtype=re.dtype).unsqueeze(1)
    return torch.matmul(torch.cat([re, im], -1), torch.cat([cosines * twice, -sines * twice]))


def _roots(powers: np.ndarray, extent: int, forward: bool, dtype: torch.dtype) -> Parts:
    """exp(-2 pi i p / extent) of whole numbers p, conjugated where it is not `forward`.

    What is a whole number of quarter turns has zeros and ones exactly.
    """
    quarters, rest = np.divmod(4 * (powers % extent), extent)
    angles = 0.5 * np.pi * rest / extent
    cosines, sines = np.cos(angles), np.sin(angles)
    real = np.choose(quarters, (cosines, -sines, -cosines, sines))
    imaginary = np.choose(quarters, (sines, cosines, -sines, -cosines)) * (-1 if forward else 1)
    return torch.tensor(real.tolist(), dtype=dtype), torch.tensor(imaginary.tolist(), dtype=dtype)


def _placed(operator: Any, decompose: Callable) -> Callable:
    """The decomposition, with results in memory as eager PyTorch's are, dimensions in another order.

    Which one depends on the library that it was built with, and PyTorch's own description of it is wrong where only a half of
    several dimensions is computed: the operator is run, on whatever is in memory.
    """

    def decomposition(x, *args):
        found = decompose(x, *args)
        if found is NotImplemented:
            return found
        with no_dispatch():
            placed = operator(torch.empty_strided(x.shape, x.stride(), dtype=x.dtype), *args)
        return laid_out_as(found, placed)

    return decomposition


TABLE: dict[Any, Callable] = {
    operator: _placed(operator, decompose)
    for operator, decompose in (
        (aten._fft_c2c.default, c2c),
        (aten._fft_r2c.default, r2c),
        (aten._fft_c2r.default, c2r),
    )
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
