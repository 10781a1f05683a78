"""Contractions of f16 on Volta's matrix instruction: four quad pairs of a warp each multiply [8, 4] by [4, 8].

Quad pair q is lanes 4q .. 4q + 3 and 16 more each. The pairs divide a [16, 16] fragment of sums among them, two down
and two across. A factor stays in shared memory as it lies in global memory: contiguous along K a thread reads four
steps of its row or column, else four neighbours at its step of K; the instruction takes either order.
Source: PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.compiler.families.contraction import fragment_block
from tilewright.compiler.families.contraction.fragment_block import FragmentBlock, FragmentTile
from tilewright.compiler.families.contraction.fragment_results import ROWS, Fragment
from tilewright.compiler.families.contraction.operand_copies import Copies, Layout, k_contiguous, widest
from tilewright.compiler.families.contraction.problem import Contraction
from tilewright.compiler.gpu.builder import (
    Value,
    load_vector,
)
from tilewright.compiler.gpu.primitives import mma_m8n8k4
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile

COLUMNS = 16
DEPTH = 4
"""Steps of K of one instruction."""
_PIECE = 8
"""Elements of 16 bytes."""


@dataclass(frozen=True)
class VoltaTile(FragmentTile):
    """Sizes of a kernel; block_k is a multiple of 4, warps take multiples of 16."""

    block_m: int
    block_n: int
    block_k: int
    warp_m: int
    warp_n: int
    stages: int = 2
    split_k: int = 1
    raster: int = 8
    blocks_per_core: int = 0

    @property
    def gpu(self) -> GpuTile:
        """The schedule of the kernel."""
        return self.schedule("mma.m8n8k4")


def copies(contraction: Contraction, tile: VoltaTile, factor: int) -> Copies:
    """How the tiles of a factor are copied: through registers, rows longer by what spreads them over the banks."""
    across = (tile.block_m, tile.block_n)[factor]
    k_lanes = k_contiguous(contraction, factor)
    lanes = math.gcd(widest(contraction, factor), tile.block_k if k_lanes else across, _PIECE)
    if k_lanes:
        layout = Layout(across, tile.block_k, -(-tile.block_k // _PIECE) * _PIECE + _PIECE)
    else:
        # Four rows that quad pairs read together start 8 banks of 4 bytes apart.
        layout = Layout(tile.block_k, across, across + (16 - across) % 64)
    return Copies(contraction, factor, across, tile.block_k, tile.threads, "f16", layout, lanes, False)


def shared_bytes(contraction: Contraction, tile: VoltaTile) -> int:
    """Bytes of shared memory of one block."""
    return fragment_block.shared_bytes(tile, [copies(contraction, tile, factor) for factor in (0, 1)])


def emit_volta(contraction: Contraction, tile: VoltaTile) -> ir.Module:
    """The kernel of a contraction in gpu-level IR; the tile's sizes must divide each other."""
    return _Block(contraction, tile).emit()


class _Block(FragmentBlock):
    """One block's work on Volta's instruction."""

    dtype, sum_dtype, columns = "f16", "f32", COLUMNS

    def __init__(self, contraction: Contraction, tile: VoltaTile):
        super().__init__(contraction, tile, [copies(contraction, tile, factor) for factor in (0, 1)])
        self.tile = tile

    def fragment(self) -> Fragment:
        lane = self.lane
        self.quarter, self.upper, self.pair = lane % 4, lane // 16, lane // 4 % 4
        row = self.pair % 2 * 8 + self.upper * 4 + lane % 2
        column = self.pair // 2 * 8 + lane // 2 % 2 * 2
        places = ((0, row, column), (2, row + 2, column), (4, row, column + 4), (6, row + 2, column + 4))
        return Fragment(COLUMNS, places)

    def find_starts(self) -> None:
        self.starts = [self.start(0), self.start(1)]

    def start(self, factor: int) -> Value:
        """Where this thread's elements of the first fragment at step 0 are in a tile."""
        plan = self.plans[factor]
        base = self.results.row if factor == 0 else self.results.column
        base = base + (self.pair % 2 if factor == 0 else self.pair // 2) * 8 + self.upper * 4
        if plan.k_rows:
            return (base + self.quarter) * plan.layout.pitch
        return self.quarter * plan.layout.pitch + base

    def multiply(self, slot: Value, sums: list[Value]) -> list[Value]:
        """One tile's products added to the sums."""
        tile, sums = self.tile, list(sums)
        starts = [slot * plan.elements + start for plan, start in zip(self.plans, self.starts)]
        a_layout = "row" if self.plans[0].k_rows else "col"
        b_layout = "col" if self.plans[1].k_rows else "row"
        across = tile.warp_n // COLUMNS
        for k in range(0, tile.block_k, DEPTH):
            left = [self.read(0, starts[0], i, k) for i in range(0, tile.warp_m, ROWS)]
            right = [self.read(1, starts[1], j, k) for j in range(0, tile.warp_n, COLUMNS)]
            for i, a in enumerate(left):
                for j, b in enumerate(right):
                    at = i * across + j
                    sums[at] = mma_m8n8k4(a, b, sums[at], a_layout, b_layout)
        return sums

    def read(self, factor: int, start: Value, first: int, k: int) -> Value:
        plan = self.plans[factor]
        at = first * plan.layout.pitch + k if plan.k_rows else k * plan.layout.pitch + first
        return load_vector(self.buffers[factor], [start + at], 4, 8)
