"""Fourier transforms along dimensions, as operations of lines that are short, or as columns and rows of those that are long.

    n = a b:    X[k1 + a k2] = sum_j2 exp(-2 pi i j2 k1 / n) (sum_j1 x[b j1 + j2] w_a^(j1 k1)) w_b^(j2 k2)     w_n = exp(-2 pi i / n)
    n prime:    X = x @ W_n    W_n[j, k] = w_n^(j k)

Of what is real, half is computed, of numbers in pairs. Which lengths are operations `nouns/fourier_factors.py` says.

Source: J. W. Cooley and J. W. Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965. A length whose
largest prime factor is p takes a product with a matrix of that many rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._mode_utils import no_dispatch

from tilewright.compiler.dialects.fourier import roots_of_unity
from tilewright.compiler.importers.torch.complex import Parts, add, multiply
from tilewright.compiler.importers.torch.result_memory import laid_out_as
from tilewright.compiler.nouns.fourier_factors import FEWEST_COLUMNS, factors, multiplied, primes

aten = torch.ops.aten

_LARGEST_PRIME = 2048
"""A prime factor that is larger would make a matrix of more than 64 MB."""
_LANES = 16
"""Lines that fill the widest vectors."""

_REAL, _COMPLEX = (torch.float32, torch.float64), (torch.complex64, torch.complex128)

_LIBRARY = torch.library.Library("tilewright", "FRAGMENT")
_LIBRARY.define("fourier(Tensor re, Tensor im, Tensor roots, int dim) -> (Tensor, Tensor)")
_LIBRARY.define("fourier_of_real(Tensor x, Tensor roots, int dim) -> (Tensor, Tensor)")
_LIBRARY.define("fourier_to_real(Tensor re, Tensor im, Tensor roots, int dim) -> Tensor")


def _fft(re, im, roots, dim):
    found = torch.fft.fft(torch.complex(re, im), dim=dim)
    return found.real.contiguous(), found.imag.contiguous()


def _rfft(x, roots, dim):
    found = torch.fft.rfft(x, dim=dim)
    return found.real.contiguous(), found.imag.contiguous()


def _irfft(re, im, roots, dim):
    return torch.fft.irfft(torch.complex(re, im), n=roots.shape[0], dim=dim, norm="forward")


def _of_length(x, dim: int, length: int):
    return x.new_empty([length if d == dim else extent for d, extent in enumerate(x.shape)])


for _name, _computed, _described in (
    ("fourier", _fft, lambda re, im, roots, dim: (torch.empty_like(re), torch.empty_like(im))),
    (
        "fourier_of_real",
        _rfft,
        lambda x, roots, dim: tuple(_of_length(x, dim, x.shape[dim] // 2 + 1) for _ in range(2)),
    ),
    ("fourier_to_real", _irfft, lambda re, im, roots, dim: _of_length(re, dim, roots.shape[0])),
):
    _LIBRARY.impl(_name, _computed, "CompositeExplicitAutograd")
    torch.library.register_fake(f"tilewright::{_name}", _described)


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
    lines = _Lines.of(x.shape, last)
    parts = _of_real(lines.taken(x))
    if not onesided:
        re, im = (part.narrow(1, 1, (x.shape[last] - 1) // 2).flip(1) for part in parts)
        parts = torch.cat([parts[0], re], 1), torch.cat([parts[1], -im], 1)
    parts = lines.put_back(parts[0]), lines.put_back(parts[1])
    for axis in others:
        parts = _along(axis, parts, True)
    return _complex(_scaled(parts, [x.shape[axis] for axis in dim], normalization))


def c2r(x, dim, normalization, last_dim_size):
    """The inverse of what was real; of the last of the dimensions the half that mirrors the other is not there."""
    *others, last = dim
    extents = [*(x.shape[axis] for axis in others), last_dim_size]
    if x.dtype not in _COMPLEX or not _is_covered(extents):
        return NotImplemented
    x = x.narrow(last, 0, last_dim_size // 2 + 1)
    parts = torch.real(x), torch.imag(x)
    for axis in others:
        parts = _along(axis, parts, False)
    lines = _Lines.of(x.shape, last)
    found = lines.put_back(_to_real(lines.taken(parts[0]), lines.taken(parts[1]), last_dim_size))
    return found * scale if (scale := _scale(extents, normalization)) != 1 else found


def _is_covered(extents) -> bool:
    return all(extent > 0 and max(primes(extent), default=1) <= _LARGEST_PRIME for extent in extents)


def _complex(parts: Parts):
    return aten.complex(*(part.contiguous() for part in parts))


def _scale(extents: Sequence[int], normalization: int) -> float:
    """One over the number of elements that were transformed (2), over its root (1), or 1 (0)."""
    count = math.prod(extents)
    return (1.0, 1.0 / math.sqrt(count), 1.0 / count)[normalization]


def _scaled(parts: tuple[Any, Any], extents: Sequence[int], normalization: int) -> tuple[Any, Any]:
    scale = _scale(extents, normalization)
    return parts if scale == 1.0 else (parts[0] * scale, parts[1] * scale)


def _along(axis: int, parts: Parts, forward: bool) -> Parts:
    """The transform along one dimension."""
    re, im = parts
    lines = _Lines.of(re.shape, axis)
    first, second = lines.taken(re), lines.taken(im)
    if not forward:
        # The inverse of x + i y is that of y + i x, which goes forward, with parts exchanged.
        first, second = second, first
    first, second = _transformed(first, second)
    if not forward:
        first, second = second, first
    return lines.put_back(first), lines.put_back(second)


@dataclass(frozen=True)
class _Lines:
    """How a tensor is taken for lines: those along memory as [lines, n], others as [before, n, after]."""

    shape: tuple[int, ...]
    axis: int
    is_moved: bool

    @classmethod
    def of(cls, shape: Sequence[int], axis: int) -> _Lines:
        axis %= len(shape)
        # A few columns side by side do not fill a vector: as lines of a transposed tensor they do.
        return cls(tuple(shape), axis, math.prod(shape[axis + 1 :]) < FEWEST_COLUMNS)

    def taken(self, x):
        before, after = math.prod(self.shape[: self.axis]), math.prod(self.shape[self.axis + 1 :])
        if self.is_moved:
            return x.movedim(self.axis, -1).reshape(before * after, self.shape[self.axis])
        return x.reshape(before, self.shape[self.axis], after)

    def put_back(self, x):
        """The tensor of these lines, which may have become longer or shorter."""
        others = [*self.shape[: self.axis], *self.shape[self.axis + 1 :]]
        if self.is_moved:
            return x.reshape(*others, x.shape[1]).movedim(-1, self.axis)
        return x.reshape(*self.shape[: self.axis], x.shape[1], *self.shape[self.axis + 1 :])


def _transformed(re, im) -> Parts:
    """The transform of lines along dimension 1."""
    extent = re.shape[1]
    if extent == 1:
        return re, im
    outer = _factor(extent, re.numel() // extent)
    if outer == 1:
        if factors(extent) is None:
            return _multiplied(re, im)
        return torch.ops.tilewright.fourier(re, im, _all_roots(extent, re.dtype), 1)
    inner, lines, width = extent // outer, re.shape[0], list(re.shape[2:])
    columns = [part.reshape(lines, outer, inner, *width) for part in (re, im)]
    angles = np.outer(np.arange(outer), np.arange(inner)).reshape([outer, inner, *[1] * len(width)])
    turned = multiply(_along(1, (columns[0], columns[1]), True), _roots(angles, extent, re.dtype))
    re, im = (part.transpose(1, 2).reshape(lines, extent, *width) for part in _along(2, turned, True))
    return re, im


def _of_real(x) -> Parts:
    """The first half of the transform of real lines along dimension 1."""
    extent, kept = x.shape[1], x.shape[1] // 2 + 1
    if extent == 1:
        return x, torch.zeros_like(x)
    inner = multiplied(extent, True)
    if factors(inner) is not None and _factor(inner, x.numel() // extent) == 1:
        return torch.ops.tilewright.fourier_of_real(x, _all_roots(extent, x.dtype), 1)
    if len(primes(extent)) == 1:
        re, im = (_product(x, matrix) for matrix in _matrices(extent, kept, x.dtype))
        return re, im
    if extent % 2:
        re, im = _transformed(x, torch.zeros_like(x))
        return re.narrow(1, 0, kept), im.narrow(1, 0, kept)
    # Elements in pairs are complex numbers z of half the length: X = E + w^k O, of the even elements' transform and the odd ones'.
    pairs = x.reshape(x.shape[0], inner, 2, *x.shape[2:])
    re, im = _transformed(pairs.select(2, 0), pairs.select(2, 1))
    re, im = (torch.cat([part, part.narrow(1, 0, 1)], 1) for part in (re, im))
    mirrored = re.flip(1), im.flip(1)
    even = (re + mirrored[0]) * 0.5, (im - mirrored[1]) * 0.5
    odd = (im + mirrored[1]) * 0.5, (mirrored[0] - re) * 0.5
    return add(even, multiply(odd, _beside(np.arange(kept), extent, x)))


def _to_real(re, im, extent: int):
    """What is real of the first half of its transform along dimension 1; imaginary parts of what is its own conjugate are not read."""
    if extent == 1:
        return re
    inner, lines = multiplied(extent, True), re.numel() // re.shape[1]
    if factors(inner) is not None and _factor(inner, lines) == 1:
        return torch.ops.tilewright.fourier_to_real(re, im, _all_roots(extent, re.dtype), 1)
    nothing, half = torch.zeros_like(im.narrow(1, 0, 1)), (extent - 1) // 2
    inside = im.narrow(1, 1, half)
    if len(primes(extent)) == 1:
        # All elements but the first stand for two, which are conjugates.
        cosines, sines = (
            matrix.narrow(1, 1, half).t() * 2 for matrix in _matrices(extent, half + 1, re.dtype)
        )
        found = _product(re.narrow(1, 1, half), cosines) + _product(inside, sines)
        return re.narrow(1, 0, 1) + found
    if extent % 2:
        re = torch.cat([re, re.narrow(1, 1, half).flip(1)], 1)
        im = torch.cat([nothing, inside, -inside.flip(1)], 1)
        return _transformed(im, re)[1]
    im = torch.cat([nothing, inside, nothing], 1)
    mirrored = re.flip(1), im.flip(1)
    even = re + mirrored[0], im - mirrored[1]
    cosines, sines = _beside(np.arange(inner + 1), extent, re)
    odd = multiply((re - mirrored[0], im + mirrored[1]), (cosines, -sines))
    pairs = (even[0] - odd[1]).narrow(1, 0, inner), (even[1] + odd[0]).narrow(1, 0, inner)
    second, first = _transformed(pairs[1], pairs[0])
    return torch.stack([first, second], 2).reshape(re.shape[0], extent, *re.shape[2:])


def _factor(extent: int, lines: int) -> int:
    """The factor that is taken out of a length: the largest up to its root, 1 where it is computed as it is.

    Of few lines, which would not fill a vector, the columns of a part of each do.
    """
    fits = factors(extent) is not None or len(primes(extent)) == 1
    if fits and not (lines < _LANES and extent >= _LANES * _LANES // 4):
        return 1
    found = max(d for d in range(1, math.isqrt(extent) + 1) if extent % d == 0)
    return found if not fits or found >= FEWEST_COLUMNS else 1


def _multiplied(re, im) -> Parts:
    """The transform of lines of a prime length: products with a matrix of roots, of both parts."""
    matrices = _matrices(re.shape[1], re.shape[1], re.dtype)
    (a, b), (c, d) = ([_product(part, matrix) for matrix in matrices] for part in (re, im))
    return a - d, b + c


def _matrices(extent: int, kept: int, dtype: torch.dtype) -> Parts:
    return _roots(np.outer(np.arange(extent), np.arange(kept)), extent, dtype)


def _product(x, matrix):
    """Lines along dimension 1 times a matrix."""
    return torch.matmul(x, matrix) if x.dim() == 2 else torch.matmul(matrix.t(), x)


def _beside(powers: np.ndarray, extent: int, x) -> Parts:
    """Roots along dimension 1, beside the elements of `x`."""
    re, im = (part.reshape([-1, *[1] * (x.dim() - 2)]) for part in _roots(powers, extent, x.dtype))
    return re, im


def _all_roots(extent: int, dtype: torch.dtype):
    return torch.stack(_roots(np.arange(extent), extent, dtype), 1)


def _roots(powers: np.ndarray, extent: int, dtype: torch.dtype) -> Parts:
    re, im = (torch.tensor(part.tolist(), dtype=dtype) for part in roots_of_unity(powers, extent))
    return re, im


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
