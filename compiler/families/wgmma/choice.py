"""Chooses the tile of a wgmma kernel where the schedule leaves it open: the one that should take the fewest cycles.

per stage: the longest of wgmma's arithmetic, its reads of shared memory, and the loads through L2
per tile:  stages + filling the pipeline + writing results;  in all: waves of tiles, the last one perhaps divided
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tilewright.compiler.families.contraction.problem import Contraction
from tilewright.compiler.families.wgmma.maps import NotHopper
from tilewright.compiler.families.wgmma.plan import (
    STORED_COLUMNS,
    column_step,
    make_plan,
    staged_panels,
)
from tilewright.compiler.families.wgmma.schedule import TileSchedule
from tilewright.compiler.families.wgmma.tile import (
    ITEM_BYTES,
    PANEL,
    WARPGROUP_ROWS,
    HopperTile,
)
from tilewright.compiler.nouns.schedule import GpuTile

FMA_BYTES = 4096
"""Multiply-adds per cycle and multiprocessor times bytes of an element: 2,048 of f16. Source: H100 whitepaper V1.04,
989.4 TFLOP/s dense on 132 of them at 1.83 GHz."""
SHARED_BYTES_PER_CYCLE = 128
"""32 banks of 4 bytes. Source: CUDA C++ Programming Guide."""
L2_BYTES_PER_CYCLE = 39
"""Of one multiprocessor: 5,120 B for all 132, as the h100 preset has it."""
TILE_CYCLES = 2000
"""Filling the pipeline and starting to store: three latencies of memory of about 600 cycles. An estimate."""
PART_CYCLES = 3000
"""Telling other parts that sums are in memory, and reading theirs: fences and atomics through L2. An estimate."""
STEP_CYCLES = 40
"""Barriers of one stage. An estimate."""

_SHAPES = ((2, 256), (2, 192), (2, 128), (3, 128), (4, 128), (2, 64), (1, 256), (1, 192), (1, 128), (1, 64))
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)


def tile_of(gpu: GpuTile, open_tile: HopperTile) -> HopperTile:
    """What a schedule says, with `open_tile` for what it leaves open."""
    tile = open_tile
    if gpu.block:
        tile = replace(
            tile, warpgroups=-(-gpu.block[0] // WARPGROUP_ROWS), columns=gpu.block[1], cluster=1, split=1
        )
    if gpu.cluster:
        tile = replace(tile, cluster=gpu.cluster)
    if gpu.split_k:
        tile = replace(tile, split=gpu.split_k)
    if gpu.raster:
        tile = replace(tile, raster=gpu.raster)
    panels = _panels(tile.columns)
    return replace(tile, stages=gpu.stages or tile.most_stages(panels))


def choose(contraction: Contraction, type_: str, b_major: str, cores: int) -> HopperTile:
    """The tile with the fewest expected cycles; the first of `_SHAPES` among equals. Raises NotHopper for none."""
    best: tuple[float, HopperTile] | None = None
    reason = "no tile suits it"
    for tile in _candidates(contraction, type_, b_major):
        try:
            found = cycles(contraction, tile, type_, cores)
        except NotHopper as error:
            reason = str(error)
            continue
        if best is None or found < best[0]:
            best = (found, tile)
    if best is None:
        raise NotHopper(reason)
    return best[1]


def _candidates(contraction: Contraction, type_: str, b_major: str) -> Iterator[HopperTile]:
    step = column_step(type_, contraction.extent("n")) if b_major == "k" else PANEL
    wanted = -(-contraction.extent("n") // step) * step
    for warpgroups, columns in _SHAPES:
        if warpgroups > 1 and contraction.extent("m") <= WARPGROUP_ROWS * (warpgroups - 1):
            continue
        if columns >= 2 * wanted or columns - wanted >= PANEL:
            columns = wanted
        for cluster in (1, 2):
            if cluster > 1 and contraction.extent("m") <= WARPGROUP_ROWS * warpgroups:
                continue
            for split in _SPLITS:
                tile = HopperTile(warpgroups, columns, 2, cluster, split)
                tile = replace(tile, stages=tile.most_stages(_panels(columns)))
                if tile.broken_rule(b_major, _panels(columns)) is None:
                    yield tile


def _panels(columns: int) -> int:
    """Panels that may have to be staged, whether or not they are."""
    return staged_panels(columns) if columns % STORED_COLUMNS == 0 else 0


def cycles(contraction: Contraction, tile: HopperTile, type_: str, cores: int) -> float:
    """Expected cycles of the whole kernel; raises NotHopper where the tile does not suit the contraction."""
    plan = make_plan(contraction, tile, type_)
    schedule = TileSchedule(plan, cores)
    steps, item = plan.depths.total, ITEM_BYTES[type_]
    depth = plan.depth * plan.k_steps / 4
    multiply = tile.rows * tile.columns * depth * item / FMA_BYTES
    read = tile.warpgroups * (WARPGROUP_ROWS + tile.columns) * depth * item / SHARED_BYTES_PER_CYCLE
    load = (tile.rows + tile.columns / tile.cluster) * depth * item / L2_BYTES_PER_CYCLE
    step = max(multiply, read, load) + STEP_CYCLES
    results = tile.rows * tile.columns
    write = results * 4 / L2_BYTES_PER_CYCLE
    room = max(1, cores // tile.cluster)
    whole = steps * step + TILE_CYCLES + write
    total = math.ceil(schedule.whole / room) * whole
    if schedule.divided:
        waves = math.ceil(schedule.divided * schedule.split / room)
        part = math.ceil(steps / schedule.split) * step + TILE_CYCLES + PART_CYCLES + write
        total += waves * (part + 4 * results / L2_BYTES_PER_CYCLE) + write * schedule.split
    return total


def share_of_use(contraction: Contraction, tile: HopperTile, type_: str) -> float:
    """Multiply-adds that are wanted, of those that the tiles do."""
    plan = make_plan(contraction, tile, type_)
    tiles = plan.tiles * tile.cluster * tile.rows * tile.columns
    return contraction.flops / 2 / (tiles * plan.depths.total * plan.depth * plan.k_steps / 4)
