"""Results of warps whose sums lie in fragments of matrix instructions: from registers, or by way of shared memory.

A fragment of [16, columns] sums is a vector per thread. By way of shared memory, 16 rows of a warp's tile at a time, every
thread gets neighbouring columns, computes the epilogue on them and stores up to 16 bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.compiler.families.contraction.addresses import Tile
from tilewright.compiler.families.contraction.epilogue import Epilogue, Line
from tilewright.compiler.gpu.builder import (
    Value,
    barrier,
    if_,
    load,
    load_vector,
    store_vector,
)
from tilewright.compiler.ir import ir, vector

ROWS = 16
"""Rows of a fragment."""
_STAGED_LANES = 4
"""Columns per store from which on sums are worth a way through shared memory."""


@dataclass(frozen=True)
class Warps:
    """How a block's tile is divided among warps."""

    block_m: int
    block_n: int
    warp_m: int
    warp_n: int

    @property
    def down(self) -> int:
        return self.block_m // self.warp_m

    @property
    def across(self) -> int:
        return self.block_n // self.warp_n

    @property
    def threads(self) -> int:
        return 32 * self.down * self.across

    @property
    def staging_pitch(self) -> int:
        """Sums from one row to the next in shared memory: 8 modulo 32, so that 4 rows of 8 fall in different banks."""
        return self.warp_n + (8 - self.warp_n) % 32

    @property
    def staging_elements(self) -> int:
        """Sums that all warps stage at once, 4 bytes each."""
        return self.down * self.across * ROWS * self.staging_pitch


@dataclass(frozen=True)
class Fragment:
    """Where a thread's sums are in a fragment of [16, columns]: sums `first` and `first` + 1 at (row, column) and beside."""

    columns: int
    pairs: tuple[tuple[int, Value, Value], ...]


@dataclass(frozen=True)
class Results:
    """One thread's way from sums to results. `row` and `column` are where its warp's tile is in the block's."""

    warps: Warps
    fragment: Fragment
    thread: Value
    place: Tile

    @property
    def lane(self) -> Value:
        return self.thread % 32

    @property
    def warp(self) -> Value:
        return self.thread // 32

    @property
    def row(self) -> Value:
        return self.warp // self.warps.across * self.warps.warp_m

    @property
    def column(self) -> Value:
        return self.warp % self.warps.across * self.warps.warp_n

    def write(self, epilogue: Epilogue, sums: list[Value], staging: ir.Value) -> None:
        """Writes the warp's results; `staging` is shared memory of `staging_elements` sums that nobody else uses now."""
        if epilogue.store_lanes >= _STAGED_LANES:
            self.write_staged(epilogue, sums, staging)
        else:
            self.write_directly(epilogue, sums)

    def ragged_columns(self, epilogue: Epilogue) -> bool:
        return epilogue.contraction.extent("n") % self.warps.block_n != 0

    def line(self, epilogue: Epilogue, within: Value) -> Line:
        rows = epilogue.contraction.extent("m")
        m = self.place.row + self.row + within
        return epilogue.row(m, True if rows % self.warps.block_m == 0 else m < rows)

    def write_directly(self, epilogue: Epilogue, sums: list[Value]) -> None:
        """Every thread writes the sums that it has."""
        width = self.fragment.columns
        across = self.warps.warp_n // width
        ragged = self.ragged_columns(epilogue)
        start = self.place.column + self.column
        lines = [
            [epilogue.columns(start + column + j * width, 2, ragged) for _, _, column in self.fragment.pairs]
            for j in range(across)
        ]
        for i in range(self.warps.warp_m // ROWS):
            for number, (at, row, _) in enumerate(self.fragment.pairs):
                line = self.line(epilogue, row + i * ROWS)
                for j in range(across):
                    for first, count, column in lines[j][number]:
                        own = sums[i * across + j]
                        epilogue.write([own[at + first + e] for e in range(count)], line, column)

    def write_staged(self, epilogue: Epilogue, sums: list[Value], staging: ir.Value) -> None:
        """Sums change places in shared memory."""
        warps, pitch, width = self.warps, self.warps.staging_pitch, self.fragment.columns
        across = warps.warp_n // width
        lanes = math.gcd(epilogue.store_lanes, warps.warp_n)
        start = self.warp * (ROWS * pitch)
        per_row = warps.warp_n // lanes
        count = ROWS * per_row
        pair = ir.VectorType.get([2], sums[0].element)
        for i in range(warps.warp_m // ROWS):
            barrier()
            for j in range(across):
                for first, row, column in self.fragment.pairs:
                    own = sums[i * across + j].value
                    two = Value(vector.extract_strided_slice(pair, own, [first], [2], [1]))
                    store_vector(two, staging, [start + row * pitch + column + j * width], 8)
            barrier()
            for first in range(0, count, 32):
                number = self.lane + first
                row, column = number // per_row, number % per_row * lanes
                line = self.line(epilogue, row + i * ROWS)
                begin = self.place.column + self.column + column
                pieces = epilogue.columns(begin, lanes, self.ragged_columns(epilogue))
                with if_(True if count - first >= 32 else number < count):
                    values = staged(staging, start + row * pitch + column, lanes)
                    for at, many, piece in pieces:
                        epilogue.write(values[at : at + many], line, piece)


def staged(staging: ir.Value, at: Value, lanes: int) -> list[Value]:
    """Neighbouring sums from shared memory, up to 16 bytes at a time."""
    width = min(4, lanes)
    if width == 1:
        return [load(staging, at)]
    found: list[Value] = []
    for first in range(0, lanes, width):
        part = load_vector(staging, [at + first], width, 4 * width)
        found += [part[e] for e in range(width)]
    return found
