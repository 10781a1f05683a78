"""Reductions along rows and columns with all that surrounds them: softmax, norms, statistics, means, greatest elements.

A dispatch of this family reads every element once, keeps it in registers while the row is reduced, exchanges partial
results by shuffles and shared memory, and writes what it computes from them.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tilewright.compiler.analysis.placement import buffer_types
from tilewright.compiler.families.rows import scans, sorts
from tilewright.compiler.families.rows.access import Access
from tilewright.compiler.families.rows.bodies import checks
from tilewright.compiler.families.rows.kernel import Order, RowKernel, written_map
from tilewright.compiler.families.rows.layout import RowShape, choose_layout
from tilewright.compiler.families.rows.problem import NotRows, RowProblem, read_rows, stripped
from tilewright.compiler.families.rows.split import counter_bytes, row_blocks, workspace_bytes
from tilewright.compiler.gpu.alignment import buffer_alignments
from tilewright.compiler.gpu.builder import kernel
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import Target


def emit(function: ir.Operation, schedule: Schedule | None, target: Target) -> ir.Module:
    """The dispatch's kernel; raises NotRows where it is none of this family.

    Raises ScheduleError for a number of threads that is not possible.
    """
    name = ir.StringAttr(function.attributes["sym_name"]).value
    try:
        problem = read_rows(function)
    except NotRows:
        for other in (sorts, scans):
            written = other.emit(function, schedule, target)
            if written is not None:
                return written
        raise
    with function.context, function.location:
        types = buffer_types(function)
        decided = schedule or Schedule()
        shape, order = shape_of(problem, types)
        layout = choose_layout(replace(shape, block_rows=block_rows(problem, decided)), decided, target)
        with kernel(
            name,
            types,
            grid=row_blocks(problem, layout) * layout.split,
            block=layout.threads,
            workspace_bytes=workspace_bytes(problem, layout),
            zeroed_bytes=counter_bytes(problem, layout),
            cooperative=layout.meets,
            asserts=checks(function),
            points=problem.num_rows * problem.num_columns,
            made=layout.gpu,
        ) as made:
            RowKernel(problem, layout, order, made).write()
        return made.module


def match(function: ir.Operation, target: Target) -> ir.Operation:
    """The dispatch; whether the family takes it is known when it is written."""
    return function


def block_rows(problem: RowProblem, schedule: Schedule) -> int:
    """How many rows a block has by the schedule's tile, 0 where it leaves the dispatch whole."""
    if not any(schedule.tile):
        return 0
    sink = problem.step_of(stripped(problem.results[0]))
    assert sink is not None
    return -(-problem.num_rows // schedule.num_tasks(sink.generic.extents))


def shape_of(problem: RowProblem, types: list[ir.MemRefType]) -> tuple[RowShape, Order]:
    """What a layout is chosen by, and the order of axes: as the largest operand, or else result, lies in memory."""
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
