"""Lowers any dispatch to a GPU kernel: every operation of an rTask is done by the threads of one block, one after the other.

    dispatch -> rTasks -> buffers -> loops dealt out to threads, with barriers -> gpu.func

Temporaries lie in shared memory where they fit, else in a workspace. Where no schedule says how to cut the dispatch,
the loops along which every operation can be cut are, until there are enough blocks for the whole device.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.compiler import debug
from tilewright.compiler.analysis.sink import Loops, sink_of
from tilewright.compiler.analysis.structure import Structured, tileable_loops
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.kernel_form import kernel_of
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.targets.target import Target

_BLOCKS_PER_CORE = 4
"""How many rTasks there should be per multiprocessor, so that those that end early leave none idle for long."""


def emit(function: ir.Operation, schedule: Schedule | None, target: Target) -> ir.Module:
    """The dispatch as gpu-level IR, cut as a schedule of this family says.

    One of another family may look at the dispatch differently: where it cannot be cut so, it is cut in another way, or
    stays whole. Raises TilewrightError for what cannot be lowered, or not as it is said.
    """
    module = _prepared(function)
    (prepared,) = functions(module)
    given = schedule.gpu if schedule is not None and schedule.gpu is not None else GpuTile()
    if schedule is not None and given.kernel == "fallback":
        threads = given.threads or choose_threads(prepared, schedule.tile, target)
        return _lower(prepared, schedule.tile, threads, target)
    tiles = [choose_tile(prepared, target), ()]
    if schedule is not None and any(schedule.tile):
        tiles.insert(0, schedule.tile)
    for number, tile in enumerate(tiles):
        try:
            return _lower(prepared, tile, given.threads or choose_threads(prepared, tile, target), target)
        except TilewrightError as error:
            if number == len(tiles) - 1:
                raise
            debug.log(1, f"{function.attributes['sym_name']} is not cut by {list(tile)}: {error}")
    raise AssertionError("the last attempt returns or raises")


def match(function: ir.Operation, target: Target) -> ir.Operation:
    """The dispatch; whether the family takes it is known when it is written."""
    return function


def _prepared(function: ir.Operation) -> ir.Module:
    """A module with a clone of the dispatch, in which every operation is one that can be cut or distributed."""
    module = parse("module {}")
    clone = function.clone().operation
    module.body.append(clone)
    run_pipeline(
        module.operation,
        "builtin.module(fill-splats,"
        "func.func(expand-attention,refback-generalize-tensor-pad,refback-generalize-tensor-concat))",
    )
    return module


def pipeline(threads: int, shared_bytes: int) -> str:
    """The passes from a prepared dispatch on tensors to gpu-level IR."""
    return f"""builtin.module(
        apply-schedule,canonicalize,cse,
        form-kernels,eliminate-empty-tensors,
        func.func(tm-tensor-bufferize,restrict-tensors),
        one-shot-bufferize{{allow-unknown-ops=false}},
        canonicalize,cse,
        func.func(
            map-tasks,canonicalize,cse,
            refback-munge-memref-copy,linalg-generalize-named-ops,
            distribute-loops{{threads={threads}}},
            report-asserts,
            place-temporaries{{shared-bytes={shared_bytes}}}),
        form-gpu-kernels{{threads={threads}}},
        canonicalize,cse)""".replace("\n", "").replace("        ", "")


def _lower(prepared: ir.Operation, tile: tuple[int, ...], threads: int, target: Target) -> ir.Module:
    module = parse("module {}")
    clone = prepared.clone().operation
    module.body.append(clone)
    decided = schedule_attribute.read(clone) or Schedule()
    schedule_attribute.write(clone, replace(decided, tile=tile, levels=()))
    run_pipeline(module.operation, pipeline(threads, target.level("shared").capacity_bytes // 2))
    schedule_attribute.write(kernel_of(module), Schedule(tile, gpu=GpuTile("fallback", threads)))
    return module


def choose_tile(function: ir.Operation, target: Target) -> tuple[int, ...]:
    """A tile of the sink's loops that gives every multiprocessor a few rTasks; () where nothing can be cut."""
    sink = sink_of(function)
    structured = None if sink is None else Structured.read(sink)
    if sink is None or structured is None:
        return ()
    group = _group(function)
    loops = [i for i in tileable_loops(structured, group) if structured.extents[i] > 1]
    work = max(s.points for s in group)
    wanted = min(_BLOCKS_PER_CORE * target.num_cores, max(1, work // target.warp_size))
    tile, tasks = [0] * len(structured.extents), 1
    for loop in loops:
        needed = -(-wanted // tasks)
        if needed <= 1:
            break
        extent = structured.extents[loop]
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


def _group(function: ir.Operation) -> list[Structured]:
    operations = function.regions[0].blocks[0].operations
    return [s for view in operations if (s := Structured.read(view.operation)) is not None]
