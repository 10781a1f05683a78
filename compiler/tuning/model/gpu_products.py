"""Contractions on GPUs, for many schedules of one kind of kernel at once: what blocks hold, load, multiply and wait for.

Shared memory is counted as kernels lay it out, registers as `gemm_tiles` estimates them, and times are those of `gemm_model`,
which constructs schedules of the same kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.nouns.schedule import GpuTile
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.block_work import BlockWork
from tilewright.compiler.tuning.model.gemm_model import ASYNC_BYTES, estimate
from tilewright.compiler.tuning.model.gemm_resources import (
    INSTRUCTIONS,
    SIMT_REGISTERS,
    WGMMA_ROW_BYTES,
    GemmTiles,
)
from tilewright.compiler.tuning.model.gemm_shape import ACCESS_BYTES
from tilewright.compiler.tuning.model.gpu_kernel import (
    PARTIAL,
    GpuKernel,
    GpuLoop,
    Movement,
    by_movements,
    most_registers,
    run_share,
    standing,
    traffic,
)
from tilewright.compiler.tuning.model.gpu_staging import (
    SUM_BYTES,
    Sizes,
    Staged,
    parts_of,
    read_conflicts,
    registers_of,
    shared_bytes,
    staging,
    store_conflicts,
)
from tilewright.compiler.tuning.model.product import Product

FLIGHT = 4
"""Loads of a thread that are on their way together in kernels that stage nothing: those of one step."""


def product_kernel(product: Product, kind: str, tiles: Sequence[GpuTile], target: Target) -> GpuKernel:
    """n schedules of the kind "simt", "mma", "volta", "wgmma" or "skinny"."""
    sizes = Sizes(tiles)
    if kind == "skinny":
        return _skinny(product, sizes, target)
    gemm = product.gemm
    dtype = gemm.dtype if kind == "simt" else "tf32" if gemm.dtype == "f32" else gemm.dtype
    bm, bn, bk = sizes.block
    down, across = parts_of(kind, sizes)
    threads, stages = sizes.column("threads"), sizes.column("stages")
    splits = np.maximum(sizes.column("split_k"), 1)
    cluster, asked = np.maximum(sizes.column("cluster"), 1), sizes.column("resident")
    staged = staging(product, kind, sizes, target)
    registers = registers_of(product, kind, sizes, staged, target)
    grid = _Grid(product, kind, sizes, target)
    shared = shared_bytes(product, kind, sizes, staged, grid.divided)
    warps = threads // 32 - (4 if kind == "wgmma" else 0)
    warp_m, warp_n = (down, across) if kind != "simt" else (4 * down, 8 * across)
    none = np.zeros(len(tiles), dtype=np.int64)
    thread_m, thread_n = (down, across) if kind == "simt" else (none, none)
    described = GemmTiles(
        bm,
        bn,
        bk,
        warp_m,
        warp_n,
        thread_m,
        thread_n,
        warps,
        threads,
        stages,
        cluster,
        np.minimum(registers, most_registers(target, threads, asked)),
        shared,
    )
    raster = sizes.column("raster")
    found = estimate(gemm, kind, dtype, described, splits, target, np.maximum(raster, 1))
    columns = standing(target, grid.tasks, grid.blocks, threads, registers, shared, asked)
    steps = grid.steps
    item = gemm.item_bytes
    moves = [_fetch(product, number, kind, sizes, staged[number], steps) for number in (0, 1)]
    read = _read_bytes(product, kind, sizes, down, across, warps)
    names = tuple(factor.operand.name for factor in product.factors)
    conflicts = [read_conflicts(kind, own, sizes) for own in staged]
    for number in (0, 1):
        moves.append(_into_registers(names[number], read[number], steps, conflicts[number], item))
    moves += _stores(product, bm, bn, grid)
    total = grid.tiles * gemm.steps(kind, bk)
    padded = bm * bn * (total * bk).astype(float)
    columns |= _arithmetic(kind, padded)
    columns["computed"] = padded / max(1.0, gemm.flops / 2)
    columns |= {
        "instructions": _instructions(product, kind, sizes, staged, down, across, warps, padded),
        "steps": steps.astype(float),
        "stages": stages.astype(float),
        "flying": (bm + bn) * bk * item * np.maximum(stages - 1, 1.0),
        "split": splits.astype(float),
        "cluster": cluster.astype(float),
        "raster": np.maximum(raster, 1).astype(float),
        "conflicts": sum(c * r for c, r in zip(conflicts, read)) / np.maximum(sum(read), 1),
        "footprint": (bm + bn / cluster) * bk * item * steps + bm * bn * gemm.result_bytes,
    }
    divided = 2.0 * (grid.tasks - grid.whole) * bm * bn * SUM_BYTES
    loaded = {
        names[0]: grid.tiles * (bm * bk * item) * gemm.steps(kind, bk),
        names[1]: grid.tiles * (bn * bk * item) * gemm.steps(kind, bk) / cluster,
    }
    result = {product.out.name: np.full(len(tiles), float(gemm.results * gemm.result_bytes))}
    extra = {o.name: np.full(len(tiles), float(o.nbytes)) for o in product.others}
    every = grid.tiles * gemm.steps(kind, bk)
    columns |= traffic(
        {
            "DRAM": dict(zip(names, found.read_bytes)) | extra | result,
            "L2": loaded | extra | result | {PARTIAL: divided},
            "shared": {name: every * own for name, own in zip(names, read)},
        },
        len(tiles),
    )
    columns |= by_movements(moves, grid.blocks)
    operands = (*names, *(o.name for o in product.others), product.out.name)
    us = np.where(np.isfinite(found.us), found.us, 1e9)
    return GpuKernel(
        operands,
        columns,
        moves,
        _loops(product, kind, sizes, down, across, grid, operands),
        us,
        found.parts_us,
        dtype,
    )


class _Grid:
    """Tiles, rTasks, those of `whole` tiles, blocks of the grid and steps of a block, of n schedules: [n]."""

    def __init__(self, product: Product, kind: str, sizes: Sizes, target: Target):
        gemm = product.gemm
        bm, bn, bk = sizes.block
        self.rows, self.columns = -(-gemm.m // bm), -(-gemm.n // bn)
        self.cluster = np.maximum(sizes.column("cluster"), 1)
        if kind == "wgmma":
            self.rows = -(-self.rows // self.cluster) * self.cluster
        self.tiles = self.rows * self.columns * gemm.batch
        self.splits = np.maximum(sizes.column("split_k"), 1)
        self.tasks = self.tiles * self.splits
        self.whole = np.where(self.splits > 1, 0, self.tiles)
        self.blocks, self.divided = self.tasks, self.splits > 1
        self.steps = -(-gemm.steps(kind, bk) // self.splits)
        if kind == "wgmma":
            # Persistent blocks divide only the tiles that fill no whole wave.
            room = np.maximum(1, target.num_cores // self.cluster)
            clusters = self.tiles // self.cluster
            whole = np.where(self.splits > 1, clusters // room * room, clusters)
            self.divided, self.whole = whole < clusters, whole * self.cluster
            self.tasks = (whole + (clusters - whole) * self.splits) * self.cluster
            self.blocks = np.minimum(room, self.tasks // self.cluster) * self.cluster
            self.steps = np.where(whole > 0, gemm.steps(kind, bk), self.steps)


def _fetch(
    product: Product, number: int, kind: str, sizes: Sizes, staged: Staged, steps: np.ndarray
) -> Movement:
    """A factor's tile from global into shared memory."""
    bm, bn, bk = sizes.block
    operand = staged.factor.operand
    size = (bm, bn)[number]
    shared_by = np.maximum(sizes.column("cluster"), 1) if number else 1
    extent = (product.gemm.m, product.gemm.n)[number]
    # What lies along k is a window's row at most where windows slide.
    deep = np.minimum(bk, product.gemm.run or product.gemm.k)
    run = np.where(staged.factor.along_k, deep, np.minimum(size, extent)) * operand.element_bytes
    vector = np.where(staged.lanes > 0, staged.lanes, 1) * operand.element_bytes
    scattered = staged.factor.lanes == 1 and product.gemm.item_bytes < ASYNC_BYTES and kind != "wgmma"
    return Movement(
        "shared",
        operand.name,
        size * bk * operand.element_bytes / shared_by,
        steps.astype(float),
        run.astype(float),
        run_share(run.astype(float)),
        np.minimum(vector, ACCESS_BYTES).astype(float),
        store_conflicts(staged),
        staged.deferred.astype(float) * (not scattered),
    )


def _into_registers(
    name: str, nbytes: np.ndarray, steps: np.ndarray, conflicts: np.ndarray, item: int
) -> Movement:
    ones = np.ones(len(nbytes))
    return Movement(
        "registers",
        name,
        nbytes.astype(float),
        steps.astype(float),
        0 * ones,
        ones,
        ones * ACCESS_BYTES,
        conflicts,
        0 * ones,
    )


def _stores(product: Product, bm: np.ndarray, bn: np.ndarray, grid: _Grid) -> list[Movement]:
    """What the epilogue reads, and the results."""
    gemm, ones = product.gemm, np.ones(len(bm))
    found = []
    for operand in (*product.others, product.out):
        share = operand.nbytes / max(1, gemm.results)
        run = np.minimum(bn, gemm.n) * float(operand.element_bytes)
        found.append(
            Movement(
                "global" if operand is product.out else "registers",
                operand.name,
                np.minimum(bm * bn * share, float(operand.nbytes)),
                ones,
                run,
                run_share(run),
                ones * min(ACCESS_BYTES, operand.element_bytes * max(1, gemm.n & -gemm.n)),
                ones,
                0 * ones,
            )
        )
    return found


def _read_bytes(
    product: Product, kind: str, sizes: Sizes, down: np.ndarray, across: np.ndarray, warps: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of both factors that the warps of a block read of shared memory in one step."""
    _, bn, bk = sizes.block
    if kind == "simt":
        lanes = 32 * warps * bk * product.item_bytes
        return down * lanes, across * lanes
    item = product.gemm.item_bytes
    if kind == "wgmma":
        # Each warpgroup's instructions read their rows of A and all of B themselves.
        return warps / 4 * 64 * bk * item, warps / 4 * bn * bk * item
    return down * bk * item * warps, across * bk * item * warps


def _arithmetic(kind: str, padded: np.ndarray) -> dict[str, np.ndarray]:
    unit = "wgmma" if kind == "wgmma" else "fma" if kind in ("simt", "skinny") else "mma"
    zero = np.zeros(len(padded))
    return {
        f"arithmetic.{own}": padded if own == unit else zero for own in ("fma", "mma", "wgmma", "special")
    }


def _instructions(
    product: Product,
    kind: str,
    sizes: Sizes,
    staged: Sequence[Staged],
    down: np.ndarray,
    across: np.ndarray,
    warps: np.ndarray,
    padded: np.ndarray,
) -> np.ndarray:
    """Instructions of warps of all blocks: products, fragments, and copies."""
    bm, bn, bk = sizes.block
    steps = padded / (bm * bn * bk)
    if kind == "wgmma":
        return padded / (64 * bn * WGMMA_ROW_BYTES / 4 / product.gemm.item_bytes) * 4
    copies = sum(own.rows * own.columns / own.lanes / 32 * np.where(own.deferred, 1, 2) for own in staged)
    if kind == "simt":
        lanes = max(1, ACCESS_BYTES // product.item_bytes)
        each = bk * (down * across + -(-down // lanes) + -(-across // lanes))
        return steps * (warps * each + copies)
    dtype = "tf32" if product.gemm.dtype == "f32" else product.gemm.dtype
    shape = INSTRUCTIONS[kind, dtype][1]
    each = down * across * bk / np.prod(shape) * (4 if kind == "volta" else 1)
    fragments = (down + across) * bk * product.gemm.item_bytes / 512
    return steps * (warps * (each + fragments) + copies)


def _loops(
    product: Product,
    kind: str,
    sizes: Sizes,
    down: np.ndarray,
    across: np.ndarray,
    grid: _Grid,
    operands: Sequence[str],
) -> list[GpuLoop]:
    """The loops of a product, outer ones first, over [batch, m, n, k]."""
    gemm = product.gemm
    bm, bn, bk = sizes.block
    ones = np.ones(len(bm), dtype=np.int64)
    inner = [
        ("in registers", 1, down),
        ("in registers", 2, across),
        ("in registers", 3, bk),
        ("of threads", 1, bm // np.maximum(down, 1)),
        ("of threads", 2, bn // np.maximum(across, 1)),
        ("of steps", 3, grid.steps),
        ("of blocks", 3, np.maximum(1, -(-gemm.steps(kind, bk) // grid.steps))),
        ("of blocks", 2, grid.columns),
        ("of blocks", 1, grid.rows),
        ("of blocks", 0, ones * gemm.batch),
    ]
    whole = np.asarray([gemm.batch, gemm.m, gemm.n, gemm.k], dtype=float)
    size = np.ones((len(bm), 4))
    points = np.ones(len(bm))
    item = gemm.item_bytes
    found = []
    for place, dim, length in inner:
        size[:, dim] *= length
        points = points * length
        b, m, n, k = np.minimum(size, whole).T
        touched = {product.factors[0].operand.name: b * m * k * item}
        touched[product.factors[1].operand.name] = b * n * k * item
        for own in (*product.others, product.out):
            touched[own.name] = b * m * n * own.nbytes / max(1, gemm.results)
        found.append(
            GpuLoop(
                place, length.astype(float), points.copy(), np.stack([touched[o] for o in operands], axis=1)
            )
        )
    return found[::-1]


def _skinny(product: Product, sizes: Sizes, target: Target) -> GpuKernel:
    """Kernels that stream B past all rows of A, which stage nothing but sums."""
    gemm = product.gemm
    bm, bn, bk = sizes.block
    rows, columns_each = sizes.column("thread", 0), sizes.column("thread", 1)
    threads, splits = sizes.column("threads"), np.maximum(sizes.column("split_k"), 1)
    k_first = product.factors[1].along_k
    wide = bn // columns_each
    deep = threads // np.maximum(wide, 1)
    steps_each = bk // np.maximum(deep, 1)
    lanes = steps_each if k_first else columns_each
    warp_lanes = np.minimum(32, deep) if k_first else np.maximum(1, 32 // wide)
    shared = deep // warp_lanes * rows * bn * product.item_bytes
    width = max(1, product.item_bytes // 4)
    words = -(-lanes * gemm.item_bytes // 4)
    registers = SIMT_REGISTERS + rows * columns_each * width + FLIGHT * words + rows * steps_each * width
    grid = _Grid(product, "skinny", sizes, target)
    columns = standing(target, grid.tasks, grid.blocks, threads, registers, shared)
    names = tuple(factor.operand.name for factor in product.factors)
    item = gemm.item_bytes
    all_steps = gemm.steps("skinny", bk)
    loaded_a = grid.tiles * (bm * bk * item) * all_steps
    loaded_b = grid.tiles * (bn * bk * item) * all_steps
    divided = np.where(splits > 1, 2.0 * grid.tiles * splits * bm * bn * SUM_BYTES, 0.0)
    padded = bm * bn * (grid.tiles * all_steps * bk).astype(float)
    moves = []
    ones = np.ones(len(bm))
    for number, size in ((0, bm), (1, bn)):
        factor = product.factors[number]
        run = (
            np.where(factor.along_k, np.minimum(bk, gemm.k), np.minimum(size, (gemm.m, gemm.n)[number]))
            * item
        )
        own = np.minimum(factor.lanes, lanes) if number else np.gcd(factor.lanes, steps_each)
        moves.append(
            Movement(
                "registers",
                factor.operand.name,
                size * bk * float(item),
                grid.steps.astype(float),
                run.astype(float),
                run_share(run.astype(float)),
                own * float(item),
                ones,
                0 * ones,
            )
        )
    moves += _stores(product, bm, bn, grid)
    columns |= _arithmetic("skinny", padded)
    instructions = (
        padded / 32 + (loaded_b / np.maximum(lanes, 1) / item + loaded_a / item / steps_each * wide) / 32
    )
    flying = threads * np.minimum(
        FLIGHT * ACCESS_BYTES, words * 4 * np.where(k_first, columns_each, steps_each)
    )
    columns |= {
        "computed": padded / max(1.0, gemm.flops / 2),
        "instructions": instructions,
        "steps": grid.steps.astype(float),
        "stages": ones,
        "flying": flying.astype(float),
        "split": splits.astype(float),
        "cluster": ones,
        "raster": ones,
        "conflicts": ones,
        "footprint": (bm + bn) * bk * float(item) * grid.steps + bm * bn * gemm.result_bytes,
    }
    result = {product.out.name: ones * gemm.results * gemm.result_bytes}
    extra = {o.name: ones * o.nbytes for o in product.others}
    own = {names[0]: ones * gemm.a_bytes, names[1]: ones * gemm.b_bytes}
    columns |= traffic(
        {
            "DRAM": own | extra | result,
            "L2": {names[0]: loaded_a, names[1]: loaded_b} | extra | result | {PARTIAL: divided},
        },
        len(bm),
    )
    columns |= by_movements(moves, grid.blocks)
    work = BlockWork(
        grid.blocks, threads, columns["registers"].astype(np.int64), shared, columns["traffic.L2"],
        columns["traffic.DRAM"], instructions * target.warp_size, flying,
    )  # fmt: skip
    parts = work.parts_us(target)
    parts = {("DRAM" if name == target.memory[0].name else name): value for name, value in parts.items()}
    extra_us = np.where(splits > 1, 2 * target.memory[0].latency_ns / 1e3, 0.0)
    operands = (*names, *(o.name for o in product.others), product.out.name)
    loops = _loops(product, "skinny", sizes, rows, columns_each, grid, operands)
    return GpuKernel(operands, columns, moves, loops, work.us(target) + extra_us, parts)
