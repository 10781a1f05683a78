"""How kernels that sort or scan lines of a tensor deal them out to blocks and threads, of n schedules at once.

sort, block (2, 1000), 512 threads     =>   bitonic networks of 2 x 1024 places in shared memory: 55 layers, 2 pairs a thread
scan, block (4, 512), 4 per access     =>   128 threads to a line, 512 elements at a time; the sum so far goes on to the next
scan, block (256,)                     =>   a line for each thread, whose neighbours lie beside it

Instructions are counted in the PTX of the kernels (`families/rows/sorts.py`, `scans.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.nouns.schedule import WARP, GpuTile
from tilewright.compiler.nouns.workload import Operand, Workload
from tilewright.compiler.tuning.model.deal import Deal, column, once_for_each, ones
from tilewright.compiler.tuning.model.gpu_kernel import wavefronts
from tilewright.compiler.tuning.model.instructions import DEPENDENT_CYCLES, LOOP
from tilewright.compiler.tuning.model.statements import read_statements

_POSITION_BYTES = 4
"""Where an element came from, which is kept beside it."""
_EXCHANGE = 34
"""Instructions that find a pair and compare it: shifts and sums of two places, four loads, eleven of the comparison."""
_MOVED = 4
"""Instructions of a pair for everything that is sorted along: two loads or stores, of both places."""
_EXCHANGE_CHAIN = 16
"""Instructions of an exchange that wait for each other, those of memory aside."""
_FETCHED = 6
"""Instructions that bring an element of an operand to its place in shared memory, or back."""
_PIECE = 8
"""Instructions around a piece of a line: where it begins, how much of it there is, and its loop."""
_WRITTEN_OUT = 8
"""Elements of a line that a thread loads ahead, where it has one of its own: that loop is written out so often."""
_LINE_REGISTERS = 20
_COLUMN_REGISTERS = 32
"""Registers of a thread beside what it holds: 16 to 44 of scans, 22 to 32 of sorts, as assembled for sm_80."""
_DIMENSION = re.compile(r"dimension = (\d+)")
_FIRST = re.compile(r"tilewright\.first = (\d+)")


@dataclass(frozen=True)
class Lines:
    """The lines of a sort or a scan: the tensors that go along them, along which dimension, how many are `kept` of each.

    `sources` are what is read, `others` the extents of the dimensions that lines do not go along.
    """

    sources: tuple[Operand, ...]
    shape: tuple[int, ...]
    dimension: int
    kept: int

    @classmethod
    def of(cls, workload: Workload) -> Lines:
        (statement, *_) = read_statements(workload)
        found = _DIMENSION.search(workload.body)
        first = next((o for o in statement.reads if o.shape), workload.operands[0])
        shape = first.shape
        dimension = int(found[1]) if found and int(found[1]) < len(shape) else len(shape) - 1
        sources = tuple(o for o in statement.reads if o.shape == shape) or (first,)
        length = shape[dimension] if shape else 1
        output = workload.output.shape
        kept = output[dimension] if len(output) == len(shape) and shape else length
        wanted = _FIRST.search(workload.body)
        return cls(sources, shape, dimension, min(kept, int(wanted[1])) if wanted else kept)

    @property
    def length(self) -> int:
        return max(1, self.shape[self.dimension]) if self.shape else 1

    @property
    def others(self) -> tuple[int, ...]:
        return tuple(n for d, n in enumerate(self.shape) if d != self.dimension)

    @property
    def count(self) -> int:
        return max(1, math.prod(self.others))

    def points(self, workload: Workload, line: np.ndarray, place: np.ndarray) -> np.ndarray:
        """The points [len(line), axes] where every operand is accessed at a place of a line; each has axes of its own."""
        found = np.zeros((len(line), len(workload.axes)), dtype=np.int64)
        at, left = [np.zeros(0)] * len(self.others), line % self.count
        for number in reversed(range(len(self.others))):
            at[number], left = left % self.others[number], left // self.others[number]
        for operand in workload.operands:
            whole = len(operand.shape) == len(self.shape)
            values = [*at[: self.dimension], place % self.length, *at[self.dimension :]] if whole else at
            for index, extent, value in zip(operand.index_map, operand.shape, values):
                for term in index.terms:
                    found[:, term.variable] = value % extent
        return found

    def box(self, workload: Workload, lines: np.ndarray) -> np.ndarray:
        """The points of blocks of so many lines: [n, axes]."""
        found = np.ones((len(lines), len(workload.axes)), dtype=np.int64)
        sizes, left = [np.zeros(0)] * len(self.others), np.minimum(lines, self.count)
        for number in reversed(range(len(self.others))):
            sizes[number] = np.minimum(left, self.others[number])
            left = -(-left // self.others[number])
        for operand in workload.operands:
            whole = len(operand.shape) == len(self.shape)
            along = np.full(len(lines), self.length)
            own = [*sizes[: self.dimension], along, *sizes[self.dimension :]] if whole else sizes
            for index, extent, size in zip(operand.index_map, operand.shape, own):
                for term in index.terms:
                    found[:, term.variable] = np.minimum(size, extent)
        return found


def _touched(workload: Workload, lines: Lines, blocks: np.ndarray) -> dict[str, np.ndarray]:
    """Bytes that one block touches of each operand by name: of results, what is kept."""
    found = {}
    for number, operand in enumerate(workload.inputs):
        found[f"in{number}"] = (operand, any(o.name == f"in{number}" for o in lines.sources))
    found["out"] = (workload.output, False)
    share = lines.kept / lines.length
    return {
        name: operand.nbytes * (1.0 if reads or operand.shape != lines.shape else share) / blocks
        for name, (operand, reads) in found.items()
    }


def scans(workload: Workload, tiles: Sequence[GpuTile]) -> Deal:
    """Lines along memory by several threads each, piece after piece; others by a thread each."""
    lines, one = Lines.of(workload), ones(tiles)
    count, length, item = lines.count, lines.length, lines.sources[0].element_bytes
    rows, threads, vector = (
        column(tiles, "block", 0),
        column(tiles, "threads"),
        np.maximum(column(tiles, "vector"), 1),
    )
    together = np.asarray([len(tile.block) > 1 for tile in tiles])
    piece = np.asarray([tile.block[-1] if len(tile.block) > 1 else 1 for tile in tiles], dtype=np.int64)
    across = np.where(together, piece // vector, 1)
    warps, shuffles = across // WARP, np.log2(np.maximum(np.minimum(across, WARP), 1))
    blocks, pieces = -(-count // rows), -(-length // piece)

    def of_warp(wide: int, own: int) -> np.ndarray:
        thread = np.arange(WARP)
        line, place = np.repeat(thread // wide, own), (thread % wide)[:, None] * own + np.arange(own)
        return lines.points(workload, line, place.reshape(-1))

    lanes = once_for_each(of_warp, across, vector)
    several = warps > 1
    shared = np.where(several, 2 * rows * warps * item, 0)
    found = Deal(
        blocks, lines.box(workload, rows), vector, one, pieces, lanes, lanes, shared, one, one.astype(float)
    )
    found.computed = blocks * rows / count
    found.fma = count * length * found.computed
    # Every thread adds what those before it have to its own, and warps what the warps before them have.
    steps = _PIECE + 2 + 2 * vector + 3 * shuffles + np.where(several, 6 + 3.25 * warps, 2)
    found.issued = blocks * threads * pieces * np.where(together, steps - vector, 4)
    found.waits = np.where(together, pieces * (shuffles + 1 + np.where(several, 3, 1)), 0)
    chain = vector + 2 * shuffles + np.where(several, 2 * warps, 1)
    found.cycles = DEPENDENT_CYCLES * pieces * np.where(together, chain, 1)
    ahead = np.where(together, 1, np.minimum(length, _WRITTEN_OUT))
    found.flying = threads * vector * item * ahead * length / (pieces * piece)
    found.touched = _touched(workload, lines, blocks)
    found.registers = np.where(together, _LINE_REGISTERS + 2 * vector, _COLUMN_REGISTERS)
    sums = blocks * pieces * rows * warps * item * (1 + 1.0 * across)
    found.through_shared = {"in0": np.where(several, sums, 0.0)}
    return found


def sorts(workload: Workload, tiles: Sequence[GpuTile]) -> Deal:
    """Whole lines in shared memory, or a part of a long one at a time; where a block has one size, lines where they lie."""
    lines, one = Lines.of(workload), ones(tiles)
    count, length, kept = lines.count, lines.length, lines.kept
    rows, threads = column(tiles, "block", 0), column(tiles, "threads")
    staged = np.asarray([len(tile.block) > 1 for tile in tiles])
    width = np.asarray([tile.block[-1] if len(tile.block) > 1 else length for tile in tiles], dtype=np.int64)
    blocks = -(-count // rows)
    # Some elements are kept from one part of a long line to the next.
    times = 1 + np.maximum(-(-(length - width) // np.maximum(width - kept, 1)), 0)
    levels = np.maximum(np.ceil(np.log2(np.maximum(width, 2))), 1)
    pairs = rows * 2 ** (levels - 1)
    layers = times * levels * (levels + 1) / 2
    turns = np.ceil(pairs / threads)
    sources = len(lines.sources)
    items = [o.element_bytes for o in lines.sources]

    def of_warp(wide: int) -> np.ndarray:
        thread = np.arange(WARP)
        return lines.points(workload, thread // wide, thread % wide)

    read, written = once_for_each(of_warp, width), once_for_each(of_warp, np.minimum(width, kept))
    held = sum(items) + _POSITION_BYTES
    shared = np.where(staged, rows * width * held, 0)
    conflicts = np.asarray(once_for_each(lambda n: _conflicts(int(n), items), levels), dtype=float)
    found = Deal(
        blocks,
        lines.box(workload, rows),
        one,
        one,
        times,
        read,
        written,
        shared,
        one,
        np.where(staged, conflicts, 1.0),
    )
    found.computed = blocks * rows / count
    found.fma = blocks * pairs * layers
    moved = blocks * rows * (length * sources + kept * len(lines.sources)) * _FETCHED
    rounds = blocks * threads * layers * LOOP
    found.issued = found.fma * (_EXCHANGE + _MOVED * (sources + 1)) + moved + rounds
    # A pair's keys are loaded, compared, and then what is swapped with them; a barrier ends a layer.
    waited = layers * 2 * turns
    found.waits = np.where(staged, waited + layers, layers)
    found.turns = np.where(staged, 0.0, waited)
    found.cycles = DEPENDENT_CYCLES * _EXCHANGE_CHAIN * layers * turns
    found.flying = np.minimum(threads, rows * width) * sum(items)
    found.touched = _touched(workload, lines, blocks)
    found.registers = _LINE_REGISTERS + 4 * sources * one
    # Both places are loaded, and stored: of the 32 pairs of a warp some are always out of order.
    found.through_shared = {
        own.name: np.where(staged, 4.0 * found.fma * own.element_bytes, 0.0) for own in lines.sources
    }
    found.through_shared["out"] = np.where(staged, 4.0 * found.fma * _POSITION_BYTES, 0.0)
    # Lines that are sorted where they lie go through L2 with every layer.
    read = {own.name for own in lines.sources}
    for name in ("out", *(f"in{number}" for number in range(len(workload.inputs)))):
        if name not in read:
            found.passes[name] = np.where(staged, 1.0, 1.0 + 2 * layers)
    return found


def _conflicts(levels: int, items: Sequence[int]) -> float:
    """Wavefronts in which a warp's pairs are accessed, over those that are needed, on average over a network's layers.

    Layer k compares i with i + 2^k: the first places of 32 pairs lie in runs of 2^k with as long gaps between them.
    """
    found, total = 0.0, 0.0
    for log in range(levels):
        pair = np.arange(WARP)
        low = (pair >> log << (log + 1)) + (pair & ((1 << log) - 1))
        own = np.mean([wavefronts(low[None] * item, item)[0] for item in (*items, _POSITION_BYTES)])
        # Of runs of 2^s, for s = k and more, one layer each.
        found, total = found + own * (levels - log), total + levels - log
    return float(found / total)
