"""Quasi-affine indices, sums of digits of loops, and the split of loops that makes every one of them linear.

d3 floordiv 32, d3 mod 32   with d3 in [0, 128)   =>   d3 = 32 * outer + inner, outer in [0, 4), inner in [0, 32)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tilewright.compiler.nouns.workload import Index


class NotLinear(Exception):
    """A position is no sum of digits of loops; the message shows it."""


@dataclass(frozen=True)
class Digit:
    """`scale * ((loop floordiv divisor) mod modulus)`; modulus 0 takes no remainder."""

    loop: int
    scale: int = 1
    divisor: int = 1
    modulus: int = 0


@dataclass(frozen=True)
class QuasiAffine:
    """A quasi-affine index: `offset` plus a sum of digits."""

    digits: tuple[Digit, ...] = ()
    offset: int = 0

    @classmethod
    def of_loop(cls, loop: int) -> QuasiAffine:
        return cls((Digit(loop),))

    @classmethod
    def of_index(cls, index: Index, stride: int = 1) -> QuasiAffine:
        """One dimension of an operand's index map, in elements of so many to a step; loops are the workload's axes."""
        digits = tuple(Digit(t.axis, t.scale, t.divisor, t.modulus) for t in index.terms)
        return cls(digits, index.offset).scaled(stride)

    @property
    def plain_loop(self) -> int | None:
        """The loop that this is, where it is one as it stands."""
        if self.offset or len(self.digits) != 1:
            return None
        (digit,) = self.digits
        return digit.loop if digit == Digit(digit.loop) else None

    def __add__(self, other: QuasiAffine) -> QuasiAffine:
        return QuasiAffine(self.digits + other.digits, self.offset + other.offset)

    def scaled(self, factor: int) -> QuasiAffine:
        digits = tuple(Digit(d.loop, d.scale * factor, d.divisor, d.modulus) for d in self.digits)
        return QuasiAffine(digits if factor else (), self.offset * factor)

    def quotient(self, divisor: int) -> QuasiAffine:
        """`self floordiv divisor`, of a lone digit or a constant."""
        if not self.digits:
            return QuasiAffine((), self.offset // divisor)
        digit = self._lone()
        if digit.modulus and digit.modulus % divisor:
            raise NotLinear(f"a quotient by {divisor} of a remainder by {digit.modulus}")
        return QuasiAffine((Digit(digit.loop, 1, digit.divisor * divisor, digit.modulus // divisor),))

    def remainder(self, modulus: int) -> QuasiAffine:
        """`self mod modulus`, of a lone digit or a constant."""
        if not self.digits:
            return QuasiAffine((), self.offset % modulus)
        digit = self._lone()
        if digit.modulus and digit.modulus % modulus:
            raise NotLinear(f"a remainder by {modulus} of a remainder by {digit.modulus}")
        return QuasiAffine((Digit(digit.loop, 1, digit.divisor, modulus),))

    def _lone(self) -> Digit:
        if self.offset or len(self.digits) != 1 or self.digits[0].scale != 1:
            raise NotLinear("a quotient or remainder of a sum of loops")
        return self.digits[0]


def boundaries(sums: Sequence[QuasiAffine], extents: Sequence[int]) -> list[list[int]]:
    """For every loop the sizes at which it has to be split, ascending; raises NotLinear where they do not nest."""
    found: list[set[int]] = [set() for _ in extents]
    for total in sums:
        for digit in total.digits:
            found[digit.loop] |= {digit.divisor, digit.divisor * digit.modulus}
    result = []
    for sizes, extent in zip(found, extents):
        inner = sorted(size for size in sizes if 1 < size < extent)
        chain = [1, *inner, extent]
        if any(b % a for a, b in pairwise(chain)):
            raise NotLinear(f"a loop of {extent} steps is cut at {', '.join(map(str, inner))}")
        result.append(inner)
    return result


def linear(
    total: QuasiAffine, cuts: Sequence[Sequence[int]], extents: Sequence[int]
) -> tuple[list[int], int]:
    """(stride of every part of every loop, offset) once loop l is cut at `cuts[l]`; a loop's parts are outermost first."""
    strides: list[int] = []
    for loop, (sizes, extent) in enumerate(zip(cuts, extents)):
        inner = [1, *sizes]
        own = [0] * len(inner)
        for digit in total.digits:
            if digit.loop != loop:
                continue
            end = min(digit.divisor * digit.modulus, extent) if digit.modulus else extent
            for i, size in enumerate(inner):
                if digit.divisor <= size < end:
                    own[i] += digit.scale * (size // digit.divisor)
        strides += reversed(own)
    return strides, total.offset


def parts(cuts: Sequence[int], extent: int) -> list[int]:
    """Extents of the parts of a loop, outermost first."""
    chain = [1, *cuts, extent]
    sizes = [b // a for a, b in pairwise(chain)]
    assert math.prod(sizes) == extent
    return sizes[::-1]
