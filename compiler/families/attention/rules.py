"""The rules of attention kernels: what a complete schedule of each keeps to, as the emitter and the space read it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.compiler.families.attention.mma import MmaPlan
from tilewright.compiler.families.attention.problem import AttentionProblem
from tilewright.compiler.families.attention.simt import LANES, SimtPlan, SimtTile
from tilewright.compiler.families.attention.wgmma import STEP, WgmmaTile, tile_of
from tilewright.compiler.families.tile_space import whole_warps
from tilewright.compiler.families.wgmma.tile import SHARED_BYTES, WARPGROUP_ROWS
from tilewright.compiler.nouns.space import Columns, Constraint, by_values, rule
from tilewright.compiler.targets.occupancy import register_limit, shared_limit
from tilewright.compiler.targets.target import Target

Rules = tuple[Constraint, ...]
UNIT = 16
"""Queries and keys of a block are multiples of this: what one instruction, or one row of lanes, has."""
MOST_GROUPS, MOST_KEYS = 3, 256


def sized(
    problem: AttentionProblem, rows: int, columns: int, threads: int, matrices: bool, target: Target
) -> MmaPlan | SimtPlan:
    """The plan of these sizes, whether they keep the rules or not."""
    if matrices:
        return MmaPlan(problem, rows, columns, threads)
    return SimtPlan(problem, SimtTile(rows, columns, threads, target.compute_capability >= 80))


def warp_rules(problem: AttentionProblem, target: Target) -> Rules:
    """What kernels of single warps keep to, on matrix instructions where `instruction` says one."""

    def of_plans(function: Callable[[MmaPlan | SimtPlan], int]) -> Callable[[Columns], np.ndarray]:
        def of_sizes(rows: int, columns: int, threads: int, matrices: int) -> int:
            return function(sized(problem, rows, columns, threads, bool(matrices), target))

        return lambda c: by_values(
            of_sizes, c["block[0]"], c["block[1]"], c["threads"], c["instruction"] != ""
        )

    def share(c: Columns) -> np.ndarray:
        """Queries that are divided among a block's threads, at least."""
        return c["threads"] // np.where(c["instruction"] != "", 2, LANES)

    shared, registers = of_plans(lambda plan: plan.shared_bytes), of_plans(lambda plan: plan.registers)
    room = shared_limit(target)
    return (
        *(
            rule(f"block[{i}]", f"it is a multiple of {UNIT}", lambda c, i=i: c[f"block[{i}]"] % UNIT != 0)
            for i in (0, 1)
        ),
        *whole_warps("threads", lambda c: c["threads"]),
        rule("threads", "they do not divide the queries evenly", lambda c: c["block[0]"] % share(c) != 0),
        rule(
            "block[1]",
            f"with so many queries, it does not fit {room:,} B of shared memory; use smaller blocks",
            lambda c: shared(c) > room,
        ),
        rule(
            "block[1]",
            "with so many queries, it does not fit the registers of so many threads; use smaller blocks",
            lambda c: registers(c) > by_values(lambda n: register_limit(target, n), c["threads"]),
        ),
    )  # fmt: skip


def warpgroup_rules(problem: AttentionProblem) -> Rules:
    """What kernels of warpgroups keep to."""

    def of_tiles(function: Callable[[WgmmaTile], int]) -> Callable[[Columns], np.ndarray]:
        return lambda c: by_values(
            lambda *sizes: function(tile_of(problem, *sizes)), c["block[0]"], c["block[1]"], c["stages"]
        )

    excess = of_tiles(lambda tile: tile.held_registers - (tile.registers[1] if tile.registers else 240))
    bytes_ = of_tiles(lambda tile: tile.shared_bytes)
    most = WARPGROUP_ROWS * MOST_GROUPS
    return (
        rule(
            "block[0]",
            f"queries are multiples of {WARPGROUP_ROWS} up to {most}",
            lambda c: (c["block[0]"] % WARPGROUP_ROWS != 0) | (c["block[0]"] < 1) | (c["block[0]"] > most),
        ),
        rule(
            "block[1]",
            f"keys are {STEP} to {MOST_KEYS} in steps of {STEP}",
            lambda c: (c["block[1]"] % STEP != 0) | (c["block[1]"] < 1) | (c["block[1]"] > MOST_KEYS),
        ),
        rule("stages", "a pipeline has at least 2 stages", lambda c: c["stages"] < 2),
        rule(
            "block[1]",
            "scores of so many keys take more registers than a thread has; use fewer",
            lambda c: excess(c) > 0,
        ),
        rule(
            "stages",
            f"they need more than the {SHARED_BYTES:,} B of shared memory of a block; use fewer, or fewer keys",
            lambda c: bytes_(c) > SHARED_BYTES,
        ),
    )
