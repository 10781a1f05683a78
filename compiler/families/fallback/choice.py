"""Chooses how any dispatch is cut into rTasks for blocks of threads, where a schedule leaves that open.

The loops along which every operation can be cut are, until there are enough blocks for the whole device.
"""

from __future__ import annotations

import math

from tilewright.compiler.analysis.sink import Loops, sink_of
from tilewright.compiler.families.fallback.family import Prepared, can_be_cut, group_of, loops_of
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.target import Target

_BLOCKS_PER_CORE = 4
"""How many rTasks there should be per multiprocessor, so that those that end early leave none idle for long."""


def complete(problem: Prepared, request: Schedule, target: Target) -> Schedule:
    """The schedule of the kernel for a dispatch, every field of it.

    A request of another family's kernel may look at the dispatch differently: where it cannot be cut so, it is cut in
    another way, or stays whole.
    """
    said, tile = request.gpu or GpuTile(), request.tile
    if said.kernel != "fallback":
        tiles = [request.tile if any(request.tile) else (), choose_tile(problem.function, target)]
        tile = next((own for own in tiles if any(own) and can_be_cut(problem, own)), ())
    threads = said.threads or choose_threads(problem.function, tile, target)
    return Schedule(tile, gpu=GpuTile("fallback", threads))


def choose_tile(function: ir.Operation, target: Target) -> tuple[int, ...]:
    """A tile of the sink's loops that gives every multiprocessor a few rTasks; () where nothing can be cut."""
    extents, loops = loops_of(function)
    if not loops:
        return ()
    work = max(s.points for s in group_of(function))
    wanted = min(_BLOCKS_PER_CORE * target.num_cores, max(1, work // target.warp_size))
    tile, tasks = [0] * len(extents), 1
    for loop in loops:
        needed = -(-wanted // tasks)
        if needed <= 1:
            break
        extent = extents[loop]
        parts = next(d for d in range(min(needed, extent), extent + 1) if extent % d == 0)
        tile[loop] = extent // parts
        tasks *= parts
    return tuple(tile) if tasks > 1 else ()


def choose_threads(function: ir.Operation, tile: tuple[int, ...], target: Target) -> int:
    """As many threads as an rTask has points to compute at once, within limits; more where there are few rTasks."""
    sink = sink_of(function)
    tasks = 1
    if sink is not None and any(tile):
        extents = Loops.of(sink).extents
        tasks = math.prod(-(-extent // size) for size, extent in zip(tile, extents) if size)
    shapes = [
        ir.ShapedType(value.type).shape
        for view in function.regions[0].blocks[0].operations
        for value in view.operation.results
        if isinstance(value.type, ir.RankedTensorType) and ir.ShapedType(value.type).has_static_shape
    ]
    points = max((math.prod(shape) for shape in shapes), default=1) // tasks
    most = 1024 if tasks < target.num_cores else 256
    return min(most, max(target.warp_size, 1 << max(0, points - 1).bit_length()))
