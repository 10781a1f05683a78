"""What kernels on matrix instructions of a warp have in common: tiles stream through shared memory past sums in fragments.

A kind of instruction says where its sums are and how tiles in shared memory are multiplied (`FragmentBlock`); the copies, the
loop over K, divided sums and the way out are here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from tilewright.compiler.families.contraction.addresses import Addresses, Grid
from tilewright.compiler.families.contraction.epilogue import Epilogue
from tilewright.compiler.families.contraction.fragment_results import ROWS, Fragment, Results, Warps
from tilewright.compiler.families.contraction.k_loop import over_k
from tilewright.compiler.families.contraction.operand_copies import Copier, Copies
from tilewright.compiler.families.contraction.problem import Contraction, element_bytes
from tilewright.compiler.families.contraction.split_k import SplitK, counter_bytes, workspace_bytes
from tilewright.compiler.gpu.builder import (
    Kernel,
    Value,
    constant,
    if_,
    index,
    kernel,
    raw,
    shared,
    thread_id,
    vector_type,
)
from tilewright.compiler.ir import ir, memref
from tilewright.compiler.nouns.schedule import GpuTile

_SUM_BYTES = 4


class FragmentTile(ABC):
    """Sizes of such a kernel; each kind of instruction has its own, with its defaults."""

    block_m: int
    block_n: int
    block_k: int
    warp_m: int
    warp_n: int
    stages: int
    split_k: int
    raster: int
    blocks_per_core: int

    @property
    @abstractmethod
    def gpu(self) -> GpuTile:
        """The schedule of the kernel."""

    @property
    def warps(self) -> Warps:
        return Warps(self.block_m, self.block_n, self.warp_m, self.warp_n)

    @property
    def threads(self) -> int:
        return self.warps.threads

    def schedule(self, instruction: str, padding: int = 0) -> GpuTile:
        """The schedule of the kernel with an instruction."""
        return GpuTile(
            "mma", self.threads, (self.block_m, self.block_n, self.block_k), (self.warp_m, self.warp_n),
            instruction=instruction, stages=self.stages, split_k=self.split_k, raster=self.raster, padding=padding,
            resident=self.blocks_per_core,
        )  # fmt: skip


def shared_bytes(tile: FragmentTile, plans: list[Copies]) -> int:
    """Bytes of shared memory of one block: tiles, and sums on their way out in the same place."""
    tiles = tile.stages * sum(plan.elements * element_bytes(plan.dtype) for plan in plans)
    return max(tiles, _SUM_BYTES * tile.warps.staging_elements)


class FragmentBlock(ABC):
    """One block's work, written out. Subclasses give `dtype` and `sum_dtype`, and `columns` of a fragment of 16 rows."""

    dtype: str
    sum_dtype: str
    columns: int

    def __init__(self, contraction: Contraction, tile: FragmentTile, plans: list[Copies]):
        self.contraction, self.plans = contraction, plans
        self.sizes = tile
        self.grid = Grid(contraction, tile.block_m, tile.block_n, tile.block_k, tile.split_k, tile.raster)

    @abstractmethod
    def fragment(self) -> Fragment:
        """Where this thread's sums are."""

    @abstractmethod
    def find_starts(self) -> None:
        """Works out, ahead of the loop, where this thread's elements are in tiles; `results` and `plans` are known."""

    @abstractmethod
    def multiply(self, slot: Value, sums: list[Value]) -> list[Value]:
        """One tile's products added to the sums."""

    def emit(self) -> ir.Module:
        """The kernel in gpu-level IR."""
        tile, sums = self.sizes, self.sizes.warp_m * self.sizes.warp_n // 32
        with kernel(
            self.contraction.name,
            [buffer.type for buffer in self.contraction.buffers],
            rtasks=self.grid.blocks,
            block=tile.threads,
            workspace_bytes=workspace_bytes(self.grid, sums, tile.threads),
            zeroed_bytes=counter_bytes(self.grid),
            blocks_per_core=tile.blocks_per_core,
            made=tile.gpu,
        ) as written:
            self._write(written)
        return written.module

    def _write(self, written: Kernel) -> None:
        tile, grid = self.sizes, self.grid
        self.thread = thread_id()
        self.lane = self.thread % 32
        place = grid.place(written.rtask())
        addresses = Addresses.of(self.contraction, written.buffers)
        byte = ir.IntegerType.get_signless(8)
        self.memory = shared([shared_bytes(tile, self.plans)], byte, alignment=128)
        self.results = Results(tile.warps, self.fragment(), self.thread, place)
        self.buffers, start = [], 0
        for plan in self.plans:
            self.buffers.append(self._view(start, tile.stages * plan.elements, self.dtype))
            start += tile.stages * plan.elements * element_bytes(plan.dtype)
        split = None
        if grid.parts > 1:
            split = SplitK(grid, raw(written.workspace), place, self.thread, tile.threads)
        copiers = [
            Copier(plan, addresses, buffer, self.thread, place.batch, first)
            for plan, buffer, first in zip(self.plans, self.buffers, (place.row, place.column))
        ]
        self.find_starts()
        zero = constant(vector_type(ROWS * self.columns // 32, ir.Type.parse(self.sum_dtype)), 0)
        sums = over_k(
            copiers,
            place.part * grid.steps_k if grid.parts > 1 else 0,
            grid.steps(place.part),
            tile.stages,
            [zero] * (tile.warp_m // ROWS * (tile.warp_n // self.columns)),
            self.multiply,
        )
        epilogue = Epilogue(addresses, place.batch)
        staging = self._view(0, tile.warps.staging_elements, self.sum_dtype)
        if split is None:
            self.results.write(epilogue, sums, staging)
            return
        with if_(split.last(sums)):
            self.results.write(epilogue, split.total(sums), staging)

    def _view(self, start_bytes: int, elements: int, dtype: str) -> ir.Value:
        space = ir.MemRefType(self.memory.type).memory_space
        type_ = ir.MemRefType.get([elements], ir.Type.parse(dtype), memory_space=space)
        return memref.view(type_, self.memory, index(start_bytes).value, [])
