"""Times of rTasks on a CPU whose loops are not chosen yet: what the construction ranks tiles by, many at once.

A tile of the sink's loops and the part of a core's peak that its registers reach are all that is known; of complete schedules
`micro_performance` knows the loops as well. Both count traffic by the same rule (`footprints.deepest`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.compiler.nouns.cut_space import CutSpace
from tilewright.compiler.nouns.reduction_blocks import split
from tilewright.compiler.nouns.register_tiles import RegisterTile, register_pieces
from tilewright.compiler.nouns.workload import BITS, Workload
from tilewright.compiler.targets.target import MemoryLevel, Target
from tilewright.compiler.tuning.model.footprints import STREAMED_SHARE, deepest, times_again
from tilewright.compiler.tuning.model.rates import TASK_US, core_gbps
from tilewright.compiler.tuning.model.rtile import TileGeometry

_WALKED_SHARE = 0.75
"""The part of a cache that keeps what is walked in turn: measured on Zen 5, 4096 rows of a softmax that take 32 of 48 KiB
each were faster one by one than seven at a time, which L2 holds."""
_RUN_TRANSACTIONS = 1.0
"""Transactions that every contiguous piece of a data tile wastes at its ends, aligned or not."""
_UNEVEN, _JITTER = 0.1, 0.03
"""What cores lose to each other's pace, and all of them to other processes, as parts of one rTask per core: few rounds
leave little to even out."""


def streams(nbytes: int, target: Target) -> bool:
    """Whether results are stored past the caches: beside so much else the last cache keeps none for who reads them next."""
    return nbytes > target.memory[1].capacity_bytes


def register_efficiency(rows: int, columns: int, lanes: int, tile: RegisterTile) -> float:
    """The part of the multiply-adds of a register tile that are useful, times how busy its accumulators keep the units.

    Eight accumulators cover two units of four cycles' latency.
    """
    vectors = len(register_pieces(tile.vector, lanes))
    computed = -(-rows // tile.unroll) * tile.unroll * -(-columns // tile.vector) * vectors * lanes
    return rows * columns / computed * min(1.0, tile.unroll * vectors / 8)


class RTaskTimes:
    """Predicted times of rTask tiles of one workload on the cores of one CPU.

    Where not `in_transactions`, scattered bytes cost what contiguous ones do.
    """

    def __init__(
        self,
        workload: Workload,
        space: CutSpace,
        target: Target,
        task_us: float = TASK_US,
        in_transactions: bool = True,
    ):
        self.workload, self.space, self.target = workload, space, target
        self.task_us = task_us
        self.run_bytes = _RUN_TRANSACTIONS * target.memory[0].transaction_bytes if in_transactions else 0.0
        self.geometry = TileGeometry(workload)
        dtype = workload.output.dtype
        self.lanes = max(1, target.vector_bits // BITS[dtype])
        self.cores = target.num_cores
        peak = target.peak_gflops.get(dtype) or target.peak_gflops["f32"]
        self.core_gflops = peak / self.cores
        caches = list(target.memory[1:-1])
        self.private = [level for level in caches if level.shared_by == 1] or caches[-1:]
        # Tensors stay in the last cache that holds them all, and come from memory otherwise.
        outer = [target.memory[0]] + [level for level in caches if level.shared_by > 1]
        self.source = next(
            (m for m in reversed(outer) if workload.nbytes <= m.capacity_bytes), target.memory[0]
        )

    def times(
        self, tiles: np.ndarray, registers: Sequence[RegisterTile | None], efficiency: np.ndarray
    ) -> tuple[np.ndarray, list[str]]:
        """Microseconds of each of `tiles` [n, sink's loops] with its register tile, and what bounds it.

        `efficiency` [n] is the part of a core's peak that the register tiles reach.
        """
        tasks = self.tasks(tiles)
        nest = self.nest(tiles, registers)
        nbytes = self.nbytes(nest)
        times = {"compute": self.arithmetic_us(nest, efficiency), **self.loads_us(nest, nbytes, tasks)}
        slowest = (np.add if self.space.passes else np.maximum).reduce(list(times.values()))
        first = self.first_us(nest, nbytes, tasks) + self.copies_us(nest, tiles, tasks)
        rounds = -(-tasks // self.cores)
        shared = 1.0 if self.cores > 1 else 0.0
        task_us = (slowest + first) * (1 + shared * _JITTER / rounds) + times[
            "compute"
        ] * shared * _UNEVEN / rounds
        us = rounds * task_us + tasks * self.task_us
        us += np.where(tasks > 1, self.target.start_us, 0.0)
        names, bound = list(times), np.stack(list(times.values())).argmax(axis=0)
        return us, [names[i] for i in bound]

    def tasks(self, tiles: np.ndarray) -> np.ndarray:
        """The rTasks that `tiles` [n, sink's loops] make: [n]."""
        return np.prod(-(-np.asarray(self.space.extents, dtype=np.int64) // tiles), axis=1)

    def nbytes(self, nest: np.ndarray) -> np.ndarray:
        """Bytes that every part of the loops touches: [depth, n]."""
        return np.stack([self.geometry.nbytes(part).sum(axis=1) for part in nest])

    def arithmetic_us(self, nest: np.ndarray, efficiency: np.ndarray | float = 1.0) -> np.ndarray:
        """Microseconds of one rTask's multiply-adds on one core at a part of its peak: [n]."""
        share = nest[-1].astype(float).prod(axis=1) / math.prod(self.workload.extents)
        return self.workload.flops * share / (self.core_gflops * efficiency) / 1e3

    def loads_us(self, nest: np.ndarray, nbytes: np.ndarray, tasks: np.ndarray) -> dict[str, np.ndarray]:
        """Microseconds that one rTask's loads into private caches take, by the level that they come from: [n]."""
        if self.space.passes:
            # Walked for the first time it is new, and waited for; then it comes from where all of it fits.
            return self.walks(nest[-1], nbytes[-1], tasks)
        return {
            (below := self.below(level)).name: self.traffic(nest, nbytes, level)
            / self.bandwidth(below, tasks)
            / 1e3
            for level in self.private
        }

    def first_us(self, nest: np.ndarray, nbytes: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        """Microseconds that one rTask waits for what is new to it: [n]. What is loaded again is prefetched meanwhile."""
        new = nbytes[-1] + self.runs(nest[-1]) * self.run_bytes
        return new / self.bandwidth(self.source, tasks) / 1e3

    def copies_us(self, nest: np.ndarray, tiles: np.ndarray, tasks: np.ndarray) -> np.ndarray:
        """Microseconds that one rTask takes to copy its results out, where tiles do not divide and that is needed: [n]."""
        ragged = (np.asarray(self.space.extents, dtype=np.int64) % tiles > 0).any(axis=1) & self.space.copied
        nbytes = self.geometry.nbytes(nest[-1])[:, self.geometry.is_output].sum(axis=1)
        return np.where(ragged, 2 * nbytes / self.bandwidth(self.below(self.private[-1]), tasks) / 1e3, 0.0)

    def walks(self, tiles: np.ndarray, new: np.ndarray, tasks: np.ndarray) -> dict[str, np.ndarray]:
        """Microseconds that the passes of an rTask take for what is not `new`: by the level that holds it all, 0 in others."""
        walked = [operand for operands in self.space.passes for operand in operands]
        again = np.maximum(0, sum(operand.tile_bytes(tiles) for operand in walked) - new)
        streamed = streams(self.workload.nbytes, self.target)
        tensors = {operand.name: operand for operand in walked if not (streamed and operand.output)}
        held = sum(operand.tile_bytes(tiles) for operand in tensors.values())
        found, left = {}, np.ones(len(tiles), dtype=bool)
        for level in (*reversed(self.private), self.source):
            here = left & ((held <= level.capacity_bytes * _WALKED_SHARE) | (level is self.source))
            found[level.name] = np.where(here, again / self.bandwidth(level, tasks) / 1e3, 0.0)
            left = left & ~here
        return found

    def below(self, level: MemoryLevel) -> MemoryLevel:
        """Where a private cache loads from: the next private one, or where the tensors are."""
        place = self.private.index(level)
        return self.private[place - 1] if place else self.source

    def bandwidth(self, level: MemoryLevel, tasks: np.ndarray) -> np.ndarray:
        """GB/s that one core gets while as many as there are rTasks for pull at once."""
        return core_gbps(level, tasks, self.cores)

    def nest(self, tiles: np.ndarray, registers: Sequence[RegisterTile | None], depth: int = 0) -> np.ndarray:
        """Ever larger parts of the generated loops [depth, n, axes]: the register tile first, the whole rTask last.

        From inside out these are the reductions, the loop that is unrolled, that of the vectors, and the sink's others; and
        the reductions again where the others, but those that all operands follow, run inside of blocks of `depth` steps.
        """
        workload, space = self.workload, self.space
        task = np.tile(np.asarray(workload.extents, dtype=np.int64), (len(tiles), 1))
        task[:, list(space.axes)] = tiles
        tile = np.ones_like(task)
        # Lines of scans, sorts and scatters are gone along once.
        tile[:, list(workload.sequential)] = task[:, list(workload.sequential)]
        order = list(reversed(workload.reduction))
        if space.registers is not None:
            sizes = np.asarray([(t.unroll, t.vector) if t else (1, 1) for t in registers], dtype=np.int64)
            for column, loop in enumerate((space.registers.unroll, space.registers.vector)):
                if loop is not None:
                    axis = space.axes[loop]
                    tile[:, axis] = np.minimum(sizes[:, column], task[:, axis])
                    order.append(axis)
        elif space.loops:
            last = space.axes[space.loops[-1]]
            tile[:, last] = np.minimum(self.lanes, task[:, last])
        others = [axis for axis in reversed(workload.parallel) if axis not in order]
        order += others
        parts = [tile.copy()]
        cut = split([workload.axes[axis].extent for axis in workload.reduction], depth) if depth else None
        if cut is not None:
            position, size = cut
            for axis in order[: len(workload.reduction)]:
                place = workload.reduction.index(axis)
                tile[:, axis] = 1 if place < position else size if place == position else task[:, axis]
                parts.append(tile.copy())
            operands = (*workload.inputs, workload.output)
            batch = [axis for axis in others if all(axis in operand.axes for operand in operands)]
            inside = [axis for axis in order[len(workload.reduction) :] if axis not in batch]
            order = [*inside, *order[: len(workload.reduction)], *batch]
        for axis in order:
            tile[:, axis] = task[:, axis]
            parts.append(tile.copy())
        return np.stack(parts)

    def traffic(self, nest: np.ndarray, nbytes: np.ndarray, level: MemoryLevel) -> np.ndarray:
        """Bytes that one rTask loads into a cache: [n].

        The largest part of the nest that half of the cache holds stays there from one step of the loop around it to
        the next, so that loop loads what it touches once, and every loop further out loads all of it again.
        """
        depth = deepest(nbytes <= level.capacity_bytes * STREAMED_SHARE)
        column = np.arange(nest.shape[1])
        loaded = nbytes[depth, column] + self.runs(nest[depth, column]) * self.run_bytes
        return loaded * times_again(nest, depth)

    def runs(self, tiles: np.ndarray) -> np.ndarray:
        """Contiguous pieces that the data tiles of all operands fall into: [n]."""
        spans = self.geometry.spans(tiles)
        found = np.zeros(len(tiles))
        for part in self.geometry.slices:
            whole, count = np.ones(len(tiles), dtype=bool), np.ones(len(tiles))
            for dimension in reversed(range(part.start, part.stop)):
                count = np.where(whole, 1.0, count * spans[:, dimension])
                whole = whole & (spans[:, dimension] == self.geometry.shape[dimension])
            found += count
        return found
