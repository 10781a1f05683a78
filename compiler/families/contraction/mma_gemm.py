"""Contractions on the warp-wide matrix instruction mma.sync (sm_80 on): tiles stream through swizzled shared memory.

A warp keeps [warp_m, warp_n] sums as fragments of [16, 8] and loads fragments of both factors by ldmatrix, four [8, 16 B]
matrices at once, transposed on the way where 16-bit elements lie along M or N. Behind the loop, sums go through
shared memory so that every thread computes the epilogue on neighbouring columns and stores 16 bytes.

Fragments: lane l has of the result rows l / 4 and l / 4 + 8, columns 2 (l mod 4) and the next.
Source: PTX ISA, "Matrix fragments for mma.m16n8k16" and ldmatrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.compiler.families.contraction import fragment_block
from tilewright.compiler.families.contraction.fragment_block import FragmentBlock, FragmentTile
from tilewright.compiler.families.contraction.fragment_results import ROWS, Fragment
from tilewright.compiler.families.contraction.operand_copies import (
    Copies,
    Layout,
    can_defer,
    k_contiguous,
    widest,
)
from tilewright.compiler.families.contraction.problem import Contraction, element_bytes
from tilewright.compiler.gpu.builder import (
    Value,
    raw,
    select,
)
from tilewright.compiler.ir import arith, ir, nvgpu, vector
from tilewright.compiler.nouns.schedule import GpuTile

COLUMNS = 8
"""Columns of one instruction's result."""


@dataclass(frozen=True)
class Instruction:
    """One mma.sync: what its factors are in shared memory, the steps of K it takes, and what it sums in."""

    name: str
    dtype: str
    depth: int
    sum_dtype: str

    @property
    def piece(self) -> int:
        """Elements of 16 bytes, half of `depth`."""
        return 16 // element_bytes(self.dtype)

    @property
    def per_register(self) -> int:
        return 4 // element_bytes(self.dtype)


INSTRUCTIONS = {
    "mma.m16n8k16.f16": Instruction("mma.m16n8k16.f16", "f16", 16, "f32"),
    "mma.m16n8k16.bf16": Instruction("mma.m16n8k16.bf16", "bf16", 16, "f32"),
    "mma.m16n8k8.tf32": Instruction("mma.m16n8k8.tf32", "f32", 8, "f32"),
    "mma.m16n8k32.i8": Instruction("mma.m16n8k32.i8", "i8", 32, "i32"),
}


@dataclass(frozen=True)
class MmaTile(FragmentTile):
    """Sizes of a kernel; rows of shared memory are `padding` elements longer, or swizzled where it is 0.

    Rows that no swizzle fits, because they are no power of two of 16 bytes, are 16 bytes longer then.
    """

    instruction: Instruction
    block_m: int
    block_n: int
    block_k: int
    warp_m: int
    warp_n: int
    stages: int = 3
    split_k: int = 1
    raster: int = 8
    padding: int = 0
    blocks_per_core: int = 0

    @property
    def gpu(self) -> GpuTile:
        """The schedule of the kernel."""
        return self.schedule(self.instruction.name, self.padding)


def copies(contraction: Contraction, tile: MmaTile, factor: int) -> Copies:
    """How the tiles of a factor are copied."""
    dtype, piece = tile.instruction.dtype, tile.instruction.piece
    across = (tile.block_m, tile.block_n)[factor]
    k_lanes = k_contiguous(contraction, factor)
    lanes = math.gcd(widest(contraction, factor), tile.block_k if k_lanes else across, piece)
    # Only 16-bit elements are transposed by ldmatrix; others are on the way into shared memory.
    transposed = not k_lanes and element_bytes(dtype) != 2
    deferred = not transposed and can_defer(
        contraction, factor, lanes, dtype, across * tile.block_k, tile.threads
    )
    rows, columns = (across, tile.block_k) if k_lanes or transposed else (tile.block_k, across)
    pieces = columns // piece
    swizzled = not tile.padding and pieces & (pieces - 1) == 0 and columns % piece == 0
    pitch = columns if swizzled else -(-(columns + (tile.padding or piece)) // piece) * piece
    layout = Layout(rows, columns, pitch, swizzled, piece)
    return Copies(
        contraction,
        factor,
        across,
        tile.block_k,
        tile.threads,
        dtype,
        layout,
        lanes,
        deferred,
        transposed,
    )


def shared_bytes(contraction: Contraction, tile: MmaTile) -> int:
    """Bytes of shared memory of one block."""
    return fragment_block.shared_bytes(tile, [copies(contraction, tile, factor) for factor in (0, 1)])


def emit_mma(contraction: Contraction, tile: MmaTile) -> ir.Module:
    """The kernel of a contraction in gpu-level IR; the tile's sizes must divide each other."""
    return _Block(contraction, tile).emit()


class _Block(FragmentBlock):
    """One block's work on `mma.sync`."""

    columns = COLUMNS

    def __init__(self, contraction: Contraction, tile: MmaTile):
        super().__init__(contraction, tile, [copies(contraction, tile, factor) for factor in (0, 1)])
        self.tile, self.instruction = tile, tile.instruction
        self.dtype, self.sum_dtype = tile.instruction.dtype, tile.instruction.sum_dtype
        self.element, self.sum = ir.Type.parse(self.dtype), ir.Type.parse(self.sum_dtype)

    def fragment(self) -> Fragment:
        row, column = self.lane // 4, self.lane % 4 * 2
        return Fragment(COLUMNS, ((0, row, column), (2, row + 8, column)))

    def find_starts(self) -> None:
        self.starts = [self.fragment_starts(0), self.fragment_starts(1)]

    def fragment_starts(self, factor: int) -> dict[tuple[int, int], Value]:
        """Where this lane's ldmatrix addresses of a factor are in a tile, by (first row or column, step of K).

        Only those are worked out that differ by more than whole rows of shared memory; `load` adds those.
        """
        plan, lane, piece = self.plans[factor], self.lane, self.instruction.piece
        within, matrix = lane % 8, lane // 8
        # Of a, matrices 1 and 3 are the lower rows; of b, matrices 2 and 3 the right columns.
        far, deep = (matrix % 2, matrix // 2) if factor == 0 else (matrix // 2, matrix % 2)
        base = self.results.row if factor == 0 else self.results.column
        count = (self.tile.warp_m, self.tile.warp_n)[factor]
        found = {}
        if plan.k_rows:
            row = base + far * 8 + within
            for k in range(0, self.tile.block_k, self.instruction.depth):
                found[0, k] = plan.layout.place(row, deep * piece + k)
        else:
            row = deep * 8 + within
            for first in range(0, count, 16):
                found[first, 0] = plan.layout.place(row, base + far * 8 + first)
        return found

    def load(self, factor: int, slot_start: Value, first: int, k: int, matrices: int = 4) -> Value:
        """Four matrices of a factor: rows or columns from `first` of the warp's, at step k. Two are the first 8 columns."""
        plan = self.plans[factor]
        rows = first if plan.k_rows else k
        start = self.starts[factor][(0, k) if plan.k_rows else (first, 0)]
        place = start + slot_start + rows * plan.layout.pitch
        type_ = ir.VectorType.get([matrices, self.instruction.per_register], self.element)
        return Value(nvgpu.ldmatrix(type_, self.buffers[factor], [raw(place)], not plan.k_rows, matrices))

    def multiply(self, slot: Value, sums: list[Value]) -> list[Value]:
        """One tile's products added to the sums."""
        tile, sums = self.tile, list(sums)
        starts = [slot * plan.elements for plan in self.plans]
        across = tile.warp_n // COLUMNS
        for k in range(0, tile.block_k, self.instruction.depth):
            left = [self.factor(self.load(0, starts[0], i, k)) for i in range(0, tile.warp_m, ROWS)]
            right = []
            for j in range(0, tile.warp_n, 2 * COLUMNS):
                if tile.warp_n - j >= 2 * COLUMNS:
                    right += self.halves(self.factor(self.load(1, starts[1], j, k)))
                else:
                    right.append(self.factor(self.load(1, starts[1], j, k, matrices=2)))
            for i, a in enumerate(left):
                for j, b in enumerate(right):
                    sums[i * across + j] = self.product(a, b, sums[i * across + j])
        return sums

    def factor(self, fragment: Value) -> Value:
        """A fragment as the instruction takes it: f32 rounded to tf32, to nearest, NaN kept."""
        if self.instruction.dtype != "f32":
            return fragment
        shape = ir.VectorType(fragment.type).shape
        bits_type = ir.VectorType.get(shape, ir.IntegerType.get_signless(32))
        bits = Value(arith.bitcast(bits_type, fragment.value))
        rounded = (bits + 0x1000) & 0xFFFFE000
        nearest = Value(arith.bitcast(fragment.type, rounded.value))
        return select(fragment.differs(fragment), fragment, nearest)

    def halves(self, fragment: Value) -> list[Value]:
        """Two fragments of b of four matrices."""
        return [
            Value(vector.extract_strided_slice(
                ir.VectorType.get([2, self.instruction.per_register], self.element),
                fragment.value, [first], [2], [1],
            ))
            for first in (0, 2)
        ]  # fmt: skip

    def product(self, a: Value, b: Value, total: Value) -> Value:
        square = ir.VectorType.get([2, 2], self.sum)
        result = nvgpu.mma_sync(
            square,
            a.value,
            b.value,
            vector.shape_cast(square, total.value),
            [ROWS, COLUMNS, self.instruction.depth],
            tf32_enabled=True if self.instruction.dtype == "f32" else None,
        )
        return Value(vector.shape_cast(total.type, result))
