"""Running sums along rows and the like: scans of each thread's elements, of a warp's by shuffles, of a block's in shared memory.

    thread   x0 x1 x2 x3      ->  x0, x0+x1, x0+x1+x2, x0+x1+x2+x3
    block    + what all threads before it have in sum; the last sum is carried to the next piece of the row

Where neighbouring elements belong to different rows, each thread goes along a row of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contract import require
from tilewright.compiler.families.cpu.reduction import is_regroupable, neutral_attribute
from tilewright.compiler.families.rows.access import delinearized
from tilewright.compiler.families.rows.bodies import compute
from tilewright.compiler.families.rows.exchange import moved_up, taken_from
from tilewright.compiler.families.rows.layout import is_power
from tilewright.compiler.families.tile_space import refuse_broken, whole_warps
from tilewright.compiler.gpu.alignment import buffer_alignments
from tilewright.compiler.gpu.builder import (
    Kernel,
    Operand,
    Value,
    barrier,
    constant,
    for_,
    from_elements,
    if_,
    kernel,
    load,
    load_vector,
    minimum,
    select,
    shared,
    store,
    store_vector,
    thread_id,
)
from tilewright.compiler.ir import element_bytes, ir, static_shape
from tilewright.compiler.nouns.schedule import WARP, GpuTile
from tilewright.compiler.nouns.space import Constraint, rule


@dataclass(frozen=True, eq=False)
class ScanProblem:
    """A dispatch that scans along `dim` by one operation: numbers of the buffers read, written, and of the last sums."""

    operation: ir.Operation
    source: int
    targets: tuple[int | None, int | None]
    shape: tuple[int, ...]
    dim: int

    @property
    def length(self) -> int:
        return self.shape[self.dim]

    @property
    def others(self) -> list[int]:
        """Extents of the dimensions that are not scanned."""
        return [extent for d, extent in enumerate(self.shape) if d != self.dim]

    @property
    def rows(self) -> int:
        return math.prod(self.others)

    def at(self, row: list[Operand], place: Operand) -> list[Operand]:
        """Indices of an element of a row."""
        return [*row[: self.dim], place, *row[self.dim :]]

    def combine(self, before: Value, value: Value) -> Value:
        """Both as one, those before first."""
        return Value(compute(self.operation, [before.value, value.value])[0])

    def neutral(self, type_: ir.Type) -> Value:
        attribute = neutral_attribute(self.operation.name, type_)
        assert isinstance(attribute, (ir.FloatAttr, ir.IntegerAttr))
        return constant(type_, attribute.value)


def read_scan(function: ir.Operation) -> ScanProblem | None:
    """The inclusive scan that a dispatch is; None for one that does anything else."""
    block = function.regions[0].blocks[0]
    *ops, terminator = (view.operation for view in block.operations)
    scans = [op for op in ops if op.name == "tm_tensor.scan"]
    beside = ("arith.constant", "tensor.empty", "linalg.fill")
    if len(scans) != 1 or any(op.name not in beside for op in ops if op not in scans):
        return None
    (op,) = scans
    arguments, results, returned = list(block.arguments), list(op.results), list(terminator.operands)
    if op.operands[0] not in arguments or any(value not in results for value in returned):
        return None
    *body, end = (view.operation for view in op.regions[0].blocks[0].operations)
    regroupable = len(body) == 1 and is_regroupable(body[0].name) and end.operands[0] == body[0].results[0]
    both_read = set(op.regions[0].blocks[0].arguments) == set(body[0].operands) if body else False
    shape = static_shape(op.operands[0].type)
    if not regroupable or not both_read or not ir.BoolAttr(op.attributes["inclusive"]).value or 0 in shape:
        return None
    if len(set(returned)) != len(returned):
        return None
    numbers = [len(arguments) + returned.index(r) if r in returned else None for r in results]
    source = arguments.index(op.operands[0])
    dim = ir.IntegerAttr(op.attributes["dimension"]).value
    return ScanProblem(body[0], source, (numbers[0], numbers[1]), shape, dim)


def emit(
    name: str, problem: ScanProblem, types: list[ir.MemRefType], said: GpuTile, vector: int
) -> ir.Module:
    """The kernel that a complete schedule describes; raises ScheduleError for one that no kernel has.

    `vector` is how many elements of a row one access takes at most; 0 where a thread goes along a row of its own.
    """
    if not vector:
        return _column_scan(name, problem, types, columns_of(said))
    across, beside, lanes = rows_of(said, vector)
    return _row_scan(name, problem, types, across, beside, lanes)


def columns_of(said: GpuTile) -> int:
    """The threads of a block, each with a row of its own; raises ScheduleError."""
    require(said, "threads", "block")
    if said.block != (said.threads,):
        raise ScheduleError(
            f"gpu.block is {list(said.block)}; each thread has one row, so it is [{said.threads}]"
        )
    return said.threads


def rows_of(said: GpuTile, most: int) -> tuple[int, int, int]:
    """(threads of a row, rows of a block, elements of an access) that a schedule describes; raises ScheduleError."""
    require(said, "threads", "block", "vector")
    if len(said.block) != 2:
        raise ScheduleError(f"gpu.block is {list(said.block)}; expected rows, and elements of each at a time")
    refuse_broken(rules(most), said, "scan")
    beside, columns = said.block
    across = columns // said.vector
    if across * beside != said.threads:
        raise ScheduleError(
            f"gpu.threads is {said.threads}; gpu.block {list(said.block)} has {across} for each of {beside} rows"
        )
    return across, beside, said.vector


def rules(most: int) -> tuple[Constraint, ...]:
    """What schedules keep to: of rows by several threads that access up to `most` elements, or of a row by each thread."""
    if not most:
        return whole_warps("threads", lambda c: c["threads"])
    across = lambda c: c["block[1]"] // c["vector"]  # noqa: E731
    return (
        rule("vector", f"elements per access divide {most}", lambda c: most % c["vector"] != 0),
        rule(
            "block[1]",
            "it is a power of two of threads, 2 or more, by the elements of each",
            lambda c: (c["block[1]"] % c["vector"] != 0) | (across(c) < 2) | ~is_power(across(c)),
        ),
        *whole_warps("block[0]", lambda c: across(c) * c["block[0]"]),
    )


def widest(function: ir.Operation, problem: ScanProblem, types: list[ir.MemRefType]) -> int:
    """Neighbouring elements of a row that one access takes at most; 0 where rows do not lie along memory."""
    strides = types[problem.source].get_strides_and_offset()[0]
    near = min((s for s, extent in zip(strides, problem.shape) if extent > 1), default=1)
    if strides[problem.dim] != near or problem.length < 2:
        return 0
    return _vector(function, problem, types)


def _vector(function: ir.Operation, problem: ScanProblem, types: list[ir.MemRefType]) -> int:
    """Neighbouring elements of a row that one aligned access takes in every buffer."""
    alignments = buffer_alignments(function)
    lanes = problem.length
    if problem.dim != len(problem.shape) - 1:
        return 1
    for number in (problem.source, problem.targets[0]):
        if number is None:
            continue
        size = element_bytes(types[number].element_type)
        strides, offset = types[number].get_strides_and_offset()
        lanes = math.gcd(lanes, min(16, alignments[number]) // size, offset)
        for d, stride in enumerate(strides):
            lanes = math.gcd(lanes, stride) if d != problem.dim else lanes
        if strides[problem.dim] != 1 or str(types[number].element_type) == "i1":
            return 1
    return max(1, lanes & -lanes)


def _column_scan(name: str, problem: ScanProblem, types: list[ir.MemRefType], threads: int) -> ir.Module:
    """One thread per row: neighbouring threads read neighbouring elements."""
    own = GpuTile("scan", threads, (threads,))
    with kernel(name, types, rtasks=-(-problem.rows // threads), block=threads, made=own) as made:
        source = made.buffers[problem.source]
        target, total = (None if n is None else made.buffers[n] for n in problem.targets)
        number = made.rtask() * threads + thread_id()
        with if_(number < problem.rows if problem.rows % threads else True):
            row = delinearized(number, problem.others)
            first = load(source, *problem.at(row, 0))
            if target is not None:
                store(first, target, *problem.at(row, 0))

            def step(place: Value, before: Value) -> list[Value]:
                found = problem.combine(before, load(source, *problem.at(row, place)))
                if target is not None:
                    store(found, target, *problem.at(row, place))
                return [found]

            (last,) = for_(1, problem.length, 1, [first], step)
            if total is not None:
                store(last, total, *row)
    return made.module


def _row_scan(
    name: str, problem: ScanProblem, types: list[ir.MemRefType], across: int, beside: int, vector: int
) -> ir.Module:
    """Several neighbouring threads per row, in pieces of as many vectors as there are threads."""
    threads = across * beside
    own = GpuTile("scan", threads, (beside, across * vector), vector=vector)
    with kernel(name, types, rtasks=-(-problem.rows // beside), block=threads, made=own) as made:
        _RowScan(problem, made, across, beside, vector).write()
    return made.module


class _RowScan:
    """Writes the body of a kernel of `beside` rows of `across` threads, each with `vector` elements of a piece."""

    def __init__(self, problem: ScanProblem, made: Kernel, across: int, beside: int, vector: int):
        self.problem, self.across, self.beside, self.vector = problem, across, beside, vector
        self.source = made.buffers[problem.source]
        self.target, self.total = (None if n is None else made.buffers[n] for n in problem.targets)
        self.element = ir.MemRefType(self.source.type).element_type
        thread = thread_id()
        self.row_in_block, self.place = thread // across, thread % across
        self.lane = thread % WARP if across > WARP else self.place
        number = made.rtask() * beside + self.row_in_block
        ragged = bool(problem.rows % beside)
        self.present: Operand = number < problem.rows if ragged else True
        self.row = delinearized(minimum(number, problem.rows - 1) if ragged else number, problem.others)
        self.warps = across // WARP
        if self.warps > 1:
            self.sums = shared([2, beside, self.warps], self.element)

    def write(self) -> None:
        problem = self.problem
        groups = problem.length // self.vector
        pieces = -(-groups // self.across)
        start = problem.neutral(self.element)
        (last,) = for_(0, pieces, 1, [start], lambda piece, carry: [self.piece(piece, carry, groups)])
        if self.total is not None:
            with if_(self.place.equals(0)), if_(self.present):
                store(last, self.total, *self.row)

    def piece(self, piece: Value, carry: Value, groups: int) -> Value:
        """Scans one piece of every row; gives the sum of all elements so far."""
        problem = self.problem
        group = piece * self.across + self.place
        inside: Operand = True
        if groups % self.across:
            inside = group < groups
        at = problem.at(self.row, minimum(group, groups - 1) * self.vector)
        values = self.load(at)
        if not isinstance(inside, bool):
            neutral = problem.neutral(self.element)
            values = [_value(select(inside, v, neutral)) for v in values]
        for i in range(1, self.vector):
            values[i] = problem.combine(values[i - 1], values[i])
        upto = self.scanned(values[-1], min(self.across, WARP))
        before = moved_up(upto, 1)
        before = _value(select(self.lane.equals(0), problem.neutral(self.element), before))
        if self.warps > 1:
            earlier, whole = self.across_warps(upto, piece % 2)
            before, carried = problem.combine(earlier, before), problem.combine(carry, whole)
        else:
            last = self.broadcast_last(upto)
            carried = problem.combine(carry, last)
        before = problem.combine(carry, before)
        if self.target is not None:
            found = [problem.combine(before, value) for value in values]
            with if_(self.present), if_(inside):
                self.save(found, at)
        return carried

    def scanned(self, value: Value, threads: int) -> Value:
        """What the threads of the row in this warp up to this one have in sum."""
        distance = 1
        while distance < threads:
            with_before = self.problem.combine(moved_up(value, distance), value)
            value = _value(select(self.lane < distance, value, with_before))
            distance *= 2
        return value

    def broadcast_last(self, upto: Value) -> Value:
        """The sum of all threads of a row within one warp."""
        first = (thread_id() % WARP) - self.place
        return taken_from(upto, first + (self.across - 1))

    def across_warps(self, upto: Value, turn: Value) -> tuple[Value, Value]:
        """What earlier warps of the row have in sum, and what all have; two buffers take turns between barriers."""
        problem, warp = self.problem, self.place // WARP
        with if_(self.lane.equals(WARP - 1)):
            store(upto, self.sums, turn, self.row_in_block, warp)
        barrier()
        neutral = problem.neutral(self.element)
        earlier, whole = neutral, neutral
        for number in range(self.warps):
            value = load(self.sums, turn, self.row_in_block, number)
            whole = problem.combine(whole, value)
            if number + 1 < self.warps:
                own = problem.combine(earlier, value)
                earlier = _value(select(warp > number, own, earlier))
        return earlier, whole

    def load(self, at: list[Operand]) -> list[Value]:
        if self.vector == 1:
            return [load(self.source, *at)]
        bytes_ = self.vector * element_bytes(self.element)
        found = load_vector(self.source, at, self.vector, bytes_)
        return [found[lane] for lane in range(self.vector)]

    def save(self, values: list[Value], at: list[Operand]) -> None:
        assert self.target is not None
        if self.vector == 1:
            store(values[0], self.target, *at)
        else:
            bytes_ = self.vector * element_bytes(self.element)
            store_vector(from_elements(values), self.target, at, bytes_)


def _value(operand: Operand) -> Value:
    assert isinstance(operand, Value)
    return operand
