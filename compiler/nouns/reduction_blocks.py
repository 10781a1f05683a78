"""Blocks of a reduction's steps, and the order in which the register tiles of an rTask follow each other.

    for k0 in 0, 256, 512 {                        // depth 256: a block of steps of all register tiles
      for n0 { for m0 {                            // order rows: register tiles go along rows first
        %acc = k0 == 0 ? start : load C[m0, n0]
        for k in k0 .. k0 + 256 { %acc += A[m0, k] * B[k, n0] }
        store %acc, C[m0, n0]
      } }
    }

Loops that all operands follow, as those of a batch, are around the blocks. A block is a run of steps in their order, so that
every result is one chain of sums, wherever it is kept between two blocks: results do not depend on `depth`, but for sums
that are so long that each block is a part of its own. Instructions that take several steps at once cut blocks between two
of them. Source: Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", TOMS 2008, §4 (k_c).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

ORDERS = ("rows", "columns", "panels")
"""Along what register tiles go first: `rows`, steps of the unrolled loop, while a panel of columns stays near; `columns`, while
rows do; `panels`, rows and then all other loops that the panel does not follow, while it stays."""

FEWEST_STEPS = 32
"""Steps of a block below which results are worth no loading and storing: that takes a vector three multiply-adds' time."""
_MOST_EQUAL = 4
"""Into how many equal blocks a loop is cut at most, beside powers of two."""


def split(extents: Sequence[int], depth: int) -> tuple[int, int] | None:
    """Which loop of a reduction blocks of `depth` steps cut, and into what; None where they are no whole steps of any.

    Of loops [3, 3, 512] 1,024 steps are two of the second one with all of the third.
    """
    inner = 1
    for position in reversed(range(len(extents))):
        if inner <= depth < inner * extents[position]:
            return (position, depth // inner) if depth % inner == 0 else None
        inner *= extents[position]
    return None


def depths(extents: Sequence[int], group: int = 1, alike: bool = False) -> tuple[int, ...]:
    """The blocks to choose of, ascending, 0 for none first: powers of two and a few equal parts of each loop.

    Each keeps the rules for instructions that take `group` steps at once, and for blocks that have to be all `alike`.
    """
    found, inner = {0}, 1
    for extent in reversed(extents):
        sizes = {1 << bit for bit in range(extent.bit_length())}
        sizes |= {-(-extent // count) for count in range(2, _MOST_EQUAL + 1)}
        found |= {inner * size for size in sizes if size < extent and inner * size >= FEWEST_STEPS}
        inner *= extent
    return tuple(sorted(depth for depth in found if depth_rule(extents, depth, group, alike) is None))


def depth_rule(extents: Sequence[int], depth: int, group: int = 1, alike: bool = False) -> str | None:
    """The rule that blocks of `depth` steps of a reduction's loops break; None where they keep all. 0 is no blocks.

    Instructions take `group` steps of the innermost loop at once. Blocks may have to be all `alike`.
    """
    steps = math.prod(extents)
    if not depth:
        return None
    if depth >= steps:
        return f"depth is {depth}, its reduction has {steps} steps; use fewer, or leave depth out"
    cut = split(extents, depth)
    if cut is None:
        return (
            f"depth is {depth}, no whole steps of its reduction's loops {list(extents)}; use a number of steps of one of "
            "them with all of those inside of it"
        )
    position, size = cut
    if position == len(extents) - 1 and (size % group or extents[-1] % group):
        return f"depth is {depth} of {extents[-1]}, which cuts the {group} steps that one instruction takes; leave depth out"
    if alike and extents[position] % size:
        return f"depth is {depth}, which leaves a smaller block of {list(extents)}; use blocks that are all alike"
    return None


def same_as_rows(
    order: str, rows: np.ndarray | int, columns: np.ndarray | int, others: int
) -> np.ndarray | bool:
    """Whether register tiles in an order follow each other as in `rows`, of one number of tiles or arrays of them."""
    if order == "columns":
        return (rows < 2) | (columns < 2)
    return ((columns < 2) | (others < 2)) if order == "panels" else (columns < 0)


def order_rule(order: str, rows: int, columns: int, others: int) -> str | None:
    """The rule that an order breaks where register tiles are `rows` x `columns`, and that for each of `others` steps that
    a panel does not follow; None where it keeps all. An order that is the same as `rows` is refused: it has another name."""
    if not same_as_rows(order, rows, columns, others):
        return None
    if order == "columns":
        return (
            f"order is columns, but an rTask has {rows} x {columns} register tiles, which go along rows too; "
            "leave order out"
        )
    return (
        f"order is panels, but an rTask has {columns} panels and {others} rows of register tiles to pass each, which go "
        "along rows too; leave order out"
    )
