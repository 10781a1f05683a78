"""Contractions of few rows, which take as long as reading b: every thread streams its part of b past all rows of a.

With b contiguous along N, a thread takes neighbouring columns at some steps of K; contiguous along K, neighbouring steps
of some columns. Either way it loads up to 16 bytes at a time, all loads of a step before its products. Threads that share
columns add their sums by shuffles within a warp, in shared memory across warps, in the workspace across blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.compiler.families.contraction.addresses import Addresses, Grid, Position, Tile
from tilewright.compiler.families.contraction.epilogue import Epilogue, converted
from tilewright.compiler.families.contraction.operand_copies import k_contiguous, widest
from tilewright.compiler.families.contraction.problem import Contraction, element_bytes
from tilewright.compiler.families.contraction.simt_gemm import multiply_add
from tilewright.compiler.families.contraction.split_k import SplitK, counter_bytes, workspace_bytes
from tilewright.compiler.gpu.builder import (
    Kernel,
    Value,
    barrier,
    both,
    constant,
    for_,
    if_,
    kernel,
    load,
    load_vector,
    raw,
    select,
    shared,
    shuffle_xor,
    store,
    thread_id,
    vector_type,
)
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile

WARP = 32

MOST_SUMS = 64
"""Sums of one thread."""


@dataclass(frozen=True)
class SkinnyTile:
    """Sizes of a kernel: `wide` x `deep` threads, each of which takes `columns` columns and `steps` steps of K at a time.

    `k_first` tells whether neighbouring threads are neighbours along K.
    """

    rows: int
    columns: int
    steps: int
    wide: int
    deep: int
    k_first: bool
    split_k: int = 1

    @property
    def gpu(self) -> GpuTile:
        """The schedule of the kernel."""
        return GpuTile(
            "skinny", self.threads, self.block, thread=(self.rows, self.columns), split_k=self.split_k
        )

    @property
    def threads(self) -> int:
        return self.wide * self.deep

    @property
    def block(self) -> tuple[int, int, int]:
        return self.rows, self.block_n, self.block_k

    @property
    def block_m(self) -> int:
        return self.rows

    @property
    def lanes(self) -> int:
        """Elements of b that one load takes."""
        return self.steps if self.k_first else self.columns

    @property
    def block_n(self) -> int:
        return self.wide * self.columns

    @property
    def block_k(self) -> int:
        return self.deep * self.steps

    @property
    def k_lanes(self) -> int:
        """Threads of one warp that share columns."""
        return min(WARP, self.deep) if self.k_first else max(1, WARP // self.wide)

    @property
    def k_warps(self) -> int:
        """Sums of the same columns that warps hold."""
        return self.deep // self.k_lanes


def _grid(contraction: Contraction, tile: SkinnyTile) -> Grid:
    return Grid(contraction, tile.rows, tile.block_n, tile.block_k, tile.split_k)


def emit_skinny(contraction: Contraction, tile: SkinnyTile) -> ir.Module:
    """The kernel of a contraction in gpu-level IR."""
    grid = _grid(contraction, tile)
    with kernel(
        contraction.name,
        [buffer.type for buffer in contraction.buffers],
        rtasks=grid.blocks,
        block=tile.threads,
        workspace_bytes=workspace_bytes(grid, _results(tile), tile.threads),
        zeroed_bytes=counter_bytes(grid),
        made=tile.gpu,
    ) as written:
        _Block(contraction, tile, grid, written).write()
    return written.module


def _results(tile: SkinnyTile) -> int:
    """Results that one thread adds up and writes."""
    return -(-tile.rows * tile.block_n // tile.threads)


class _Block:
    """One block's work, written out."""

    def __init__(self, contraction: Contraction, tile: SkinnyTile, grid: Grid, written: Kernel):
        self.contraction, self.tile, self.grid, self.written = contraction, tile, grid, written
        self.thread = thread_id()
        if tile.k_first:
            self.k_thread, self.n_thread = self.thread % tile.deep, self.thread // tile.deep
        else:
            self.k_thread, self.n_thread = self.thread // tile.wide, self.thread % tile.wide
        self.element = ir.Type.parse(contraction.compute_dtype)

    def write(self) -> None:
        contraction, tile, grid = self.contraction, self.tile, self.grid
        self.place = place = grid.place(self.written.rtask())
        self.addresses = Addresses.of(contraction, self.written.buffers)
        self.sums_at = shared([tile.k_warps * tile.rows * tile.block_n], self.element)
        split = None
        if grid.parts > 1:
            split = SplitK(grid, raw(self.written.workspace), place, self.thread, tile.threads)
        self.prepare()
        zero = constant(self.element, 0)
        sums = for_(0, grid.steps(place.part), 1, [zero] * (tile.rows * tile.columns), self.step)
        totals = self.across_threads(sums)
        epilogue = Epilogue(self.addresses, place.batch)
        if split is None:
            self.finish(epilogue, place, totals)
            return
        with if_(split.last(totals)):
            self.finish(epilogue, place, split.total(totals))

    def prepare(self) -> None:
        """Addresses that stay the same along K."""
        tile, addresses, place = self.tile, self.addresses, self.place
        base = [addresses.group_offset(f, "batch", place.batch) + addresses.start(f) for f in (0, 1)]
        self.rows = [addresses.group_offset(0, "m", i) + base[0] for i in range(tile.rows)]
        end = self.contraction.extent("n")
        whole = end % tile.block_n == 0
        self.columns = []
        # Columns that one load takes, or those that are loaded one by one.
        for j in range(0, tile.columns, 1 if tile.k_first else tile.columns):
            n = place.column + self.n_thread * tile.columns + j
            self.columns.append((addresses.group_offset(1, "n", n) + base[1], True if whole else n < end))

    def step(self, t: Value, *sums: Value) -> list[Value]:
        """The products of one step of the block along K."""
        tile, addresses = self.tile, self.addresses
        first = t + (self.place.part * self.grid.steps_k if self.grid.parts > 1 else 0)
        k = first * tile.block_k + self.k_thread * tile.steps
        end = self.contraction.extent("k")
        whole = end % tile.block_k == 0
        depths = [k] if tile.k_first else [k + s for s in range(tile.steps)]
        inside = [True if whole else depth < end for depth in depths]
        right = []
        for (offset, valid), at, deep in (
            [(column, depths[0], inside[0]) for column in self.columns]
            if tile.k_first
            else [(self.columns[0], depth, there) for depth, there in zip(depths, inside)]
        ):
            place = addresses.group_offset(1, "k", at) + offset
            lanes = tile.steps if tile.k_first else tile.columns
            right.append(self.read(1, place, lanes, both(valid, deep)))
        left = [self.row(i, k, inside, whole) for i in range(tile.rows)]
        result = list(sums)
        for i in range(tile.rows):
            for j in range(tile.columns):
                for s in range(tile.steps):
                    factor = right[j][s] if tile.k_first else right[s][j]
                    at = i * tile.columns + j
                    result[at] = multiply_add(left[i][s], factor, result[at])
        return result

    def row(self, i: int, k: Value, inside: list[Value | bool], whole: bool) -> list[Value]:
        """The steps of K from k on of one row of a, in as few loads as its addresses allow."""
        tile = self.tile
        width = math.gcd(widest(self.contraction, 0), tile.steps) if k_contiguous(self.contraction, 0) else 1
        found: list[Value] = []
        for s in range(0, tile.steps, width):
            depth = k + s
            valid = True if whole else depth < self.contraction.extent("k")
            place = self.addresses.group_offset(0, "k", depth) + self.rows[i]
            found += self.read(0, place, width, valid)
        return found

    def read(self, factor: int, place: Position, lanes: int, valid: Value | bool) -> list[Value]:
        """Neighbouring elements as they are multiplied; zeros where they are not `valid`."""
        contraction = self.contraction
        buffer = self.addresses.buffer(factor)
        dtype = (contraction.a_dtype, contraction.b_dtype)[factor]
        type_ = ir.Type.parse(dtype)
        if not isinstance(valid, bool):
            place = select(valid, place, 0)
        if lanes == 1:
            value = load(buffer, place)
            values = [select(valid, value, constant(type_, 0))]
        else:
            vector = load_vector(buffer, [place], lanes, lanes * element_bytes(dtype))
            vector = select(valid, vector, constant(vector_type(lanes, type_), 0))
            values = [vector[e] for e in range(lanes)]
        convert = (contraction.convert_a, contraction.convert_b)[factor]
        values = [converted(convert, value, contraction.compute_dtype) for value in values]
        if convert is not None and not isinstance(valid, bool):
            values = [select(valid, value, constant(value.type, 0)) for value in values]
        return values

    def across_threads(self, sums: list[Value]) -> list[Value]:
        """This thread's results, summed over the block's threads: number `thread + i * threads` of rows times columns."""
        tile = self.tile
        step = 1 if tile.k_first else tile.wide
        distance = step
        while distance < step * tile.k_lanes:
            sums = [value + shuffle_xor(value, distance) for value in sums]
            distance *= 2
        if tile.k_first:
            first, k_warp = self.k_thread.equals(0), None
        else:
            lane = self.thread % WARP
            first = True if tile.wide >= WARP else lane < tile.wide
            k_warp = self.k_thread // tile.k_lanes
        with if_(first):
            for i in range(tile.rows):
                for j in range(tile.columns):
                    at = self.n_thread * tile.columns + (i * tile.block_n + j)
                    if k_warp is not None:
                        at = at + k_warp * (tile.rows * tile.block_n)
                    store(sums[i * tile.columns + j], self.sums_at, at)
        barrier()
        found = []
        count = tile.rows * tile.block_n
        for i in range(_results(tile)):
            number = self.thread + i * tile.threads
            if (i + 1) * tile.threads > count:
                number = select(number < count, number, 0)
            total = load(self.sums_at, number)
            for warp in range(1, tile.k_warps):
                total = total + load(self.sums_at, number + warp * count)
            found.append(total)
        return found

    def finish(self, epilogue: Epilogue, place: Tile, totals: list[Value]) -> None:
        """Each thread writes its results, neighbouring threads neighbouring columns."""
        tile = self.tile
        count = tile.rows * tile.block_n
        end = self.contraction.extent("n")
        for i, total in enumerate(totals):
            number = self.thread + i * tile.threads
            n = place.column + number % tile.block_n
            there = True if (i + 1) * tile.threads <= count else number < count
            valid = True if end % tile.block_n == 0 else n < end
            row = epilogue.row(number // tile.block_n, there)
            epilogue.write([total], row, epilogue.column(n, valid))
