"""Reductions along rows and columns with all that surrounds them: softmax, norms, statistics, means, greatest elements.

A dispatch of this family reads every element once, keeps it in registers while the row is reduced, exchanges partial
results by shuffles and shared memory, and writes what it computes from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.compiler.analysis.placement import buffer_types
from tilewright.compiler.families.contract import require
from tilewright.compiler.families.rows import scans, sorts
from tilewright.compiler.families.rows.access import Access
from tilewright.compiler.families.rows.bodies import checks
from tilewright.compiler.families.rows.kernel import Order, RowKernel, written_map
from tilewright.compiler.families.rows.layout import RowShape, layout_of
from tilewright.compiler.families.rows.problem import NotRows, RowProblem, read_rows, stripped
from tilewright.compiler.families.rows.scans import ScanProblem
from tilewright.compiler.families.rows.sorts import SortProblem
from tilewright.compiler.families.rows.split import counter_bytes, row_blocks, workspace_bytes
from tilewright.compiler.gpu.alignment import buffer_alignments
from tilewright.compiler.gpu.builder import kernel
from tilewright.compiler.gpu.launch import ALONE, GRID
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.target import Target


@dataclass(frozen=True, eq=False)
class RowDispatch:
    """A dispatch along rows: what it computes, its buffers, and for reductions how they lie in memory.

    `vector` is how many neighbours of a row a scan accesses at once at most, 0 where it has a thread for every row.
    """

    function: ir.Operation
    problem: RowProblem | SortProblem | ScanProblem
    types: list[ir.MemRefType]
    shape: RowShape | None = None
    order: Order | None = None
    vector: int = 0

    @property
    def name(self) -> str:
        return ir.StringAttr(self.function.attributes["sym_name"]).value


def match(function: ir.Operation, target: Target) -> RowDispatch:
    """The rows that a dispatch computes, sorts or scans; raises NotRows where it does none of these."""
    types = buffer_types(function)
    try:
        problem = read_rows(function)
    except NotRows:
        sort, scan = sorts.read_sort(function), scans.read_scan(function)
        if sort is not None:
            return RowDispatch(function, sort, types)
        if scan is not None:
            return RowDispatch(function, scan, types, vector=scans.widest(function, scan, types))
        raise
    return RowDispatch(function, problem, types, *shape_of(problem, types))


def emit(rows: RowDispatch, schedule: Schedule, target: Target) -> ir.Module:
    """The kernel that a complete schedule describes; raises ScheduleError for one that no kernel has."""
    said, problem, types = schedule.gpu or GpuTile(), rows.problem, rows.types
    require(said, "kernel", "threads")
    if isinstance(problem, SortProblem):
        return sorts.emit(rows.name, problem, types, said, target)
    if isinstance(problem, ScanProblem):
        return scans.emit(rows.name, problem, types, said, rows.vector)
    assert rows.shape is not None and rows.order is not None
    layout = layout_of(rows.shape, said, target.num_cores)
    with kernel(
        rows.name,
        types,
        rtasks=row_blocks(problem, layout) * layout.split,
        block=layout.threads,
        workspace_bytes=workspace_bytes(problem, layout),
        zeroed_bytes=counter_bytes(problem, layout),
        gang=GRID if layout.waits else ALONE,
        asserts=checks(rows.function),
        points=problem.num_rows * problem.num_columns,
        made=layout.gpu,
    ) as made:
        RowKernel(problem, layout, rows.order, made).write()
    return made.module


def shape_of(problem: RowProblem, types: list[ir.MemRefType]) -> tuple[RowShape, Order]:
    """What a layout follows from, and the order of axes: as the largest operand, or else result, lies in memory."""
    reads, writes = accesses_of(problem, types)
    main = max(reads or writes, key=lambda access: volume(problem, access))
    strides = main.strides() or {}
    far = max(map(abs, strides.values()), default=0) + 1

    def by_stride(axes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(axes, key=lambda axis: -abs(strides.get(axis, 0) or far)))

    order = Order(by_stride(problem.rows), by_stride(problem.columns))
    near = [(abs(stride), axis) for axis, stride in strides.items() if axis >= 0 and stride]
    contiguous = not near or min(near)[1] in problem.columns
    fast = order.columns[-1] if contiguous else order.rows[-1]
    found = [a for a in (*reads, *writes) if fast in a.depends()]
    vector = max((a.vector(fast, problem.extents[fast]) for a in found), default=1)
    widest = max(a.bytes for a in (*reads, *writes))
    shape = RowShape(
        problem.num_rows, problem.num_columns, contiguous, vector, max(4, widest), problem.splittable
    )
    return shape, order


def accesses_of(problem: RowProblem, types: list[ir.MemRefType]) -> tuple[list[Access], list[Access]]:
    """Every access of the dispatch to its arguments, and to its results."""
    arguments = list(problem.function.regions[0].blocks[0].arguments)
    alignments = buffer_alignments(problem.function)
    reads, writes = [], []
    for step in problem.steps:
        for operand, map_ in zip(step.op.operands, step.generic.maps):
            if operand in arguments:
                number = arguments.index(operand)
                reads.append(Access(types[number], map_, step.axes, alignments[number]))
    for number, value in enumerate(problem.results, len(arguments)):
        step = problem.step_of(stripped(value))
        assert step is not None
        writes.append(Access(types[number], written_map(value, step), step.axes, alignments[number]))
    return reads, writes


def volume(problem: RowProblem, access: Access) -> int:
    """Elements that an access goes over."""
    return math.prod(problem.extents[axis] for axis in access.depends())
