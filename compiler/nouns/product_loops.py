"""The loops of a matrix product: those of a result and of a sum, by what moves along them, linear in every access.

a[m floordiv 2, k, m mod 2], b[k, n], out[m, n]   =>   m: 3, m: 2, n: 8, k: 12, each access a stride for every loop
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilewright.compiler.nouns.quasi_affine import QuasiAffine, boundaries, parts, strides

GROUPS = ("batch", "m", "n", "k")


class NoProduct(Exception):
    """Two factors and a result are no matrix product; the message says why."""


@dataclass(frozen=True)
class Loop:
    """A loop of the product; `group` is what it is part of: batch, m, n or k."""

    extent: int
    group: str


@dataclass(frozen=True)
class Access:
    """A place in a buffer: `offset` plus loop times stride over all loops, in elements; buffer -1 is a bare position."""

    buffer: int
    strides: tuple[int, ...]
    offset: int = 0


@dataclass(frozen=True)
class ProductLoops:
    """Loops by group, outermost first; `accesses` begin with those of A and B, which were `swapped` where B was given first."""

    loops: tuple[Loop, ...]
    accesses: tuple[Access, ...]
    swapped: bool


def flat(index: Sequence[QuasiAffine[int]], strides: Sequence[int]) -> QuasiAffine[int]:
    """Where an element lies, in elements, by its place along every dimension."""
    total: QuasiAffine[int] = QuasiAffine()
    for position, stride in zip(index, strides):
        total += position.scaled(stride)
    return total


def product_loops(
    totals: Sequence[QuasiAffine[int]],
    buffers: Sequence[int],
    extents: Sequence[int],
    is_sum: Sequence[bool],
    result: int,
) -> ProductLoops:
    """The product of the accesses 0 and 1, at places `totals` of their buffers; the sum runs over the loops that say `is_sum`.

    Columns are what the access `result` is contiguous along. Raises NotQuasiAffine for loops that indices cut at odd places,
    NoProduct for what is none.
    """
    cuts = boundaries(totals, extents)
    sizes = [size for own, extent in zip(cuts, extents) for size in parts(own, extent)]
    of_sum = [whole for whole, own in zip(is_sum, cuts) for _ in range(len(own) + 1)]
    accesses = [
        Access(buffer, tuple(strides(total, cuts, extents)), total.offset)
        for buffer, total in zip(buffers, totals)
    ]
    groups = _groups(sizes, of_sum, accesses)
    written = accesses[result].strides
    swapped = _swaps(sizes, groups, written, accesses[:2])
    if swapped:
        groups = [{"m": "n", "n": "m"}.get(group, group) for group in groups]
        accesses[:2] = accesses[1::-1]
    order = _order(sizes, groups, accesses, written)
    loops, accesses = _merged(
        [Loop(sizes[i], groups[i]) for i in order],
        [replace(x, strides=tuple(x.strides[i] for i in order)) for x in accesses],
    )
    return ProductLoops(tuple(loops), tuple(accesses), swapped)


def aligned_lanes(access: Access, loops: Sequence[Loop], loop: int | None, limit: int) -> int:
    """The most elements, a power of two up to `limit`, that lie side by side along a loop and start at a multiple of it."""
    if loop is None or access.strides[loop] != 1:
        return 1
    lanes = max(1, limit)
    others = [s for i, s in enumerate(access.strides) if i != loop]
    while lanes > 1 and any(x % lanes for x in (loops[loop].extent, access.offset, *others)):
        lanes //= 2
    return lanes


def _groups(extents: list[int], is_sum: list[bool], accesses: list[Access]) -> list[str]:
    a, b = accesses[:2]
    groups = []
    for loop, extent in enumerate(extents):
        in_a, in_b = bool(a.strides[loop]), bool(b.strides[loop])
        if is_sum[loop]:
            groups.append("k")
        elif extent == 1 or (in_a and in_b):
            groups.append("batch")
        elif in_a or in_b:
            groups.append("m" if in_a else "n")
        else:
            raise NoProduct("neither factor moves along a loop of the result")
    # Nothing to reuse along rows or columns: a batch of dot products.
    if not {"m", "n"} & {g for g, extent in zip(groups, extents) if extent > 1}:
        raise NoProduct("there are no rows or columns besides the batch")
    return groups


def _swaps(extents: list[int], groups: list[str], result: Sequence[int], factors: Sequence[Access]) -> bool:
    """Whether the factors change places, so that columns are what the result lies closest along; refuses depthwise."""
    inner = next((i for i, s in enumerate(result) if s == 1 and extents[i] > 1), None)
    if inner is not None and groups[inner] == "batch" and all(x.strides[inner] == 1 for x in factors):
        raise NoProduct("all lies contiguous along the batch, as in a depthwise convolution")
    sides = [(result[i], g) for i, g in enumerate(groups) if g in ("m", "n") and extents[i] > 1]
    return min(sides, key=lambda side: side[0])[1] == "m"


def _order(extents: list[int], groups: list[str], accesses: list[Access], result: Sequence[int]) -> list[int]:
    """Loops of more than one step by group, each outermost first: by the result's strides, and by a factor's along k."""
    a, b = (x.strides for x in accesses[:2])
    keyed = a if any(s == 1 for s, g in zip(a, groups) if g == "k") else b
    order = []
    for group in GROUPS:
        own = [i for i, g in enumerate(groups) if g == group and extents[i] > 1]
        by = keyed if group == "k" else result
        order += sorted(own, key=lambda i: (-by[i], i))
    return order


def _merged(loops: list[Loop], accesses: list[Access]) -> tuple[list[Loop], list[Access]]:
    """Neighbours of one group that every access runs through as one loop become one."""
    position = len(loops) - 1
    while position > 0:
        outer, inner = loops[position - 1], loops[position]
        if outer.group == inner.group and all(
            x.strides[position - 1] == x.strides[position] * inner.extent for x in accesses
        ):
            loops = [
                *loops[: position - 1],
                Loop(outer.extent * inner.extent, inner.group),
                *loops[position + 1 :],
            ]
            accesses = [
                replace(x, strides=x.strides[: position - 1] + x.strides[position:]) for x in accesses
            ]
        position -= 1
    return loops, accesses
