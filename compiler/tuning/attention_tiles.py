"""Blocks of fused attention on a GPU: rows of queries that a block keeps, rows of keys and values that it streams.

Source: Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, §3.3.
"""

from __future__ import annotations

import math
from itertools import product

from tilewright.compiler.schedule import GpuTile, Schedule
from tilewright.compiler.target import Target
from tilewright.compiler.tuning.attention_cut import AttentionShape
from tilewright.compiler.tuning.cpu_candidates import Candidate
from tilewright.compiler.tuning.gemm_tiles import INSTRUCTIONS, MMA_REGISTERS, architecture
from tilewright.compiler.tuning.occupancy import register_limit, resident_blocks, shared_limit
from tilewright.compiler.workload import BITS

SOFTMAX_FLOPS = 12
"""Instructions per score beside its products: scale, mask, maximum, subtraction, exponential (which takes the special
units, a quarter as many), sum and conversion, as multiply-adds' worth. Source: FlashAttention-2, §3.1, and Shah et al.,
"FlashAttention-3", 2024, §2.2 (one exponential costs as much as 256 FLOPs of matrix units on an H100)."""


def attention_candidates(
    shape: AttentionShape, dtype: str, target: Target, top_k: int = 10
) -> list[Candidate]:
    """At most `top_k` schedules, fastest by the model first; matrix instructions for 16-bit types where there are any."""
    key = ("volta" if architecture(target) < 80 else "mma", dtype)
    instruction = (
        INSTRUCTIONS[key][0] if key in INSTRUCTIONS and BITS[dtype] == 16 and key[0] == "mma" else ""
    )
    item = BITS[dtype] // 8
    found = []
    for rows, columns, warps in product((16, 32, 64, 128), (16, 32, 64, 128), (4, 8, 2, 1)):
        if instruction and rows != 16 * warps and rows != 32 * warps:
            continue
        if rows >= 2 * max(16, shape.rows) or columns >= 2 * max(16, shape.columns):
            continue
        threads = 32 * warps
        registers = _registers(rows, columns, shape, threads, instruction)
        shared = item * (rows * shape.inner + 2 * columns * (shape.inner + shape.width))
        if not instruction:
            shared += 4 * rows * columns
        if registers > register_limit(target, threads) or shared > shared_limit(target):
            continue
        resident = int(resident_blocks(target, threads, registers, shared))
        if not resident:
            continue
        us, bound = _predict(shape, rows, columns, item, resident, bool(instruction), dtype, target)
        tile = GpuTile("attention", threads, (rows, columns), instruction=instruction, stages=2)
        found.append((us, shared, Candidate(Schedule(gpu=tile), round(us, 3), bound)))
    found.sort(key=lambda row: row[:2])
    return [candidate for *_, candidate in found[:top_k]]


def _registers(rows: int, columns: int, shape: AttentionShape, threads: int, instruction: str) -> int:
    """Per thread: scores and results of its rows in f32, and, for matrix instructions, fragments of three operands."""
    sums = rows * (columns + shape.width) / threads
    fragments = rows * shape.inner / 2 / threads + 8 if instruction else 16
    return math.ceil(sums + fragments) + MMA_REGISTERS


def _predict(
    shape: AttentionShape,
    rows: int,
    columns: int,
    item: int,
    resident: int,
    matrix: bool,
    dtype: str,
    target: Target,
) -> tuple[float, str]:
    """Microseconds and what bounds it: products and softmax on the busiest core, keys and values through L2, DRAM."""
    blocks = shape.heads * -(-shape.rows // rows)
    seen = -(-shape.columns // columns) * columns * (0.5 if shape.causal and shape.rows > rows else 1.0)
    cores = target.num_cores
    peak = target.peak_gflops[dtype] * target.mma_share if matrix else target.peak_gflops["f32"]
    products = 2.0 * rows * seen * (shape.inner + shape.width) / (peak / cores)
    softmax = SOFTMAX_FLOPS * 2 * rows * seen / (target.peak_gflops["f32"] / cores)
    l2 = next(
        (m.bandwidth_gbps for m in target.memory if m.name == "L2"), 4 * target.memory[0].bandwidth_gbps
    )
    load = seen * (shape.inner + shape.width) * item / (l2 / cores)
    dram = target.memory[0]
    # Products and softmax of different warps overlap as far as there are several.
    alone = products + softmax
    step = max(products, softmax, load)
    turns, rest = divmod(blocks, cores * resident)
    last = -(-rest // cores)
    total = turns * max(resident * step, alone) + (max(last * step, alone) if last else 0.0)
    moved = (
        shape.heads * item * (2.0 * shape.rows * shape.inner + shape.columns * (shape.inner + shape.width))
    )
    parts = {"compute": products, "issue": softmax, "L2": load}
    dram_ns = moved / (dram.copy_gbps or dram.bandwidth_gbps)
    bound = dram.name if dram_ns > total else max(parts, key=lambda name: parts[name])
    return (max(total, dram_ns) + 2 * dram.latency_ns) / 1e3 + target.start_us, bound
