"""The aligned tiles of a contraction on a GPU: what its three kinds of kernels take, level by level, as arrays of tiles.

    instruction  [16, 8, 16]   ->  warp  [64, 64]   ->  block  [128, 128, 32] x stages     mma.sync
    thread       [8, 8, 1]     ->  warp  [32, 64]   ->  block  [128, 128, 8] x stages      SIMT
    instruction  [64, 128, 16] ->  warpgroup        ->  block  [128, 128, 64] x stages     wgmma and TMA

Every level is a multiple of the one above: Roller's alignment with execution units (OSDI'22, §3.1), where for matrix
instructions the unit is the instruction. Code generation leaves so few of them, some thousands, that all are evaluated
at once, where the construction of Figure 8 enlarges one tile step by step.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

import numpy as np

from tilewright.compiler.nouns.workload import BITS
from tilewright.compiler.targets.occupancy import shared_limit
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.gemm_resources import (
    INSTRUCTIONS,
    WGMMA_ROW_BYTES,
    GemmTiles,
    mma_registers,
    simt_registers,
    wgmma_registers,
)

MOST_UNROLLED = 2048
"""Multiply-adds of a thread that one step of k is written out into: 32 KiB of code, of the 128 KiB that the instruction
cache of a multiprocessor holds. Source: Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via
Microbenchmarking", 2018, §3.5."""
STAGES = (2, 3, 4, 5, 6, 8)
WGMMA_COLUMNS = (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
"""Columns of a warpgroup's tile, multiples of 8 up to 256. Source: PTX ISA, "Asynchronous Warpgroup Level Matrix
Instructions", shapes .m64nNk16."""
PADDING_BYTES = 16
"""What a row of shared memory is longer than it holds, so that rows start in different banks."""


def kinds(target: Target, dtype: str) -> tuple[str, ...]:
    """Kinds of kernels that contract `dtype` on a target, those of matrix units first; SIMT takes every type."""
    arch = target.compute_capability
    if arch >= 80 and ("mma", dtype) in INSTRUCTIONS:
        return ("wgmma", "mma") if target.arch.endswith("90a") else ("mma",)
    if 70 <= arch < 80 and dtype == "f16":
        return ("volta",)
    return ("simt",)


@lru_cache(maxsize=64)
def aligned_tiles(kind: str, dtype: str, target: Target, a_major: str, b_major: str) -> GemmTiles:
    """All tiles of a kind of kernel that fit a block of the target; `dtype` is that of shared memory's elements."""
    item = BITS[dtype] // 8
    if kind == "simt":
        rows = _simt(item, target.compute_capability >= 80, a_major == "k", b_major == "k")
    elif kind == "wgmma":
        rows = _wgmma(item, b_major)
    else:
        rows = _mma(INSTRUCTIONS[kind, dtype][1], item, kind == "mma", a_major == "k", b_major == "k")
    tiles = GemmTiles.of(rows)
    held = target.level("registers").capacity_bytes // 4
    fits = (
        (tiles.shared_bytes <= shared_limit(target))
        & (tiles.registers <= target.registers_per_thread)
        & (tiles.registers * tiles.threads <= held)
        & (tiles.threads <= (target.block_threads or 1024))
    )
    return tiles.take(fits)


def _simt(item: int, asynchronous: bool, a_rows: bool, b_rows: bool) -> list[tuple[int, ...]]:
    """Threads of 1x4 to 8x16 results, four down and eight across a warp; `a_rows` is stored a row of k each, padded."""
    width = max(1, item // 4)
    threads = [(1, 4), (2, 4), (4, 4), (4, 8), (8, 4), (8, 8), (8, 16), (16, 8)]
    if item == 8:
        threads = [(1, 2), (2, 2), (4, 4), (4, 8), (8, 4)]
    found = []
    for (tm, tn), (gm, gn), bk in product(threads, _grids((1, 2, 4, 8)), (8, 16, 32)):
        wm, wn = 4 * tm, 8 * tn
        bm, bn, warps = wm * gm, wn * gn, gm * gn
        if bm > 256 or bn > 256 or warps not in (2, 4, 8):
            continue
        if tm * tn * bk > MOST_UNROLLED:
            continue
        registers = int(simt_registers(np.asarray(tm), np.asarray(tn), width))
        pad = PADDING_BYTES // item
        stored = bm * (bk + pad * a_rows) + bn * (bk + pad * b_rows)
        for stages in STAGES[:4] if asynchronous else (2,):
            # Without asynchronous copies the next part of K waits in registers.
            waiting = 0 if asynchronous else -(-(bm + bn) * bk * width // (32 * warps))
            shared = stages * stored * item
            found.append(
                (bm, bn, bk, wm, wn, tm, tn, warps, 32 * warps, stages, 1, registers + waiting, shared)
            )
    return found


def _mma(
    shape: tuple[int, int, int], item: int, asynchronous: bool, a_rows: bool, b_rows: bool
) -> list[tuple[int, ...]]:
    """Warps of up to 64x64 sums, whose tiles are swizzled; results wait in shared memory, 16 rows per warp, to be stored."""
    _, columns, depth = shape
    found = []
    # Pairs of instructions side by side: ldmatrix loads four fragments at once.
    warp_n = [n for n in (16, 32, 64, 128) if n % columns == 0]
    steps = (32, 64, 128) if item == 1 else (16, 32, 64) if item == 2 else (16, 32)
    for wm, wn, (gm, gn), bk in product((16, 32, 64), warp_n, _grids((1, 2, 4)), steps):
        bm, bn, warps = wm * gm, wn * gn, gm * gn
        if bm > 256 or bn > 256 or wm * wn > 64 * 64 or bk % depth:
            continue
        registers = int(mma_registers(np.asarray(wm), np.asarray(wn), depth * item, asynchronous))
        staging = 4 * warps * 16 * (wn + (8 - wn) % 32)
        tile = (bm + bn) * bk * item
        if not asynchronous:
            tile = item * sum(_volta_elements(n, bk, rows) for n, rows in ((bm, a_rows), (bn, b_rows)))
        for stages in STAGES[:5] if asynchronous else (2,):
            waiting = 0 if asynchronous else -(-(bm + bn) * bk * item // 4 // (32 * warps))
            shared = max(stages * tile, staging)
            found.append(
                (bm, bn, bk, wm, wn, 0, 0, warps, 32 * warps, stages, 1, registers + waiting, shared)
            )
    return found


def _volta_elements(across: int, depth: int, rows_of_k: bool) -> int:
    """Elements of a stage of one factor: rows of k a piece longer than they hold, or rows across 8 banks apart."""
    if rows_of_k:
        return across * (depth + 8)
    return depth * (across + (16 - across) % 64)


def _wgmma(item: int, b_major: str) -> list[tuple[int, ...]]:
    """Consumers of 64 rows each, a producer beside them; results wait in panels of 64x64 to be stored."""
    found = []
    bk = WGMMA_ROW_BYTES // item
    columns = WGMMA_COLUMNS if b_major == "k" else tuple(n for n in WGMMA_COLUMNS if n % 64 == 0)
    for groups, bn, cluster in product((1, 2), columns, (1, 2)):
        if (bn if b_major == "k" else 64) % (8 * cluster):
            continue
        bm = 64 * groups
        panels = 0 if item == 4 or bn % 16 else 2 if bn % 128 == 0 else 1
        staging = groups * panels * 64 * WGMMA_ROW_BYTES
        threads = 128 * (groups + 1)
        even = int(wgmma_registers(np.asarray(bn), np.asarray(threads)))
        for stages in STAGES:
            shared = stages * ((bm + bn) * WGMMA_ROW_BYTES + 16) + staging + 16 * groups
            found.append((bm, bn, bk, 16, bn, 0, 0, 4 * groups, threads, stages, cluster, even, shared))
    return found


def _grids(sides: tuple[int, ...]) -> list[tuple[int, int]]:
    """Warps down and across a block, of one to eight."""
    return [(down, across) for down, across in product(sides, sides) if down * across <= 8]
