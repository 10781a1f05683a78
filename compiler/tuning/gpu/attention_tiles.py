"""Blocks of fused attention on a GPU: rows of queries that a block keeps, rows of keys and values that it streams.

Three kinds of kernels: lanes that share a row, warps of `mma.sync`, and warpgroups of `wgmma`, which overlap products with
softmax.

Source: Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, §3.3; Shah et al.,
"FlashAttention-3", 2024, §3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice, product

from tilewright.compiler.nouns.attention_cut import AttentionShape
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.workload import BITS
from tilewright.compiler.targets.occupancy import register_limit, resident_blocks, shared_limit
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.model.attention_time import AttentionBlock, padded, predict_block
from tilewright.compiler.tuning.model.gemm_resources import MMA_REGISTERS, SIMT_REGISTERS


def attention_candidates(
    shape: AttentionShape,
    dtype: str,
    target: Target,
    top_k: int = 10,
    fits: Callable[[GpuTile], bool] = lambda tile: True,
    matrices: bool = True,
    warpgroups: bool = False,
) -> list[Candidate]:
    """At most `top_k` schedules, fastest by the model first; matrix instructions for 16-bit types where there are any
    and `matrices` allows them, those of warpgroups where `warpgroups` does.

    `fits` is asked of every schedule that would be among them: whether code generation takes it.
    """
    matrix = matrices and target.compute_capability >= 80 and dtype in ("f16", "bf16")
    blocks = list(_warp_blocks(shape, dtype, target, matrix))
    if matrix and warpgroups:
        blocks += _warpgroup_blocks(shape, target)
    found = []
    for block in blocks:
        time = predict_block(shape, block, dtype, target)
        # Predictions that agree to two percent leave the order to what is taken in all.
        candidate = Candidate(Schedule(gpu=block.tile(dtype)), round(time.us, 3), time.bound)
        found.append((round(math.log(time.us) * 50), time.effort, -block.columns, candidate))
    found.sort(key=lambda row: row[:3])
    taken = (c for *_, c in found if c.schedule.gpu is not None and fits(c.schedule.gpu))
    return list(islice(taken, top_k))


def _warp_blocks(shape: AttentionShape, dtype: str, target: Target, matrix: bool) -> Iterator[AttentionBlock]:
    """Blocks of warps that work on their own, with matrix instructions or without."""
    held = 2 if matrix else max(4, BITS[dtype] // 8)
    for rows, columns, warps in product((16, 32, 64, 128), (16, 32, 64, 128), (1, 2, 4, 8)):
        threads = 32 * warps
        # A warp multiplies fragments of 16 rows, one or two; without such instructions 16 lanes share a row.
        if rows not in ((16 * warps, 32 * warps) if matrix else (2 * warps * r for r in (1, 2, 4, 8))):
            continue
        if rows >= 2 * max(16, shape.rows) or columns >= 2 * max(16, shape.columns):
            continue
        if matrix:
            registers, shared = _mma_needs(rows, columns, shape, threads)
        else:
            registers, shared = _simt_needs(rows, columns, shape, threads, held)
        if registers > register_limit(target, threads) or shared > shared_limit(target):
            continue
        resident = int(resident_blocks(target, threads, registers, shared))
        if resident:
            yield AttentionBlock("mma" if matrix else "simt", rows, columns, warps, resident)


def _warpgroup_blocks(shape: AttentionShape, target: Target) -> Iterator[AttentionBlock]:
    """Blocks of one to three warpgroups of 64 rows, and one that copies for them: one block fills a multiprocessor."""
    for rows, columns in product((64, 128, 192), (64, 80, 96, 128, 160, 176)):
        # No more than half of what a block multiplies may be unwanted.
        if rows >= 2 * shape.rows or columns >= 2 * max(64, shape.columns):
            continue
        if _wgmma_needs(rows, columns, shape) <= shared_limit(target):
            yield AttentionBlock("wgmma", rows, columns, rows // 16, 1)


def _mma_needs(rows: int, columns: int, shape: AttentionShape, threads: int) -> tuple[int, int]:
    """(registers of a thread, shared bytes of a block): scores and results in f32, queries as fragments; keys and values
    twice, as the next ones are on their way."""
    inner, width = padded(shape.inner, 16), padded(shape.width, 16)
    fragments = rows // 16 // (threads // 32)
    registers = fragments * (columns + width) // 2 + fragments * inner // 4 + MMA_REGISTERS
    return registers, 2 * (rows * (inner + 8) + 2 * columns * (inner + width + 16))


def _simt_needs(rows: int, columns: int, shape: AttentionShape, threads: int, item: int) -> tuple[int, int]:
    """The same where 16 lanes share a row, and scores pass through shared memory."""
    inner, width, step = padded(shape.inner, 8), padded(shape.width, 16), 16 // item
    own, wide = rows * 16 // threads, columns // 16
    sums = own * (wide + width // 16 + 2) + step * (own + wide)
    elements = rows * (inner + step) + 2 * columns * (inner + step + width) + rows * (columns + step)
    return sums * item // 4 + SIMT_REGISTERS, item * elements


def _wgmma_needs(rows: int, columns: int, shape: AttentionShape) -> int:
    """Shared bytes of a block whose heads lie in panels of 64 elements, keys and values in two stages each."""
    inner, width = padded(shape.inner, 64), padded(shape.width, 64)
    return 2 * (rows * max(inner, width) + 2 * columns * (inner + width)) + 64
