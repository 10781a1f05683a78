"""Lowers any dispatch to a GPU kernel: every operation of an rTask is done by the threads of one block, one after the other.

    dispatch -> rTasks -> buffers -> loops dealt out to threads, with barriers -> gpu.func

Temporaries lie in shared memory where they fit, else in a workspace.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.compiler import debug
from tilewright.compiler.analysis.sink import sink_of
from tilewright.compiler.analysis.structure import Structured, tileable_loops
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.kernel_form import kernel_of
from tilewright.compiler.errors import ScheduleError, TilewrightError
from tilewright.compiler.families.contract import require
from tilewright.compiler.families.tile_space import refuse_broken, whole_warps
from tilewright.compiler.ir import functions, ir, parse
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.targets.target import Target


@dataclass(frozen=True, eq=False)
class Prepared:
    """A copy of a dispatch, in a module of its own, in which every operation can be cut or distributed."""

    module: ir.Module
    function: ir.Operation


def match(function: ir.Operation, target: Target) -> Prepared:
    """Any dispatch; raises TilewrightError for what cannot be prepared."""
    module = _prepared(function)
    (prepared,) = functions(module)
    return Prepared(module, prepared)


def emit(problem: Prepared, schedule: Schedule, target: Target) -> ir.Module:
    """The dispatch as gpu-level IR, cut as a complete schedule says.

    Raises ScheduleError for a number of threads that no block has, and for a tile that it cannot be cut by.
    """
    said = schedule.gpu or GpuTile()
    require(said, "kernel", "threads")
    refuse_broken(THREADS, said, "fallback")
    try:
        module = cut(problem, schedule.tile)
    except TilewrightError as reason:
        raise ScheduleError(f"fallback: tile is {list(schedule.tile)}: {UNCUT}: {reason}") from None
    run_pipeline(module.operation, kernels(said.threads, target.level("shared").capacity_bytes // 2))
    made = Schedule(schedule.tile, gpu=GpuTile("fallback", said.threads))
    schedule_attribute.write(kernel_of(module), made)
    return module


def _prepared(function: ir.Operation) -> ir.Module:
    """A module with a clone of the dispatch, in which every operation is one that can be cut or distributed."""
    module = parse("module {}")
    clone = function.clone().operation
    module.body.append(clone)
    run_pipeline(
        module.operation,
        "builtin.module(fill-splats,number-lines,"
        "func.func(expand-attention,refback-generalize-tensor-pad,refback-generalize-tensor-concat))",
    )
    return module


THREADS = whole_warps("threads", lambda c: c["threads"])
"""The rules of a block's threads."""
UNCUT = "it cannot be cut so"

TASKS = """builtin.module(
        apply-schedule,canonicalize,cse,
        form-kernels,eliminate-empty-tensors,
        func.func(tm-tensor-bufferize,restrict-tensors),
        one-shot-bufferize{allow-unknown-ops=false},
        canonicalize,cse,
        func.func(map-tasks))""".replace("\n", "").replace(" ", "")
"""The passes from a prepared dispatch on tensors to rTasks on buffers."""


def kernels(threads: int, shared_bytes: int) -> str:
    """The passes from rTasks on buffers to gpu-level IR."""
    return f"""builtin.module(
        func.func(
            canonicalize,cse,
            refback-munge-memref-copy,linalg-generalize-named-ops,
            distribute-loops{{threads={threads}}},
            report-asserts,
            place-temporaries{{shared-bytes={shared_bytes}}}),
        form-gpu-kernels{{threads={threads}}},
        canonicalize,cse)""".replace("\n", "").replace("        ", "")


def cut(problem: Prepared, tile: tuple[int, ...]) -> ir.Module:
    """A copy of the dispatch in rTasks of this tile, on buffers; raises TilewrightError where it cannot be cut so."""
    module = parse("module {}")
    clone = problem.function.clone().operation
    module.body.append(clone)
    decided = schedule_attribute.read(clone) or Schedule()
    schedule_attribute.write(clone, replace(decided, tile=tile, levels=()))
    run_pipeline(module.operation, TASKS)
    return module


def can_be_cut(problem: Prepared, tile: tuple[int, ...]) -> bool:
    """Whether the dispatch can be cut into rTasks of this tile; the debug log says why not."""
    try:
        cut(problem, tile)
    except TilewrightError as error:
        debug.log(1, f"{problem.function.attributes['sym_name']} is not cut by {list(tile)}: {error}")
        return False
    return True


def loops_of(function: ir.Operation) -> tuple[tuple[int, ...], list[int]]:
    """Extents of the sink's loops, and those of the loops along which every operation can be cut."""
    sink = sink_of(function)
    structured = None if sink is None else Structured.read(sink)
    if structured is None:
        return (), []
    loops = tileable_loops(structured, group_of(function))
    return tuple(structured.extents), [i for i in loops if structured.extents[i] > 1]


def group_of(function: ir.Operation) -> list[Structured]:
    """The structured operations of a dispatch."""
    operations = function.regions[0].blocks[0].operations
    return [s for view in operations if (s := Structured.read(view.operation)) is not None]
