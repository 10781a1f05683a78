"""Writes the kernel of a dispatch that computes rows: every element is read once, kept, and reduced across threads.

for every round of reductions: every thread folds its elements, threads combine; then every thread has the results
at last: every thread computes and stores its elements of the results
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce

from tilewright.compiler.analysis.placement import groups_of
from tilewright.compiler.families.rows.access import Access, Positions, delinearized
from tilewright.compiler.families.rows.bodies import Bodies
from tilewright.compiler.families.rows.combine import Combination
from tilewright.compiler.families.rows.exchange import Exchange, folding
from tilewright.compiler.families.rows.layout import RowLayout
from tilewright.compiler.families.rows.problem import RowProblem, Step, stripped
from tilewright.compiler.families.rows.split import GridBarrier
from tilewright.compiler.gpu.alignment import buffer_alignments
from tilewright.compiler.gpu.builder import (
    Kernel,
    Operand,
    Value,
    both,
    for_,
    if_,
    index,
    minimum,
    thread_id,
)
from tilewright.compiler.ir import arith, ir, static_shape

Key = tuple[Step, int, Combination]
"""A reduction of one of a thread's rows."""
_WAYS = 4
"""Accumulators of one thread per reduction: sums wait for each other a quarter as often, and round less."""


@dataclass(frozen=True, eq=False)
class Spot:
    """A thread's neighbours in one slot: positions along the column axes of each column, and whether they exist."""

    columns: tuple[Positions, ...]
    exists: Operand


@dataclass(frozen=True)
class Order:
    """The axes of rows and of columns, the one along which neighbours lie side by side last."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]


class RowKernel:
    """Writes the body of `made` at the insertion point."""

    def __init__(self, problem: RowProblem, layout: RowLayout, order: Order, made: Kernel):
        self.problem, self.layout, self.order, self.made = problem, layout, order, made
        self.alignments = buffer_alignments(problem.function)
        arguments = list(problem.function.regions[0].blocks[0].arguments)
        self.arguments = dict(zip(arguments, made.buffers))
        self.numbers = {argument: number for number, argument in enumerate(arguments)}
        self.bodies = Bodies(problem, self.arguments, made)
        self.scopes: list[dict] = [{}]
        self.totals: dict[tuple[ir.Value, int], Value] = {}
        self.accesses: dict[tuple, Access] = {}

    def write(self) -> None:
        problem, layout = self.problem, self.layout
        thread = thread_id()
        if layout.contiguous:
            beside, self.across = thread // layout.across, thread % layout.across
        else:
            beside, self.across = thread % layout.beside, thread // layout.beside
        self.exchange = Exchange(layout, thread, beside, self.across)
        self.beside, group, piece = beside, self.made.rtask(), index(0)
        if layout.split > 1:
            group, piece = group // layout.split, group % layout.split
            assert self.made.workspace is not None
            self.grid_barrier = GridBarrier(
                problem, layout, self.made.workspace, group, piece, thread, beside, self.across
            )
        self.piece = piece
        first = (group * layout.beside + beside) * layout.lanes
        extents = [problem.extents[axis] for axis in self.order.rows]
        ragged = bool(problem.num_rows % layout.block_rows)
        # Past the last rows, a thread has the last ones again: as many as one access takes, which are whole.
        inside = minimum(first, problem.num_rows - layout.lanes) if ragged else first
        self.rows, self.present = [], []
        for lane in range(layout.lanes):
            self.present.append(first + lane < problem.num_rows if ragged else True)
            self.rows.append(dict(zip(self.order.rows, delinearized(inside + lane, extents))))
        for rank in range(problem.rounds):
            partial = self.folded(problem.reductions(rank))
            if layout.waits:
                self.grid_barrier.arrive_and_wait(partial, rank)
                partial = self.collected(partial)
            if layout.waits or layout.split == 1:
                self.conclude(partial)
        if layout.waits or layout.split == 1:
            self.finish()
            if layout.waits:
                self.grid_barrier.leave()
            return
        with if_(self.grid_barrier.last(partial)), self.scope():
            self.grid_barrier.forget()
            self.conclude(self.collected(partial))
            self.finish()

    def collected(self, partial: dict[Key, list[Value]]) -> dict[Key, list[Value]]:
        """Totals of all pieces of the rows, for every thread."""
        starts = {key: self.start_of(*key) for key in partial}
        return self.exchange.all(self.grid_barrier.collect(starts))

    # Spots and passes over them.

    def spot(self, number: Operand) -> Spot:
        """The spot at group `number` of the row, counted over all threads; past the end it is the last one again."""
        layout, problem = self.layout, self.problem
        groups = problem.num_columns // layout.group
        place = number * layout.across + self.across
        inside: Operand = True
        if not self.divides:
            inside = place < groups
            place = minimum(place, groups - 1)
        axes = self.order.columns
        at = dict(zip(axes, delinearized(place * layout.group, [problem.extents[axis] for axis in axes])))
        columns = [{**at, axes[-1]: at[axes[-1]] + lane} for lane in range(layout.group)] if axes else [{}]
        return Spot(tuple(columns), inside)

    @property
    def divides(self) -> bool:
        """Whether every thread has as many columns as any other."""
        layout = self.layout
        step = layout.across * layout.group * layout.slots
        if not layout.looped:
            step *= layout.split
        return self.problem.num_columns % step == 0

    def spots(self) -> list[Spot]:
        """All spots of a row that is kept."""
        if "spots" not in self.scopes[0]:
            first = self.piece * self.layout.slots
            self.scopes[0]["spots"] = [self.spot(first + slot) for slot in range(self.layout.slots)]
        return self.scopes[0]["spots"]

    def each_spot(
        self, start: Sequence[Value], visit: Callable[[Spot, int, list[Value]], list[Value]]
    ) -> list[Value]:
        """`visit(spot, number, carried)` for every spot; gives what was carried last."""
        layout = self.layout
        carried = list(start)
        if not layout.looped:
            for number, spot in enumerate(self.spots()):
                carried = visit(spot, number, carried)
            return carried
        groups = self.problem.num_columns // layout.group
        rounds = -(-groups // (layout.across * layout.slots))

        def one(round_: Value, *values: Value) -> list[Value]:
            found = list(values)
            with self.scope():
                for slot in range(layout.slots):
                    found = visit(self.spot(round_ * layout.slots + slot), slot, found)
            return found

        if layout.split == 1:
            return for_(0, rounds, 1, carried, one)
        share = -(-rounds // layout.split)
        first = self.piece * share
        return for_(first, minimum(first + share, rounds), 1, carried, one)

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Values computed inside are not known outside."""
        self.scopes.append({})
        yield
        self.scopes.pop()

    def known(self, key: object) -> object | None:
        return next((scope[key] for scope in reversed(self.scopes) if key in scope), None)

    # Values of elements.

    def access(self, value: ir.Value, map_: ir.AffineMap, axes: tuple[int, ...]) -> Access:
        key = (value, map_, axes)
        if key not in self.accesses:
            buffer = self.arguments[value]
            alignment = self.alignments[self.numbers[value]]
            self.accesses[key] = Access(ir.MemRefType(buffer.type), map_, axes, alignment, buffer)
        return self.accesses[key]

    def operand(self, step: Step, number: int, lane: int, spot: Spot | None, column: int) -> Value:
        """An operand's element for one point of a step; `spot` is None for a step on whole rows."""
        operand = step.op.operands[number]
        if not isinstance(operand.type, ir.RankedTensorType):
            return self.bodies.outside(operand)
        base = stripped(operand)
        fixed = self.bodies.splat(base)
        if fixed is not None:
            return fixed
        if base in self.arguments:
            return self.loaded(self.access(base, step.generic.maps[number], step.axes), lane, spot, column)
        return self.element(base, lane, spot, column)

    def element(self, value: ir.Value, lane: int, spot: Spot | None, column: int) -> Value:
        """An element of what a step computes."""
        step = self.problem.step_of(value)
        assert step is not None
        if step.reduces:
            return self.totals[(value, lane)]
        where = (spot, column) if self.problem.is_full(step) else None
        key = (step, lane, where)
        found = self.known(key)
        if found is None:
            found = self.computed(step, lane, spot if where else None, column, [])
            self.scopes[-1][key] = found
        return found[list(step.op.results).index(value)]  # pyright: ignore[reportIndexIssue]

    def computed(
        self, step: Step, lane: int, spot: Spot | None, column: int, state: Sequence[Value]
    ) -> list[Value]:
        """What the body of a step yields; `state` stands for its accumulators."""
        inputs = step.generic.num_inputs
        read = [any(True for _ in argument.uses) for argument in step.generic.body.arguments]
        values: list[Value | None] = []
        for number in range(len(read)):
            if state and number >= inputs:
                values.append(state[number - inputs])
            else:
                values.append(self.operand(step, number, lane, spot, column) if read[number] else None)
        at = self.at(lane, spot, column)
        return self.bodies.apply(step, values, at)

    def at(self, lane: int, spot: Spot | None, column: int) -> dict[int, Operand]:
        return {**self.rows[lane], **(spot.columns[column] if spot is not None else {})}

    def loaded(self, access: Access, lane: int, spot: Spot | None, column: int) -> Value:
        """An element of a buffer; with it its neighbours, where one access gives them all."""
        depends, layout = access.depends(), self.layout
        by_row = any(axis in depends for axis in self.problem.rows)
        by_column = any(axis in depends for axis in self.problem.columns)
        key = (access, lane if by_row else 0, (spot, column) if by_column else None)
        found = self.known(key)
        if found is not None:
            return found  # pyright: ignore[reportReturnType]
        fast = self.order.columns[-1] if layout.contiguous else self.order.rows[-1]
        lanes = min(layout.vector, access.vector(fast, self.problem.extents[fast])) if fast in depends else 1
        scope = self.scopes[-1]
        if layout.contiguous and fast not in depends and spot is not None:
            # Neighbours are the same element; columns of a slot differ along the fast axis alone.
            value = access.load(self.at(lane, spot, 0))
            for other in range(layout.group):
                scope[(access, key[1], (spot, other) if by_column else None)] = value
            return value
        if lanes == 1:
            scope[key] = access.load(self.at(lane, spot, column))
            return scope[key]
        if layout.contiguous:
            first = column - column % lanes
            values = access.load_neighbours(self.at(lane, spot, first), lanes)
            for offset, value in enumerate(values):
                scope[(access, key[1], (spot, first + offset))] = value
        else:
            first = lane - lane % lanes
            values = access.load_neighbours(self.at(first, spot, column), lanes)
            for offset, value in enumerate(values):
                scope[(access, first + offset, key[2])] = value
        return scope[key]

    # Reductions and results.

    def folded(self, steps: list[Step]) -> dict[Key, list[Value]]:
        """One round: all elements folded by each thread, then by all threads of a row."""
        layout = self.layout
        ways = min(_WAYS, layout.slots * layout.group)
        plans = [(step, lane, way) for step in steps for lane in range(layout.lanes) for way in range(ways)]
        starts = [self.start(step, lane) for step, lane, _ in plans]
        widths = [len(start) for start in starts]

        def visit(spot: Spot, slot: int, carried: list[Value]) -> list[Value]:
            state = split(carried, widths)
            for column in range(layout.group):
                way = (slot * layout.group + column) % ways
                for number, (step, lane, own) in enumerate(plans):
                    if own == way:
                        new = self.computed(step, lane, spot, column, state[number])
                        state[number] = [where(spot.exists, a, b) for a, b in zip(new, state[number])]
            return [value for values in state for value in values]

        found = split(self.each_spot([v for start in starts for v in start], visit), widths)
        partial = {}
        for step in steps:
            for lane in range(layout.lanes):
                own = [found[n] for n, plan in enumerate(plans) if plan[:2] == (step, lane)]
                for combination in step.combinations:
                    parts = [[values[o] for o in combination.outputs] for values in own]
                    partial[(step, lane, combination)] = reduce(folding(combination), parts)
        return self.exchange.all(partial)

    def conclude(self, partial: dict[Key, list[Value]]) -> None:
        """Makes totals of what all threads of a row have folded."""
        for (step, lane, combination), values in partial.items():
            if combination.compare is None:
                start = [self.initial(step, output, lane) for output in combination.outputs]
                values = folding(combination)(start, values)
            for output, value in zip(combination.outputs, values):
                self.totals[(step.op.results[output], lane)] = value

    def start(self, step: Step, lane: int) -> list[Value]:
        """What accumulators begin with, one per output."""
        found: dict[int, Value] = {}
        for combination in step.combinations:
            found.update(zip(combination.outputs, self.start_of(step, lane, combination)))
        return [found[output] for output in range(len(step.op.results))]

    def start_of(self, step: Step, lane: int, combination: Combination) -> list[Value]:
        """What changes nothing, or what the reduction starts from where that may be combined several times."""
        types = [ir.RankedTensorType(step.op.results[o].type).element_type for o in combination.outputs]
        neutral = combination.start(types)
        if neutral is not None:
            return [Value(value) for value in neutral]
        return [self.initial(step, output, lane) for output in combination.outputs]

    def initial(self, step: Step, output: int, lane: int) -> Value:
        """What the reduction starts from, as its operand says."""
        return self.operand(step, step.generic.num_inputs + output, lane, None, 0)

    def finish(self) -> None:
        """Stores the results: elements by the threads that have them, values of whole rows by each row's first thread."""
        full, rest = [], []
        for number, value in enumerate(self.problem.results):
            step = self.problem.step_of(stripped(value))
            assert step is not None
            buffer = self.made.buffers[len(self.arguments) + number]
            alignment = self.alignments[len(self.arguments) + number]
            type_ = ir.MemRefType(buffer.type)
            access = Access(type_, written_map(value, step), step.axes, alignment, buffer)
            (full if self.problem.is_full(step) else rest).append((access, stripped(value)))
        if rest:
            first = self.across.equals(0) if self.layout.across > 1 else True
            alone = both(first, self.piece.equals(0)) if self.layout.waits else first
            with if_(alone), self.scope():
                for access, value in rest:
                    for lane in range(self.layout.lanes):
                        found = self.element(value, lane, None, 0)
                        with if_(self.present[lane]):
                            access.store(found, self.rows[lane])
        if full:
            self.each_spot([], lambda spot, _, carried: self.store_spot(full, spot) or carried)

    def store_spot(self, results: list[tuple[Access, ir.Value]], spot: Spot) -> None:
        """Stores a spot's elements of every result, side by side where they lie so."""
        layout = self.layout
        fast = self.order.columns[-1] if layout.contiguous else self.order.rows[-1]
        for access, value in results:
            lanes = min(layout.vector, access.vector(fast, self.problem.extents[fast]))
            elements = {
                (lane, column): self.element(value, lane, spot, column)
                for lane in range(layout.lanes)
                for column in range(layout.group)
            }
            points = list(elements)
            for first in range(0, len(points), lanes):
                lane, column = points[first]
                with if_(both(self.present[lane], spot.exists)):
                    at = self.at(lane, spot, column)
                    own = [elements[point] for point in points[first : first + lanes]]
                    access.store(own[0], at) if lanes == 1 else access.store_neighbours(own, at)


def written_map(value: ir.Value, step: Step) -> ir.AffineMap:
    """Where a result goes for the loops of the step that computes it, through the reshapes behind that."""
    reshapes = []
    while value not in list(step.op.results):
        reshapes.append(value.owner.operation)
        value = value.owner.operation.operands[0]
    map_ = step.generic.maps[step.generic.num_inputs + list(step.op.results).index(value)]
    exprs = list(map_.results)
    for op in reversed(reshapes):
        exprs = reshaped_exprs(op, exprs)
    return ir.AffineMap.get(map_.n_dims, 0, exprs)


def reshaped_exprs(op: ir.Operation, exprs: list[ir.AffineExpr]) -> list[ir.AffineExpr]:
    """Positions in the result of a reshape, from those in its operand."""
    found: list[ir.AffineExpr] = []
    if op.name == "tensor.collapse_shape":
        shape = static_shape(op.operands[0].type)
        for group in groups_of(op):
            total = ir.AffineExpr.get_constant(0)
            for dim in group:
                total = total * shape[dim] + exprs[dim]
            found.append(total)
        return found
    shape = static_shape(op.results[0].type)
    zero = ir.AffineExpr.get_constant(0)
    for expr, group in zip(exprs, groups_of(op)):
        inner = math.prod(shape[dim] for dim in group)
        whole = [dim for dim in group if shape[dim] > 1]
        for dim in group:
            inner //= shape[dim]
            digit = expr if inner == 1 else ir.AffineExpr.get_floor_div(expr, inner)
            first = not whole or dim == whole[0]
            found.append(
                zero if shape[dim] == 1 else digit if first else ir.AffineExpr.get_mod(digit, shape[dim])
            )
    return found


def split(values: Sequence[Value], widths: Sequence[int]) -> list[list[Value]]:
    """`values` in lists of the given lengths."""
    left = iter(values)
    return [[next(left) for _ in range(width)] for width in widths]


def where(condition: Operand, yes: Value, no: Value) -> Value:
    """`yes` where the condition holds; always for a Python True."""
    return yes if isinstance(condition, bool) else Value(arith.select(condition.value, yes.value, no.value))
