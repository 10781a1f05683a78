"""Schedules of a contraction on a GPU: aligned tiles by predicted time, small ones divided until every core has work."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from tilewright.compiler.nouns.schedule import GpuTile
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.gpu.gemm_recursion import constructed
from tilewright.compiler.tuning.gpu.gemm_tiles import aligned_tiles, kinds
from tilewright.compiler.tuning.model.gemm_model import GemmEstimate, estimate, scattered_factors
from tilewright.compiler.tuning.model.gemm_resources import INSTRUCTIONS, SCATTERED_REGISTERS, GemmTiles
from tilewright.compiler.tuning.model.gemm_shape import Gemm
from tilewright.compiler.tuning.model.rates import roofline
from tilewright.compiler.tuning.roller.options import DEFAULT, ConstructOptions

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
LEAST_STEPS = 4
"""Steps of K that each part of a divided sum has at least: fewer do not fill a pipeline."""
ALIKE = 1.02
"""Tiles within this factor of each other are as fast as each other."""
_WORTH = 1.6
"""Tiles predicted slower than the first by more than this factor are not worth a measurement."""
_TRIED = 200
"""Tiles shown to code generation before a kind of kernel is given up."""

SKINNY_ROWS = 16
"""Rows up to which all of them are kept in one thread's registers."""

Fits = Callable[[GpuTile], bool]


@dataclass(frozen=True)
class GemmChoice:
    """One tile with what the model says of it: microseconds, what bounds it, DRAM bytes, blocks per multiprocessor."""

    tile: GpuTile
    us: float
    bound: str
    resident: int
    waves: float
    registers: int
    shared_bytes: int
    dram_bytes: float


def gemm_choices(
    gemm: Gemm,
    target: Target,
    options: ConstructOptions = DEFAULT,
    precision: str = "f32",
    fits: Fits = lambda tile: True,
    proposer: str = "aligned",
) -> list[GemmChoice]:
    """At most `options.top_k` tiles, fastest by the model first, no two that differ in stages or raster only.

    The kernel for a few rows is one of them where it is as fast as the others, and the first of equals.

    `precision` "tf32" lets f32 operands be rounded for matrix units. `fits` is asked of every tile that would be
    chosen: whether code generation takes it for this contraction. The `proposer` "roller" leaves the tiles that its
    recursion constructs, "aligned" all.
    """
    dtype = "tf32" if precision == "tf32" and gemm.dtype == "f32" else gemm.dtype
    found: list[GemmChoice] = []
    for kind in kinds(target, dtype) if gemm.matrix else ("simt",):
        if kind == "wgmma" and not _feeds_wgmma(gemm, dtype):
            continue
        found += _of_kind(gemm, kind, dtype, target, options, fits, proposer)
    if not found:
        found = _of_kind(gemm, "simt", gemm.dtype, target, options, fits, proposer)
    skinny = _skinny(gemm, target)
    if (
        fits(skinny.tile)
        and gemm.m <= SKINNY_ROWS
        and skinny.us <= ALIKE * min((c.us for c in found), default=math.inf)
    ):
        found.insert(0, skinny)
    return sorted(found, key=lambda choice: choice.us)[: options.top_k]


def _skinny(gemm: Gemm, target: Target) -> GemmChoice:
    """Streaming the second factor past a few rows: every byte once, at what DRAM gives or lanes multiply."""
    us, bound = roofline(gemm.nbytes, gemm.flops, target)
    return GemmChoice(GpuTile("skinny"), round(us, 3), bound, 0, 0.0, 0, 0, float(gemm.nbytes))


def _feeds_wgmma(gemm: Gemm, dtype: str) -> bool:
    """Whether TMA loads both factors, and they lie along k, as wgmma wants all but 16-bit ones."""
    return gemm.tensor_maps and (dtype in ("f16", "bf16") or (gemm.a_major, gemm.b_major) == ("k", "k"))


def _of_kind(
    gemm: Gemm, kind: str, dtype: str, target: Target, options: ConstructOptions, fits: Fits, proposer: str
) -> list[GemmChoice]:
    held = gemm.sum_dtype if kind == "simt" else dtype
    tiles = aligned_tiles(kind, held, target, gemm.a_major, gemm.b_major)
    tiles = tiles.take(conforming(gemm, kind, tiles, target, options))
    if proposer == "roller":
        tiles = tiles.take(constructed(gemm, kind, dtype, tiles, target, options))
    tiles, splits = _divided(gemm, kind, tiles, target, options)
    estimated = estimate(gemm, kind, dtype, tiles, splits, target)
    found: list[GemmChoice] = []
    for tried, position in enumerate(_distinct(tiles, splits, estimated)):
        if len(found) == options.top_k or tried == _TRIED:
            break
        choice = _choice(gemm, kind, dtype, tiles, splits, estimated, position)
        if fits(choice.tile):
            found.append(choice)
    return found


def _waiting_registers(gemm: Gemm, tiles: GemmTiles) -> np.ndarray:
    """Registers of a thread for elements that lie too far apart for asynchronous copies, of 4 bytes or more: [n]."""
    waiting = np.zeros(len(tiles), dtype=np.int64)
    for across, scattered in zip((tiles.block_m, tiles.block_n), scattered_factors(gemm, "mma")):
        if scattered:
            waiting += -(-across * tiles.block_k // tiles.threads) * SCATTERED_REGISTERS
    return waiting


def conforming(
    gemm: Gemm, kind: str, tiles: GemmTiles, target: Target, options: ConstructOptions = DEFAULT
) -> np.ndarray:
    """Which tiles are aligned with this contraction: [n]. The rules are those of `roller.alignment` by name.

    `tensor_shape`: no side is twice what covers the matrix (epsilon 1: the model counts what padding costs).
    `memory_transaction`: rows of a block are whole transactions, or cover the matrix. `execution_unit`: a block has a
    warp for every scheduler, unless all warps of the matrix are fewer.
    """
    keep = np.ones(len(tiles), dtype=bool)
    if kind != "wgmma":
        # A sum of one step is no loop any more: the assembler moves all its loads to the front and runs out of registers.
        keep &= (tiles.block_k < gemm.k) | (tiles.block_k == tiles.block_k.min())
    if kind == "mma":
        keep &= tiles.registers + _waiting_registers(gemm, tiles) <= target.registers_per_thread
    sides = ((tiles.block_m, gemm.m), (tiles.block_n, gemm.n), (tiles.block_k, gemm.k))
    if "tensor_shape" in options.rules:
        for size, extent in sides:
            least = int(size[size >= extent].min()) if (size >= extent).any() else int(size.max())
            keep &= size <= least
    if "memory_transaction" in options.rules:
        item, transaction = gemm.item_bytes, target.memory[0].transaction_bytes
        for (size, extent), inner in zip(sides, (gemm.a_major == "m", gemm.b_major == "n", True)):
            along_k = "k" in (gemm.a_major, gemm.b_major)
            if inner and (extent is not gemm.k or along_k):
                keep &= (size * item % transaction == 0) | (size >= extent)
    if "execution_unit" in options.rules and kind != "wgmma":
        warps = -(-gemm.m // tiles.warp_m) * -(-gemm.n // tiles.warp_n)
        keep &= (tiles.warps % max(1, target.schedulers) == 0) | (warps < target.schedulers)
    return keep if keep.any() else np.ones(len(tiles), dtype=bool)


def _divided(
    gemm: Gemm, kind: str, tiles: GemmTiles, target: Target, options: ConstructOptions
) -> tuple[GemmTiles, np.ndarray]:
    """The tiles with K whole, and where they are fewer than fill two waves also in parts: Roller's shrinking (§3.2),
    along K, for products whose rows and columns are used up."""
    blocks = -(-gemm.m // tiles.block_m) * -(-gemm.n // tiles.block_n) * gemm.batch
    steps = gemm.steps(kind, tiles.block_k)
    positions, splits = [np.arange(len(tiles))], [np.ones(len(tiles), dtype=np.int64)]
    for split in SPLITS[1:] if options.shrink else ():
        small = (blocks < 2 * target.num_cores) & (blocks * split <= 4 * target.num_cores)
        # A consumer beside one producer has no registers for 128 sums and the addresses of their parts.
        if kind == "wgmma":
            small &= (tiles.threads != 256) | (tiles.block_n < 256)
        chosen = np.flatnonzero(small & (steps // split >= LEAST_STEPS))
        positions.append(chosen)
        splits.append(np.full(len(chosen), split, dtype=np.int64))
    return tiles.take(np.concatenate(positions)), np.concatenate(splits)


def _distinct(tiles: GemmTiles, splits: np.ndarray, estimated: GemmEstimate) -> Iterator[int]:
    """Positions, fastest first. Of tiles that are as fast as each other the one that takes least of all resources
    together comes first; no block comes more than twice, and with as many stages as cost nothing."""
    us, effort = estimated.us, estimated.effort
    legal = np.flatnonzero(np.isfinite(us))
    if not len(legal):
        return
    legal = legal[us[legal] <= _WORTH * us[legal].min()]
    rank = np.floor(np.log(us[legal] / us[legal].min()) / np.log(ALIKE))
    order = legal[np.lexsort((us[legal], effort[legal], splits[legal], rank))]
    parts = ("block_m", "block_n", "block_k", "warp_m", "warp_n", "thread_m", "thread_n", "cluster")
    keys = np.stack([*(getattr(tiles, name) for name in parts), splits], axis=1)
    seen: set[tuple[int, ...]] = set()
    blocks: dict[tuple[int, ...], int] = {}
    for position in order:
        key = tuple(keys[position].tolist())
        if key in seen or blocks.get(key[:3], 0) == 2:
            continue
        seen.add(key)
        blocks[key[:3]] = blocks.get(key[:3], 0) + 1
        alike = order[(keys[order] == keys[position]).all(axis=1)]
        free = (us[alike] <= us[position]) & (estimated.resident[alike] >= estimated.resident[position])
        yield int(max(alike[free], key=lambda p: (tiles.stages[p], -p)))


def _choice(
    gemm: Gemm, kind: str, dtype: str, tiles: GemmTiles, splits: np.ndarray, estimated: GemmEstimate, at: int
) -> GemmChoice:
    one = {field.name: int(getattr(tiles, field.name)[at]) for field in fields(tiles)}
    block = (one["block_m"], one["block_n"], one["block_k"])
    tile = GpuTile(
        kernel="mma" if kind == "volta" else kind,
        threads=one["threads"],
        block=block,
        stages=one["stages"],
        split_k=int(splits[at]),
        raster=int(estimated.raster[at]),
    )
    if kind == "simt":
        tile = replace(tile, thread=(one["thread_m"], one["thread_n"]))
    elif kind == "wgmma":
        depth = {2: "k16", 4: "k8.tf32", 1: "k32"}[gemm.item_bytes]
        instruction = f"wgmma.m64n{block[1]}{depth}"
        tile = replace(
            tile, warp=(64, block[1]), instruction=instruction, swizzle=128, cluster=one["cluster"]
        )
    else:
        tile = replace(tile, warp=(one["warp_m"], one["warp_n"]), instruction=INSTRUCTIONS[kind, dtype][0])
    return GemmChoice(
        tile,
        round(float(estimated.us[at]), 3),
        estimated.bound(at),
        int(estimated.resident[at]),
        float(estimated.waves[at]),
        one["registers"],
        one["shared_bytes"],
        float(estimated.dram_bytes[at]),
    )
