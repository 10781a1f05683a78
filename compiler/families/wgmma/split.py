"""Adds up the parts of a divided tile through memory, in the order of the parts, whoever comes last.

    every part:   workspace[slot, part] = sums; one more has come to slot
    the last one: sums = workspace[slot, 0] + workspace[slot, 1] + ...; nobody has come to slot

The result does not depend on which part comes last. Each warpgroup is on its own: it has a slot of its own, and no
other one waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.compiler.families.wgmma.schedule import TileSchedule, Unit
from tilewright.compiler.families.wgmma.tile import WARPGROUP_THREADS
from tilewright.compiler.gpu import primitives
from tilewright.compiler.gpu.builder import (
    Operand,
    Value,
    from_elements,
    if_,
    if_else,
    index,
    load,
    load_vector,
    store,
    store_vector,
)
from tilewright.compiler.ir import ir, memref

LANES = 4
"""Sums that a thread has of 8 columns, and stores at once: 16 bytes."""
ALIGNMENT = 128

Sums = Callable[[int], "list[Value]"]
"""The sums that a thread has of 8 columns, by their number."""


@dataclass(frozen=True)
class Workspace:
    """Sums of parts in global memory, behind one counter per slot."""

    schedule: TileSchedule

    @property
    def slots(self) -> int:
        """Tiles of 64 rows that are divided."""
        tile = self.schedule.plan.tile
        return self.schedule.divided * tile.cluster * tile.warpgroups

    @property
    def zeroed_bytes(self) -> int:
        return -(-self.slots * 4 // ALIGNMENT) * ALIGNMENT

    @property
    def sums(self) -> int:
        """All sums of all parts."""
        return self.slots * self.schedule.split * self.part_sums

    @property
    def part_sums(self) -> int:
        """Sums of one part of one slot."""
        return self.groups * LANES * WARPGROUP_THREADS

    @property
    def groups(self) -> int:
        return self.schedule.plan.tile.accumulators // LANES

    @property
    def bytes(self) -> int:
        """Of all of it; 0 where no tile is divided."""
        return self.zeroed_bytes + 4 * self.sums if self.slots else 0


@dataclass(frozen=True)
class Reduction:
    """The adding up in one warpgroup: `flags` is an i32 of shared memory for each, `barrier` its named barrier."""

    workspace: Workspace
    memory: ir.Value
    flags: ir.Value
    number: Value
    thread: Value
    barrier: Value
    rank: Operand

    def write(self, unit: Unit, sums: list[Value], write: Callable[[Sums], None]) -> None:
        """Calls `write` where all sums of the unit's tile are there: at once, or in the last part of it.

        `write` gets a function that gives the four sums of 8 columns.
        """

        def whole() -> list[Value]:
            write(lambda eighth: sums[eighth * LANES : (eighth + 1) * LANES])
            return []

        def divided() -> list[Value]:
            with if_(self._deposit(unit, sums)):
                write(lambda eighth: self._collect(unit, sums[0].type, eighth))
            return []

        if isinstance(unit.divided, bool):
            divided() if unit.divided else whole()
        else:
            if_else(unit.divided, divided, whole, [])

    def _slot(self, unit: Unit) -> Value:
        tile = self.workspace.schedule.plan.tile
        slot = unit.slot * tile.cluster + self.rank if tile.cluster > 1 else unit.slot
        return slot * tile.warpgroups + self.number

    def _views(self, element: ir.Type) -> tuple[ir.Value, ir.Value]:
        """(counters, sums) as flat memory."""
        space = self.workspace
        counters = memref.view(
            ir.MemRefType.get([space.zeroed_bytes // 4], ir.IntegerType.get_signless(32)),
            self.memory,
            index(0).value,
            [],
        )
        sums = memref.view(
            ir.MemRefType.get([space.sums], element), self.memory, index(space.zeroed_bytes).value, []
        )
        return counters, sums

    def _place(self, unit: Unit, part: Operand) -> Value:
        """Where this thread's sums of a part start."""
        split = self.workspace.schedule.split
        return (self._slot(unit) * split + part) * self.workspace.part_sums + self.thread * LANES

    def _deposit(self, unit: Unit, sums: list[Value]) -> Value:
        """Writes this part's sums; gives whether it was the last part to do so."""
        counters, memory = self._views(sums[0].type)
        place = self._place(unit, unit.part)
        for group in range(self.workspace.groups):
            own = sums[group * LANES : group * LANES + LANES]
            store_vector(from_elements(own), memory, [place + group * (LANES * WARPGROUP_THREADS)], 16)
        # One thread's acquire and release at the scope of the device, between two barriers, stand for all threads'.
        primitives.named_barrier(self.barrier, WARPGROUP_THREADS)
        with if_(self.thread.equals(0)):
            slot = self._slot(unit)
            before = primitives.atomic_add(1, counters, slot, "acq_rel")
            last = before.equals(self.workspace.schedule.split - 1)
            with if_(last):
                primitives.store_release(0, counters, slot)
            store(last.to(ir.IntegerType.get_signless(32)), self.flags, self.number)
        primitives.named_barrier(self.barrier, WARPGROUP_THREADS)
        return load(self.flags, self.number).differs(0)

    def _collect(self, unit: Unit, element: ir.Type, group: int) -> list[Value]:
        """Four sums of all parts, added in the order of the parts: read when needed, so registers hold few."""
        _, memory = self._views(element)
        total = None
        for part in range(self.workspace.schedule.split):
            place = self._place(unit, part) + group * (LANES * WARPGROUP_THREADS)
            found = load_vector(memory, [place], LANES, 16)
            total = found if total is None else total + found
        assert total is not None
        return [total[lane] for lane in range(LANES)]
