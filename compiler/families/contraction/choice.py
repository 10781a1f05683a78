"""Chooses what a schedule of a contraction leaves open: the kernel and sizes that are estimated to be fast.

A schedule that names `simt` or `mma` has its open sizes filled in; one that names no kernel gets the sizes with the least
estimated time, whatever else it says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tilewright.compiler.families.contraction import mma_gemm, simt_gemm, volta_gemm
from tilewright.compiler.families.contraction.addresses import Grid
from tilewright.compiler.families.contraction.mma_gemm import Instruction, MmaTile
from tilewright.compiler.families.contraction.operand_copies import k_contiguous, widest
from tilewright.compiler.families.contraction.problem import Contraction, element_bytes, vector_limit
from tilewright.compiler.families.contraction.rules import check_sizes, tile_of, too_many_rows
from tilewright.compiler.families.contraction.simt_gemm import SimtTile
from tilewright.compiler.families.contraction.skinny_gemm import MOST_SUMS, WARP, SkinnyTile
from tilewright.compiler.families.contraction.tiles import (
    VOLTA,
    BlockTile,
    described,
    grid_of,
    has_volta,
    least_padding,
    matching,
    refuse,
)
from tilewright.compiler.families.contraction.volta_gemm import VoltaTile
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.gemm_resources import MOST_ASKED_BLOCKS

_SIMT_SIZES = (
    (128, 128, 8, 8), (128, 64, 8, 4), (64, 128, 4, 8), (64, 64, 4, 4), (128, 32, 8, 4), (32, 128, 4, 8),
    (64, 32, 4, 4), (32, 64, 4, 4), (32, 32, 4, 4), (128, 16, 4, 4), (16, 128, 4, 4), (64, 16, 2, 4), (16, 64, 2, 4),
)  # fmt: skip
"""(block_m, block_n, thread_m, thread_n) that are tried."""
_MMA_SIZES = (
    (256, 128, 64, 64), (128, 256, 64, 64), (128, 128, 64, 64), (128, 64, 64, 32), (64, 128, 32, 64), (64, 64, 32, 32),
    (32, 128, 32, 32), (128, 32, 32, 32), (32, 64, 16, 32), (64, 32, 16, 32), (16, 128, 16, 32), (32, 32, 16, 16),
    (16, 64, 16, 16), (64, 16, 16, 16),
)  # fmt: skip
"""(block_m, block_n, warp_m, warp_n) that are tried."""
_MOST_PARTS = 32
_RASTER = 8
_MOST_ROWS = 16
_MOST_NARROW_ROWS = 8
"""Rows up to which b is streamed; beyond, matrix instructions, which 16-bit types have, keep up with memory."""
_LEAST_DEPTH = 64
_MOST_SKINNY_PARTS = 64
_REGISTER_FILE = 65536
"""32-bit registers of a multiprocessor. Source: CUDA C Programming Guide, "Technical Specifications per Compute
Capability", the same from sm_70 on."""
_OTHER_REGISTERS = 24
"""Registers of a thread for addresses and the loop."""
_FRAGMENT_REGISTERS = 24
"""The same for addresses of fragments in swizzled rows."""
_SLACK = 1.15
"""Where more than two blocks fit, what is estimated may be off by this much."""


def complete(contraction: Contraction, request: Schedule, target: Target) -> Schedule:
    """The schedule of one of the family's kernels, every field of it; raises ScheduleError for what none can be."""
    said = request.gpu or GpuTile()
    if said.kernel == "skinny" or (said.kernel not in ("simt", "mma") and suits_skinny(contraction)):
        said = _filled_skinny(contraction, said if said.kernel else GpuTile(), target)
    elif said.kernel:
        said = _filled(contraction, said, target)
    else:
        said = _settled(contraction, choose(contraction, target).gpu, target)
    return Schedule(gpu=tile_of(contraction, said, target).gpu)


def choose(contraction: Contraction, target: Target) -> BlockTile:
    """The blocks with the least estimated time; how they are padded and share registers is left open."""
    instruction = matching(contraction, "", target)
    if instruction is not None:
        tiles: Iterator[BlockTile] = _mma_tiles(contraction, instruction, target)
    elif has_volta(contraction, target):
        tiles = _volta_tiles(contraction, target)
    else:
        tiles = _simt_tiles(contraction, target)
    return min(tiles, key=lambda tile: _cost(contraction, tile, target))


def _filled(contraction: Contraction, said: GpuTile, target: Target) -> GpuTile:
    """A schedule of a simt or mma kernel with its open fields."""
    deferred = target.compute_capability >= 80
    if said.kernel == "mma":
        instruction = matching(contraction, said.instruction, target)
        volta = has_volta(contraction, target) and said.instruction in ("", VOLTA)
        found = instruction.name if instruction is not None else VOLTA if volta else said.instruction or "mma"
        block = said.block or (128, 128, 32)
        warp = said.warp or (math.gcd(64, block[0]), math.gcd(64, block[-1 if len(block) < 2 else 1]))
        said = replace(said, block=block, warp=warp, instruction=found)
    else:
        block = said.block or (64, 64, 16)
        thread = said.thread or (math.gcd(4, block[0]), math.gcd(4, block[-1 if len(block) < 2 else 1]))
        said = replace(said, block=block, thread=thread)
    stages = 3 if deferred else 2
    said = replace(
        said, stages=said.stages or stages, split_k=said.split_k or 1, raster=said.raster or _RASTER
    )
    return _settled(contraction, said, target)


def _settled(contraction: Contraction, said: GpuTile, target: Target) -> GpuTile:
    """The fields that follow from a kernel's sizes: threads, parts of K, rows walked together, padding, resident blocks."""
    check_sizes(contraction, said, target)
    tile = described(contraction, said, target)
    if not isinstance(tile, VoltaTile) and not tile.padding:
        tile = replace(tile, padding=least_padding(contraction, tile))
    grid = grid_of(contraction, tile)
    return replace(
        said,
        threads=said.threads or tile.threads,
        split_k=grid.parts,
        raster=min(said.raster, grid.tiles_m),
        padding=getattr(tile, "padding", said.padding),
        resident=said.resident or resident_blocks(contraction, tile, target),
    )


def resident_blocks(contraction: Contraction, tile: BlockTile, target: Target) -> int:
    """How many blocks should share a multiprocessor's registers: what the assembler is asked to leave room for.

    Left alone, it sometimes spills a few registers for the sake of more blocks, or takes so many that one block fits
    where two would hide each other's waiting.
    """
    if isinstance(tile, SimtTile):
        plans = [simt_gemm.copies(contraction, tile, factor) for factor in (0, 1)]
        words = max(1, element_bytes(contraction.compute_dtype) // 4)
        rows = tile.thread_m * (vector_limit(contraction.compute_dtype) if plans[0].k_rows else 1)
        held = words * (tile.thread_m * tile.thread_n + rows + tile.thread_n)
    else:
        if isinstance(tile, MmaTile):
            plans = [mma_gemm.copies(contraction, tile, factor) for factor in (0, 1)]
            fragments = tile.warp_m // 4 + tile.warp_n // 4
        else:
            plans = [volta_gemm.copies(contraction, tile, factor) for factor in (0, 1)]
            fragments = tile.warp_m // 8 + tile.warp_n // 8
        held = tile.warp_m * tile.warp_n // 32 + fragments + _FRAGMENT_REGISTERS
    waiting = sum(
        plan.count * -(-plan.lanes * element_bytes(plan.source_dtype) // 4)
        for plan in plans
        if not plan.deferred
    )
    each = held + waiting + _OTHER_REGISTERS
    blocks = _REGISTER_FILE // (tile.threads * each)
    if blocks > 2:
        blocks = max(2, int(_REGISTER_FILE / (tile.threads * each * _SLACK)))
    most = min(MOST_ASKED_BLOCKS, (target.core_threads or 2048) // tile.threads)
    return max(1, min(blocks, most))


def suits_skinny(contraction: Contraction) -> bool:
    """Whether the contraction has few rows and much to read."""
    rows, depth = contraction.extent("m"), contraction.extent("k")
    narrow = element_bytes(contraction.b_dtype) == 2
    return rows <= (_MOST_NARROW_ROWS if narrow else _MOST_ROWS) and depth >= _LEAST_DEPTH


def choose_skinny(contraction: Contraction, target: Target) -> SkinnyTile:
    """Sizes that give every core a few blocks, of whole lines of memory; raises ScheduleError for too many rows."""
    rows = contraction.extent("m")
    if rows > MOST_SUMS:
        refuse(contraction, GpuTile("skinny"), target, too_many_rows(rows))
    lanes = min(widest(contraction, 1), 1 << (MOST_SUMS // rows).bit_length() - 1)
    k_first = k_contiguous(contraction, 1)
    shapes = (
        [(c, lanes, 8, WARP) for c in (4, 2, 1)]
        if k_first
        else [(lanes, 4, w, 256 // w) for w in (32, 16, 8)]
    )
    wanted = 4 * target.num_cores
    tile = SkinnyTile(rows, *shapes[-1], k_first)
    for columns, steps, wide, deep in shapes:
        found = SkinnyTile(rows, columns, steps, wide, deep, k_first)
        if rows * columns <= MOST_SUMS and grid_of(contraction, found).blocks >= wanted:
            tile = found
            break
    grid = grid_of(contraction, tile)
    parts = 1
    while 2 * parts <= min(_MOST_SKINNY_PARTS, grid.total_steps // 4) and grid.blocks * parts < wanted:
        parts *= 2
    tile = replace(tile, split_k=parts)
    return replace(tile, split_k=grid_of(contraction, tile).parts)


def _filled_skinny(contraction: Contraction, said: GpuTile, target: Target) -> GpuTile:
    """A schedule of a skinny kernel with its open fields: all of its sizes, or all but `threads` and `split_k` are said."""
    if not said.block and not said.thread:
        chosen = choose_skinny(contraction, target).gpu
        return replace(
            said,
            kernel="skinny",
            threads=said.threads or chosen.threads,
            block=chosen.block,
            thread=chosen.thread,
            split_k=said.split_k or chosen.split_k,
        )
    return replace(said, threads=said.threads or 256, split_k=said.split_k or 1)


def _simt_tiles(contraction: Contraction, target: Target) -> Iterator[SimtTile]:
    deferred = target.compute_capability >= 80
    wide = element_bytes(contraction.compute_dtype) > 4
    limit = target.level("shared").capacity_bytes // 2
    for m, n, thread_m, thread_n in _SIMT_SIZES:
        if wide and thread_m * thread_n > 32:
            thread_m //= 2
        if m // thread_m * (n // thread_n) > 512:
            continue
        k = 8 if wide or (not deferred and m * n > 64 * 128) else 16
        for stages in (4, 3, 2) if deferred else (2,):
            tile = SimtTile(m, n, k, thread_m, thread_n, stages, deferred=deferred)
            tile = replace(tile, padding=least_padding(contraction, tile))
            if simt_gemm.shared_bytes(contraction, tile) <= limit:
                yield from _divided(contraction, tile, target)
                break


def _mma_tiles(contraction: Contraction, instruction: Instruction, target: Target) -> Iterator[MmaTile]:
    limit = target.level("shared").capacity_bytes
    depth = contraction.extent("k")
    for m, n, warp_m, warp_n in _MMA_SIZES:
        for stages in (4, 3, 2):
            steps = 4 if depth >= 8 * instruction.depth and m * n <= 128 * 128 else 2
            tile = MmaTile(instruction, m, n, steps * instruction.depth, warp_m, warp_n, stages)
            if mma_gemm.shared_bytes(contraction, tile) <= limit // (1 if m * n > 128 * 128 else 2):
                yield from _divided(contraction, tile, target)
                break


def _volta_tiles(contraction: Contraction, target: Target) -> Iterator[VoltaTile]:
    for m, n, warp_m, warp_n in _MMA_SIZES:
        if m * n <= 128 * 128:
            yield from _divided(contraction, VoltaTile(m, n, 32, warp_m, warp_n), target)


def _divided(contraction: Contraction, tile, target: Target) -> Iterator:
    """The tile, and where it leaves cores idle the tile with K divided."""
    yield tile
    grid = Grid(contraction, tile.block_m, tile.block_n, tile.block_k)
    parts = 2
    while parts <= min(_MOST_PARTS, grid.total_steps // 4) and grid.blocks * parts <= 4 * target.num_cores:
        yield replace(tile, split_k=parts)
        parts *= 2


def _cost(contraction: Contraction, tile: BlockTile, target: Target) -> float:
    """Relative time: multiplications of the busiest core, more for small tiles, which load more for each, for few
    threads, which wait for memory, and for parts of K, whose sums go through memory."""
    grid = Grid(contraction, tile.block_m, tile.block_n, tile.block_k, tile.split_k)
    per_core = -(-grid.blocks // target.num_cores)
    depth = grid.steps_k * tile.block_k
    # While a core loads one element into shared memory it multiplies about `reuse`; while it passes one sum through
    # L2, which gives a core about 48 bytes in a cycle, `passing`.
    reuse, passing = (16, 12) if isinstance(tile, SimtTile) else (64, 192)
    work = tile.block_m * tile.block_n * depth
    loads = (tile.block_m + tile.block_n) * depth
    busy = min(1.0, per_core * tile.threads / 256)
    start = tile.block_m * tile.block_n * passing // 2
    parts = 2 * tile.block_m * tile.block_n * passing if grid.parts > 1 else 0
    return per_core * (work + reuse * loads + start + parts) / busy
