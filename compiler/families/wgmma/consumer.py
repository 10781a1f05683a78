"""A consumer of a wgmma kernel: one warpgroup that multiplies [64, k] by [k, columns] and keeps the sums in registers.

    for every unit of work:
        for every step of its k loop: wait until the stage is full; start wgmma; wait for the one before and release its stage
        write the sums, or add them up with those of the other parts of the tile

One product is always in flight, so the tensor cores never wait for the release of a stage.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.families.wgmma.pipeline import Pipeline, Turn, zeros
from tilewright.compiler.families.wgmma.plan import Plan
from tilewright.compiler.families.wgmma.schedule import Unit
from tilewright.compiler.families.wgmma.tile import (
    PANEL,
    ROW_BYTES,
    SWIZZLE_ATOM_BYTES,
    WARPGROUP_ROWS,
)
from tilewright.compiler.gpu import primitives
from tilewright.compiler.gpu.builder import Value, for_, i32
from tilewright.compiler.gpu.primitives import WGMMA_K_BYTES, Shared, Tile
from tilewright.compiler.ir import ir


@dataclass(frozen=True)
class Consumer:
    """What one warpgroup needs: memory of the stages, their barriers, its number among consumers and its threads'."""

    plan: Plan
    pipeline: Pipeline
    a_memory: ir.Value
    b_memory: ir.Value
    number: Value
    thread: Value

    @property
    def sum_type(self) -> ir.Type:
        return ir.Type.parse("i32" if self.plan.type_ in ("i8", "u8") else "f32")

    def multiply(self, unit: Unit, turn: Turn) -> tuple[list[Value], Turn]:
        """The sums of a unit, and where the pipeline stands after it; every stage it used is released."""
        cluster = self.plan.tile.cluster
        start = [*turn.carried(), *zeros(self.plan.tile.accumulators, self.sum_type)]

        def step(k: Value, *carried: Value) -> list[Value]:
            own = Turn.of(list(carried))
            later = k.differs(unit.first)
            self.pipeline.wait_full(own)
            sums = primitives.wgmma(
                carried[2:], self.a_tile(own.stage), self.b_tile(own.stage), i32(later.to(i32(0).type)),
                self.plan.tile.columns, self.plan.k_steps, self.plan.type_,
            )  # fmt: skip
            sums = primitives.wgmma_wait(sums, 1)
            self.pipeline.release_before(own, self.thread, later, cluster)
            return [*self.pipeline.next(own).carried(), *sums]

        found = for_(unit.first, unit.end, 1, start, step)
        after = Turn.of(found)
        sums = primitives.wgmma_wait(found[2:], 0)
        self.pipeline.release_before(after, self.thread, True, cluster)
        return sums, after

    def a_tile(self, stage: Value) -> Tile:
        """This warpgroup's 64 rows of a stage."""
        place = Shared(self.a_memory, stage * self.plan.tile.a_bytes)
        place = place.at(self.number * (WARPGROUP_ROWS * ROW_BYTES))
        return operand_tile(place, self.plan.a_major)

    def b_tile(self, stage: Value) -> Tile:
        """The stage's columns."""
        place = Shared(self.b_memory, stage * self.plan.tile.b_bytes)
        return operand_tile(place, self.plan.b_major)


def operand_tile(place: Shared, major: str, panel_bytes: int = PANEL * ROW_BYTES) -> Tile:
    """A swizzled operand: rows of 128 bytes along k, or panels of 64 columns, `panel_bytes` apart, with one row per k."""
    if major == "k":
        return Tile(place, "k", ROW_BYTES, 16, SWIZZLE_ATOM_BYTES, WGMMA_K_BYTES)
    step = WGMMA_K_BYTES // 2 * ROW_BYTES
    return Tile(place, major, ROW_BYTES, panel_bytes, SWIZZLE_ATOM_BYTES, step)
