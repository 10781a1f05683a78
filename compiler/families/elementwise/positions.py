"""Positions in buffers as sums over digits of the number of a point, for all lanes of a vector of points at once.

Points of a result are numbered in the order in which they lie in memory; loop variables are digits of that number:

    [4, 6, 8]: d0 = n div 48, d1 = n div 8 mod 6, d2 = n mod 8        48 * d0 + 8 * d1 + d2 = n

A thread computes `lanes` points from a multiple of `lanes` on. What a lane adds to a position tells how memory is accessed:
nothing (one element for all lanes), 1 each (a vector), or something that differs from lane to lane.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

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


@dataclass(frozen=True, order=True)
class Digit:
    """`(n div divisor) mod modulus` of the number of a point."""

    flat: Flat
    divisor: int
    modulus: int

    @property
    def low(self) -> int:
        return 0

    @property
    def high(self) -> int:
        return self.modulus - 1

    @property
    def is_top(self) -> bool:
        """Whether no digit lies above."""
        return self.divisor * self.modulus >= self.flat.extent

    @property
    def multiple(self) -> int:
        """What it is a multiple of in the first lane."""
        lanes = 1 if self.flat.lane > 0 else self.flat.lanes
        if lanes % self.divisor:
            return 1
        return math.gcd(lanes // self.divisor, self.modulus) if not self.is_top else lanes // self.divisor


@dataclass(frozen=True, order=True)
class Opaque:
    """A value known at run time only: its number, bounds, what it is a multiple of, and the digits it was computed from."""

    number: int
    low: int
    high: int
    multiple: int = 1
    digits: tuple[Digit, ...] = ()


Atom = Digit | Opaque


@dataclass(frozen=True)
class Position:
    """`constant` plus a sum of `(atom, coefficient)`: an integer for every lane."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    @classmethod
    def of(cls, atom: Atom) -> Position:
        """A digit of one value is the number 0."""
        return cls() if isinstance(atom, Digit) and atom.modulus == 1 else cls(((atom, 1),))

    @property
    def low(self) -> int:
        return self.constant + sum(min(c * a.low, c * a.high) for a, c in self.terms)

    @property
    def high(self) -> int:
        return self.constant + sum(max(c * a.low, c * a.high) for a, c in self.terms)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    @property
    def multiple(self) -> int:
        """What it is a multiple of in the first lane; 0 for the number 0."""
        return math.gcd(self.constant, *(c * a.multiple for a, c in self.terms))

    def __add__(self, other: Position) -> Position:
        if not other.terms:
            return replace(self, constant=self.constant + other.constant)
        total = dict(self.terms)
        for atom, coefficient in other.terms:
            total[atom] = total.get(atom, 0) + coefficient
        return Position(_sorted(total), self.constant + other.constant)

    def __sub__(self, other: Position) -> Position:
        return self + other.scaled(-1)

    def scaled(self, factor: int) -> Position:
        if not factor:
            return Position()
        return Position(tuple((a, c * factor) for a, c in self.terms), self.constant * factor)

    def shifted(self, offset: int) -> Position:
        return replace(self, constant=self.constant + offset) if offset else self

    def merged(self) -> Position:
        """Neighbouring digits that move together written as one."""
        return _merged(self)

    def divided(self, divisor: int) -> tuple[Position, Position] | None:
        """Quotient (rounded down) and remainder; None where they are no sums of digits."""
        own = self.merged()
        whole = Position(
            tuple((a, c // divisor) for a, c in own.terms if c % divisor == 0), own.constant // divisor
        )
        rest = Position(tuple((a, c) for a, c in own.terms if c % divisor), own.constant % divisor)
        if rest.low >= 0 and rest.high < divisor:
            return whole, rest
        if not own.constant and len(own.terms) == 1 and own.terms[0][1] == 1:
            digit = own.terms[0][0]
            if isinstance(digit, Digit) and digit.modulus % divisor == 0:
                high = replace(digit, divisor=digit.divisor * divisor, modulus=digit.modulus // divisor)
                return Position.of(high), Position.of(replace(digit, modulus=divisor))
        return None

    def digits(self) -> tuple[Digit, ...]:
        """All digits that it depends on, sorted."""
        found = {a for a, _ in self.terms if isinstance(a, Digit)}
        for atom, _ in self.terms:
            found.update(atom.digits if isinstance(atom, Opaque) else ())
        return tuple(sorted(found))

    def at_lane(self, lane: int) -> Position:
        """The position of one lane, in terms of what holds for all lanes where that is possible."""
        total = Position((), self.constant)
        for atom, coefficient in self.terms:
            own = digit_at_lane(atom, lane) if isinstance(atom, Digit) else Position.of(atom)
            total += own.scaled(coefficient)
        return total

    def with_lanes(self, lanes: int) -> Position:
        """The same position when a thread computes that many points at once."""
        return Position(
            tuple((with_lanes(a, lanes) if isinstance(a, Digit) else a, c) for a, c in self.terms),
            self.constant,
        )

    def lane_steps(self, lanes: int) -> tuple[int, ...] | None:
        """What every lane adds to the first one's position; None where that is not known."""
        return _lane_steps(self, lanes)


def with_lanes(digit: Digit, lanes: int) -> Digit:
    return replace(digit, flat=replace(digit.flat, lanes=lanes))


@lru_cache(maxsize=65536)
def digit_at_lane(digit: Digit, lane: int) -> Position:
    """A digit at `base + lane`."""
    if digit.flat.lane != ALL:
        return Position.of(digit)
    lanes, span = digit.flat.lanes, digit.divisor * digit.modulus
    first = Position.of(replace(digit, flat=replace(digit.flat, lane=0)))
    if digit.divisor % lanes == 0:
        return first
    if lanes % digit.divisor == 0 and (span % lanes == 0 or digit.is_top):
        return first.shifted(lane // digit.divisor)
    if lanes % span == 0:
        return Position((), lane // digit.divisor % digit.modulus)
    return Position.of(replace(digit, flat=replace(digit.flat, lane=lane)))


@lru_cache(maxsize=65536)
def _lane_steps(position: Position, lanes: int) -> tuple[int, ...] | None:
    first = position.at_lane(0)
    steps = []
    for lane in range(lanes):
        step = position.at_lane(lane) - first
        if step.terms:
            return None
        steps.append(step.constant)
    return tuple(steps)


def is_uniform(digit: Digit) -> bool:
    """Whether a digit is the same for all lanes."""
    return digit_at_lane(digit, digit.flat.lanes - 1) == digit_at_lane(digit, 0)


def loop_digits(flat: Flat, extents: tuple[int, ...]) -> list[Position]:
    """The variables of a loop nest as digits of the number of its points, the last loop innermost."""
    found, divisor = [], math.prod(extents)
    for extent in extents:
        divisor //= extent
        found.append(Position.of(Digit(flat, divisor, extent)))
    return found


def _sorted(total: dict[Atom, int]) -> tuple[tuple[Atom, int], ...]:
    kept = [(a, c) for a, c in total.items() if c]
    return tuple(sorted(kept, key=lambda term: (isinstance(term[0], Opaque), term[0])))


@lru_cache(maxsize=65536)
def _merged(position: Position) -> Position:
    digits = sorted((a, c) for a, c in position.terms if isinstance(a, Digit))
    others = [t for t in position.terms if not isinstance(t[0], Digit)]
    merged: list[tuple[Digit, int]] = []
    for digit, coefficient in digits:  # ascending divisors of one number
        if merged:
            inner, own = merged[-1]
            if (
                inner.flat == digit.flat
                and digit.divisor == inner.divisor * inner.modulus
                and coefficient == own * inner.modulus
            ):
                merged[-1] = (replace(inner, modulus=inner.modulus * digit.modulus), own)
                continue
        merged.append((digit, coefficient))
    if len(merged) == len(digits):
        return position
    total: dict[Atom, int] = {}
    for atom, coefficient in [*merged, *others]:
        total[atom] = total.get(atom, 0) + coefficient
    return Position(_sorted(total), position.constant)
