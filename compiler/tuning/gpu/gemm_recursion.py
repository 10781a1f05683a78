"""Roller's recursion over the tiles of contractions on GPUs: which of those that code generation takes it constructs.

    warp   [16, 16] -> [32, 16] -> ... -> [64, 64]                  until shared memory keeps up with the execution unit
    block  [64, 64] -> [128, 64] -> ... -> [128, 128]               until L2 does
    scale-out                                                       shrunk until every multiprocessor has a block

The next aligned size of an axis is that of the next larger tile of the kernel's, so instructions, threads, rows of
shared memory and registers are aligned with by being in it. Steps of K change how often shared memory is filled, not
what moves: they, stages, parts of K and rasters are ranked for every constructed tile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.gemm_model import Machine
from tilewright.compiler.tuning.model.gemm_resources import GemmTiles
from tilewright.compiler.tuning.model.gemm_shape import Gemm
from tilewright.compiler.tuning.roller.options import ConstructOptions
from tilewright.compiler.tuning.roller.recursion import Levels, Look, Recursion, Tile, most_reuse_first

_QUOTA = 16
"""Blocks of one warp tile after which the recursion goes on with the next."""
_WAVES = 4
"""Blocks per multiprocessor below which smaller ones are constructed too: few leave the last wave uneven."""
_COMPULSORY = 1.5
"""Bytes within this factor of those that the largest tile moves are not worth a larger one."""
_ENOUGH = 256
"""Blocks after which it ends: all are ranked at once."""


def constructed(
    gemm: Gemm, kind: str, dtype: str, tiles: GemmTiles, target: Target, options: ConstructOptions
) -> np.ndarray:
    """Which of the aligned `tiles` the recursion constructs: [n]."""
    if not len(tiles):
        return np.zeros(0, dtype=bool)
    layers = _Blocks(gemm, tiles, Machine.of(target, kind, dtype))
    run = Recursion(layers, _ENOUGH, _QUOTA)
    run.run(2)
    found = dict.fromkeys((*run.results, *run.border))
    if options.shrink:
        found |= dict.fromkeys(
            s for levels in list(found) for s in _shrunk(layers, levels, _WAVES * target.num_cores)
        )
    keep = np.zeros(len(tiles), dtype=bool)
    for levels in found:
        keep |= layers.of(*levels)
    return keep


@dataclass(frozen=True)
class _Blocks:
    """The layers of a kernel's tiles: [m, n] of a warp and of a block."""

    gemm: Gemm
    tiles: GemmTiles
    machine: Machine
    count: int = 2

    @cached_property
    def levels(self) -> tuple[np.ndarray, np.ndarray]:
        """The warps and the blocks that there are, each with the warp it is of, ascending: [n, 2] and [n, 4]."""
        t = self.tiles
        warps = np.stack([t.warp_m, t.warp_n], axis=1)
        blocks = np.stack([t.warp_m, t.warp_n, t.block_m, t.block_n], axis=1)
        return np.unique(warps, axis=0), np.unique(blocks, axis=0)

    def of(self, warp: Tile, block: Tile) -> np.ndarray:
        """The tiles that are of a warp and a block: [n]."""
        t = self.tiles
        sizes = (t.warp_m, t.warp_n, t.block_m, t.block_n)
        return np.logical_and.reduce([size == wanted for size, wanted in zip(sizes, (*warp, *block))])

    def known(self, layer: int, inner: Tile) -> np.ndarray:
        """All tiles of a layer over one of the layer above."""
        warps, blocks = self.levels
        if layer == 0:
            return warps
        return blocks[(blocks[:, :2] == inner).all(axis=1)][:, 2:]

    def start(self, layer: int, inner: Tile) -> Tile | None:
        known = self.known(layer, inner)
        smallest = known[np.argmin(known.prod(axis=1))]
        return tuple(int(size) for size in smallest)

    def enlarged(self, layer: int, tile: Tile, inner: Tile) -> list[Tile]:
        known, found = self.known(layer, inner), []
        for axis, size in enumerate(tile):
            beside = known[known[:, 1 - axis] == tile[1 - axis]][:, axis]
            beyond = beside[beside > size]
            if len(beyond):
                found.append((*tile[:axis], int(beyond.min()), *tile[axis + 1 :]))
        return found

    def moved(self, layer: int, tiles: list[Tile]) -> tuple[np.ndarray, np.ndarray]:
        """Bytes that the product moves into a layer, and those of one tile: [n] each."""
        sizes = np.asarray(tiles, dtype=float)
        gemm, (m, n) = self.gemm, sizes.T
        rows, columns = np.ceil(gemm.m / m), np.ceil(gemm.n / n)
        moved = gemm.batch * rows * columns * (m + n) * gemm.k * gemm.item_bytes
        # Results are kept by a warp, operands by a block.
        held = (m + n) * gemm.item_bytes + (0 if layer else m * n * 4)
        return moved, held

    def look(self, layer: int, tiles: list[Tile], levels: Levels) -> Look:
        moved, held = self.moved(layer, tiles)
        below = self.machine.l2_gbps if layer else self.machine.shared
        least = self.moved(layer, [tuple(self.levels[layer][:, -2:].max(axis=0))])[0]
        saturated = moved <= np.maximum(self.gemm.flops / self.machine.flops * below, _COMPULSORY * least)
        return Look(moved, held, np.ones(len(tiles), dtype=bool), saturated)

    def order(self, layer: int, look: Look) -> list[int]:
        return most_reuse_first(look)

    def attainable(self, layer: int) -> bool:
        return True

    def runs(self, levels: Levels) -> bool:
        return True

    def blocks(self, block: Tile) -> int:
        """How many blocks of this size there are."""
        return -(-self.gemm.m // block[0]) * -(-self.gemm.n // block[1]) * self.gemm.batch


def _shrunk(layers: _Blocks, levels: Levels, enough: int) -> Iterator[Levels]:
    """Blocks, and their warps, with the next smaller side of least traffic, until there are enough for all (§3.2).

    All on the way are constructed: parts of K give work to cores as well.
    """
    warp, block = levels
    while layers.blocks(block) < enough:
        every = layers.levels[1]
        inside = every[(every[:, :2] <= warp).all(axis=1) & (every[:, 2:] <= block).all(axis=1)]
        smaller = inside[(inside[:, 2:] < block).sum(axis=1) == 1]
        if not len(smaller):
            break
        sides = [tuple(int(size) for size in row[2:]) for row in smaller]
        moved, _ = layers.moved(1, sides)
        # Of blocks that move as much, the one of the largest warps.
        place = min(range(len(sides)), key=lambda p: (moved[p], -smaller[p, :2].prod(), p))
        warp, block = tuple(int(size) for size in smaller[place, :2]), sides[place]
        yield warp, block
