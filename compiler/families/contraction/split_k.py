"""Parts of K summed by different blocks: each writes its sums down, and the last one to come adds them in order.

The order of addition does not depend on who comes last, so results are the same every time. The workspace holds a counter
per tile, zero between launches, and behind those every part's sums.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.families.contraction.addresses import Grid, Tile
from tilewright.compiler.families.contraction.problem import element_bytes
from tilewright.compiler.gpu.builder import (
    Value,
    barrier,
    constant,
    for_,
    if_,
    index,
    load,
    load_vector,
    shared,
    store,
    store_vector,
)
from tilewright.compiler.gpu.primitives import atomic_add
from tilewright.compiler.ir import ir, memref


def counter_bytes(grid: Grid) -> int:
    """Bytes of the counters, which are zero before and after every launch."""
    return -(-grid.contraction.extent("batch") * grid.tiles * 4 // 16) * 16 if grid.parts > 1 else 0


def workspace_bytes(grid: Grid, sums: int, threads: int) -> int:
    """Bytes that a kernel needs whose threads hold `sums` sums each; 0 for one that does not divide K."""
    if grid.parts == 1:
        return 0
    return counter_bytes(grid) + grid.blocks * sums * threads * element_bytes(grid.contraction.compute_dtype)


class SplitK:
    """What the blocks of one divided tile share; make it before branching."""

    def __init__(self, grid: Grid, workspace: ir.Value, tile: Tile, thread: Value, threads: int):
        self.grid, self.tile, self.thread, self.threads = grid, tile, thread, threads
        i32 = ir.IntegerType.get_signless(32)
        counters = ir.MemRefType.get([counter_bytes(grid) // 4], i32)
        self.counters = memref.view(counters, workspace, index(0).value, [])
        self.workspace = workspace
        self.flag = shared([1], i32)
        self.number = tile.batch * grid.tiles + tile.number

    def last(self, sums: Sequence[Value]) -> Value:
        """Writes `sums` down and counts the block; tells whether it came last."""
        thread, grid = self.thread, self.grid
        for i, value in enumerate(sums):
            self._store(value, self._place(i, len(sums), self.tile.part, value))
        # The barrier and the release behind it order the stores of the whole block: no thread needs a fence.
        barrier()
        with if_(thread.equals(0)):
            store(atomic_add(1, self.counters, self.number, order="acq_rel"), self.flag, 0)
        barrier()
        self.before = load(self.flag, 0)
        return self.before >= grid.parts - 1

    def total(self, sums: Sequence[Value]) -> list[Value]:
        """The sums of all parts, first to last; for the last block only, which also makes the counter zero again."""
        with if_(self.thread.equals(0)):
            store(constant(ir.IntegerType.get_signless(32), 0), self.counters, self.number)
        zero = [constant(value.type, 0) for value in sums]

        def add(part: Value, *sums: Value) -> list[Value]:
            return [
                value + self._load(value, self._place(i, len(sums), part, value))
                for i, value in enumerate(sums)
            ]

        # As many parts as were counted, which the compiler does not know: unrolled, all parts would be in registers at once.
        return for_(0, self.before.to(ir.IndexType.get()) + 1, 1, zero, add)

    def _place(self, i: int, count: int, part: Value, value: Value) -> Value:
        block = self.number * self.grid.parts + part
        return ((block * count + i) * self.threads + self.thread) * _lanes(value)

    def _buffer(self, value: Value) -> ir.Value:
        size = (ir.MemRefType(self.workspace.type).shape[0] - counter_bytes(self.grid)) // element_bytes(
            self.grid.contraction.compute_dtype
        )
        type_ = ir.MemRefType.get([size], value.element)
        return memref.view(type_, self.workspace, index(counter_bytes(self.grid)).value, [])

    def _store(self, value: Value, place: Value) -> None:
        if not isinstance(value.type, ir.VectorType):
            store(value, self._buffer(value), place)
        else:
            store_vector(value, self._buffer(value), [place], self._alignment(value))

    def _load(self, value: Value, place: Value) -> Value:
        if not isinstance(value.type, ir.VectorType):
            return load(self._buffer(value), place)
        return load_vector(self._buffer(value), [place], _lanes(value), self._alignment(value))

    def _alignment(self, value: Value) -> int:
        return min(16, _lanes(value) * element_bytes(self.grid.contraction.compute_dtype))


def _lanes(value: Value) -> int:
    return ir.VectorType(value.type).shape[0] if isinstance(value.type, ir.VectorType) else 1
