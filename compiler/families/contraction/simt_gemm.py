"""Contractions on ordinary arithmetic: every thread keeps a tile of sums in registers, fed from tiles in shared memory.

A thread's columns are groups of 16 bytes, one group per `thread columns` of the tile, so that neighbouring threads read
neighbouring groups; its rows alike where a is contiguous along M. Where a factor is contiguous along K, a thread
reads several steps of K of one row at once, and its rows lie one apart from the neighbour's. Either way the 8 x 4
threads of a warp read at most 128 different bytes, in different banks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.compiler.families.contraction.addresses import Addresses, Grid
from tilewright.compiler.families.contraction.epilogue import Epilogue
from tilewright.compiler.families.contraction.k_loop import over_k
from tilewright.compiler.families.contraction.operand_copies import (
    Copier,
    Copies,
    Layout,
    can_defer,
    k_contiguous,
    widest,
)
from tilewright.compiler.families.contraction.problem import Contraction, element_bytes, vector_limit
from tilewright.compiler.families.contraction.split_k import SplitK, counter_bytes, workspace_bytes
from tilewright.compiler.gpu.builder import (
    Value,
    broadcast,
    constant,
    fma,
    from_elements,
    if_,
    kernel,
    load,
    load_vector,
    shared,
    thread_id,
    vector_type,
)
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile


@dataclass(frozen=True)
class SimtTile:
    """Sizes of a kernel: a block's tile, a thread's, how many tiles of K lie in shared memory, parts of K, raster.

    `deferred` allows asynchronous copies (sm_80 on). `padding`, in elements, is what rows of K are longer by in shared
    memory. `blocks_per_core` are to share a multiprocessor, for which the assembler leaves registers; 0 asks for none.
    """

    block_m: int
    block_n: int
    block_k: int
    thread_m: int
    thread_n: int
    stages: int = 2
    split_k: int = 1
    raster: int = 8
    deferred: bool = False
    padding: int = 0
    blocks_per_core: int = 0

    @property
    def gpu(self) -> GpuTile:
        """The schedule of the kernel."""
        return GpuTile(
            "simt", self.threads, (self.block_m, self.block_n, self.block_k), thread=(self.thread_m, self.thread_n),
            stages=self.stages, split_k=self.split_k, raster=self.raster, padding=self.padding, resident=self.blocks_per_core,
        )  # fmt: skip

    @property
    def threads(self) -> int:
        return self.block_m // self.thread_m * (self.block_n // self.thread_n)


def copies(contraction: Contraction, tile: SimtTile, factor: int) -> Copies:
    """How the tiles of a factor are copied: layout in shared memory, width of copies, asynchronous or not."""
    dtype = contraction.compute_dtype
    piece = vector_limit(dtype)
    across = (tile.block_m, tile.block_n)[factor]
    k_lanes = k_contiguous(contraction, factor)
    lanes = math.gcd(widest(contraction, factor), tile.block_k if k_lanes else across)
    elements = across * tile.block_k
    deferred = tile.deferred and can_defer(contraction, factor, lanes, dtype, elements, tile.threads)
    # A thread reads rows of a along K piece by piece, which takes registers; of b too would take too many.
    deferred = deferred and (factor == 0 or not k_lanes)
    if k_lanes and deferred:
        layout = Layout(across, tile.block_k, _rounded(tile.block_k + tile.padding, piece))
    else:
        layout = Layout(tile.block_k, across, _rounded(across + (tile.padding if k_lanes else 0), piece))
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
        transposed=k_lanes and not deferred,
    )


def _rounded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def shared_bytes(contraction: Contraction, tile: SimtTile) -> int:
    """Bytes of shared memory of one block."""
    size = element_bytes(contraction.compute_dtype)
    return tile.stages * size * sum(copies(contraction, tile, factor).elements for factor in (0, 1))


def emit_simt(contraction: Contraction, tile: SimtTile) -> ir.Module:
    """The kernel of a contraction in gpu-level IR; the tile's sizes must divide each other."""
    grid = Grid(contraction, tile.block_m, tile.block_n, tile.block_k, tile.split_k, tile.raster)
    sums = tile.thread_m * tile.thread_n
    with kernel(
        contraction.name,
        [buffer.type for buffer in contraction.buffers],
        rtasks=grid.blocks,
        block=tile.threads,
        workspace_bytes=workspace_bytes(grid, sums, tile.threads),
        zeroed_bytes=counter_bytes(grid),
        blocks_per_core=tile.blocks_per_core,
        made=tile.gpu,
    ) as written:
        _Block(contraction, tile, grid, written).write()
    return written.module


class _Threads:
    """Where a thread's rows and columns are in the block's tile."""

    def __init__(self, tile: SimtTile, row_group: int, column_group: int):
        self.tile, self.row_group, self.column_group = tile, row_group, column_group
        self.high, self.wide = tile.block_m // tile.thread_m, tile.block_n // tile.thread_n
        thread = thread_id()
        wide = math.gcd(8, self.wide)
        high = 32 // wide
        if self.high % high:
            self.row, self.column = thread // self.wide, thread % self.wide
        else:
            warp, lane = thread // 32, thread % 32
            across = self.wide // wide
            self.row = warp // across * high + lane // wide
            self.column = warp % across * wide + lane % wide
        self.thread = thread

    def row_at(self, i: int) -> Value:
        """The thread's row number i; rows of one group are neighbours."""
        group, within = divmod(i, self.row_group)
        return self.row * self.row_group + (group * self.row_group * self.high + within)

    def column_at(self, j: int) -> Value:
        group, within = divmod(j, self.column_group)
        return self.column * self.column_group + (group * self.column_group * self.wide + within)


class _Block:
    """One block's work, written out."""

    def __init__(self, contraction: Contraction, tile: SimtTile, grid: Grid, written):
        self.contraction, self.tile, self.grid, self.written = contraction, tile, grid, written
        self.plans = [copies(contraction, tile, factor) for factor in (0, 1)]
        self.element = ir.Type.parse(contraction.compute_dtype)
        self.limit = vector_limit(contraction.compute_dtype)
        row_group = 1 if self.plans[0].k_rows else math.gcd(self.limit, tile.thread_m)
        self.width = math.gcd(self.limit, tile.thread_n)
        self.threads = _Threads(tile, row_group, self.width)
        self.deep = math.gcd(self.limit, tile.block_k)

    def write(self) -> None:
        contraction, tile, grid = self.contraction, self.tile, self.grid
        place = grid.place(self.written.rtask())
        addresses = Addresses.of(contraction, self.written.buffers)
        self.buffers = [shared([plan.elements * tile.stages], self.element) for plan in self.plans]
        split = None
        if grid.parts > 1:
            split = SplitK(grid, self.written.workspace, place, self.threads.thread, tile.threads)
        copiers = [
            Copier(plan, addresses, buffer, self.threads.thread, place.batch, first)
            for plan, buffer, first in zip(self.plans, self.buffers, (place.row, place.column))
        ]
        groups = tile.thread_n // self.width
        zero = constant(vector_type(self.width, self.element), 0)
        sums = over_k(
            copiers,
            place.part * grid.steps_k if grid.parts > 1 else 0,
            grid.steps(place.part),
            tile.stages,
            [zero] * (tile.thread_m * groups),
            self.multiply,
        )
        epilogue = Epilogue(addresses, place.batch)
        if split is None:
            self.finish(epilogue, place, sums)
            return
        with if_(split.last(sums)):
            self.finish(epilogue, place, split.total(sums))

    def multiply(self, slot: Value, sums: list[Value]) -> list[Value]:
        """One tile's products added to the sums; elements are read one step of K before they are multiplied."""
        tile, sums = self.tile, list(sums)
        starts = [slot * plan.elements for plan in self.plans]
        groups = tile.thread_n // self.width
        ahead: list[dict[int, list[Value]]] = [{}, {}]
        following = [self.fragment(factor, starts[factor], 0, ahead[factor]) for factor in (0, 1)]
        for k in range(tile.block_k):
            rows, columns = following
            if k + 1 < tile.block_k:
                following = [self.fragment(factor, starts[factor], k + 1, ahead[factor]) for factor in (0, 1)]
            right = [from_elements(columns[g * self.width : (g + 1) * self.width]) for g in range(groups)]
            for i in range(tile.thread_m):
                left = broadcast(rows[i], self.width)
                for g in range(groups):
                    at = i * groups + g
                    sums[at] = multiply_add(left, right[g], sums[at])
        return sums

    def fragment(self, factor: int, start: Value, k: int, ahead: dict[int, list[Value]]) -> list[Value]:
        """This thread's elements of a factor at step k, one per row or column; steps read along with it go `ahead`."""
        plan, threads = self.plans[factor], self.threads
        count = (self.tile.thread_m, self.tile.thread_n)[factor]
        position = threads.row_at if factor == 0 else threads.column_at
        group = threads.column_group if factor else threads.row_group
        if not plan.k_rows:
            found: list[Value] = []
            for i in range(0, count, group):
                found += self.read(factor, start + (position(i) + k * plan.layout.pitch), group)
            return found
        if k not in ahead:
            of_rows = [
                self.read(factor, start + plan.layout.place(position(i), k), self.deep) for i in range(count)
            ]
            for step in range(self.deep):
                ahead[k + step] = [values[step] for values in of_rows]
        return ahead[k]

    def read(self, factor: int, at: Value, lanes: int) -> list[Value]:
        buffer = self.buffers[factor]
        if lanes == 1:
            return [load(buffer, at)]
        vector = load_vector(buffer, [at], lanes, lanes * element_bytes(self.contraction.compute_dtype))
        return [vector[i] for i in range(lanes)]

    def finish(self, epilogue: Epilogue, place, sums: list[Value]) -> None:
        """The results of the thread's rows and columns."""
        contraction, tile, threads = self.contraction, self.tile, self.threads
        rows, columns = contraction.extent("m"), contraction.extent("n")
        group = threads.column_group
        pieces = []
        for j in range(0, tile.thread_n, group):
            at = place.column + threads.column_at(j)
            for first, count, line in epilogue.columns(at, group, columns % tile.block_n != 0):
                pieces.append((j + first, count, line))
        groups = tile.thread_n // self.width
        for i in range(tile.thread_m):
            m = place.row + threads.row_at(i)
            row = epilogue.row(m, True if rows % tile.block_m == 0 else m < rows)
            for first, count, line in pieces:
                lanes = [
                    sums[i * groups + j // self.width][j % self.width] for j in range(first, first + count)
                ]
                epilogue.write(lanes, row, line)


def multiply_add(left: Value, right: Value, total: Value) -> Value:
    return fma(left, right, total) if total.is_float else left * right + total
