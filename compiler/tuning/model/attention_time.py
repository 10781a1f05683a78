"""The time of fused attention on a GPU: products, softmax, shared memory and L2 on the busiest core, or DRAM in all.

Source: Dao, "FlashAttention-2", 2023, §3; Shah et al., "FlashAttention-3", 2024, §2.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.compiler.nouns.attention_cut import AttentionShape
from tilewright.compiler.nouns.schedule import GpuTile
from tilewright.compiler.nouns.workload import BITS
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.gemm_resources import INSTRUCTIONS
from tilewright.compiler.tuning.model.rates import dram_gbps, l2_gbps

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


def padded(extent: int, multiple: int) -> int:
    return -(-extent // multiple) * multiple


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
    depth = shape.inner + (padded(shape.width, 64) if block.kind == "wgmma" else shape.width)
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
        "L2": seen * depth * item / (l2_gbps(target) / cores),
    }
    dram = target.memory[0]
    alone = max(_alone(block, parts, target), parts["shared"], seen / columns * dram.latency_ns)
    step = max(parts.values())
    turns, rest = divmod(blocks, cores * block.resident)
    last = -(-rest // cores)
    total = turns * max(block.resident * step, alone) + (max(last * step, alone) if last else 0.0)
    moved = shape.heads * item * (2.0 * shape.rows * shape.inner + shape.columns * depth)
    dram_ns = moved / dram_gbps(target)
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
