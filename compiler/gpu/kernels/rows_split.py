"""Columns of a row divided among blocks: each writes its partial results down, and the last one to come combines them.

Pieces are combined in the same order whoever comes last, so results are the same every time. The workspace holds a
counter per group of rows, zero between launches, and behind those the partial results of every row and piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

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
from tilewright.compiler.gpu.kernels.rows_combine import Combination
from tilewright.compiler.gpu.kernels.rows_exchange import folding
from tilewright.compiler.gpu.kernels.rows_layout import RowLayout
from tilewright.compiler.gpu.kernels.rows_problem import RowProblem
from tilewright.compiler.gpu.primitives import atomic_add
from tilewright.compiler.ir import ir, memref
from tilewright.compiler.passes.place_scratch import element_bytes

Key = TypeVar("Key", bound=tuple)
_ALIGNMENT = 16


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def row_blocks(problem: RowProblem, layout: RowLayout) -> int:
    """Groups of rows, each of which one block has, or `split` blocks have."""
    return -(-problem.num_rows // layout.block_rows)


def counter_bytes(problem: RowProblem, layout: RowLayout) -> int:
    """Bytes that are zero before and after every launch."""
    return _aligned(4 * row_blocks(problem, layout)) if layout.split > 1 else 0


def workspace_bytes(problem: RowProblem, layout: RowLayout) -> int:
    """Bytes for counters and partial results; 0 where no row is divided."""
    if layout.split == 1:
        return 0
    places = row_blocks(problem, layout) * layout.block_rows * layout.split
    results = [result.type for step in problem.steps if step.reduces for result in step.op.results]
    sizes = [_aligned(places * element_bytes(ir.RankedTensorType(t).element_type)) for t in results]
    return counter_bytes(problem, layout) + sum(sizes)


class Meeting:
    """The blocks of one group of rows: block `number` of `split`, `group` of all groups. Make it before branching."""

    def __init__(
        self,
        problem: RowProblem,
        layout: RowLayout,
        workspace: ir.Value,
        group: Value,
        piece: Value,
        thread: Value,
    ):
        self.problem, self.layout, self.workspace = problem, layout, workspace
        self.group, self.piece, self.thread = group, piece, thread
        i32 = ir.IntegerType.get_signless(32)
        counters = ir.MemRefType.get([counter_bytes(problem, layout) // 4], i32)
        self.counters = memref.view(counters, workspace, index(0).value, [])
        self.flag = shared([1], i32)
        self.end = counter_bytes(problem, layout)

    def last(
        self, partial: Mapping[Key, list[Value]], beside: Value, across: Value
    ) -> tuple[Value, dict[Key, list[ir.Value]]]:
        """Writes partial results down; tells whether this block came last, and where those of all are."""
        memory = {key: [self.buffer(value) for value in values] for key, values in partial.items()}
        first = (self.group * self.layout.beside + beside) * self.layout.lanes
        with if_(across.equals(0) if self.layout.across > 1 else True):
            for key, values in partial.items():
                for value, buffer in zip(values, memory[key]):
                    store(value, buffer, first + key[1], self.piece)
        if self.layout.beside > 1:
            barrier()
        # Releases what all threads wrote before the barrier, and acquires what other blocks released.
        with if_(self.thread.equals(0)):
            store(atomic_add(1, self.counters, self.group, order="acq_rel"), self.flag, 0)
        barrier()
        return load(self.flag, 0).equals(self.layout.split - 1), memory

    def collect(
        self,
        memory: Mapping[Key, list[ir.Value]],
        starts: Mapping[Key, list[Value]],
        beside: Value,
        across: Value,
    ) -> dict[Key, list[Value]]:
        """What each thread of a row combines of all pieces; for the last block, which makes the counter zero again."""
        with if_(self.thread.equals(0)):
            store(constant(ir.IntegerType.get_signless(32), 0), self.counters, self.group)
        first = (self.group * self.layout.beside + beside) * self.layout.lanes
        found = {}
        for key, buffers in memory.items():
            fold = folding(combination_of(key))

            def add(piece: Value, *own: Value, key=key, buffers=buffers, fold=fold) -> list[Value]:
                return fold(list(own), [load(buffer, first + key[1], piece) for buffer in buffers])

            found[key] = for_(across, self.layout.split, self.layout.across, starts[key], add)
        return found

    def buffer(self, value: Value) -> ir.Value:
        """Room for one partial result of every row and piece."""
        shape = [row_blocks(self.problem, self.layout) * self.layout.block_rows, self.layout.split]
        place = index(self.end).value
        self.end += _aligned(shape[0] * shape[1] * element_bytes(value.type))
        return memref.view(ir.MemRefType.get(shape, value.type), self.workspace, place, [])


def combination_of(key: tuple) -> Combination:
    """How the partial results under a key combine."""
    return key[2]
