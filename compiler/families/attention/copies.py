"""Tiles of queries, keys and values in shared memory, and the loop over blocks of keys that streams them.

    fetch block 0
    for t:
        fetch block t + 1 into the other slot; wait for block t; barrier
        compute with block t; barrier                               its slot may be overwritten

Without asynchronous copies there is one slot, and block t is fetched where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.compiler.families.attention.problem import Access
from tilewright.compiler.families.contraction.operand_copies import ASYNC_BYTES, Layout
from tilewright.compiler.gpu.builder import (
    Operand,
    Value,
    barrier,
    both,
    constant,
    for_,
    from_elements,
    if_,
    index,
    load,
    load_vector,
    raw,
    select,
    store,
    store_vector,
)
from tilewright.compiler.ir import arith, ir, nvgpu


@dataclass(frozen=True)
class Tile:
    """A tile of an operand in shared memory: `layout` holds elements `dtype` of rows from loop `row`, columns from `column`.

    Rows and columns behind `rows` and `columns`, the operand's extents, are zero. `deferred` copies are asynchronous.
    """

    access: Access
    row: int
    column: int
    rows: int
    columns: int
    layout: Layout
    dtype: ir.Type
    threads: int
    deferred: bool
    lanes: int

    @property
    def elements(self) -> int:
        return self.layout.elements


def can_defer(access: Access, lanes: int, dtype: ir.Type, is_allowed: bool) -> bool:
    """Whether elements need not pass through registers: no conversion, and pieces of a size that can be copied."""
    return is_allowed and access.type.element_type == dtype and lanes * access.element_bytes in ASYNC_BYTES


class TileCopier:
    """One thread's part of the copies of a tile into `buffer`, shared memory that holds one or several."""

    def __init__(
        self, tile: Tile, source: ir.Value, buffer: ir.Value, thread: Value, batch: Sequence[Operand]
    ):
        self.tile, self.source, self.buffer, self.thread = tile, source, buffer, thread
        self.batch = list(batch)

    def copy(self, first_row: Operand, slot_start: Operand) -> None:
        """Copies the tile from row `first_row` of the operand on, or starts to."""
        tile = self.tile
        per_row = tile.layout.columns // tile.lanes
        total = tile.layout.rows * per_row
        for i in range(-(-total // tile.threads)):
            number = self.thread + i * tile.threads
            inside = True if (i + 1) * tile.threads <= total else number < total
            row, column = number // per_row, number % per_row * tile.lanes
            with if_(inside):
                self._piece(row, column, first_row, slot_start)

    def _piece(self, row: Value, column: Value, first_row: Operand, slot_start: Operand) -> None:
        tile = self.tile
        place = tile.layout.place(row, column)
        place = place + slot_start if isinstance(slot_start, Value) or slot_start else place
        position = row + first_row if isinstance(first_row, Value) or first_row else row
        there = both(
            True if tile.rows % tile.layout.rows == 0 else position < tile.rows,
            True if tile.columns == tile.layout.columns else column < tile.columns,
        )
        loops: list[Operand] = [*self.batch, 0, 0, 0, 0]
        first = len(self.batch)
        loops[first + tile.row] = select(there, position, 0) if not isinstance(there, bool) else position
        loops[first + tile.column] = select(there, column, 0) if not isinstance(there, bool) else column
        at = [raw(p) for p in tile.access.at(loops)]
        if tile.deferred:
            count = None if isinstance(there, bool) else raw(select(there, index(tile.lanes), 0))
            nvgpu.device_async_copy(
                self.buffer,
                [raw(place)],
                self.source,
                at,
                tile.lanes,
                src_elements=count,
                bypass_l1=tile.lanes * tile.access.element_bytes == 16,
            )
            return
        width = tile.lanes * tile.access.element_bytes
        if tile.lanes == 1:
            values = [load(self.source, *map(Value, at))]
        else:
            loaded = load_vector(self.source, [Value(p) for p in at], tile.lanes, width)
            values = [loaded[lane] for lane in range(tile.lanes)]
        values = [widened(value, tile.dtype) for value in values]
        if not isinstance(there, bool):
            values = [select(there, value, constant(tile.dtype, 0.0)) for value in values]
        if tile.lanes == 1:
            store(values[0], self.buffer, place)
            return
        size = tile.dtype.width // 8
        part = min(tile.lanes, 16 // size)
        for lane in range(0, tile.lanes, part):
            store_vector(from_elements(values[lane : lane + part]), self.buffer, [place + lane], part * size)
        return


def widened(value: Value, type_: ir.Type) -> Value:
    """A float in another float type."""
    if value.type == type_:
        return value
    return Value((arith.extf if type_.width > value.type.width else arith.truncf)(type_, value.value))


Body = Callable[[Value, Value, list[Value]], Sequence[Value]]
"""Takes the number of a block of keys, its slot and the state; gives the new state."""


def over_keys(
    copiers: Sequence[TileCopier], block: int, steps: Operand, state: Sequence[Value], body: Body
) -> list[Value]:
    """Runs `body` over `steps` blocks of `block` keys, all of whose tiles are deferred or none; gives the last state."""
    if not all(copier.tile.deferred for copier in copiers):

        def plain(t: Value, *carried: Value) -> Sequence[Value]:
            for copier in copiers:
                copier.copy(t * block, 0)
            barrier()
            found = body(t, index(0), list(carried))
            barrier()
            return found

        return for_(0, steps, 1, state, plain)

    def start(t: Operand, slot: Operand) -> None:
        for copier in copiers:
            copier.copy(t * block, slot * copier.tile.elements)

    start(0, 0)
    group = nvgpu.device_async_create_group([])

    def step(t: Value, *carried: Value) -> Sequence[Value]:
        following = t + 1
        with if_(following < steps):
            start(following, following % 2)
        # A group for every block, empty behind the last one: all but the newest are waited for, in the end all copies.
        nvgpu.device_async_create_group([])
        nvgpu.device_async_wait(group, num_groups=1)
        barrier()
        found = body(t, t % 2, list(carried))
        barrier()
        return found

    return for_(0, steps, 1, state, step)
