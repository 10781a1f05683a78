"""The rules of wgmma kernels: what a complete schedule keeps to, as the emitter and the space read it.

What the sizes of a tile keep to is arithmetic; whether TMA takes boxes of them is asked of the plan, once for each tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from tilewright.compiler.families.contraction.problem import Contraction
from tilewright.compiler.families.tile_space import tile_from
from tilewright.compiler.families.wgmma.maps import NotHopper
from tilewright.compiler.families.wgmma.plan import Plan, column_step, make_plan
from tilewright.compiler.families.wgmma.schedule import TileSchedule
from tilewright.compiler.families.wgmma.tile import (
    MOST_COLUMNS,
    PANEL,
    SHARED_BYTES,
    WARPGROUP_ROWS,
    HopperTile,
)
from tilewright.compiler.nouns.schedule import GpuTile
from tilewright.compiler.nouns.space import Columns, Constraint, by_values, rule

Rules = tuple[Constraint, ...]

MOST_WARPGROUPS = 4
CLUSTERS = (1, 2, 4)
_SIZES = ("block[0]", "block[1]", "stages", "cluster", "split_k", "raster")
UNBOXED = "TMA copies no boxes of a tile of so many columns"


def hopper_tile(said: GpuTile) -> HopperTile:
    """The tile of a schedule's sizes, whether they keep the rules or not."""
    rows, columns = said.block[:2]
    return HopperTile(rows // WARPGROUP_ROWS, columns, said.stages, said.cluster, said.split_k, said.raster)


def tile_rules(type_: str, b_major: str) -> Rules:
    """What the sizes of a tile of factors of this type keep to, whatever is multiplied."""
    most = WARPGROUP_ROWS * MOST_WARPGROUPS
    wide = column_step(type_, MOST_COLUMNS)
    steps = "8" if wide == 8 else f"8 up to 32, and of {wide} beyond"

    def groups(c: Columns) -> np.ndarray:
        return c["block[0]"] // WARPGROUP_ROWS

    def step(c: Columns) -> np.ndarray:
        return np.where(c["block[1]"] > 24, wide, 8)

    return (
        rule(
            "block[0]",
            f"it is a multiple of {WARPGROUP_ROWS} up to {most}",
            lambda c: (c["block[0]"] % WARPGROUP_ROWS != 0) | (c["block[0]"] > most) | (c["block[0]"] < 1),
        ),
        rule(
            "block[1]",
            f"columns of {type_} are 8 to {MOST_COLUMNS} in steps of {steps}",
            lambda c: (c["block[1]"] % step(c) != 0) | (c["block[1]"] > MOST_COLUMNS) | (c["block[1]"] < 8),
        ),
        rule(
            "block[1]",
            f"it is a multiple of {PANEL}, as b is contiguous along n",
            lambda c: (c["block[1]"] % PANEL != 0) & (b_major == "n"),
        ),
        rule(
            "block[1]",
            "so many sums of so many rows take more registers than there are; use fewer columns",
            lambda c: (groups(c) > 2) & (c["block[1]"] // 2 > 256 // groups(c)),
        ),
        rule(
            "cluster",
            f"clusters are of {', '.join(map(str, CLUSTERS))} blocks, which share columns by eights",
            lambda c: ~np.isin(c["cluster"], CLUSTERS) | (c["block[1]"] % (8 * np.maximum(c["cluster"], 1)) != 0),
        ),
        rule("stages", "a pipeline has at least 2 stages", lambda c: c["stages"] < 2),
    )  # fmt: skip


def plan_rules(contraction: Contraction, type_: str, cores: int) -> Rules:
    """What a kernel of this contraction keeps to, for tiles that keep the rules of tiles.

    First that TMA takes it and shared memory holds it, then what is left of the parts and the order of its tiles.
    """

    @cache
    def boxed(rows: int, columns: int, cluster: int) -> Plan | None:
        try:
            return make_plan(contraction, HopperTile(rows // WARPGROUP_ROWS, columns, 2, cluster), type_)
        except NotHopper:
            return None

    def of_plans(function: Callable[[Plan], int]) -> Callable[[Columns], np.ndarray]:
        def of_sizes(*sizes: int) -> int:
            tile = hopper_tile(tile_from(dict(zip(_SIZES, sizes))))
            found = boxed(tile.rows, tile.columns, tile.cluster)
            return 0 if found is None else function(replace(found, tile=tile))

        return lambda c: by_values(of_sizes, *(c[name] for name in _SIZES))

    suits = of_plans(lambda plan: 1)
    bytes_ = of_plans(lambda plan: plan.tile.shared_bytes(plan.panels))
    parts, rows = of_plans(lambda plan: effective_split(plan, cores)), of_plans(most_raster)
    return (
        rule("block[1]", UNBOXED, lambda c: suits(c) == 0),
        rule(
            "stages",
            f"they need more than the {SHARED_BYTES:,} B of shared memory of a block; use fewer",
            lambda c: bytes_(c) > SHARED_BYTES,
        ),
        rule("split_k", "tiles of the last wave come in fewer parts", lambda c: c["split_k"] != parts(c)),
        rule("raster", "there are fewer rows of blocks to walk", lambda c: c["raster"] > rows(c)),
    )


def effective_split(plan: Plan, cores: int) -> int:
    """Parts of K that a kernel has: no more than steps of K, and 1 where whole tiles fill all waves."""
    schedule = TileSchedule(plan, cores)
    return schedule.split if schedule.divided else 1


def most_raster(plan: Plan) -> int:
    """Rows of blocks that can be walked column by column: 1 where there is one column."""
    return plan.row_blocks if plan.columns.total > 1 else 1
