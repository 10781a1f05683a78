"""Which kernel a contraction gets, and its sizes: those of its schedule, checked, or ones estimated to be fast."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NoReturn, TypeAlias

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contraction import mma_gemm, simt_gemm, skinny_gemm, volta_gemm
from tilewright.compiler.families.contraction.addresses import Grid
from tilewright.compiler.families.contraction.mma_gemm import INSTRUCTIONS, Instruction, MmaTile
from tilewright.compiler.families.contraction.problem import Contraction, element_bytes
from tilewright.compiler.families.contraction.simt_gemm import SimtTile
from tilewright.compiler.families.contraction.skinny_gemm import SkinnyTile
from tilewright.compiler.families.contraction.volta_gemm import VoltaTile
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import BLOCK_THREADS, WARP, GpuTile
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.gpu.gemm_tiles import architecture

BlockTile: TypeAlias = SimtTile | MmaTile | VoltaTile
KernelTile: TypeAlias = BlockTile | SkinnyTile

VOLTA = "mma.m8n8k4"
"""The matrix instruction before sm_80; later ones have it in software only."""

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


def choose(contraction: Contraction, asked: GpuTile | None, target: Target) -> KernelTile:
    """The kernel and its sizes; raises ScheduleError for a schedule that no kernel here can follow."""
    if asked is not None and asked.kernel in ("simt", "mma"):
        return _asked(contraction, asked, target)
    asks_skinny = asked is not None and asked.kernel == "skinny"
    if asks_skinny or skinny_gemm.suits(contraction):
        return skinny_gemm.choose(contraction, target)
    instruction = matching(contraction, "", target)
    if instruction is not None:
        tiles: Iterator[BlockTile] = _mma_tiles(contraction, instruction, target)
    elif has_volta(contraction, target):
        tiles = _volta_tiles(contraction, target)
    else:
        tiles = _simt_tiles(contraction, target)
    return min(tiles, key=lambda tile: _cost(contraction, tile, target))


def emit(contraction: Contraction, tile: KernelTile) -> ir.Module:
    """The kernel's gpu-level IR."""
    if isinstance(tile, SkinnyTile):
        return skinny_gemm.emit_skinny(contraction, tile)
    if isinstance(tile, MmaTile):
        return mma_gemm.emit_mma(contraction, tile)
    if isinstance(tile, VoltaTile):
        return volta_gemm.emit_volta(contraction, tile)
    return simt_gemm.emit_simt(contraction, tile)


def matching(contraction: Contraction, name: str, target: Target) -> Instruction | None:
    """The matrix instruction for the contraction's types, None where there is none.

    f32 is rounded to tf32 only where the instruction's `name` asks for it.
    """
    if architecture(target) < 80:
        return None
    for own, instruction in INSTRUCTIONS.items():
        if instruction.sum_dtype != contraction.compute_dtype:
            continue
        if instruction.dtype == "f32" and name != own:
            continue
        if name and not own.startswith(name):
            continue
        if _fits(contraction, instruction.dtype):
            return instruction
    return None


def has_volta(contraction: Contraction, target: Target) -> bool:
    """Whether Volta's matrix instruction computes the contraction: of f16, summed in f32."""
    arch = architecture(target)
    return 70 <= arch < 80 and contraction.compute_dtype == "f32" and _fits(contraction, "f16")


def _fits(contraction: Contraction, dtype: str) -> bool:
    """Whether both factors are `dtype` once loaded, unconverted."""
    if contraction.convert_a is not None or contraction.convert_b is not None:
        return False
    return contraction.a_dtype == contraction.b_dtype == dtype


def _asked(contraction: Contraction, asked: GpuTile, target: Target) -> KernelTile:
    """The kernel that a schedule describes; sizes that it leaves out are filled in."""

    def refuse(rule: str) -> NoReturn:
        raise ScheduleError(f"dispatch @{contraction.name} on {target.name}: [{asked.text()}]: {rule}")

    if asked.block and len(asked.block) != 3:
        refuse(
            f"a contraction's block has 3 sizes, found {list(asked.block)}; give (block_m, block_n, block_k)"
        )
    deferred = architecture(target) >= 80
    made: BlockTile
    if asked.kernel == "mma":
        made = _asked_mma(contraction, asked, target, refuse)
    else:
        m, n, k = asked.block or (64, 64, 16)
        thread_m, thread_n = asked.thread or (math.gcd(4, m), math.gcd(4, n))
        made = SimtTile(
            m, n, k, thread_m, thread_n, asked.stages or (3 if deferred else 2), asked.split_k or 1, asked.raster or 8,
            deferred, asked.padding,
        )  # fmt: skip
        if m % thread_m or n % thread_n:
            refuse(f"a thread's tile divides the block's, found {thread_m}x{thread_n} of {m}x{n}")
    if made.threads % WARP or not 0 < made.threads <= BLOCK_THREADS:
        refuse(
            f"a block has a multiple of {WARP} threads up to {BLOCK_THREADS}, its sizes give {made.threads}; "
            "change block, warp or thread"
        )
    if asked.threads and asked.threads != made.threads:
        refuse(f"its sizes give {made.threads} threads, it says {asked.threads}; leave threads out")
    if made.stages < 2:
        refuse("tiles are fetched ahead, which takes 2 stages or more")
    needed, limit = _shared_bytes(contraction, made), target.level("shared").capacity_bytes
    if needed > limit:
        refuse(f"it needs {needed:,} B of shared memory, the limit is {limit:,} B; use fewer stages")
    return made


def _asked_mma(
    contraction: Contraction, asked: GpuTile, target: Target, refuse: Callable[[str], NoReturn]
) -> MmaTile | VoltaTile:
    """The matrix instruction's kernel that a schedule describes."""
    instruction = matching(contraction, asked.instruction, target)
    volta = has_volta(contraction, target) and asked.instruction in ("", VOLTA)
    if instruction is None and not volta:
        types = f"{contraction.a_dtype} and {contraction.b_dtype} into {contraction.sum_dtype}"
        refuse(
            f"there is no instruction `{asked.instruction or 'mma'}` that multiplies {types}; use kernel simt"
        )
    name, depth, columns = (instruction.name, instruction.depth, 8) if instruction else (VOLTA, 4, 16)
    m, n, k = asked.block or (128, 128, 32)
    warp_m, warp_n = asked.warp or (math.gcd(64, m), math.gcd(64, n))
    if warp_m % 16 or warp_n % columns or m % warp_m or n % warp_n:
        refuse(
            f"warps take multiples of 16x{columns} that divide the block, found {warp_m}x{warp_n} of {m}x{n}"
        )
    if k % depth:
        refuse(f"block_k is a multiple of {depth} for {name}, found {k}")
    parts, raster = asked.split_k or 1, asked.raster or 8
    if instruction is None:
        return VoltaTile(m, n, k, warp_m, warp_n, asked.stages or 2, parts, raster)
    return MmaTile(instruction, m, n, k, warp_m, warp_n, asked.stages or 3, parts, raster, asked.padding)


def _shared_bytes(contraction: Contraction, tile: BlockTile) -> int:
    if isinstance(tile, MmaTile):
        return mma_gemm.shared_bytes(contraction, tile)
    if isinstance(tile, VoltaTile):
        return volta_gemm.shared_bytes(contraction, tile)
    return simt_gemm.shared_bytes(contraction, tile)


def _simt_tiles(contraction: Contraction, target: Target) -> Iterator[SimtTile]:
    deferred = architecture(target) >= 80
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
