"""What a launch may ask of a GPU, checked on the kernel before anything is compiled."""

from __future__ import annotations

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.gpu.launch import launch_of
from tilewright.compiler.ir import ir
from tilewright.compiler.targets.occupancy import resident_blocks
from tilewright.compiler.targets.target import Target
from tilewright.runtime.program import Launch

MOST_BLOCKS = (1 << 31) - 1
PORTABLE_CLUSTER = 8
"""Blocks that every GPU with clusters holds in one. Source: CUDA programming guide, "Thread Block Clusters"."""
_FEWEST_REGISTERS = 16
"""Registers per thread that any kernel takes: what residency is checked with before an assembler has counted."""


def check_limits(kernel: ir.Operation, target: Target) -> None:
    """Raises ScheduleError unless `target` can start the kernel: threads, blocks, clusters, shared memory, residency."""
    problem = broken_limit(target, launch_of(kernel))
    if problem:
        name = ir.StringAttr(kernel.attributes["sym_name"]).value
        raise ScheduleError(f"@{name} on {target.name}: {problem}", kernel.location)


def broken_limit(target: Target, launch: Launch) -> str:
    """The first limit that a launch breaks, with what was found and a remedy; empty when there is none."""
    threads, grid, cluster = launch.block, launch.grid, launch.cluster
    shared, capacity = launch.shared_bytes, target.level("shared").capacity_bytes
    most = target.block_threads or 1024
    if threads % 32 or not 32 <= threads <= most:
        return f"a block has {threads} threads, the rule is a multiple of 32 up to {most}; change `threads`"
    if not 1 <= grid <= MOST_BLOCKS:
        return f"a grid has {grid:,} blocks, the rule is 1 to {MOST_BLOCKS:,}; use larger tiles"
    if shared > capacity:
        return f"a block takes {shared:,} B of shared memory, the limit is {capacity:,} B; use fewer stages"
    if cluster > 1 and not target.arch.startswith(("sm_9", "sm_1")):
        return f"clusters of {cluster} blocks need sm_90, the target is {target.arch}; use cluster 1"
    if cluster > PORTABLE_CLUSTER or grid % cluster:
        return f"{grid:,} blocks in clusters of {cluster}, the rule is a divisor up to {PORTABLE_CLUSTER}; use cluster 1"
    resident = int(resident_blocks(target, threads, _FEWEST_REGISTERS, shared)) * target.num_cores
    if launch.cooperative and grid > resident:
        return f"{grid:,} cooperating blocks, {resident:,} fit at once; use a grid of at most that"
    return ""
