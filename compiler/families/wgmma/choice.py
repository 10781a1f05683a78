"""Chooses the tile of a wgmma kernel where the schedule leaves it open: the one that should take the fewest cycles.

per stage: the longest of wgmma's arithmetic, its reads of shared memory, and the loads through L2
per tile:  stages + filling the pipeline + writing results;  in all: waves of tiles, the last one perhaps divided
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from tilewright.compiler.families.contraction.problem import Contraction
from tilewright.compiler.families.tile_space import broken_rules
from tilewright.compiler.families.wgmma.family import operand_type, sized
from tilewright.compiler.families.wgmma.maps import NotHopper
from tilewright.compiler.families.wgmma.plan import (
    STORED_COLUMNS,
    column_step,
    majors,
    make_plan,
    staged_panels,
)
from tilewright.compiler.families.wgmma.rules import effective_split, most_raster, tile_rules
from tilewright.compiler.families.wgmma.schedule import TileSchedule
from tilewright.compiler.families.wgmma.tile import (
    ITEM_BYTES,
    PANEL,
    ROW_BYTES,
    WARPGROUP_ROWS,
    HopperTile,
)
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.space import KEPT
from tilewright.compiler.targets.target import Target

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


FEWEST_ROWS = 16
"""Products of fewer rows read the second factor once and hardly use tensor cores: left to others by default."""
LEAST_USE = 0.25
"""By default, at least so much of what the tensor cores do must be wanted."""


def complete(contraction: Contraction, request: Schedule, target: Target) -> Schedule:
    """The schedule of a wgmma kernel, every field of it.

    Raises ScheduleError for sizes that no kernel has; NotHopper for f32 that the request does not have rounded to tf32, for
    what TMA takes in no tile, and where the request names no kernel and much of what tensor cores do would be wasted.
    """
    said = request.gpu or GpuTile()
    type_ = operand_type(contraction)
    if type_ == "tf32" and "tf32" not in said.instruction:
        raise NotHopper("f32 is rounded to tf32 only when the schedule asks for it")
    if said.kernel != "wgmma" and contraction.extent("m") < FEWEST_ROWS:
        raise NotHopper(f"{contraction.extent('m')} rows")
    _, b_major, _ = majors(contraction, type_)
    chosen = None
    if said.kernel != "wgmma" or not said.block:
        chosen = choose(contraction, type_, b_major, target.num_cores)
    if said.kernel != "wgmma" and chosen and (use := share_of_use(contraction, chosen, type_)) < LEAST_USE:
        raise NotHopper(f"{use:.0%} of what the tensor cores would do is wanted")
    made = sized(contraction, filled(contraction, said, chosen), target.num_cores)
    # There may be fewer parts of K, or rows of blocks, than were wanted.
    split = effective_split(made, target.num_cores)
    tile = replace(made.tile, split=split, raster=min(made.tile.raster, most_raster(made)))
    return Schedule(gpu=replace(made, tile=tile).gpu)


def filled(contraction: Contraction, said: GpuTile, chosen: HopperTile | None) -> GpuTile:
    """The sizes that a schedule says, and `chosen`, or what needs no choice, for those that it leaves open."""
    depth = ROW_BYTES // ITEM_BYTES[operand_type(contraction)]
    tile = chosen or HopperTile(1, 64, 2)
    block = said.block or (tile.rows, tile.columns, depth)
    if said.block:
        tile = HopperTile(-(-block[0] // WARPGROUP_ROWS), block[1] if len(block) > 1 else 64, 2)
        block = (*block, depth) if len(block) == 2 else block
    most = tile.most_stages(_panels(tile.columns))
    return replace(
        said,
        block=block,
        stages=said.stages or most,
        cluster=said.cluster or tile.cluster,
        split_k=said.split_k or tile.split,
        raster=said.raster or tile.raster,
    )


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


def _candidates(contraction: Contraction, type_: str, b_major: str) -> list[HopperTile]:
    """Tiles that keep the rules of tiles, with as many stages as shared memory holds."""
    tiles = list(_proposed(contraction, type_, b_major))
    sizes = [GpuTile("wgmma", block=(t.rows, t.columns), stages=t.stages, cluster=t.cluster) for t in tiles]
    broken = broken_rules(tile_rules(type_, b_major), sizes)
    return [tile for tile, rule in zip(tiles, broken) if rule == KEPT]


def _proposed(contraction: Contraction, type_: str, b_major: str) -> Iterator[HopperTile]:
    """Tiles near the shapes that are tried, whether they keep the rules or not."""
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
                yield replace(tile, stages=tile.most_stages(_panels(columns)))


def _panels(columns: int) -> int:
    """Panels that may have to be staged, whether or not they are."""
    return staged_panels(columns) if columns % STORED_COLUMNS == 0 else 0


def cycles(contraction: Contraction, tile: HopperTile, type_: str, cores: int) -> float:
    """Expected cycles of the whole kernel; raises NotHopper where the tile does not suit the contraction."""
    found = make_plan(contraction, tile, type_)
    schedule = TileSchedule(found, cores)
    steps, item = found.depths.total, ITEM_BYTES[type_]
    depth = found.depth * found.k_steps / 4
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
    found = make_plan(contraction, tile, type_)
    tiles = found.tiles * tile.cluster * tile.rows * tile.columns
    return contraction.flops / 2 / (tiles * found.depths.total * found.depth * found.k_steps / 4)
