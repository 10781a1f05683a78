"""The space of schedules of wgmma kernels."""

from __future__ import annotations

from tilewright.compiler.families.contraction.problem import Contraction
from tilewright.compiler.families.tile_space import Said, tile_space, up_to
from tilewright.compiler.families.wgmma.family import rules
from tilewright.compiler.families.wgmma.rules import CLUSTERS, MOST_WARPGROUPS
from tilewright.compiler.families.wgmma.tile import MOST_COLUMNS, WARPGROUP_ROWS, WARPGROUP_THREADS
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.space import Space, Value
from tilewright.compiler.targets.target import Target

_STAGES = range(2, 9)
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
_RASTERS = (*range(1, 17), 32, 64)


def space(problem: Contraction, constructed: Schedule, target: Target) -> Space:
    """The schedules of a contraction's wgmma kernels; the constructed one is among them."""
    said = constructed.gpu or GpuTile()
    columns = sorted({8, 24, *range(16, MOST_COLUMNS + 1, 16)})
    rows = range(WARPGROUP_ROWS, WARPGROUP_ROWS * MOST_WARPGROUPS + 1, WARPGROUP_ROWS)
    domains = {
        "block[0]": up_to(problem.extent("m"), rows),
        "block[1]": up_to(problem.extent("n"), columns),
        "stages": _STAGES,
        "split_k": up_to(-(-problem.extent("k") // said.block[2]), _SPLITS),
        "cluster": CLUSTERS,
        "raster": up_to(-(-problem.extent("m") // WARPGROUP_ROWS), _RASTERS),
    }

    def complete(sizes: Said) -> dict[str, Value]:
        groups = int(sizes["block[0]"]) // WARPGROUP_ROWS
        _, _, shape = said.instruction.partition("k")
        return {
            "threads": (groups + 1) * WARPGROUP_THREADS,
            "warp[1]": sizes["block[1]"],
            "instruction": f"wgmma.m{WARPGROUP_ROWS}n{sizes['block[1]']}k{shape}",
        }

    return tile_space(domains, rules(problem, target.num_cores), constructed, complete)
