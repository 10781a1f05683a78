"""Puts an attention kernel of wgmma together: one producer of queries, keys and values, and consumers of 64 queries each.

    producer:   queries and keys n - 1;  for t = n - 2 ... 0: keys t, values t + 1;  values 0
    consumers:  scores, softmax, results, tile after tile from the last one down: that is where masks are

Keys and values have a ring of stages each. What the queries take is counted on the first keys' barrier.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.compiler.families.attention.softmax import seen_steps
from tilewright.compiler.families.attention.wgmma import WgmmaPlan
from tilewright.compiler.families.attention.wgmma_consumer import AttentionConsumer
from tilewright.compiler.families.wgmma.pipeline import Pipeline, Turn
from tilewright.compiler.families.wgmma.tile import (
    PANEL,
    ROW_BYTES,
    SWIZZLE_ATOM_BYTES,
    WARPGROUP_THREADS,
)
from tilewright.compiler.gpu import primitives
from tilewright.compiler.gpu.builder import (
    Kernel,
    Operand,
    Value,
    barrier,
    for_,
    i32,
    if_,
    if_else,
    index,
    kernel,
    shared,
    thread_id,
)
from tilewright.compiler.gpu.primitives import Shared
from tilewright.compiler.gpu.tensor_maps import tensor_map
from tilewright.compiler.ir import ir


def emit_wgmma(plan: WgmmaPlan) -> ir.Module:
    """The kernel of an attention in gpu-level IR."""
    problem = plan.problem
    with kernel(
        problem.name,
        problem.buffers,
        rtasks=problem.heads * plan.parts,
        block=plan.tile.threads,
        tensor_maps=[tensor_map(**vars(own)) for own in plan.tensor_maps],
        blocks_per_core=1,
        made=plan.gpu,
    ) as written:
        _write(plan, written)
    return written.module


def _write(plan: WgmmaPlan, written: Kernel) -> None:
    tile, byte = plan.tile, ir.IntegerType.get_signless(8)
    memory = [
        shared([size], byte, SWIZZLE_ATOM_BYTES)
        for size in (tile.rows_bytes, tile.stages * tile.key_bytes, tile.stages * tile.value_bytes)
    ]
    keys, values = (Pipeline.allocate(tile.stages, tile.consumers) for _ in range(2))
    thread = thread_id()
    warpgroup = primitives.uniform(thread // WARPGROUP_THREADS).to(ir.IndexType.get())
    inside = thread % WARPGROUP_THREADS
    with if_(thread.equals(0)):
        keys.initialise()
        values.initialise()
        primitives.fence_mbarrier_init()
    barrier()
    primitives.grid_dependency_wait()
    place, heads = written.rtask(), plan.problem.heads
    # Later rows see more keys when there is a causal mask: those of all heads start first.
    is_causal = plan.problem.attention.causal is not None
    part, head = (place // heads, place % heads) if is_causal else (place % plan.parts, place // plan.parts)
    first = (index(plan.parts - 1) - part) * tile.rows
    batch = plan.problem.batch(head)
    steps = seen_steps(plan.problem, first, tile.rows, tile.columns)

    def produce() -> list[Value]:
        if tile.registers:
            primitives.set_max_registers(tile.registers[0], increase=False)
        with if_(inside.equals(0)):
            _Producer(plan, written.maps, memory, keys, values, batch, first, steps).run()
        return []

    def consume() -> list[Value]:
        if tile.registers:
            primitives.set_max_registers(tile.registers[1], increase=True)
        number = warpgroup - 1
        AttentionConsumer(
            plan, written, memory, keys, values, batch, first, steps, number, inside, i32(warpgroup)
        ).run()
        return []

    if_else(warpgroup.equals(0), produce, consume, [])


@dataclass(frozen=True)
class _Producer:
    """What the producer's one thread needs: tensor maps, memory and rings, its head, its rows and tiles of keys."""

    plan: WgmmaPlan
    maps: list[ir.Value]
    memory: list[ir.Value]
    keys: Pipeline
    values: Pipeline
    batch: list[Operand]
    first: Value
    steps: Operand

    def run(self) -> None:
        plan, tile = self.plan, self.plan.tile
        for map_ in self.maps:
            primitives.tma_prefetch(map_)
        turn = Turn.first()
        full = self.keys.full(turn.stage)
        primitives.mbarrier_expect_tx(full, tile.query_bytes + tile.key_bytes)
        rows = plan.starts(self.batch, row=self.first)
        self._load(0, Shared(self.memory[0], 0), full, rows, tile.inner_panels, tile.rows)
        last = index(0) + self.steps - 1
        self._load_keys(last, turn)

        def step(i: Value, *carried: Value) -> list[Value]:
            own = Turn.of(list(carried))
            following = self.keys.next(own)
            self.keys.wait_empty(following)
            primitives.mbarrier_expect_tx(self.keys.full(following.stage), tile.key_bytes)
            self._load_keys(last - i, following)
            self._load_values(last - i + 1, own)
            return following.carried()

        turn = Turn.of(for_(1, self.steps, 1, turn.carried(), step))
        self._load_values(index(0), turn)

    def _load_keys(self, t: Value, turn: Turn) -> None:
        tile, full = self.plan.tile, self.keys.full(turn.stage)
        starts = self.plan.starts(self.batch, key=t * tile.columns)
        place = Shared(self.memory[1], turn.stage * tile.key_bytes)
        self._load(1, place, full, starts, tile.inner_panels, tile.columns)

    def _load_values(self, t: Value, turn: Turn) -> None:
        tile, full = self.plan.tile, self.values.full(turn.stage)
        self.values.wait_empty(turn)
        primitives.mbarrier_expect_tx(full, tile.value_bytes)
        starts = self.plan.starts(self.batch, key=t * tile.columns)
        place = Shared(self.memory[2], turn.stage * tile.value_bytes)
        self._load(2, place, full, starts, tile.width_panels, tile.columns)

    def _load(
        self, number: int, place: Shared, full: Shared, starts: Mapping[int, Operand], panels: int, rows: int
    ) -> None:
        """The panels of a tile of queries, keys or values, one box each."""
        element = len(self.batch) + (3 if number == 2 else 2)
        for panel in range(panels):
            at = self.plan.maps[number].coordinates({**starts, element: panel * PANEL})
            primitives.tma_load(place.at(panel * rows * ROW_BYTES), self.maps[number], full, at)
