"""Inverse trigonometric functions by their formulas, of any type of floats: coefficients and π/2 are that type's."""

from __future__ import annotations

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


@dataclass(frozen=True)
class Angles:
    """`atan_terms` are (atan(x) - x) / x³ in x² on |x| <= 1, `asin_terms` (asin(x) - x) / x³ in x² on |x| <= 1/2.

    `high` and `low` are π/2 in two numbers of the type. Special values and signs of zero are those of C's libm; how large errors
    are is said where coefficients are.
    """

    atan_terms: tuple[float, ...]
    asin_terms: tuple[float, ...]
    high: float
    low: float

    def _atan_unit(self, x: Number) -> Number:
        """atan(x) on |x| <= 1."""
        square = x * x
        return fma(square * x, polynomial(square, self.atan_terms), x)

    def _from_half_pi(self, angle: Number) -> Number:
        return (self.high - angle) + self.low

    def _from_pi(self, angle: Number) -> Number:
        return (2 * self.high - angle) + 2 * self.low

    def atan(self, x: Number) -> Number:
        """The arc tangent."""
        size = absolute(x)
        large = size > 1.0
        angle = self._atan_unit(select(large, 1.0 / size, size))
        return copysign(select(large, self._from_half_pi(angle), angle), x)

    def atan2(self, y: Number, x: Number) -> Number:
        """The angle of (x, y) in [-π, π]."""
        width, height = absolute(x), absolute(y)
        steep = height > width
        short, long = select(steep, width, height), select(steep, height, width)
        # 0/0 is the angle 0 and inf/inf the angle π/4, as for any equal sides.
        slope = select(short.equals(long), select(short.equals(0.0), 0.0, long.constant(1.0)), short / long)
        angle = self._atan_unit(slope)
        angle = select(steep, self._from_half_pi(angle), angle)
        left = x.bits() < 0
        return copysign(select(left, self._from_pi(angle), angle), y)

    def _asin_parts(self, x: Number) -> tuple[Number, Number]:
        """Whether |x| > 1/2, and asin(|x|), or there asin(sqrt((1 - |x|) / 2))."""
        size = absolute(x)
        large = size > 0.5
        square = select(large, fma(size, -0.5, 0.5), size * size)
        s = select(large, sqrt(square), size)
        return large, fma(square * s, polynomial(square, self.asin_terms), s)

    def asin(self, x: Number) -> Number:
        """The arc sine."""
        large, angle = self._asin_parts(x)
        return copysign(select(large, fma(angle, -2.0, self.high) + self.low, angle), x)

    def acos(self, x: Number) -> Number:
        """The arc cosine."""
        large, angle = self._asin_parts(x)
        outer = select(x < 0.0, fma(angle, -2.0, 2 * self.high) + 2 * self.low, 2.0 * angle)
        return select(large, outer, self._from_half_pi(copysign(angle, x)))
