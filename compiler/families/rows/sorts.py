"""Sorts and greatest elements of rows: bitonic networks in shared memory, several short rows per block.

Where only the first elements of a long row are wanted, pieces of the row are sorted together with the best ones so
far. A whole row that does not fit in shared memory is sorted where its result lies.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.compiler.analysis.sort_order import FIRST
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.block_loops import Threads, deal
from tilewright.compiler.families.block_sequences import network, out_of_order
from tilewright.compiler.families.contract import require
from tilewright.compiler.families.rows.access import delinearized
from tilewright.compiler.families.tile_space import refuse_broken, whole_warps
from tilewright.compiler.gpu.builder import (
    Kernel,
    Operand,
    Value,
    barrier,
    both,
    for_,
    if_,
    kernel,
    load,
    minimum,
    shared,
    store,
    thread_id,
)
from tilewright.compiler.ir import element_bytes, gpu, ir, memref, static_shape
from tilewright.compiler.nouns.schedule import GpuTile
from tilewright.compiler.nouns.space import Constraint, rule
from tilewright.compiler.targets.target import Target

_POSITION_BYTES = 4


@dataclass(frozen=True, eq=False)
class SortProblem:
    """A dispatch that sorts along `dim`: the operation, numbers of the buffers read and written, elements kept.

    `counts` says that the second result is each element's place in its row, and no buffer holds it.
    """

    op: ir.Operation
    sources: tuple[int, ...]
    targets: tuple[int, ...]
    shape: tuple[int, ...]
    dim: int
    kept: int
    counts: bool

    @property
    def length(self) -> int:
        return self.shape[self.dim]

    @property
    def rows(self) -> int:
        return math.prod(self.others)

    @property
    def others(self) -> list[int]:
        """Extents of the dimensions that are not sorted."""
        return [extent for d, extent in enumerate(self.shape) if d != self.dim]

    def at(self, row: list[Operand], place: Operand) -> list[Operand]:
        """Indices of an element of a row."""
        return [*row[: self.dim], place, *row[self.dim :]]


def read_sort(function: ir.Operation) -> SortProblem | None:
    """The sort that a dispatch is; None for one that does anything else."""
    block = function.regions[0].blocks[0]
    *ops, terminator = (view.operation for view in block.operations)
    sorts = [op for op in ops if op.name in ("tm_tensor.sort", "tm_tensor.topk")]
    beside = ("arith.constant", "tensor.empty", "linalg.fill")
    if len(sorts) != 1 or any(op.name not in beside for op in ops if op not in sorts):
        return None
    (op,) = sorts
    arguments, results = list(block.arguments), list(op.results)
    if any(value not in results for value in terminator.operands):
        return None
    dim = ir.IntegerAttr(op.attributes["dimension"]).value
    topk = op.name == "tm_tensor.topk"
    read = list(op.operands)[:-2] if topk else list(op.operands)
    if any(value not in arguments for value in read) or len(terminator.operands) != len(results):
        return None
    if list(terminator.operands) != results:
        return None
    shape = static_shape(read[0].type)
    wanted = static_shape(results[0].type)[dim] if topk else shape[dim]
    if FIRST in op.attributes:
        wanted = min(wanted, ir.IntegerAttr(op.attributes[FIRST]).value)
    if 0 in shape or wanted == 0 or shape[dim] < 2:
        return None
    numbers = tuple(arguments.index(value) for value in read)
    targets = tuple(range(len(arguments), len(arguments) + len(results)))
    return SortProblem(op, numbers, targets, shape, dim, wanted, topk and len(read) == 1)


def emit(
    name: str, problem: SortProblem, types: list[ir.MemRefType], said: GpuTile, target: Target
) -> ir.Module:
    """The kernel that a complete schedule describes; raises ScheduleError for one that no kernel has."""
    check(problem, types, said, target)
    made = GpuTile("sort", said.threads, said.block)
    if len(said.block) == 1:
        return _in_place(name, problem, types, made)
    return _in_shared(name, problem, types, made)


def check(problem: SortProblem, types: list[ir.MemRefType], said: GpuTile, target: Target) -> None:
    """Raises ScheduleError for sizes that no kernel has: `block` is (rows, elements of each in shared memory), or (1,)
    for a row of each block that is sorted where its result lies."""
    require(said, "threads", "block")
    if len(said.block) == 1 and (problem.counts or said.block != (1,)):
        raise ScheduleError(
            f"gpu.block is {list(said.block)}; [1] sorts a row where it lies, with a buffer for its places"
        )
    if len(said.block) == 1:
        return
    if len(said.block) != 2:
        raise ScheduleError(
            f"gpu.block is {list(said.block)}; expected rows, and elements of each in shared memory"
        )
    refuse_broken(rules(problem, types, said, target), said, "sort")


def rules(
    problem: SortProblem, types: list[ir.MemRefType], said: GpuTile, target: Target
) -> tuple[Constraint, ...]:
    """What schedules keep to, of sorts in shared memory, or where results lie: `said` tells which."""
    threads = whole_warps("threads", lambda c: c["threads"])
    if len(said.block) == 1:
        return threads
    room, item = target.level("shared").capacity_bytes, element_bytes_of(problem, types)
    length, kept = problem.length, problem.kept
    return (
        *threads,
        rule(
            "block[1]",
            f"it is the {length} elements of a row, or fewer that are more than the {kept} kept",
            lambda c: (c["block[1]"] != length) & ((c["block[1]"] <= kept) | (c["block[1]"] > length)),
        ),
        rule(
            "block[0]",
            f"so many rows take more than the {room:,} B of shared memory of a block",
            lambda c: c["block[0]"] * c["block[1]"] * item > room,
        ),
    )


def element_bytes_of(problem: SortProblem, types: list[ir.MemRefType]) -> int:
    """Bytes of what is moved for one element: all that are sorted along with it, and its place."""
    return sum(element_bytes(types[number].element_type) for number in problem.sources) + _POSITION_BYTES


class _Rows:
    """Elements of the rows of one block in shared memory, `width` of each row at a time, and where they came from."""

    def __init__(self, problem: SortProblem, made: Kernel, rows: int, width: int, threads: Threads):
        buffers = made.buffers
        self.problem, self.buffers, self.threads, self.width, self.count = (
            problem,
            buffers,
            threads,
            width,
            rows,
        )
        i32 = ir.IntegerType.get_signless(32)
        types = [ir.MemRefType(buffers[n].type).element_type for n in problem.sources]
        self.memory = [shared([rows, width], type_) for type_ in types]
        self.positions = shared([rows, width], i32)
        self.i32 = i32
        self.first = made.rtask() * rows
        self.ragged = bool(problem.rows % rows)

    def row(self, number: Value) -> tuple[list[Operand], Operand]:
        """A row's position, and whether it exists; one that does not is the last one again."""
        row = self.first + number
        exists = row < self.problem.rows if self.ragged else True
        inside = minimum(row, self.problem.rows - 1) if self.ragged else row
        return delinearized(inside, self.problem.others), exists

    def each(self, count: int, body: Callable[[Value, Value], None]) -> None:
        """`body(row, place)` for `count` places of every row."""
        deal(self.threads, [self.count, count], lambda at: body(Value(at[0]), Value(at[1])))

    def fetch(self, start: Operand, first: int, count: int) -> None:
        """Loads elements `start` and after into places from `first` on; past the end the last one again, as greatest."""
        problem, whole = self.problem, isinstance(start, int) and start + count <= self.problem.length

        def one(row: Value, place: Value) -> None:
            at, _ = self.row(row)
            source = place + start
            inside = source if whole else minimum(source, problem.length - 1)
            for number, memory in zip(problem.sources, self.memory):
                store(load(self.buffers[number], *problem.at(at, inside)), memory, row, place + first)
            store(source.to(self.i32), self.positions, row, place + first)

        self.each(count, one)

    def exchange(self, row: ir.Value, low: ir.Value, high: ir.Value) -> None:
        """Puts two elements in order. Positions past the end of the row come after all others."""
        places = (Value(low), Value(high))
        values = [[load(memory, Value(row), place) for memory in self.memory] for place in places]
        left, right = (load(self.positions, Value(row), place) for place in places)
        lefts, rights = ([v.value for v in own] for own in values)
        swaps = Value(out_of_order(self.problem.op, lefts, rights, left.value, right.value))
        if self.width < self.problem.length:
            swaps = both(right < self.problem.length, (left >= self.problem.length) | swaps)
        with if_(swaps):
            for memory, x, y in zip(self.memory, *values):
                store(y, memory, Value(row), places[0])
                store(x, memory, Value(row), places[1])
            store(right, self.positions, Value(row), places[0])
            store(left, self.positions, Value(row), places[1])

    def sort(self) -> None:
        barrier()
        network(self.threads, self.count, self.width, self.exchange)

    def keep(self) -> None:
        """Stores the first elements of every row."""
        problem = self.problem

        def one(row: Value, place: Value) -> None:
            at, exists = self.row(row)
            values = [load(memory, row, place) for memory in self.memory]
            if problem.counts:
                values.append(load(self.positions, row, place))
            with if_(exists):
                for number, value in zip(problem.targets, values):
                    buffer = self.buffers[number]
                    element = ir.MemRefType(buffer.type).element_type
                    store(value.to(element), buffer, *problem.at(at, place))

        self.each(problem.kept, one)


def _in_shared(name: str, problem: SortProblem, types: list[ir.MemRefType], said: GpuTile) -> ir.Module:
    """Sorts `width` elements of a row at a time, those kept among them from the second time on."""
    (rows, width), threads = said.block, said.threads
    rtasks = -(-problem.rows // rows)
    with kernel(name, types, rtasks=rtasks, block=threads, made=said) as made:
        block = _Rows(problem, made, rows, width, Threads(threads, thread_id().value))
        block.fetch(0, 0, width)
        block.sort()
        step = width - problem.kept
        if width < problem.length:

            def more(start: Value) -> None:
                block.fetch(start, problem.kept, step)
                block.sort()

            for_(width, problem.length, step, [], more)
        block.keep()
    return made.module


def _in_place(name: str, problem: SortProblem, types: list[ir.MemRefType], said: GpuTile) -> ir.Module:
    """Sorts each row where its result lies, with the places that elements came from in the workspace."""
    threads = said.threads
    row_bytes = -(-problem.length * _POSITION_BYTES // 16) * 16
    with kernel(
        name,
        types,
        rtasks=problem.rows,
        block=threads,
        workspace_bytes=problem.rows * row_bytes,
        made=said,
    ) as made:
        i32 = ir.IntegerType.get_signless(32)
        assert made.workspace is not None
        start = made.rtask() * row_bytes
        positions = memref.view(ir.MemRefType.get([problem.length], i32), made.workspace, start.value, [])
        own = Threads(threads, thread_id().value)
        at = delinearized(made.rtask(), problem.others)
        targets = [made.buffers[number] for number in problem.targets]

        def fetch(place: Value) -> None:
            for number, memory in zip(problem.sources, targets):
                store(load(made.buffers[number], *problem.at(at, place)), memory, *problem.at(at, place))
            store(place.to(i32), positions, place)

        def exchange(_: ir.Value, low: ir.Value, high: ir.Value) -> None:
            places = (Value(low), Value(high))
            values = [[load(memory, *problem.at(at, place)) for memory in targets] for place in places]
            left, right = (load(positions, place) for place in places)
            lefts, rights = ([v.value for v in found] for found in values)
            with if_(Value(out_of_order(problem.op, lefts, rights, left.value, right.value))):
                for memory, x, y in zip(targets, *values):
                    store(y, memory, *problem.at(at, places[0]))
                    store(x, memory, *problem.at(at, places[1]))
                store(right, positions, places[0])
                store(left, positions, places[1])

        deal(own, [problem.length], lambda place: fetch(Value(place[0])))
        gpu.barrier()
        network(own, 1, problem.length, exchange)
    return made.module
