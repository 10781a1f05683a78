"""Arithmetic of complex numbers as that of their real and imaginary parts, which torch-mlir takes apart and joins.

What only moves elements it takes on complex numbers as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

aten = torch.ops.aten

_PARTS = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""Complex types -> those of their parts."""

Parts = tuple[torch.Tensor, torch.Tensor]
"""Real and imaginary part."""


def _is_complex(x: Any) -> bool:
    return x.dtype.is_complex if isinstance(x, torch.Tensor) else isinstance(x, complex)


def _parts(x: Any, dtype: torch.dtype) -> Parts:
    """The parts of a tensor or a number, in `dtype`."""
    if not isinstance(x, torch.Tensor):
        return torch.full([], x.real, dtype=dtype), torch.full([], x.imag, dtype=dtype)
    if not x.dtype.is_complex:
        return x.to(dtype), torch.zeros([], dtype=dtype)
    return torch.real(x).to(dtype), torch.imag(x).to(dtype)


def _joined(parts: Parts):
    """The complex tensor of these parts, spread over each other."""
    shape = torch.broadcast_shapes(parts[0].shape, parts[1].shape)
    return aten.complex(*(part.expand(shape) for part in parts))


def _on_parts(function: Callable[..., Any], operands: int = 2, kind: Any = KIND.DEFAULT) -> Callable:
    """`function` of the parts of the first arguments where one of them is complex; it gives parts, or a tensor."""

    def decomposition(*args, **kwargs):
        given = args[:operands]
        if not any(_is_complex(x) for x in given):
            return NotImplemented
        dtype = _PARTS.get(elementwise_dtypes(*given, type_promotion_kind=kind)[0])
        if dtype is None:
            return NotImplemented
        found = function(*(_parts(x, dtype) for x in given), *args[operands:], **kwargs)
        return _joined(found) if isinstance(found, tuple) else found

    return decomposition


def add(x: Parts, y: Parts, alpha=1) -> Parts:
    """`x + alpha * y`"""
    y = y if alpha == 1 else multiply(_parts(alpha, y[0].dtype), y)
    return x[0] + y[0], x[1] + y[1]


def subtract(x: Parts, y: Parts, alpha=1) -> Parts:
    """`x - alpha * y`"""
    y = y if alpha == 1 else multiply(_parts(alpha, y[0].dtype), y)
    return x[0] - y[0], x[1] - y[1]


def multiply(x: Parts, y: Parts) -> Parts:
    """`x * y`"""
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def product(x: Parts, y: Parts) -> Parts:
    """A product of matrices, or one of each batch, as one of real ones: [a b] [[c d] [-d c]] = [a c - b d, a d + b c]."""
    columns = y[0].shape[-1]
    right = torch.cat([torch.cat(y, -1), torch.cat([-y[1], y[0]], -1)], -2)
    found = torch.matmul(torch.cat(x, -1), right)
    return found.narrow(-1, 0, columns), found.narrow(-1, columns, columns)


def divide(x: Parts, y: Parts) -> Parts:
    """`x / y` by the ratio of the smaller part of `y` to the larger: squares would overflow."""
    is_real = torch.abs(y[0]) >= torch.abs(y[1])
    larger, smaller = torch.where(is_real, y[0], y[1]), torch.where(is_real, y[1], y[0])
    ratio = torch.where(larger == 0, 0.0, smaller / larger)
    scale = 1 / (larger + smaller * ratio)
    re = torch.where(is_real, x[0] + x[1] * ratio, x[0] * ratio + x[1])
    im = torch.where(is_real, x[1] - x[0] * ratio, x[1] * ratio - x[0])
    return re * scale, im * scale


def reciprocal(x: Parts) -> Parts:
    """`1 / x`"""
    return divide(_parts(1, x[0].dtype), x)


def square(x: Parts) -> Parts:
    """`x * x`"""
    return multiply(x, x)


def absolute(x: Parts) -> torch.Tensor:
    """The length of `x`."""
    return torch.hypot(*x)


def angle(x: Parts) -> torch.Tensor:
    """The argument of `x`."""
    return torch.atan2(x[1], x[0])


def exp(x: Parts) -> Parts:
    """`e ** x`"""
    return _polar(torch.exp(x[0]), x[1])


def log(x: Parts) -> Parts:
    """The logarithm of the length, and the argument."""
    return torch.log(absolute(x)), angle(x)


def sqrt(x: Parts) -> Parts:
    """The root with a real part that is not negative."""
    half = torch.sqrt((absolute(x) + torch.abs(x[0])) / 2)
    other = torch.where(half == 0, 0.0, x[1] / (2 * half))
    is_right = x[0] >= 0
    left = torch.copysign(half, x[1])
    return torch.where(is_right, half, torch.abs(other)), torch.where(is_right, other, left)


def sine(x: Parts) -> Parts:
    """sin(a) cosh(b), cos(a) sinh(b)"""
    return torch.sin(x[0]) * torch.cosh(x[1]), torch.cos(x[0]) * torch.sinh(x[1])


def cosine(x: Parts) -> Parts:
    """cos(a) cosh(b), -sin(a) sinh(b)"""
    return torch.cos(x[0]) * torch.cosh(x[1]), -torch.sin(x[0]) * torch.sinh(x[1])


def hyperbolic_sine(x: Parts) -> Parts:
    """sinh(a) cos(b), cosh(a) sin(b)"""
    return torch.sinh(x[0]) * torch.cos(x[1]), torch.cosh(x[0]) * torch.sin(x[1])


def hyperbolic_cosine(x: Parts) -> Parts:
    """cosh(a) cos(b), sinh(a) sin(b)"""
    return torch.cosh(x[0]) * torch.cos(x[1]), torch.sinh(x[0]) * torch.sin(x[1])


def hyperbolic_tangent(x: Parts) -> Parts:
    """sinh(2a), sin(2b), over cosh(2a) + cos(2b), all times 2e with `e = exp(-2 |a|)`: neither overflows, and no terms cancel."""
    twice = -2 * torch.abs(x[0])
    e, cos = torch.exp(twice), torch.cos(x[1])
    scale = torch.square(torch.expm1(twice)) + 4 * e * torch.square(cos)
    return torch.copysign(torch.expm1(2 * twice), x[0]) / scale, 4 * e * torch.sin(x[1]) * cos / scale


def tangent(x: Parts) -> Parts:
    """-i tanh(i x)"""
    re, im = hyperbolic_tangent((-x[1], x[0]))
    return im, -re


def logarithm(base: float) -> Callable[[Parts], Parts]:
    """The logarithm to a base."""

    def of(x: Parts) -> Parts:
        re, im = log(x)
        return re / math.log(base), im / math.log(base)

    return of


def sigmoid(x: Parts) -> Parts:
    """1 / (1 + e ** -x), or e ** x / (1 + e ** x) to the left, where the other would overflow."""
    is_right = x[0] >= 0
    re, im = _polar(torch.exp(-torch.abs(x[0])), torch.where(is_right, -x[1], x[1]))
    above = torch.where(is_right, 1.0, re), torch.where(is_right, 0.0, im)
    return divide(above, (1 + re, im))


def power(x: Parts, exponent) -> Parts:
    """A product for small whole exponents."""
    found = x
    for _ in range(abs(exponent) - 1):
        found = multiply(found, x)
    return found if exponent > 0 else reciprocal(found)


def pow_scalar(x, exponent):
    """Whole powers that are a few products."""
    if exponent not in (-2, -1, 1, 2, 3, 4):
        return NotImplemented
    return _on_parts(power, 1)(x, int(exponent))


def _polar(length, angle) -> Parts:
    return length * torch.cos(angle), length * torch.sin(angle)


def polar(length, angle):
    """The complex number of this length and argument."""
    return _joined(_polar(length, angle))


def _each(operator: Any) -> Callable:
    """`operator`, which is linear, on either part."""

    def decomposition(x, *args, dtype=None, **kwargs):
        wanted = dtype or getattr(x, "dtype", None)
        if wanted not in _PARTS:
            return NotImplemented
        re, im = (operator(part, *args, **kwargs) for part in _parts(x, _PARTS[wanted]))
        return _joined((re, im))

    return decomposition


def equal(x: Parts, y: Parts) -> torch.Tensor:
    """Whether both parts agree."""
    return (x[0] == y[0]) & (x[1] == y[1])


def differs(x: Parts, y: Parts) -> torch.Tensor:
    """Whether a part differs."""
    return (x[0] != y[0]) | (x[1] != y[1])


def vector_norm(x, *args, dtype=None, **kwargs):
    """The norm of the lengths."""
    return torch.linalg.vector_norm(torch.abs(x), *args, **kwargs) if x.dtype in _PARTS else NotImplemented


def constant_pad_nd(x, pad, value=0):
    """Either part with that of the value around it."""
    if x.dtype not in _PARTS:
        return NotImplemented
    re, im = _parts(x, _PARTS[x.dtype])
    return _joined((aten.constant_pad_nd(re, pad, value.real), aten.constant_pad_nd(im, pad, value.imag)))


def to_copy(x, *, dtype=None, **kwargs):
    """Real numbers with an imaginary part of zero, or the real part of complex ones; floats to uint32 by way of int64.

    That is what eager PyTorch does, negative numbers included; torch-mlir has no such conversion.
    """
    if not isinstance(x, torch.Tensor):  # a number beside tensors of rank 0 under vmap
        return NotImplemented
    if dtype == torch.uint32 and x.dtype.is_floating_point:
        return x.to(torch.int64).to(dtype)
    if dtype is None or dtype == x.dtype or not (dtype in _PARTS or x.dtype in _PARTS):
        return NotImplemented
    if not dtype.is_complex:
        return torch.real(x).to(dtype)
    return NotImplemented if dtype not in _PARTS else _joined(_parts(x, _PARTS[dtype]))


def convert(x, dtype):
    """`to_copy` by its other name."""
    return to_copy(x, dtype=dtype)


def full(size, number, *, dtype=None, **kwargs):
    """The same number everywhere."""
    if dtype is None:
        dtype = torch.complex64 if isinstance(number, complex) else None
    if dtype not in _PARTS:
        return NotImplemented
    re, im = (part.expand(size) for part in _parts(number, _PARTS[dtype]))
    return _joined((re, im))


def full_like(x, number, *, dtype=None, **kwargs):
    """`full` of the same shape."""
    return full(x.shape, number, dtype=dtype or x.dtype)


def empty(size, *, dtype=None, **kwargs):
    """Zeros, for any values will do."""
    return full(size, 0, dtype=dtype)


def index_put(x, indices, values, accumulate=False):
    """Either part put in its place."""
    if x.dtype not in _PARTS:
        return NotImplemented
    parts = zip(_parts(x, _PARTS[x.dtype]), _parts(values, _PARTS[x.dtype]))
    re, im = (aten.index_put(old, indices, new.expand(values.shape), accumulate) for old, new in parts)
    return _joined((re, im))


def where(condition, x, y):
    """A choice between either part."""
    if not (x.dtype.is_complex or y.dtype.is_complex):
        return NotImplemented
    return _on_parts(lambda a, b: (torch.where(condition, a[0], b[0]), torch.where(condition, a[1], b[1])))(
        x, y
    )


TABLE: dict[Any, Callable] = {
    **{o: _on_parts(add) for o in (aten.add.Tensor, aten.add.Scalar)},
    **{o: _on_parts(subtract) for o in (aten.sub.Tensor, aten.sub.Scalar)},
    **{
        o: _on_parts(lambda x, y, alpha=1: subtract(y, x, alpha))
        for o in (aten.rsub.Tensor, aten.rsub.Scalar)
    },
    **{o: _on_parts(multiply) for o in (aten.mul.Tensor, aten.mul.Scalar)},
    **{o: _on_parts(product) for o in (aten.mm.default, aten.bmm.default)},
    **{o: _on_parts(divide) for o in (aten.div.Tensor, aten.div.Scalar)},
    **{o: _on_parts(equal) for o in (aten.eq.Tensor, aten.eq.Scalar)},
    **{o: _on_parts(differs) for o in (aten.ne.Tensor, aten.ne.Scalar)},
    **{o: _on_parts(lambda x: (x[0], -x[1]), 1) for o in (aten._conj.default, aten._conj_physical.default)},
    aten.conj_physical.default: _on_parts(lambda x: (x[0], -x[1]), 1),
    **{o: _on_parts(lambda x: (-x[0], -x[1]), 1) for o in (aten.neg.default, aten._neg_view.default)},
    aten.abs.default: _on_parts(absolute, 1),
    aten.angle.default: _on_parts(angle, 1),
    aten.square.default: _on_parts(square, 1),
    aten.reciprocal.default: _on_parts(reciprocal, 1),
    aten.exp.default: _on_parts(exp, 1),
    aten.log.default: _on_parts(log, 1),
    aten.log2.default: _on_parts(logarithm(2), 1),
    aten.log10.default: _on_parts(logarithm(10), 1),
    aten.sqrt.default: _on_parts(sqrt, 1),
    aten.rsqrt.default: _on_parts(lambda x: reciprocal(sqrt(x)), 1),
    aten.sin.default: _on_parts(sine, 1),
    aten.cos.default: _on_parts(cosine, 1),
    aten.sinh.default: _on_parts(hyperbolic_sine, 1),
    aten.cosh.default: _on_parts(hyperbolic_cosine, 1),
    aten.tan.default: _on_parts(tangent, 1),
    aten.tanh.default: _on_parts(hyperbolic_tangent, 1),
    aten.sigmoid.default: _on_parts(sigmoid, 1),
    aten.pow.Tensor_Scalar: pow_scalar,
    aten.isnan.default: _on_parts(lambda x: torch.isnan(x[0]) | torch.isnan(x[1]), 1),
    aten.isinf.default: _on_parts(lambda x: torch.isinf(x[0]) | torch.isinf(x[1]), 1),
    aten.isfinite.default: _on_parts(lambda x: torch.isfinite(x[0]) & torch.isfinite(x[1]), 1),
    aten.polar.default: polar,
    **{o: _each(o) for o in (aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim)},
    aten.cumsum.default: _each(aten.cumsum.default),
    aten.constant_pad_nd.default: constant_pad_nd,
    aten.linalg_vector_norm.default: vector_norm,
    aten._to_copy.default: to_copy,
    torch.ops.prims.convert_element_type.default: convert,
    aten.full.default: full,
    aten.full_like.default: full_like,
    aten.empty.memory_format: empty,
    aten.index_put.default: index_put,
    aten.where.self: where,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
