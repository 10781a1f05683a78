"""What the steps of a program read and write, as boxes of memories, and which step must therefore follow which.

Two steps keep their order where one writes what the other reads or writes, wherever that memory comes from: a value
of its own, a part of a joined tensor, or a border that several tensors share. Memory that nobody writes orders
nothing. Places in the arena are no part of this: they are given out once the order is known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Memory:
    """One piece of memory; what `is_temporary` belongs to a program's arena and holds nothing between calls."""

    nbytes: int
    item_bytes: int
    is_temporary: bool


@dataclass(frozen=True)
class Region:
    """A box of memory number `memory`: `shape` items from item `offset` on, `strides` items apart."""

    memory: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def items(self) -> int:
        """How many items it has, gaps not counted."""
        return math.prod(self.shape)

    @cached_property
    def end(self) -> int:
        """The place behind its last item."""
        if 0 in self.shape:
            return self.offset
        return self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.strides)) + 1

    def meets(self, other: Region) -> bool:
        """Whether some item belongs to both, or whether that is too hard to tell."""
        if self.memory != other.memory or self.offset >= other.end or other.offset >= self.end:
            return False
        strides = self._strides
        if strides != other._strides:
            strides = tuple(sorted({*strides, *other._strides}, reverse=True))
        mine, theirs = self._digits(strides), other._digits(strides)
        if mine is None or theirs is None:
            return True
        return all(a < d and c < b for (a, b), (c, d) in zip(mine, theirs))

    @cached_property
    def _extents(self) -> dict[int, int]:
        """Extents by stride, of dimensions of more than one item."""
        return {s: n for n, s in zip(self.shape, self.strides) if n > 1}

    @cached_property
    def _strides(self) -> tuple[int, ...]:
        """Its strides and 1, falling."""
        return tuple(sorted({*self._extents, 1}, reverse=True))

    @cached_property
    def _known_digits(self) -> dict[tuple[int, ...], list[tuple[int, int]] | None]:
        return {}

    def _digits(self, strides: tuple[int, ...]) -> list[tuple[int, int]] | None:
        """First and end position along each of the falling `strides`; None where an item has two such positions."""
        if strides not in self._known_digits:
            self._known_digits[strides] = self._counted(strides)
        return self._known_digits[strides]

    def _counted(self, strides: tuple[int, ...]) -> list[tuple[int, int]] | None:
        if len(self._extents) < sum(n > 1 for n in self.shape) or strides[-1] < 1:
            return None
        digits, rest = [], self.offset
        for stride in strides:
            first, rest = divmod(rest, stride)
            digits.append((first, first + self._extents.get(stride, 1)))
        reached = 0
        for (_, end), stride, outer in zip(digits[:0:-1], strides[:0:-1], strides[-2::-1]):
            reached += (end - 1) * stride
            if reached >= outer:
                return None
        return digits


@dataclass(frozen=True)
class Accesses:
    """What one step reads and writes; `is_fixed` where it keeps its place among others that are.

    Those are steps with a run-time check, which may end the program, and steps that change what callers keep.
    """

    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    is_fixed: bool = False


def dependences(steps: Sequence[Accesses]) -> list[list[int]]:
    """For every step, earlier ones that it must follow, rising; those that follow from others may be left out.

    Steps with a fixed place keep their order too: of several failures, the same one is reported.
    """
    written = {region.memory for step in steps for region in step.writes}
    since: dict[int, list[tuple[int, Region, bool]]] = {memory: [] for memory in written}
    found: list[list[int]] = []
    fixed: int | None = None
    for number, step in enumerate(steps):
        before: set[int] = set()
        touched = [(region, False) for region in step.reads] + [(region, True) for region in step.writes]
        for region, writes in touched:
            for other, earlier, wrote in since.get(region.memory, ()):
                if (writes or wrote) and region.meets(earlier):
                    before.add(other)
        for region, writes in touched:
            if writes:
                # What is written over entirely orders nothing any more that this write does not.
                since[region.memory] = [entry for entry in since[region.memory] if entry[1] != region]
            if region.memory in written:
                since[region.memory].append((number, region, writes))
        if step.is_fixed:
            if fixed is not None:
                before.add(fixed)
            fixed = number
        before.discard(number)
        found.append(sorted(before))
    return found


def is_order(steps: Sequence[Accesses], order: Sequence[int]) -> bool:
    """Whether `order` names every step once, each behind all that it must follow."""
    place = {number: position for position, number in enumerate(order)}
    if len(order) != len(steps) or sorted(order) != list(range(len(steps))):
        return False
    return all(place[a] < place[b] for b, before in enumerate(dependences(steps)) for a in before)
