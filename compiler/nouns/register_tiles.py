"""Register tiles: the sizes that loop nests of reductions keep in registers, and the vectors that they fall into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Size = TypeVar("Size", int, np.ndarray)

MOST_SPILLED = 4
"""Accumulators of a register tile per vector register of the target: more are code that compiles slowly and runs slowly."""


@dataclass(frozen=True)
class RegisterTile:
    """`unroll` x `vector` accumulator elements kept in registers over a reduction."""

    unroll: int
    vector: int


@dataclass(frozen=True)
class DotTile:
    """`rows` x `columns` results of a contiguous reduction, with `chains` vector accumulators for each."""

    rows: int
    columns: int
    chains: int


@dataclass(frozen=True)
class Window:
    """One dimension of a window: `extent` outputs, at `stride`, each over `taps` inputs that lie `dilation` apart."""

    extent: int
    taps: int
    stride: int = 1
    dilation: int = 1

    def span(self, outputs: int) -> int:
        """Inputs from the first to the last that `outputs` neighbouring outputs read."""
        return (outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1


@dataclass(frozen=True)
class WindowTile:
    """`rows` x `columns` outputs of `vectors` registers each."""

    rows: int
    columns: int
    vectors: int


def register_pieces(width: int, lanes: int) -> list[tuple[int, int]]:
    """(offset, lanes) of full registers and then powers of two: other vector lengths LLVM takes apart by element."""
    found, offset = [], 0
    while offset < width:
        size = lanes if width - offset >= lanes else 1 << ((width - offset).bit_length() - 1)
        found.append((offset, size))
        offset += size
    return found


def register_count(width: Size, lanes: int) -> Size:
    """How many `register_pieces` there are: of one width, or of an array of them."""
    rest, bits = width % lanes, 0
    for bit in range(lanes.bit_length()):
        bits = bits + (rest >> bit) % 2
    return width // lanes + bits


def divisors(extent: int) -> list[int]:
    """All divisors of `extent`, ascending."""
    small = [d for d in range(1, int(extent**0.5) + 1) if extent % d == 0]
    return sorted({*small, *(extent // d for d in small)})


def packed_widths(block: int, lanes: int) -> tuple[int, ...]:
    """Vector extents that keep inside the blocks of a packed operand."""
    return tuple(d for d in divisors(block) if d >= min(lanes, block))


def block_widths(extent: int, lanes: int, registers: int) -> tuple[int, ...]:
    """The blocks that an operand may be stored in along a loop of `extent`, ascending: none where no divisor serves well.

    Divisors that would leave more than a quarter of the lanes idle, or no register for the accumulators, are worse than
    an operand that is in no blocks, and so is one block of all.
    """
    widths = tuple(
        d
        for d in divisors(extent)
        if lanes <= d <= min(8, (registers - 1) // 2) * lanes
        and d / (len(register_pieces(d, lanes)) * lanes) >= 0.75
    )
    return () if not widths or widths[0] == extent else widths


def power_below(extent: int) -> int:
    """The largest power of two that is at most `extent`, which is at least 1."""
    return 1 << (extent.bit_length() - 1)


def even_piece(extent: int, most: int) -> int:
    """The size of as few equal pieces of `extent` as there can be with at most `most` in each."""
    return -(-extent // -(-extent // most))
