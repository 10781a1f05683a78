"""The producer of a wgmma kernel: one thread that keeps the stages filled by TMA, tile after tile.

    for every unit of work, for every step of its k loop:
        wait until the stage is empty; expect its bytes; start the copies of a's rows and b's columns

In a cluster every block loads its part of b's columns into the shared memory of all: blocks below each other need the
same ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.families.wgmma.pipeline import Pipeline, Turn
from tilewright.compiler.families.wgmma.plan import Plan
from tilewright.compiler.families.wgmma.schedule import TileSchedule, Unit
from tilewright.compiler.families.wgmma.tile import PANEL, ROW_BYTES, WARPGROUP_ROWS
from tilewright.compiler.gpu import primitives
from tilewright.compiler.gpu.builder import Operand, Share, Value, for_, i32, if_
from tilewright.compiler.gpu.primitives import Shared
from tilewright.compiler.ir import ir


@dataclass(frozen=True)
class Producer:
    """What the producer's one thread needs: memory of the stages, their barriers, tensor maps of a and b."""

    plan: Plan
    schedule: TileSchedule
    pipeline: Pipeline
    a_memory: ir.Value
    b_memory: ir.Value
    a_map: ir.Value
    b_map: ir.Value
    share: Share
    rank: Operand

    def run(self) -> None:
        """All units of this cluster's share."""
        primitives.tma_prefetch(self.a_map)
        primitives.tma_prefetch(self.b_map)
        self.schedule.each(self.share, self.rank, Turn.first().carried(), self._unit)

    def _unit(self, unit: Unit, *carried: Value) -> list[Value]:
        plan = self.plan
        boxes = 1 if plan.whole_row_box else plan.tile.warpgroups
        batch = plan.batch.starts(unit.batch)
        rows = [{**plan.rows.starts(unit.row_box + box), **batch} for box in range(boxes)]
        columns = {**plan.columns.starts(unit.column_box), **batch}

        def step(k: Value, *carried: Value) -> list[Value]:
            turn = Turn.of(list(carried))
            self.pipeline.wait_empty(turn)
            full = self.pipeline.full(turn.stage)
            primitives.mbarrier_expect_tx(full, self.stage_bytes)
            depth = plan.depths.starts(k)
            self._load_a(turn.stage, full, [{**row, **depth} for row in rows])
            self._load_b(turn.stage, full, {**columns, **depth})
            return self.pipeline.next(turn).carried()

        return for_(unit.first, unit.end, 1, list(carried), step)

    @property
    def stage_bytes(self) -> int:
        """Bytes that come into one block's stage, whoever sends them."""
        tile = self.plan.tile
        return tile.a_bytes + tile.b_bytes

    def _load_a(self, stage: Value, full: Shared, starts: list[dict[int, Operand]]) -> None:
        place = Shared(self.a_memory, stage * self.plan.tile.a_bytes)
        for box, at in enumerate(starts):
            target = place.at(box * WARPGROUP_ROWS * ROW_BYTES)
            primitives.tma_load(target, self.a_map, full, self.plan.a.coordinates(at))

    def _load_b(self, stage: Value, full: Shared, start: dict[int, Operand]) -> None:
        plan, cluster = self.plan, self.plan.tile.cluster
        place = Shared(self.b_memory, stage * plan.tile.b_bytes)
        for rows, at in b_pieces(plan, start, self.rank):
            target = place.at(rows * ROW_BYTES)
            mask = (1 << cluster) - 1 if cluster > 1 else None
            primitives.tma_load(target, self.b_map, full, plan.b.coordinates(at), mask)


def b_pieces(
    plan: Plan, start: dict[int, Operand], rank: Operand
) -> list[tuple[Operand, dict[int, Operand]]]:
    """The copies of b that one block makes: (first row of 128 bytes in the stage, where the box starts)."""
    cluster, inner = plan.tile.cluster, plan.columns.numbers[-1]
    rank = i32(rank) if isinstance(rank, Value) else rank
    if plan.b_major == "k":
        share = plan.tile.columns // cluster
        if cluster == 1:
            return [(0, start)]
        return [(rank * share, {**start, inner: i32(start[inner]) + rank * share})]
    panels = _panels(plan)
    if panels % cluster:
        share = plan.depth // cluster
        moved = {**start, plan.chunk: i32(start[plan.chunk]) + rank * share}
        return [
            (rank * share + panel * PANEL, _across(plan, moved, panel * PANEL)) for panel in range(panels)
        ]
    own = panels // cluster
    found: list[tuple[Operand, dict[int, Operand]]] = []
    for panel in range(own):
        if cluster == 1:
            found.append((panel * PANEL, _across(plan, start, panel * PANEL)))
        else:
            moved = {**start, inner: i32(start[inner]) + rank * (own * PANEL) + panel * PANEL}
            found.append((rank * (own * PANEL) + panel * PANEL, moved))
    return found


def _across(plan: Plan, start: dict[int, Operand], column: int) -> dict[int, Operand]:
    """`start` moved by `column` columns of the tile."""
    inside = plan.columns.inside(column)
    return {**start, **{loop: start[loop] + inside[loop] for loop in plan.columns.numbers}}


def _panels(plan: Plan) -> int:
    return plan.tile.columns // PANEL


def run_one_thread(thread: Value, body) -> None:
    """What one thread of a warpgroup does."""
    with if_(thread.equals(0)):
        body()
