"""A consumer of an attention kernel of wgmma: one warpgroup that keeps 64 queries' scores, weights and results in registers.

    scores of the last tile of keys, softmax
    for the tiles before it:
        start scores of this tile; start results += weights x values of the tile after it
        wait for the scores; softmax, while the tensor cores work on the results
        wait for the results, scale them
    results += weights x values of tile 0; divide; store

Thread t of a warpgroup holds, of row t / 4 (+ 8) of its warp's 16 rows, the columns 2 (t % 4) and next of every 8: as
products, and as the first factor of the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.compiler.families.attention.masks import keeps_seen_scores
from tilewright.compiler.families.attention.softmax import LOG2_E, Rows, Softmax
from tilewright.compiler.families.attention.wgmma import STEP, WgmmaPlan
from tilewright.compiler.families.wgmma.consumer import operand_tile
from tilewright.compiler.families.wgmma.epilogue import rounded_pair, stored_place
from tilewright.compiler.families.wgmma.pipeline import Pipeline, Turn, zeros
from tilewright.compiler.families.wgmma.plan import STORED_COLUMNS
from tilewright.compiler.families.wgmma.tile import (
    PANEL,
    ROW_BYTES,
    WARPGROUP_ROWS,
    WARPGROUP_THREADS,
)
from tilewright.compiler.gpu import primitives
from tilewright.compiler.gpu.builder import (
    Kernel,
    Operand,
    Value,
    constant,
    fma,
    for_,
    from_elements,
    i32,
    if_,
    index,
    minimum,
    select,
    shuffle_xor,
)
from tilewright.compiler.gpu.primitives import Shared
from tilewright.compiler.ir import arith, ir

_LANES = (1, 2)
"""Distances of the lanes that share a row."""
_CHAINS = 4
"""Maxima and sums of a row that are built side by side: each instruction waits for the one before it."""


@dataclass(frozen=True)
class AttentionConsumer:
    """What one warpgroup needs: memory and rings, its block's head, rows and tiles of keys, its number, its threads'."""

    plan: WgmmaPlan
    written: Kernel
    memory: list[ir.Value]
    keys: Pipeline
    values: Pipeline
    batch: list[Operand]
    first: Value
    steps: Operand
    number: Value
    thread: Value
    barrier: Value

    def run(self) -> None:
        """All of the consumer's work."""
        tile = self.plan.tile
        scores = _Scores(self)
        turn, last = Turn.first(), index(0) + self.steps - 1
        self.keys.wait_full(turn)
        products = primitives.wgmma_wait(self._start_products(turn.stage), 0)
        self.keys.release(turn.stage, self.thread)
        weights, _, rows = scores.weigh(products, last, scores.softmax.start(2), scores.hides_any)
        self._wait_keys(turn, index(1))
        results, words = zeros(tile.result_columns // 2, ir.F32Type.get()), self._packed(weights)

        def body(is_masked: bool) -> Callable[..., Sequence[Value]]:
            def step(i: Value, *carried: Value) -> Sequence[Value]:
                results, words, rows, own = self._parted(carried)
                following = self.keys.next(own)
                products = self._start_products(following.stage)
                self.values.wait_full(own)
                results = self._start_results(results, words, own.stage)
                products = primitives.wgmma_wait(products, 1)
                self.keys.release(following.stage, self.thread)
                weights, factors, rows = scores.weigh(products, last - i, rows, is_masked)
                self._wait_keys(following, i + 1)
                results = primitives.wgmma_wait(results, 0)
                self.values.release(own.stage, self.thread)
                results = [result * factors[j // 2 % 2] for j, result in enumerate(results)]
                return [*results, *self._packed(weights), *rows.values, *following.carried()]

            return step

        carried = [*results, *words, *rows.values, *turn.carried()]
        start: Operand = 1
        if scores.hides_later:
            # Where only positions hide scores, tiles that all rows see need not be looked at.
            start = scores.first_clear()
            carried = for_(1, start, 1, carried, body(True))
        carried = for_(start, self.steps, 1, carried, body(False))
        results, words, rows, turn = self._parted(carried)
        self.values.wait_full(turn)
        results = primitives.wgmma_wait(self._start_results(results, words, turn.stage), 0)
        divisors = scores.softmax.divisors(rows)
        self._store([result * divisors[j // 2 % 2] for j, result in enumerate(results)])

    def _wait_keys(self, turn: Turn, trip: Value) -> None:
        """Waits for the keys after `turn`'s, those of trip `trip` of the loop, if there is one.

        That it stands between a tile's softmax and the wait for results keeps the assembler from making the softmax
        wait for results too, which it may do within one basic block.
        """
        with if_(trip < self.steps):
            self.keys.wait_full(self.keys.next(turn))

    def _parted(self, carried: Sequence[Value]) -> tuple[list[Value], list[Value], Rows, Turn]:
        """What a loop carries: results, weights as the next first factor, the softmax's state, the values' turn."""
        count = self.plan.tile.result_columns // 2
        end = count + self.plan.tile.columns // 4
        return (
            list(carried[:count]),
            list(carried[count:end]),
            Rows.of(carried[end:-2]),
            Turn.of(list(carried[-2:])),
        )

    def _start_products(self, stage: Value) -> list[Value]:
        """Starts queries x keys of a stage, a group of instructions per panel of the head."""
        plan, tile = self.plan, self.plan.tile
        found = zeros(tile.columns // 2, ir.F32Type.get())
        mine = Shared(self.memory[0], 0).at(self.number * (WARPGROUP_ROWS * ROW_BYTES))
        keys = Shared(self.memory[1], stage * tile.key_bytes)
        for panel in range(tile.inner_panels):
            left = operand_tile(mine.at(panel * tile.rows * ROW_BYTES), "k")
            right = operand_tile(keys.at(panel * tile.columns * ROW_BYTES), "k")
            k_steps = min(PANEL // STEP, -(-(tile.inner - panel * PANEL) // STEP))
            found = primitives.wgmma(found, left, right, int(panel > 0), tile.columns, k_steps, plan.type_)
        return found

    def _start_results(self, results: list[Value], words: list[Value], stage: Value) -> list[Value]:
        """Starts `results` + weights x values of a stage, one group."""
        plan, tile = self.plan, self.plan.tile
        place = Shared(self.memory[2], stage * tile.value_bytes)
        right = operand_tile(place, "n", tile.columns * ROW_BYTES)
        left, k_steps = from_elements(words), tile.columns // STEP
        return primitives.wgmma_register(results, left, right, 1, tile.result_columns, k_steps, plan.type_)

    def _packed(self, weights: list[list[Value]]) -> list[Value]:
        """Weights [row][column] as a first factor: for every 16 keys, the two halves of them, in each both rows."""
        element = self.plan.problem.accesses[0].type.element_type
        return [
            rounded_pair(line[at : at + 2], element)
            for at in range(0, len(weights[0]), 2)
            for line in weights
        ]

    def _store(self, results: list[Value]) -> None:
        """Writes results where this consumer's queries were, and from there to memory."""
        plan, tile = self.plan, self.plan.tile
        element = plan.problem.accesses[-1].type.element_type
        lane, warp_row = self.thread % 32, self.thread // 32 * 16
        mine = Shared(self.memory[0], 0).at(self.number * (WARPGROUP_ROWS * ROW_BYTES))
        panels = [mine.at(p * tile.rows * ROW_BYTES) for p in range(tile.width_panels)]
        for panel, place in enumerate(panels):
            for quarter in range(PANEL // STORED_COLUMNS):
                at = (panel * PANEL + quarter * STORED_COLUMNS) // 2
                pairs = [results[at + j : at + j + 2] for j in range(0, 8, 2)]
                registers = [rounded_pair(pair, element) for pair in pairs]
                primitives.stmatrix(stored_place(place, warp_row, lane, quarter, PANEL), registers)
        primitives.fence_async_shared()
        primitives.named_barrier(self.barrier, WARPGROUP_THREADS)
        row = self.first + self.number * WARPGROUP_ROWS
        with if_(self.thread.equals(0)):
            for panel, place in enumerate(panels):
                starts = plan.starts(self.batch, row=row, element=panel * PANEL)
                primitives.tma_store(self.written.maps[3], place, plan.maps[3].coordinates(starts))
            primitives.bulk_commit()
            primitives.bulk_wait(0)


class _Scores:
    """Weighs the products of one consumer's queries, where the region and the positions of keys let them be."""

    def __init__(self, consumer: AttentionConsumer):
        self.consumer, tile = consumer, consumer.plan.tile
        self.attention = a = consumer.plan.problem.attention
        self.softmax = Softmax(
            consumer.plan.problem, consumer.written, consumer.batch, (tile.rows, tile.columns), _LANES
        )
        self.is_plain = keeps_seen_scores(a) and a.scale > 0
        # Products are only multiplied where they become exponents, in the instruction that subtracts the greatest.
        self.factor = constant(ir.F32Type.get(), a.scale * LOG2_E if self.is_plain else 1.0)
        self.hides_later = a.causal is not None
        self.hides_any = self.hides_later or a.columns % tile.columns != 0
        self.lane = consumer.thread % 32
        self.start_row = consumer.first + consumer.number * WARPGROUP_ROWS
        row = self.start_row + consumer.thread // 32 * 16 + self.lane // 4
        self.positions = [row, row + 8]

    def first_clear(self) -> Value:
        """Which trip of the loop, 1 or later, is the first whose keys all rows see; they go on to be."""
        a, tile, steps = self.attention, self.consumer.plan.tile, index(0) + self.consumer.steps
        assert a.causal is not None
        # The first row sees so many keys.
        seen = Value(arith.maxsi((self.start_row + (a.causal + 1)).value, index(0).value))
        clear = minimum(seen // tile.columns, a.columns // tile.columns)
        rest = steps - minimum(clear, steps)
        return Value(arith.maxui(rest.value, index(1).value))

    def weigh(
        self, products: list[Value], t: Value, state: Rows, is_masked: bool
    ) -> tuple[list[list[Value]], list[Value], Rows]:
        """Weights of products with tile `t` of keys [row][column], what results so far are scaled by, the new state."""
        softmax, columns = self.softmax, self.consumer.plan.tile.columns
        first = t * columns + self.lane % 4 * 2
        inside = [8 * j + e for j in range(columns // 8) for e in (0, 1)]
        weights, factors, after = [], [], Rows([], [])
        for half, row in enumerate(self.positions):
            scores = [products[at // 8 * 4 + half * 2 + at % 2] for at in inside]
            if not self.is_plain:
                scores = [softmax.modified(s, row, first + at) for s, at in zip(scores, inside)]
            if is_masked:
                last = self._last_seen(row, first)
                scores = [self._hidden(s, at, last) for s, at in zip(scores, inside)]
            most = _folded(scores, lambda a, b: Value(arith.maxnumf(a.value, b.value)))
            for distance in _LANES:
                most = Value(arith.maxnumf(most.value, shuffle_xor(most, distance).value))
            top = state.tops[half]
            most = Value(arith.maxnumf(most.value, top.value))
            # A row that has seen no key yet has no greatest score; zero keeps its weights zeros.
            base = select(most.equals(softmax.lowest), softmax.zero, most * self.factor * -1.0)
            assert isinstance(base, Value)
            found = [self._power(score, base) for score in scores]
            factor = self._power(top, base)
            weights.append(found)
            factors.append(factor)
            after.tops.append(most)
            after.totals.append(fma(state.totals[half], factor, _folded(found, lambda a, b: a + b)))
        return weights, factors, after

    def _power(self, score: Value, base: Value) -> Value:
        return primitives.exp2_approximate(fma(score, self.factor, base))

    def _last_seen(self, row: Value, first: Value) -> Value:
        """How far behind key `first` the last one is that a row sees, i32 and negative where it is before it."""
        a = self.attention
        last = i32(a.columns - 1)
        if a.causal is not None:
            last = Value(arith.minsi((i32(row) + a.causal).value, last.value))
        return last - i32(first)

    def _hidden(self, score: Value, at: int, last: Value) -> Value:
        seen = Value(arith.cmpi(arith.CmpIPredicate.sge, last.value, i32(at).value))
        found = select(seen, score, self.softmax.lowest)
        assert isinstance(found, Value)
        return found


def _folded(values: Sequence[Value], operation: Callable[[Value, Value], Value]) -> Value:
    """All values under an associative operation, in a few chains side by side."""
    chains = list(values[:_CHAINS])
    for i, value in enumerate(values[_CHAINS:]):
        chains[i % _CHAINS] = operation(chains[i % _CHAINS], value)
    while len(chains) > 1:
        chains = [
            operation(*chains[i : i + 2]) if i + 1 < len(chains) else chains[i]
            for i in range(0, len(chains), 2)
        ]
    return chains[0]
