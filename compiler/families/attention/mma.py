"""Attention on the warp-wide matrix instruction mma.sync, for f16 and bf16 on sm_80 and newer.

A warp keeps its queries as fragments in registers, multiplies them with blocks of keys, weighs the products where they
are, and multiplies the weights, which lie as the next instruction wants its first factor, with values.

Fragments: lane l has of the products rows l / 4 and l / 4 + 8, columns 2 (l mod 4) and the next.
Source: T. Dao, "FlashAttention-2", 2023, §3.3; PTX ISA, "Matrix fragments for mma.m16n8k16".
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
from tilewright.compiler.families.attention.simt import padded
from tilewright.compiler.families.attention.softmax import Rows, Softmax, seen_steps
from tilewright.compiler.families.contraction.operand_copies import Layout
from tilewright.compiler.gpu.builder import (
    Kernel,
    Value,
    barrier,
    both,
    constant,
    from_elements,
    if_,
    index,
    kernel,
    raw,
    shared,
    store,
    store_vector,
    thread_id,
    vector_type,
)
from tilewright.compiler.ir import ir, nvgpu, vector
from tilewright.compiler.nouns.schedule import GpuTile

ROWS, COLUMNS, DEPTH = 16, 8, 16
"""What one instruction multiplies: [16, 16] x [16, 8]."""
PIECE = 8
"""Elements of 16 bytes."""


@dataclass(frozen=True)
class MmaPlan:
    """`rows` of queries, 16 or a multiple per warp, and `columns` of keys that a block of `threads` works on."""

    problem: AttentionProblem
    rows: int
    columns: int
    threads: int

    @property
    def warp_rows(self) -> int:
        """Fragments of 16 rows that a warp has."""
        return self.rows // ROWS // (self.threads // 32)

    @property
    def gpu(self) -> GpuTile:
        """The schedule of the kernel."""
        instruction = f"mma.m16n8k16.{self.problem.accesses[0].dtype}"
        return GpuTile(
            "attention", self.threads, (self.rows, self.columns), instruction=instruction, stages=self.slots
        )

    @property
    def defers(self) -> bool:
        element = self.problem.accesses[0].type.element_type
        return all(can_defer(self.problem.accesses[i], self.lanes(i), element, True) for i in (1, 2))

    @property
    def slots(self) -> int:
        return 2 if self.defers else 1

    def lanes(self, number: int) -> int:
        """Elements that one access takes of queries, keys or values."""
        a = self.problem.attention
        loop = len(a.extents) + (3 if number == 2 else 2)
        return self.problem.accesses[number].vector(loop, a.width if number == 2 else a.inner)

    def layout(self, number: int) -> Layout:
        """How queries, keys or values lie in shared memory: swizzled, or padded where rows are no power of two."""
        a = self.problem.attention
        rows = self.rows if number == 0 else self.columns
        columns = padded(a.width if number == 2 else a.inner, DEPTH)
        pieces = columns // PIECE
        swizzled = pieces & (pieces - 1) == 0
        return Layout(rows, columns, columns if swizzled else columns + PIECE, swizzled, PIECE)

    @property
    def shared_bytes(self) -> int:
        streamed = self.slots * (self.layout(1).elements + self.layout(2).elements)
        return 2 * (self.layout(0).elements + streamed)

    @property
    def registers(self) -> int:
        """Of a thread: products and results in f32, queries as fragments, and what addresses take."""
        sums = self.warp_rows * (self.columns + self.layout(2).columns) // 2
        return sums + self.warp_rows * self.layout(0).columns // 4 + 40


def emit_mma(plan: MmaPlan) -> ir.Module:
    """The kernel of an attention in gpu-level IR."""
    problem = plan.problem
    parts = -(-problem.attention.rows // plan.rows)
    rtasks = problem.heads * parts
    with kernel(problem.name, problem.buffers, rtasks=rtasks, block=plan.threads, made=plan.gpu) as written:
        _Block(plan, written, parts).write()
    return written.module


class _Block:
    """One block's work: some rows of one head."""

    def __init__(self, plan: MmaPlan, written: Kernel, parts: int):
        self.plan, self.problem, self.written = plan, plan.problem, written
        self.attention = plan.problem.attention
        self.element = plan.problem.accesses[0].type.element_type
        self.thread = thread_id()
        self.lane = self.thread % 32
        self.within, self.matrix = self.lane % 8, self.lane // 8
        self.warp_row = self.thread // 32 * (plan.warp_rows * ROWS)
        place = written.rtask()
        # Later rows see more keys when there is a causal mask: they start first.
        self.first = (index(parts - 1) - place % parts) * plan.rows
        self.batch = self.problem.batch(place // parts)
        self.tiles = plan.layout(2).columns // COLUMNS

    def write(self) -> None:
        plan = self.plan
        self.buffers = [
            shared([plan.layout(i).elements * (plan.slots if i else 1)], self.element, 128) for i in range(3)
        ]
        copiers = [self.copier(i) for i in range(3)]
        copiers[0].copy(self.first, 0)
        barrier()
        queries = self.queries()
        self.key_starts = self.starts(1, plan.layout(1).columns)
        self.value_starts = self.starts(2, plan.layout(2).columns)
        softmax = Softmax(self.problem, self.written, self.batch, (plan.rows, plan.columns), (1, 2))
        state = softmax.start(2 * plan.warp_rows)
        row = self.first + self.warp_row + self.lane // 4
        positions = [row + i * COLUMNS for i in range(2 * plan.warp_rows)]
        zero = constant(vector_type(4, ir.F32Type.get()), 0.0)
        count = plan.warp_rows * self.tiles

        def block(t: Value, slot: Value, carried: list[Value]) -> Sequence[Value]:
            results, rows = carried[:count], Rows.of(carried[count:])
            products = self.products(queries, slot, zero)
            first = t * plan.columns + self.lane % 4 * 2
            columns = [first + (j * COLUMNS + e) for j in range(plan.columns // COLUMNS) for e in (0, 1)]
            scores = [
                [products[i // 2][j][2 * (i % 2) + e] for j in range(plan.columns // COLUMNS) for e in (0, 1)]
                for i in range(len(positions))
            ]
            weights, factors, after = softmax.weigh(scores, positions, columns, rows)
            scaled = []
            for number, result in enumerate(results):
                upper, lower = factors[2 * (number // self.tiles)], factors[2 * (number // self.tiles) + 1]
                scaled.append(result * from_elements([upper, upper, lower, lower]))
            return [*self.sums(weights, slot, scaled), *after.values]

        steps = seen_steps(self.problem, self.first, plan.rows, plan.columns)
        last = over_keys(copiers[1:], plan.columns, steps, [zero] * count + state.values, block)
        self.store(last[:count], softmax.divisors(Rows.of(last[count:])), positions)

    def copier(self, number: int) -> TileCopier:
        a, plan = self.attention, self.plan
        tile = Tile(
            access=self.problem.accesses[number],
            row=0 if number == 0 else 1,
            column=3 if number == 2 else 2,
            rows=a.rows if number == 0 else a.columns,
            columns=a.width if number == 2 else a.inner,
            layout=plan.layout(number),
            dtype=self.element,
            threads=plan.threads,
            deferred=plan.defers and number > 0,
            lanes=plan.lanes(number),
        )
        source = self.written.buffers[tile.access.buffer]
        return TileCopier(tile, source, self.buffers[number], self.thread, self.batch)

    def load(self, number: int, place: Value, transpose: bool) -> Value:
        """Four matrices of [8, 16 B]; every lane says where one row of one of them is."""
        type_ = ir.VectorType.get([4, 2], self.element)
        return Value(nvgpu.ldmatrix(type_, self.buffers[number], [raw(place)], transpose, 4))

    def queries(self) -> list[list[Value]]:
        """The warp's queries as first factors, [16 rows][16 steps of k]."""
        layout = self.plan.layout(0)
        # Matrices 1 and 3 are the lower rows, 2 and 3 the later steps.
        row = self.warp_row + self.matrix % 2 * 8 + self.within
        found = []
        for i in range(self.plan.warp_rows):
            line = []
            for k in range(0, layout.columns, DEPTH):
                place = layout.place(row, self.matrix // 2 * PIECE + k) + i * ROWS * layout.pitch
                line.append(self.load(0, place, False))
            found.append(line)
        return found

    def starts(self, number: int, columns: int) -> list[Value]:
        """Where this lane's rows of the first 16 keys are, for every 16 columns of keys or values."""
        layout = self.plan.layout(number)
        # Of keys, matrices 2 and 3 are later keys, 1 and 3 later steps; of values the other way round.
        later, further = self.matrix // 2, self.matrix % 2
        if number == 2:
            later, further = further, later
        row = later * 8 + self.within
        return [layout.place(row, further * PIECE + c) for c in range(0, columns, DEPTH)]

    def products(self, queries: list[list[Value]], slot: Value, zero: Value) -> list[list[Value]]:
        """Products of queries and a block of keys as sums, [16 rows][8 keys]."""
        layout = self.plan.layout(1)
        start = slot * layout.elements
        found = [[zero] * (self.plan.columns // COLUMNS) for _ in queries]
        for j in range(0, self.plan.columns, 2 * COLUMNS):
            for step, place in enumerate(self.key_starts):
                keys = halves(self.load(1, place + start + j * layout.pitch, False), self.element)
                for i, line in enumerate(queries):
                    for half, key in enumerate(keys):
                        tile = j // COLUMNS + half
                        found[i][tile] = product(line[step], key, found[i][tile])
        return found

    def sums(self, weights: list[list[Value]], slot: Value, results: list[Value]) -> list[Value]:
        """Results with a block's weighted values added, [16 rows * tiles + 8 columns]."""
        layout = self.plan.layout(2)
        start = slot * layout.elements
        results = list(results)
        for n in range(0, self.plan.columns, DEPTH):
            left = [self.factor(weights, i, n) for i in range(self.plan.warp_rows)]
            for d, place in enumerate(self.value_starts):
                values = halves(self.load(2, place + start + n * layout.pitch, True), self.element)
                for i, weight in enumerate(left):
                    for half, value in enumerate(values):
                        number = i * self.tiles + 2 * d + half
                        results[number] = product(weight, value, results[number])
        return results

    def factor(self, weights: list[list[Value]], i: int, n: int) -> Value:
        """Weights of 16 rows and 16 keys as a first factor: the two halves of keys, in each the upper and the lower rows."""
        lines = []
        for key in (n, n + COLUMNS):
            at = key // COLUMNS * 2
            for half in (0, 1):
                line = weights[2 * i + half]
                lines.append([widened(line[at + e], self.element).value for e in (0, 1)])
        flat = [value for line in lines for value in line]
        return Value(vector.from_elements(ir.VectorType.get([4, 2], self.element), flat))

    def store(self, results: list[Value], divisors: list[Value], positions: list[Value]) -> None:
        """Divides and writes the thread's rows, two columns at a time where they lie side by side."""
        a, access = self.attention, self.problem.accesses[-1]
        target, type_ = self.written.buffers[access.buffer], access.type.element_type
        pairs = access.vector(len(a.extents) + 3, a.width, 2 * access.element_bytes) == 2
        for number, result in enumerate(results):
            i, tile = divmod(number, self.tiles)
            column = self.lane % 4 * 2 + tile * COLUMNS
            for half in (0, 1):
                row = positions[2 * i + half]
                present = True if a.rows % self.plan.rows == 0 else row < a.rows
                scaled = [widened(result[2 * half + e] * divisors[2 * i + half], type_) for e in (0, 1)]
                exact = a.width % DEPTH == 0
                if pairs:
                    with if_(both(present, True if exact else column < a.width)):
                        at = access.at([*self.batch, row, 0, 0, column])
                        store_vector(from_elements(scaled), target, at, 2 * access.element_bytes)
                    continue
                for e in (0, 1):
                    with if_(both(present, True if exact else column + e < a.width)):
                        store(scaled[e], target, *access.at([*self.batch, row, 0, 0, column + e]))


def halves(fragment: Value, element: ir.Type) -> list[Value]:
    """Two second factors of eight columns each, of four matrices."""
    type_ = ir.VectorType.get([2, 2], element)
    return [Value(vector.extract_strided_slice(type_, fragment.value, [first], [2], [1])) for first in (0, 2)]


def product(left: Value, right: Value, total: Value) -> Value:
    """`left right + total`, on fragments."""
    square = ir.VectorType.get([2, 2], ir.F32Type.get())
    shaped = vector.shape_cast(square, total.value)
    result = nvgpu.mma_sync(square, left.value, right.value, shaped, [ROWS, COLUMNS, DEPTH])
    return Value(vector.shape_cast(total.type, result))
