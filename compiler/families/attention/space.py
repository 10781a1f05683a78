"""The spaces of schedules of attention kernels: blocks of queries and keys for single warps and for warpgroups."""

from __future__ import annotations

from tilewright.compiler.families.attention.family import rules, takes_matrices
from tilewright.compiler.families.attention.mma import MmaPlan
from tilewright.compiler.families.attention.problem import AttentionProblem
from tilewright.compiler.families.attention.rules import MOST_GROUPS, MOST_KEYS, sized
from tilewright.compiler.families.attention.wgmma import STEP, tile_of
from tilewright.compiler.families.tile_space import Said, tile_space, up_to
from tilewright.compiler.families.wgmma.tile import WARPGROUP_ROWS
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.space import Space, Value
from tilewright.compiler.targets.target import Target

_ROWS = (16, 32, 48, 64, 96, 128, 192, 256)
_THREADS = (32, 64, 128, 256, 512, 1024)


def space(problem: AttentionProblem, constructed: Schedule, target: Target) -> Space:
    """The schedules of the kernel that `constructed` is one of."""
    said, shape = constructed.gpu or GpuTile(), problem.attention
    own = rules(problem, said, target)
    if said.kernel == "wgmma":
        domains = {
            "block[0]": up_to(shape.rows, range(WARPGROUP_ROWS, WARPGROUP_ROWS * MOST_GROUPS + 1, WARPGROUP_ROWS)),
            "block[1]": range(STEP, MOST_KEYS + 1, STEP),
            "stages": range(2, 7),
        }  # fmt: skip

        def of_warpgroups(sizes: Said) -> dict[str, Value]:
            rows, columns = int(sizes["block[0]"]), int(sizes["block[1]"])
            instruction = f"wgmma.m{WARPGROUP_ROWS}n{columns}k{STEP}"
            return {"threads": tile_of(problem, rows, columns).threads, "instruction": instruction}

        return tile_space(domains, own, constructed, of_warpgroups)
    instructions = [""]
    if takes_matrices(problem, target):
        instructions.append(MmaPlan(problem, 16, 16, 32).gpu.instruction)
    words = {
        "block[0]": up_to(shape.rows, _ROWS),
        "block[1]": up_to(shape.columns, _ROWS),
        "threads": _THREADS,
        "instruction": instructions,
    }

    def of_warps(sizes: Said) -> dict[str, Value]:
        rows, columns, threads = (int(sizes[name]) for name in ("block[0]", "block[1]", "threads"))
        plan = sized(problem, rows, columns, threads, bool(sizes["instruction"]), target)
        return {"stages": plan.slots}

    return tile_space(words, own, constructed, of_warps)
