"""Quasi-affine indices: sums of quotients and remainders of variables, which are loops, axes or numbers of points.

    d0 * 64 + d1 floordiv 4 mod 8 + 3    =>    QuasiAffine((Term(0, 64), Term(1, 1, 4, 8)), 3)

Sums and what is made of them keep their terms in one order, so that indices that are equal are written alike. What
depends on how far a variable runs (bounds, some quotients) is told its range: [low, high], both included, and what
its values are multiples of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

V = TypeVar("V", bound=Hashable)
W = TypeVar("W", bound=Hashable)


class NotQuasiAffine(Exception):
    """An index is no sum of quotients and remainders of variables; the message shows it."""


class Range(NamedTuple):
    """The values of a variable: `low` to `high`, all of them multiples of `multiple`."""

    low: int
    high: int
    multiple: int = 1


@dataclass(frozen=True, order=True)
class Term(Generic[V]):
    """`scale * ((variable floordiv divisor) mod modulus)`; modulus 0 takes no remainder."""

    variable: V
    scale: int = 1
    divisor: int = 1
    modulus: int = 0

    def takes_remainder(self, of: Range) -> bool:
        """Whether the modulus changes any value."""
        low, high = of.low // self.divisor, of.high // self.divisor
        return bool(self.modulus) and not 0 <= low <= high < self.modulus

    def range(self, of: Range) -> Range:
        """The range of the term for a variable of range `of`."""
        low, high = of.low // self.divisor, of.high // self.divisor
        multiple = 1 if of.multiple % self.divisor else of.multiple // self.divisor
        if self.takes_remainder(of):
            multiple = math.gcd(multiple, self.modulus)
            is_one_turn = low // self.modulus == high // self.modulus
            low, high = (low % self.modulus, high % self.modulus) if is_one_turn else (0, self.modulus - 1)
        ends = sorted((self.scale * low, self.scale * high))
        return Range(ends[0], ends[1], abs(self.scale) * multiple)


@dataclass(frozen=True)
class QuasiAffine(Generic[V]):
    """`offset` plus a sum of terms; without terms it is a constant."""

    terms: tuple[Term[V], ...] = ()
    offset: int = 0

    @classmethod
    def summed(cls, terms: Iterable[Term[V]], offset: int = 0) -> QuasiAffine[V]:
        """The sum of terms, equal ones counted together, ascending by variable and divisor."""
        total: dict[tuple[V, int, int], Term[V]] = {}
        for t in terms:
            if t.modulus != 1:
                digit = t.variable, t.divisor, t.modulus
                known = total.get(digit)
                total[digit] = t if known is None else replace(known, scale=known.scale + t.scale)
        kept = [term for term in total.values() if term.scale]
        if len(kept) > 1:
            kept.sort(key=_place)
        return cls(tuple(kept), offset)

    @classmethod
    def of(cls, variable: V) -> QuasiAffine[V]:
        """A variable as it stands."""
        return cls((Term(variable),))

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def plain(self) -> V | None:
        """The variable that this is, where it is one as it stands."""
        if self.offset or len(self.terms) != 1:
            return None
        (term,) = self.terms
        return term.variable if term == Term(term.variable) else None

    @property
    def variables(self) -> tuple[V, ...]:
        """The variables that it depends on, each once."""
        return tuple(dict.fromkeys(term.variable for term in self.terms))

    def __add__(self, other: QuasiAffine[V]) -> QuasiAffine[V]:
        if not other.terms:
            return self.shifted(other.offset)
        if not self.terms:
            return other.shifted(self.offset)
        return QuasiAffine.summed((*self.terms, *other.terms), self.offset + other.offset)

    def __sub__(self, other: QuasiAffine[V]) -> QuasiAffine[V]:
        return self + other.scaled(-1)

    def scaled(self, factor: int) -> QuasiAffine[V]:
        if not factor:
            return QuasiAffine()
        return QuasiAffine(
            tuple(Term(t.variable, t.scale * factor, t.divisor, t.modulus) for t in self.terms),
            self.offset * factor,
        )

    def shifted(self, offset: int) -> QuasiAffine[V]:
        return QuasiAffine(self.terms, self.offset + offset) if offset else self

    def scale_of(self, variable: V) -> int:
        """The scale of a variable that is neither divided nor taken a remainder of; 0 where it is not there."""
        return sum(t.scale for t in self.terms if t == Term(variable, t.scale))

    def evaluate(self, values: Callable[[V], Any]) -> Any:
        """The value where variables have `values`: integers, or arrays of one shape."""
        return self.offset + sum(
            t.scale * (values(t.variable) // t.divisor % t.modulus)
            if t.modulus
            else t.scale * (values(t.variable) // t.divisor)
            for t in self.terms
        )

    def range(self, ranges: Callable[[V], Range]) -> Range:
        """Bounds of all its values, and what all of them are multiples of: 0 for the number 0.

        No value lies outside of the bounds; whether all of them are taken is not said.
        """
        low, high, multiple = self.offset, self.offset, abs(self.offset)
        for term in self.terms:
            own = term.range(ranges(term.variable))
            low, high, multiple = low + own.low, high + own.high, math.gcd(multiple, own.multiple)
        return Range(low, high, multiple)

    def divided(
        self, divisor: int, ranges: Callable[[V], Range] | None = None
    ) -> tuple[QuasiAffine[V], QuasiAffine[V]] | None:
        """`self floordiv divisor` and `self mod divisor`; None where they are no such sums.

        Without `ranges`, only what holds for all values of the variables is found.
        """
        if divisor < 1:
            return None
        own = self.merged()
        whole = tuple(replace(t, scale=t.scale // divisor) for t in own.terms if t.scale % divisor == 0)
        rest = QuasiAffine(tuple(t for t in own.terms if t.scale % divisor), own.offset % divisor)
        if rest.is_constant:
            return QuasiAffine(whole, own.offset // divisor), rest
        if ranges is not None:
            low, high, _ = rest.range(ranges)
            if low >= 0 and high < divisor:
                return QuasiAffine(whole, own.offset // divisor), rest
        if not own.offset and len(own.terms) == 1 and own.terms[0].scale == 1:
            (term,) = own.terms
            if term.modulus % divisor == 0:
                high = replace(term, divisor=term.divisor * divisor, modulus=term.modulus // divisor)
                return QuasiAffine.summed([high]), QuasiAffine.summed([replace(term, modulus=divisor)])
        return None

    def merged(self) -> QuasiAffine[V]:
        """Remainders and the quotients above them written as one term where they move together: i mod 4 + 4 (i div 4)."""
        if len(self.terms) < 2:
            return self
        merged: list[Term[V]] = []
        for term in self.terms:  # ascending divisors of one variable
            if merged and (inner := merged[-1]).variable == term.variable and inner.modulus:
                size = inner.modulus
                if term.divisor == inner.divisor * size and term.scale == inner.scale * size:
                    merged[-1] = replace(inner, modulus=size * term.modulus)
                    continue
            merged.append(term)
        return self if len(merged) == len(self.terms) else QuasiAffine.summed(merged, self.offset)

    def substituted(self, values: Callable[[V], QuasiAffine[W]]) -> QuasiAffine[W]:
        """The index with `values` in place of variables; raises NotQuasiAffine where that is none."""
        total: QuasiAffine[W] = QuasiAffine((), self.offset)
        for term in self.terms:
            own = values(term.variable)
            for size, part in ((term.divisor, 0), (term.modulus, 1)):
                found = own.divided(size) if size else (own, own)
                if found is None:
                    raise NotQuasiAffine(f"a {('quotient', 'remainder')[part]} by {size} of `{own.text()}`")
                own = found[part]
            total += own.scaled(term.scale)
        return total

    def spans(self, tiles: np.ndarray) -> np.ndarray:
        """How many consecutive values it takes over `tiles` [n, variables] of variables 0, 1, ...: [n].

        A tile is taken to start at a multiple of itself, so that blocks of a packed dimension are covered once.
        """
        total = np.ones(len(tiles), dtype=np.int64)
        for term in self.terms:
            steps = -(-tiles[:, term.variable] // term.divisor)  # type: ignore[index]
            if term.modulus:
                steps = np.minimum(steps, term.modulus)
            total += abs(term.scale) * (steps - 1)
        return total

    def text(self) -> str:
        """`a0 * 2 + a3 floordiv 4 mod 8 + 1`."""
        parts = []
        for t in self.terms:
            part = f"a{t.variable}" + (f" floordiv {t.divisor}" if t.divisor != 1 else "")
            part += f" mod {t.modulus}" if t.modulus else ""
            parts.append(f"{part} * {t.scale}" if t.scale != 1 else part)
        return " + ".join([*parts, *([str(self.offset)] if self.offset or not parts else [])])


def _place(term: Term[Any]) -> tuple[Any, ...]:
    # Variables of several classes do not compare with each other.
    return type(term.variable).__name__, term.variable, term.divisor, term.modulus


def boundaries(indices: Iterable[QuasiAffine[int]], extents: Sequence[int]) -> list[list[int]]:
    """For every loop the sizes at which it has to be cut for `indices` to be linear in its parts, ascending.

    d3 floordiv 32, d3 mod 32   with d3 in [0, 128)   =>   cut at 32: d3 = 32 * outer + inner

    Raises NotQuasiAffine where the sizes do not divide each other.
    """
    found: list[set[int]] = [set() for _ in extents]
    for index in indices:
        for term in index.terms:
            found[term.variable] |= {term.divisor, term.divisor * term.modulus}
    result = []
    for sizes, extent in zip(found, extents):
        inner = sorted(size for size in sizes if 1 < size < extent)
        chain = [1, *inner, extent]
        if any(b % a for a, b in pairwise(chain)):
            raise NotQuasiAffine(f"a loop of {extent} steps is cut at {', '.join(map(str, inner))}")
        result.append(inner)
    return result


def strides(index: QuasiAffine[int], cuts: Sequence[Sequence[int]], extents: Sequence[int]) -> list[int]:
    """The stride of every part of every loop, outermost first, once loop i is cut at `cuts[i]` (see `boundaries`)."""
    result: list[int] = []
    for loop, (sizes, extent) in enumerate(zip(cuts, extents)):
        inner = [1, *sizes]
        own = [0] * len(inner)
        for term in index.terms:
            if term.variable != loop:
                continue
            end = min(term.divisor * term.modulus, extent) if term.modulus else extent
            for i, size in enumerate(inner):
                if term.divisor <= size < end:
                    own[i] += term.scale * (size // term.divisor)
        result += reversed(own)
    return result


def parts(cuts: Sequence[int], extent: int) -> list[int]:
    """Extents of the parts of a loop, outermost first."""
    return [b // a for a, b in pairwise([1, *cuts, extent])][::-1]
