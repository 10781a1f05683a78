"""Hyperbolic functions and their inverses by their formulas, of any type of floats: exponentials and logarithms are that type's.

h = e^|x| / 2           cosh x = h + 1 / (4 h)      sinh x = h - 1 / (4 h), near zero by a polynomial
asinh x = log1p(x + x² / (1 + sqrt(x² + 1)))        acosh x = log1p(t + sqrt(t (t + 2))), t = x - 1
atanh x = log1p(2 x / (1 - x)) / 2                  all of |x| but for the second
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.compiler.rewriting.expression import (
    Number,
    absolute,
    copysign,
    fma,
    polynomial,
    select,
    sqrt,
)

_HALF = 355 / 512
"""Near ln(2), of so few bits that no bit of x - _HALF is lost: e^x overflows where half of it does not."""
_LARGE = 2.0**30
"""From here on x² + 1 is x², and the square may overflow."""


@dataclass(frozen=True)
class Hyperbolics:
    """`sinh_terms` are (sinh(x) - x) / x³ in x² on |x| <= 1.

    Special values and signs of zero are those of C's libm; how large errors are is said where coefficients are.
    """

    exp: Callable[[Number], Number]
    log: Callable[[Number], Number]
    log1p: Callable[[Number], Number]
    sinh_terms: tuple[float, ...]

    def _half_exp(self, size: Number) -> Number:
        return self.exp(size - _HALF) * (0.5 * math.exp(_HALF))

    def cosh(self, x: Number) -> Number:
        """The hyperbolic cosine."""
        half = self._half_exp(absolute(x))
        return half + 0.25 / half

    def sinh(self, x: Number) -> Number:
        """The hyperbolic sine."""
        size = absolute(x)
        half = self._half_exp(size)
        square = size * size
        near = fma(square * size, polynomial(square, self.sinh_terms), size)
        return copysign(select(size < 1.0, near, half - 0.25 / half), x)

    def asinh(self, x: Number) -> Number:
        """The inverse of the hyperbolic sine."""
        size = absolute(x)
        square = size * size
        near = self.log1p(size + square / (1.0 + sqrt(square + 1.0)))
        return copysign(select(size < _LARGE, near, self._log_of_double(size)), x)

    def acosh(self, x: Number) -> Number:
        """The inverse of the hyperbolic cosine that is not negative; NaN below 1."""
        above = x - 1.0
        near = self.log1p(above + sqrt(above * (above + 2.0)))
        return select(x < 1.0, math.nan, select(x < _LARGE, near, self._log_of_double(x)))

    def atanh(self, x: Number) -> Number:
        """The inverse of the hyperbolic tangent; NaN beyond 1."""
        size = absolute(x)
        return copysign(0.5 * self.log1p((2.0 * size) / (1.0 - size)), x)

    def _log_of_double(self, x: Number) -> Number:
        return self.log(x) + math.log(2.0)
