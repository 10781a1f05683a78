"""Blocks of fused attention on a GPU: rows of queries that a block keeps, rows of keys and values that it streams.

Three kinds of kernels: lanes that share a row, warps of `mma.sync`, and warpgroups of `wgmma`, which overlap products with
softmax.

Source: Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, §3.3; Shah et al.,
"FlashAttention-3", 2024, §3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, product

from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.workload import BITS
from tilewright.compiler.targets.occupancy import register_limit, resident_blocks, shared_limit
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.attention_cut import AttentionShape
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.gpu.gemm_tiles import (
    INSTRUCTIONS,
    MMA_REGISTERS,
    SIMT_REGISTERS,
)

SOFTMAX_FLOPS = 12
"""Instructions per score beside its products: scale, mask, maximum, subtraction, exponential (which takes the special
units, a quarter as many), sum and conversion, as multiply-adds' worth. Source: FlashAttention-2, §3.1, and Shah et al.,
"FlashAttention-3", 2024, §2.2 (one exponential costs as much as 256 FLOPs of matrix units on an H100)."""
WARPGROUP_SOFTMAX_FLOPS = 7.5
"""The same in kernels of wgmma, counted in their assembled loop: per score a maximum, a multiply-add, an exponential, which
takes the special units, a quarter as many, a sum, and half a conversion."""


@dataclass(frozen=True)
class AttentionBlock:
    """One block: `kind` of kernel, rows of queries, columns of keys, its warps, and how many of it are resident."""

    kind: str
    rows: int
    columns: int
    warps: int
    resident: int

    def tile(self, dtype: str) -> GpuTile:
        """What code generation reads."""
        threads, block = 32 * self.warps, (self.rows, self.columns)
        if self.kind == "wgmma":
            return GpuTile(
                "wgmma", threads + 128, block, instruction=f"wgmma.m64n{self.columns}k16", stages=2
            )
        instruction = INSTRUCTIONS["mma", dtype][0] if self.kind == "mma" else ""
        return GpuTile("attention", threads, block, instruction=instruction, stages=2)


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


def _padded(extent: int, multiple: int) -> int:
    return -(-extent // multiple) * multiple


def _mma_needs(rows: int, columns: int, shape: AttentionShape, threads: int) -> tuple[int, int]:
    """(registers of a thread, shared bytes of a block): scores and results in f32, queries as fragments; keys and values
    twice, as the next ones are on their way."""
    inner, width = _padded(shape.inner, 16), _padded(shape.width, 16)
    fragments = rows // 16 // (threads // 32)
    registers = fragments * (columns + width) // 2 + fragments * inner // 4 + MMA_REGISTERS
    return registers, 2 * (rows * (inner + 8) + 2 * columns * (inner + width + 16))


def _simt_needs(rows: int, columns: int, shape: AttentionShape, threads: int, item: int) -> tuple[int, int]:
    """The same where 16 lanes share a row, and scores pass through shared memory."""
    inner, width, step = _padded(shape.inner, 8), _padded(shape.width, 16), 16 // item
    own, wide = rows * 16 // threads, columns // 16
    sums = own * (wide + width // 16 + 2) + step * (own + wide)
    elements = rows * (inner + step) + 2 * columns * (inner + step + width) + rows * (columns + step)
    return sums * item // 4 + SIMT_REGISTERS, item * elements


def _wgmma_needs(rows: int, columns: int, shape: AttentionShape) -> int:
    """Shared bytes of a block whose heads lie in panels of 64 elements, keys and values in two stages each."""
    inner, width = _padded(shape.inner, 64), _padded(shape.width, 64)
    return 2 * (rows * max(inner, width) + 2 * columns * (inner + width)) + 64


@dataclass(frozen=True)
class AttentionTime:
    """Microseconds, what bounds it, all that is taken of the cores together, and microseconds of each resource alone."""

    us: float
    bound: str
    effort: float
    parts_us: Mapping[str, float]


def predict_block(shape: AttentionShape, block: AttentionBlock, dtype: str, target: Target) -> AttentionTime:
    """The time of a kernel's blocks: products, softmax, shared memory and L2 on the busiest core, or DRAM in all."""
    rows, columns, matrix = block.rows, block.columns, block.kind != "simt"
    blocks = shape.heads * -(-shape.rows // rows)
    seen = -(-shape.columns // columns) * columns * (0.5 if shape.causal and shape.rows > rows else 1.0)
    cores, item = target.num_cores, BITS[dtype] // 8
    lanes = target.peak_gflops["f32"] / cores
    share = target.mma_share if block.kind == "mma" else 1.0
    peak = target.peak_gflops[dtype] * share / cores if matrix else lanes
    depth = shape.inner + (_padded(shape.width, 64) if block.kind == "wgmma" else shape.width)
    l2 = next(
        (m.bandwidth_gbps for m in target.memory if m.name == "L2"), 4 * target.memory[0].bandwidth_gbps
    )
    # What a thread multiplies of rows and columns, it reads once for all of them; a warp of matrix instructions likewise,
    # and a warpgroup, whose queries are read with every tile of keys.
    own, wide = (rows // block.warps, columns) if matrix else (rows / (2 * block.warps), columns / 16)
    read = rows * seen * depth * item * (1 / own + 1 / wide) * (1 if not matrix else 0.5)
    softmax = SOFTMAX_FLOPS
    if block.kind == "wgmma":
        read = rows * seen * item * (depth / 64 + shape.inner / columns)
        softmax = WARPGROUP_SOFTMAX_FLOPS
    parts = {
        "compute": 2.0 * rows * seen * depth / peak,
        # Every block of keys also changes the scale of the results so far.
        "issue": 2.0 * rows * seen * (softmax + shape.width / columns) / lanes,
        "shared": read / (target.level("shared").bandwidth_gbps / cores),
        "L2": seen * depth * item / (l2 / cores),
    }
    dram = target.memory[0]
    alone = max(_alone(block, parts, target), parts["shared"], seen / columns * dram.latency_ns)
    step = max(parts.values())
    turns, rest = divmod(blocks, cores * block.resident)
    last = -(-rest // cores)
    total = turns * max(block.resident * step, alone) + (max(last * step, alone) if last else 0.0)
    moved = shape.heads * item * (2.0 * shape.rows * shape.inner + shape.columns * depth)
    dram_ns = moved / (dram.copy_gbps or dram.bandwidth_gbps)
    bound = dram.name if dram_ns > total else max(parts, key=lambda name: parts[name])
    us = (max(total, dram_ns) + 2 * dram.latency_ns) / 1e3 + target.start_us
    taken = {name: blocks / cores * ns / 1e3 for name, ns in parts.items()} | {"DRAM": dram_ns / 1e3}
    taken["latency"] = max(us - max(taken.values()), 0.0)
    return AttentionTime(us, bound, blocks * sum(parts.values()), taken)


def _alone(block: AttentionBlock, parts: Mapping[str, float], target: Target) -> float:
    """Nanoseconds of products and softmax of one block alone, on the schedulers that have a warp of it."""
    products, softmax = parts["compute"], parts["issue"]
    if block.kind != "wgmma":
        # They follow each other.
        return (products + softmax) / min(1.0, block.warps / max(1, target.schedulers))
    # A warpgroup's second product runs while it weighs the next scores; what it waits for otherwise, others fill.
    one_by_one = 0.5 / (block.rows // 64)
    # No other block is resident that could work while this one loads its first tiles and stores its results.
    idle = 2 * target.memory[0].latency_ns
    return max(products, softmax) + one_by_one * min(products, softmax) + idle
