"""Derivatives of the gamma function's logarithm, by Hurwitz' zeta function."""

from __future__ import annotations

import math
from typing import Any

import torch

aten = torch.ops.aten

_TERMS = 10
"""Terms of the zeta function that are summed one by one; Euler and Maclaurin's formula gives the rest."""
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798)
"""B(2), B(4), …"""


def _hurwitz(s: int, q):
    """The sum of `(q + k) ** -s` over all k, for q above 0. Source: Abramowitz and Stegun 23.1.30."""
    total = torch.zeros_like(q)
    for k in range(_TERMS):
        total = total + (q + k) ** -s
    end = q + _TERMS
    power = end**-s
    total = total + end ** (1 - s) / (s - 1) + power / 2
    factor = power * s / end
    for k, number in enumerate(_BERNOULLI, 1):
        total = total + factor * (number / math.factorial(2 * k))
        factor = factor * ((s + 2 * k - 1) * (s + 2 * k)) / (end * end)
    return total


def _derivative_of_cotangent(n: int) -> list[int]:
    """Coefficients by rising powers of cot(x) of its n-th derivative: that of c is -(1 + c^2)."""
    found = [0, 1]
    for _ in range(n):
        slope = [k * c for k, c in enumerate(found)][1:]
        found = [-c for c in [*slope, 0, 0]]
        for k, c in enumerate(slope, 2):
            found[k] -= c
    return found


def polygamma(n, x):
    """The n-th derivative of `digamma`; reflected below one half by derivatives of the cotangent."""
    if n == 0:
        return torch.digamma(x)
    dtype = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
    x = x.to(torch.float64)
    sign = 1 if n % 2 else -1
    is_below = x < 0.5
    found = sign * float(math.factorial(n)) * _hurwitz(n + 1, torch.where(is_below, 1 - x, x))
    # psi_n(1 - x) + (-1)^(n + 1) psi_n(x) = (-1)^n pi d^n/dx^n cot(pi x). Source: Abramowitz and Stegun 6.4.7.
    fraction = x - torch.round(x)
    cotangent = 1 / torch.tan(math.pi * fraction)
    slope = torch.zeros_like(x)
    for coefficient in reversed(_derivative_of_cotangent(n)):
        slope = slope * cotangent + coefficient
    mirrored = -sign * found - math.pi ** (n + 1) * slope
    is_pole = (fraction == 0) if n == 1 else (fraction == 0) | (x == -math.inf)
    mirrored = torch.where(is_pole, sign * math.inf, mirrored)
    found = torch.where(is_below, mirrored, found)
    return (found if n == 1 else torch.where(x == math.inf, math.nan, found)).to(dtype)  # as eager has it


TABLE: dict[Any, Any] = {aten.polygamma.default: polygamma}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
