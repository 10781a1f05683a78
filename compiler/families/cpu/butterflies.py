"""Fourier transforms of a few complex numbers whose parts are vectors in registers, written out.

    n = a b:    X[k1 + a k2] = sum_j2 w_n^(j2 k1) (sum_j1 x[b j1 + j2] w_a^(j1 k1)) w_b^(j2 k2)         w_n = exp(-2 pi i / n)
    n prime:    X[k], X[n - k] = x[0] + sum_j cos(2 pi j k / n) (x[j] + x[n - j]) -+ i sin(2 pi j k / n) (x[j] - x[n - j])

Source: J. W. Cooley and J. W. Tukey, "An algorithm for the machine calculation of complex Fourier series", 1965; for primes
R. C. Singleton, "An algorithm for computing the mixed radix fast Fourier transform", 1969, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from tilewright.compiler.ir import arith, ir
from tilewright.compiler.ir import math as math_ops
from tilewright.compiler.nouns.fourier_factors import primes


@dataclass(frozen=True)
class Number:
    """A complex number of two vectors; a part of None is zero."""

    re: ir.Value | None
    im: ir.Value | None

    def __add__(self, other: Number) -> Number:
        return Number(_sum(self.re, other.re), _sum(self.im, other.im))

    def __sub__(self, other: Number) -> Number:
        return Number(_difference(self.re, other.re), _difference(self.im, other.im))

    def turned(self) -> Number:
        """The number times -i."""
        return Number(self.im, _negated(self.re))

    def scaled(self, factor: float, onto: Number) -> Number:
        """`onto` and the number times a real factor."""
        return Number(_multiplied(self.re, factor, onto.re), _multiplied(self.im, factor, onto.im))

    def times_root(self, turn: Fraction) -> Number:
        """The number times exp(-2 pi i turn)."""
        quarters, rest = divmod(4 * (turn % 1), 1)
        found = self
        if rest == Fraction(1, 2):
            # exp(-pi i / 4) is (1 - i) / sqrt(2): one multiplication of each part.
            both = found + found.turned()
            nothing = Number(None, None)
            found = both.scaled(math.sqrt(0.5), nothing)
        elif rest:
            angle = 0.5 * math.pi * float(rest)
            found = self._times(math.cos(angle), -math.sin(angle))
        for _ in range(int(quarters)):
            found = found.turned()
        return found

    def _times(self, re: float, im: float) -> Number:
        """The number times one that is known."""
        first = Number(_multiplied(self.re, re, None), _multiplied(self.im, re, None))
        return self._across().scaled(im, first)

    def _across(self) -> Number:
        """The number times i."""
        return Number(_negated(self.im), self.re)

    def times(self, re: ir.Value, im: ir.Value) -> Number:
        """The number times another one of vectors."""
        first = Number(_product(self.re, re, None), _product(self.im, re, None))
        across = self._across()
        return Number(_product(across.re, im, first.re), _product(across.im, im, first.im))


def transformed(x: Sequence[Number]) -> list[Number]:
    """The transform of as many numbers as there are, in their order."""
    n = len(x)
    if n == 1:
        return list(x)
    if n == 2:
        return [x[0] + x[1], x[0] - x[1]]
    smallest, *others = primes(n)
    if not others:
        return _of_prime(x)
    # Transforms of four multiply nothing: powers of two are taken apart into as many of these as there are.
    a = 4 if n % 4 == 0 and n > 4 else smallest
    return _of_product(x, a, n // a)


def _of_product(x: Sequence[Number], a: int, b: int) -> list[Number]:
    columns = []
    for j in range(b):
        column = transformed([x[b * j1 + j] for j1 in range(a)])
        columns.append([value.times_root(Fraction(j * k, a * b)) for k, value in enumerate(column)])
    found: list[Number] = [x[0]] * (a * b)
    for k1 in range(a):
        for k2, value in enumerate(transformed([column[k1] for column in columns])):
            found[k1 + a * k2] = value
    return found


def _of_prime(x: Sequence[Number]) -> list[Number]:
    n, half = len(x), len(x) // 2
    sums = [x[j] + x[n - j] for j in range(1, half + 1)]
    differences = [x[j] - x[n - j] for j in range(1, half + 1)]
    first = x[0]
    for value in sums:
        first = first + value
    found = [first, *x[1:]]
    for k in range(1, half + 1):
        even, odd = x[0], Number(None, None)
        for j, (total, difference) in enumerate(zip(sums, differences), 1):
            angle = 2 * math.pi * (j * k % n) / n
            even = total.scaled(math.cos(angle), even)
            odd = difference.scaled(math.sin(angle), odd)
        found[k], found[n - k] = even + odd.turned(), even - odd.turned()
    return found


def splat(type_: ir.VectorType, value: float) -> ir.Value:
    """A vector of one number."""
    element = ir.FloatAttr.get(type_.element_type, value)
    return arith.constant(type_, ir.DenseElementsAttr.get_splat(type_, element))


def _sum(left: ir.Value | None, right: ir.Value | None) -> ir.Value | None:
    if left is None or right is None:
        return right if left is None else left
    return arith.addf(left, right)


def _difference(left: ir.Value | None, right: ir.Value | None) -> ir.Value | None:
    if left is None or right is None:
        return _negated(right) if left is None else left
    return arith.subf(left, right)


def _negated(value: ir.Value | None) -> ir.Value | None:
    return None if value is None else arith.negf(value)


def _multiplied(value: ir.Value | None, factor: float, onto: ir.Value | None) -> ir.Value | None:
    return onto if value is None else _product(value, splat(ir.VectorType(value.type), factor), onto)


def _product(value: ir.Value | None, factor: ir.Value, onto: ir.Value | None) -> ir.Value | None:
    """`onto` and the product."""
    if value is None:
        return onto
    return arith.mulf(value, factor) if onto is None else math_ops.fma(value, factor, onto)
