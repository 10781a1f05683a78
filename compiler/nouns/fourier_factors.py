"""The two factors of a length that its Fourier transform is computed by: columns of one, then rows of the other, in registers."""

from __future__ import annotations

from functools import cache

_WHOLE = 32
"""Lengths up to this are transformed without a buffer in between."""
_LONGEST_FACTOR = 64
_LARGEST_PRIME = 31
"""A prime factor p takes (p - 1)² multiply-adds where others take a few."""
FEWEST_COLUMNS = 8
"""Columns side by side from which vectors of them are worth while; fewer are transposed, and are lines along memory then."""


@cache
def factors(length: int) -> tuple[int, int] | None:
    """(columns, rows), whose product is `length`, as near to each other as there are; None where a transform has no such."""
    if length < 1 or max(primes(length), default=1) > _LARGEST_PRIME:
        return None
    if length <= _WHOLE:
        return 1, length
    pairs = ((d, length // d) for d in range(2, int(length**0.5) + 1) if length % d == 0)
    return next((pair for pair in reversed(list(pairs)) if max(pair) <= _LONGEST_FACTOR), None)


@cache
def primes(length: int) -> tuple[int, ...]:
    """The prime factors of a length, the smallest first, each as often as it divides it."""
    found, factor = [], 2
    while factor * factor <= length:
        if length % factor:
            factor += 1
        else:
            found.append(factor)
            length //= factor
    return (*found, length) if length > 1 else tuple(found)


def multiplied(length: int, real: bool) -> int:
    """The length of the complex transform that computes one: of an even number of `real` elements half of it, taken in pairs."""
    return length // 2 if real and length % 2 == 0 else length
