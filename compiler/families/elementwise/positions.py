"""Positions in buffers as quasi-affine indices of the number of a point, for all lanes of a vector of points at once.

Points of a result are numbered in the order in which they lie in memory; loop variables are digits of that number:

    [4, 6, 8]: d0 = n div 48, d1 = n div 8 mod 6, d2 = n mod 8        48 * d0 + 8 * d1 + d2 = n

A thread computes `lanes` points from a multiple of `lanes` on. What a lane adds to a position tells how memory is accessed:
nothing (one element for all lanes), 1 each (a vector), or something that differs from lane to lane.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

from tilewright.compiler.nouns.quasi_affine import QuasiAffine, Range, Term

ALL = -1
"""Instead of the number of a lane: every one of them."""


@dataclass(frozen=True, order=True)
class Flat:
    """Numbers of points `base + lane` below `extent`, where base `number` is a multiple of `lanes`.

    `lane` is ALL, or the one lane that is meant.
    """

    number: int
    extent: int
    lanes: int = 1
    lane: int = ALL

    @property
    def range(self) -> Range:
        """Its values, of all lanes; the multiple is that of the first."""
        return Range(0, self.extent - 1, 1 if self.lane > 0 else self.lanes)


Digit: TypeAlias = Term[Flat]
"""`(n div divisor) mod modulus` of the number of a point, times a scale."""


@dataclass(frozen=True, order=True)
class Opaque:
    """A value known at run time only: its number, bounds, what it is a multiple of, and the digits it was computed from."""

    number: int
    low: int
    high: int
    multiple: int = 1
    digits: tuple[Digit, ...] = ()

    @property
    def range(self) -> Range:
        return Range(self.low, self.high, self.multiple)


Position: TypeAlias = QuasiAffine[Flat | Opaque]
"""An integer for every lane."""


def range_of(variable: Flat | Opaque) -> Range:
    return variable.range


def bounds(position: Position) -> Range:
    """The least and the greatest value of any lane; the multiple is that of the first lane, 0 of the number 0."""
    return position.range(range_of)


def divided(position: Position, divisor: int) -> tuple[Position, Position] | None:
    """Quotient (rounded down) and remainder; None where they are no sums of digits and of what is known already."""
    found = position.divided(divisor, range_of)
    if found is None or any(isinstance(t.variable, Opaque) and t.divisor != 1 for t in found[0].terms):
        return None
    return found


def digits_of(positions: Iterable[Position]) -> tuple[Digit, ...]:
    """All digits that positions depend on, of scale 1, sorted."""
    found: set[Digit] = set()
    for term in (t for position in positions for t in position.terms):
        found |= {replace(term, scale=1)} if isinstance(term.variable, Flat) else set(term.variable.digits)
    return tuple(sorted(found))


def at_lane(position: Position, lane: int) -> Position:
    """The position of one lane, in terms of what holds for all lanes where that is possible."""
    own = [_term_at_lane(term, lane) for term in position.terms]
    terms = (term for part in own for term in part.terms)
    return QuasiAffine.summed(terms, position.offset + sum(part.offset for part in own))


def with_lanes(position: Position, lanes: int) -> Position:
    """The same position when a thread computes that many points at once."""
    return replace(
        position,
        terms=tuple(
            replace(t, variable=replace(t.variable, lanes=lanes)) if isinstance(t.variable, Flat) else t
            for t in position.terms
        ),
    )


@lru_cache(maxsize=65536)
def lane_steps(position: Position, lanes: int) -> tuple[int, ...] | None:
    """What every lane adds to the first one's position; None where that is not known."""
    first = at_lane(position, 0)
    steps = []
    for lane in range(lanes):
        step = at_lane(position, lane) - first
        if step.terms:
            return None
        steps.append(step.offset)
    return tuple(steps)


@lru_cache(maxsize=65536)
def _term_at_lane(term: Term[Flat | Opaque], lane: int) -> Position:
    flat = term.variable
    if not isinstance(flat, Flat) or flat.lane != ALL:
        return QuasiAffine((term,))
    lanes, span = flat.lanes, term.divisor * term.modulus
    first: Position = QuasiAffine((replace(term, variable=replace(flat, lane=0)),))
    if term.divisor % lanes == 0:
        return first
    if lanes % term.divisor == 0 and (span % lanes == 0 or not term.takes_remainder(flat.range)):
        return first.shifted(term.scale * (lane // term.divisor))
    if lanes % span == 0:
        return QuasiAffine((), term.scale * (lane // term.divisor % term.modulus))
    return QuasiAffine((replace(term, variable=replace(flat, lane=lane)),))


def is_uniform(digit: Digit) -> bool:
    """Whether a digit is the same for all lanes."""
    return _term_at_lane(digit, digit.variable.lanes - 1) == _term_at_lane(digit, 0)


def loop_digits(flat: Flat, extents: tuple[int, ...]) -> list[Position]:
    """The variables of a loop nest as digits of the number of its points, the last loop innermost."""
    found, divisor = [], math.prod(extents)
    for extent in extents:
        divisor //= extent
        found.append(QuasiAffine.summed([Term(flat, 1, divisor, extent)]))
    return found
