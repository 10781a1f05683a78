"""Columns of a row divided among blocks: each writes its partial results down, and the last one to come combines them.

Where a row's elements are needed again after its reduction, all blocks wait for each other instead, and each of them
combines what the others wrote; such a grid must run as a whole. Pieces are combined in the same order whoever comes
last, so results are the same every time. The workspace holds counters for every group of rows, zero between launches,
and behind those the partial results of every row and piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from tilewright.compiler.families.rows.exchange import folding
from tilewright.compiler.families.rows.layout import RowLayout
from tilewright.compiler.families.rows.problem import RowProblem
from tilewright.compiler.gpu.builder import (
    Value,
    barrier,
    constant,
    for_,
    if_,
    index,
    load,
    shared,
    store,
)
from tilewright.compiler.gpu.primitives import atomic_add, load_acquire, nanosleep
from tilewright.compiler.ir import element_bytes, ir, memref, scf

Key = TypeVar("Key", bound=tuple)
_ALIGNMENT = 16
_SLEEP_NS = 64
"""Between two looks at a counter: blocks of one grid arrive within microseconds of each other."""


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def row_blocks(problem: RowProblem, layout: RowLayout) -> int:
    """Groups of rows, each of which one block has, or `split` blocks have."""
    return -(-problem.num_rows // layout.block_rows)


def counters_of(problem: RowProblem, layout: RowLayout) -> int:
    """Counters of one group of rows: one, or one per round and one for the end where blocks wait for each other."""
    return problem.rounds + 1 if layout.waits else 1


def counter_bytes(problem: RowProblem, layout: RowLayout) -> int:
    """Bytes that are zero before and after every launch."""
    count = row_blocks(problem, layout) * counters_of(problem, layout)
    return _aligned(4 * count) if layout.split > 1 else 0


def workspace_bytes(problem: RowProblem, layout: RowLayout) -> int:
    """Bytes for counters and partial results; 0 where no row is divided."""
    if layout.split == 1:
        return 0
    places = row_blocks(problem, layout) * layout.block_rows * layout.split
    results = [result.type for step in problem.steps if step.reduces for result in step.op.results]
    sizes = [_aligned(places * element_bytes(ir.RankedTensorType(t).element_type)) for t in results]
    return counter_bytes(problem, layout) + sum(sizes)


class GridBarrier:
    """The grid barrier of the blocks of one group of rows: block `piece` of `split`, `group` of all groups.

    Make it before branching.

    `beside` and `across` are the thread's row (or group of rows) in the block and its place along the row.
    """

    def __init__(
        self,
        problem: RowProblem,
        layout: RowLayout,
        workspace: ir.Value,
        group: Value,
        piece: Value,
        thread: Value,
        beside: Value,
        across: Value,
    ):
        self.problem, self.layout, self.workspace = problem, layout, workspace
        self.group, self.piece, self.thread = group, piece, thread
        self.beside, self.across = beside, across
        i32 = ir.IntegerType.get_signless(32)
        counters = ir.MemRefType.get([counter_bytes(problem, layout) // 4], i32)
        self.counters = memref.view(counters, workspace, index(0).value, [])
        self.flag = None if layout.waits else shared([1], i32)
        self.first = (group * layout.beside + beside) * layout.lanes
        self.memory: dict[tuple, ir.Value] = {}
        end = counter_bytes(problem, layout)
        shape = [row_blocks(problem, layout) * layout.block_rows, layout.split]
        for step in problem.steps:
            for number, result in enumerate(step.op.results if step.reduces else ()):
                element = ir.RankedTensorType(result.type).element_type
                type_ = ir.MemRefType.get(shape, element)
                self.memory[(step, number)] = memref.view(type_, workspace, index(end).value, [])
                end += _aligned(shape[0] * shape[1] * element_bytes(element))

    def write(self, partial: Mapping[Key, list[Value]]) -> None:
        """Writes this block's partial results down, where its first thread can release them."""
        with if_(self.across.equals(0) if self.layout.across > 1 else True):
            for key, values in partial.items():
                for value, output in zip(values, key[2].outputs):
                    store(value, self.memory[(key[0], output)], self.first + key[1], self.piece)
        if self.layout.beside > 1:
            barrier()

    def last(self, partial: Mapping[Key, list[Value]]) -> Value:
        """Writes partial results down; tells whether this block came last."""
        assert self.flag is not None
        self.write(partial)
        # Releases what all threads wrote before the barrier, and acquires what other blocks released.
        with if_(self.thread.equals(0)):
            store(atomic_add(1, self.counters, self.group, order="acq_rel"), self.flag, 0)
        barrier()
        return load(self.flag, 0).equals(self.layout.split - 1)

    def forget(self) -> None:
        """Makes the counter zero again; for the last block."""
        with if_(self.thread.equals(0)):
            store(constant(ir.IntegerType.get_signless(32), 0), self.counters, self.group)

    def arrive_and_wait(self, partial: Mapping[Key, list[Value]], rank: int) -> None:
        """Writes partial results of a round down and waits until all blocks of the rows have done so."""
        self.write(partial)
        counter = self.group * counters_of(self.problem, self.layout) + rank
        with if_(self.thread.equals(0)):
            atomic_add(1, self.counters, counter, order="acq_rel")
            self.wait(counter)
        barrier()

    def wait(self, counter: Value) -> None:
        """Until every block has counted."""
        loop = scf.WhileOp([], [])
        with ir.InsertionPoint(loop.before.blocks.append()):
            missing = load_acquire(self.counters, counter) < self.layout.split
            scf.condition(missing.value, [])
        with ir.InsertionPoint(loop.after.blocks.append()):
            nanosleep(_SLEEP_NS)
            scf.yield_([])

    def leave(self) -> None:
        """Makes the counters zero again when all blocks are through with them."""
        count = counters_of(self.problem, self.layout)
        first = self.group * count
        with if_(self.thread.equals(0)):
            before = atomic_add(1, self.counters, first + (count - 1), order="acq_rel")
            with if_(before.equals(self.layout.split - 1)):
                for number in range(count):
                    store(constant(ir.IntegerType.get_signless(32), 0), self.counters, first + number)

    def collect(self, starts: Mapping[Key, list[Value]]) -> dict[Key, list[Value]]:
        """What each thread of a row combines of all pieces."""
        found = {}
        for key, start in starts.items():
            buffers = [self.memory[(key[0], output)] for output in key[2].outputs]

            def add(piece: Value, *own: Value, key=key, buffers=buffers) -> list[Value]:
                values = [load(buffer, self.first + key[1], piece) for buffer in buffers]
                return folding(key[2])(list(own), values)

            found[key] = for_(self.across, self.layout.split, self.layout.across, start, add)
        return found
