"""Attention with ordinary multiply-adds: for f32 and f64, and where matrix instructions are wanting.

Sixteen lanes share a row of scores. Thread (r, c) of a block computes scores of rows r, r + R, ... and keys c, c + 16,
..., weighs them, passes the weights on through shared memory, and sums up the same rows of the result, columns in
vectors that lie 16 vectors apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.families.attention.copies import (
    Tile,
    TileCopier,
    can_defer,
    over_keys,
    widened,
)
from tilewright.compiler.families.attention.problem import AttentionProblem
from tilewright.compiler.families.attention.softmax import Rows, Softmax, seen_steps
from tilewright.compiler.families.contraction.operand_copies import Layout
from tilewright.compiler.gpu.builder import (
    Kernel,
    Value,
    both,
    constant,
    fma,
    for_,
    if_,
    index,
    kernel,
    load_vector,
    shared,
    store,
    thread_id,
    vector_type,
)
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile

LANES = 16
"""Threads that share a row."""


@dataclass(frozen=True)
class SimtTile:
    """`rows` of queries and `columns` of keys that a block of `threads` works on; `deferred` copies have two slots."""

    rows: int
    columns: int
    threads: int
    deferred: bool

    @property
    def row_threads(self) -> int:
        return self.threads // LANES


def padded(extent: int, multiple: int) -> int:
    return -(-extent // multiple) * multiple


@dataclass(frozen=True)
class SimtPlan:
    """A tile and the layouts of shared memory that it needs; sizes are in elements of what scores are computed in."""

    problem: AttentionProblem
    tile: SimtTile

    @property
    def size(self) -> int:
        return self.problem.real.width // 8

    @property
    def step(self) -> int:
        """Elements of 16 bytes."""
        return 16 // self.size

    @property
    def gpu(self) -> GpuTile:
        """The schedule of the kernel."""
        tile = self.tile
        return GpuTile("attention", tile.threads, (tile.rows, tile.columns), stages=self.slots)

    @property
    def slots(self) -> int:
        return 2 if self.defers else 1

    @property
    def defers(self) -> bool:
        return self.tile.deferred and all(
            can_defer(self.problem.accesses[i], self.lanes(i), self.problem.real, True) for i in (1, 2)
        )

    def lanes(self, number: int) -> int:
        """Elements that one access takes of queries, keys or values."""
        a = self.problem.attention
        loop = len(a.extents) + (3 if number == 2 else 2)
        return self.problem.accesses[number].vector(loop, a.width if number == 2 else a.inner)

    def layout(self, number: int) -> Layout:
        """How queries, keys or values lie in shared memory: rows of whole vectors, one vector apart for queries and keys."""
        a = self.problem.attention
        rows = self.tile.rows if number == 0 else self.tile.columns
        columns = padded(a.inner, 8) if number < 2 else padded(a.width, LANES)
        return Layout(rows, columns, columns + (self.step if number < 2 else 0))

    @property
    def weights(self) -> Layout:
        return Layout(self.tile.rows, self.tile.columns, self.tile.columns + self.step)

    @property
    def shared_bytes(self) -> int:
        streamed = self.slots * (self.layout(1).elements + self.layout(2).elements)
        return self.size * (self.layout(0).elements + streamed + self.weights.elements)

    @property
    def registers(self) -> int:
        """Scores, results and operands of a thread, in registers of 32 bits."""
        rows = self.tile.rows // self.tile.row_threads
        columns = self.tile.columns // LANES
        sums = rows * (columns + self.layout(2).columns // LANES + 2)
        return (sums + self.step * (rows + columns)) * self.size // 4 + 24


def emit_simt(plan: SimtPlan) -> ir.Module:
    """The kernel of an attention in gpu-level IR."""
    problem, tile = plan.problem, plan.tile
    parts = -(-problem.attention.rows // tile.rows)
    rtasks = problem.heads * parts
    with kernel(problem.name, problem.buffers, rtasks=rtasks, block=tile.threads, made=plan.gpu) as written:
        _Block(plan, written, parts).write()
    return written.module


class _Block:
    """One block's work: some rows of one head."""

    def __init__(self, plan: SimtPlan, written: Kernel, parts: int):
        self.plan, self.tile, self.problem, self.written = plan, plan.tile, plan.problem, written
        self.attention, self.real = plan.problem.attention, plan.problem.real
        self.thread = thread_id()
        self.row, self.lane = self.thread // LANES, self.thread % LANES
        place = written.rtask()
        # Later rows see more keys when there is a causal mask: they start first.
        self.first = (index(parts - 1) - place % parts) * self.tile.rows
        self.batch = self.problem.batch(place // parts)
        self.rows = self.tile.rows // self.tile.row_threads
        self.columns = self.tile.columns // LANES
        width = plan.layout(2).columns
        self.lanes = next(v for v in (plan.step, 2, 1) if width % (LANES * v) == 0)
        self.vectors = width // (LANES * self.lanes)

    def write(self) -> None:
        plan, tile = self.plan, self.tile
        buffers = [
            shared([plan.layout(i).elements * (plan.slots if i else 1)], self.real, 16) for i in range(3)
        ]
        weights = shared([plan.weights.elements], self.real, 16)
        copiers = [self.copier(i, buffers[i]) for i in range(3)]
        copiers[0].copy(self.first, 0)
        softmax = Softmax(self.problem, self.written, self.batch, (tile.rows, tile.columns), (8, 4, 2, 1))
        state = softmax.start(self.rows)
        zero = constant(vector_type(self.lanes, self.real), 0.0)
        count = self.rows * self.vectors
        positions = [self.first + self.row + i * tile.row_threads for i in range(self.rows)]

        def block(t: Value, slot: Value, carried: list[Value]) -> Sequence[Value]:
            results, rows = carried[:count], Rows.of(carried[count:])
            columns = [t * tile.columns + self.lane + j * LANES for j in range(self.columns)]
            products = self.products(buffers[0], buffers[1], slot)
            found, factors, after = softmax.weigh(products, positions, columns, rows)
            for i, line in enumerate(found):
                for j, weight in enumerate(line):
                    store(weight, weights, self.place(plan.weights, i, self.lane + j * LANES))
            from tilewright.compiler.gpu.builder import barrier

            barrier()
            scaled = [
                result * self.splat(factors[number // self.vectors]) for number, result in enumerate(results)
            ]
            return [*self.sums(weights, buffers[2], slot, scaled), *after.values]

        steps = seen_steps(self.problem, self.first, tile.rows, tile.columns)
        last = over_keys(copiers[1:], tile.columns, steps, [zero] * count + state.values, block)
        divisors = softmax.divisors(Rows.of(last[count:]))
        self.store(last[:count], divisors, positions)

    def copier(self, number: int, buffer: ir.Value) -> TileCopier:
        a, plan = self.attention, self.plan
        first = 0 if number == 0 else 1
        tile = Tile(
            access=self.problem.accesses[number],
            row=first,
            column=3 if number == 2 else 2,
            rows=a.rows if number == 0 else a.columns,
            columns=a.width if number == 2 else a.inner,
            layout=plan.layout(number),
            dtype=self.real,
            threads=self.tile.threads,
            deferred=plan.defers and number > 0,
            lanes=plan.lanes(number),
        )
        return TileCopier(tile, self.written.buffers[tile.access.buffer], buffer, self.thread, self.batch)

    def place(self, layout: Layout, row: int, column: Value | int) -> Value:
        """Where an element of the thread's row number `row` is."""
        return (self.row + row * self.tile.row_threads) * layout.pitch + column

    def products(self, queries: ir.Value, keys: ir.Value, slot: Value) -> list[list[Value]]:
        """The thread's products of queries and keys, [row][column]."""
        plan, step = self.plan, self.plan.step
        query, key = plan.layout(0), plan.layout(1)
        start = slot * key.elements
        zero = constant(self.real, 0.0)

        def deeper(k: Value, *sums: Value) -> list[Value]:
            left = [load_vector(queries, [self.place(query, i, k)], step, 16) for i in range(self.rows)]
            right = [
                load_vector(keys, [start + (self.lane + j * LANES) * key.pitch + k], step, 16)
                for j in range(self.columns)
            ]
            found = []
            for number, total in enumerate(sums):
                a, b = left[number // self.columns], right[number % self.columns]
                for lane in range(step):
                    total = fma(a[lane], b[lane], total)
                found.append(total)
            return found

        sums = for_(0, query.columns, step, [zero] * (self.rows * self.columns), deeper)
        return [sums[i * self.columns : (i + 1) * self.columns] for i in range(self.rows)]

    def sums(self, weights: ir.Value, values: ir.Value, slot: Value, results: list[Value]) -> list[Value]:
        """Results with a block's weighted values added, [row * vectors + vector]."""
        layout, step = self.plan.layout(2), self.plan.step
        start = slot * layout.elements

        def deeper(n: Value, *totals: Value) -> list[Value]:
            left = [
                load_vector(weights, [self.place(self.plan.weights, i, n)], step, 16)
                for i in range(self.rows)
            ]
            found = list(totals)
            for key in range(step):
                for j in range(self.vectors):
                    at = start + (n + key) * layout.pitch + (self.lane + j * LANES) * self.lanes
                    value = load_vector(values, [at], self.lanes, self.lanes * self.plan.size)
                    for i in range(self.rows):
                        number = i * self.vectors + j
                        found[number] = fma(self.splat(left[i][key]), value, found[number])
            return found

        return for_(0, self.tile.columns, step, results, deeper)

    def splat(self, scalar: Value) -> Value:
        from tilewright.compiler.gpu.builder import broadcast

        return broadcast(scalar, self.lanes)

    def store(self, results: list[Value], divisors: list[Value], positions: list[Value]) -> None:
        """Divides and writes the thread's rows."""
        a, access = self.attention, self.problem.accesses[-1]
        target = self.written.buffers[access.buffer]
        for i, position in enumerate(positions):
            present = True if a.rows % self.tile.rows == 0 else position < a.rows
            for j in range(self.vectors):
                vector = results[i * self.vectors + j]
                first = (self.lane + j * LANES) * self.lanes
                for lane in range(self.lanes):
                    column = first + lane
                    inside = True if a.width % LANES == 0 else column < a.width
                    with if_(both(present, inside)):
                        found = widened(vector[lane] * divisors[i], access.type.element_type)
                        at = access.at([*self.batch, position, 0, 0, column])
                        store(found, target, *at)
