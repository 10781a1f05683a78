"""rTask tiles of a dispatch on a CPU: all that conform to what code generation can cut, ranked by a model of the machine.

The construction's tiles become rTasks here: code is generated for one level of tiles over the sink's parallel loops and
a register tile inside, so what is left to decide is the part of Roller's scale-out (OSDI'22, §3.2) that decides on one
core's share: tiles aligned with packed blocks, shared rows and divisors, evenly spread over the cores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from tilewright.compiler.nouns.reduction_blocks import split
from tilewright.compiler.nouns.register_tiles import RegisterTile, divisors, register_pieces
from tilewright.compiler.nouns.workload import BITS, Operand, Workload
from tilewright.compiler.targets.target import MemoryLevel, Target
from tilewright.compiler.tuning.cpu.register_tile import choose_register_tile
from tilewright.compiler.tuning.model.rtile import TileGeometry
from tilewright.compiler.tuning.roller.options import RULES

_MOST_SIZES = 24
"""Sizes tried per loop: an extent has few divisors, but many even divisions."""
_MOST_TASKS = 64
"""rTasks per core: beyond, starting them costs more than evening out is worth."""
_WALKED_SHARE = 0.75
"""The part of a cache that keeps what is walked in turn: measured on Zen 5, 4096 rows of a softmax that take 32 of 48 KiB
each were faster one by one than seven at a time, which L2 holds."""
_MOST_SHORT_TASKS = 2048
"""The same where small rTasks keep what several operations walk in a cache, which is worth many a start."""
TASK_US = 0.03
"""Starting one rTask of a running step: taking its number, its addresses, and a cold loop."""
_PLAIN = 0.5
"""Arithmetic of loops without a register tile reaches this part of the multiply-add peak: one operation counts where
two could."""
_RUN_TRANSACTIONS = 1.0
"""Transactions that every contiguous piece of a data tile wastes at its ends, aligned or not."""
_UNEVEN, _JITTER = 0.1, 0.03
"""What cores lose to each other's pace, and all of them to other processes, as parts of one rTask per core: few rounds
leave little to even out."""


@dataclass(frozen=True)
class RegisterLoops:
    """The loops of the register tile, as loops of the sink (None: it is none of them), and their extents.

    `widths` are the vector extents that packing allows, None for any.
    """

    unroll: int | None
    vector: int | None
    unroll_extent: int
    vector_extent: int
    widths: tuple[int, ...] | None = None


@dataclass(frozen=True)
class CutSpace:
    """What code generation can cut of a dispatch.

    `extents` are those of the sink's loops, `axes` the workload's axis of each; `loops` may be cut, outer first, into
    multiples of `steps[i]`, and only into divisors where `exact`. `blocks[i]` are packed along a loop (1 where nothing
    is): tiles are multiples or divisors of them whatever else is asked. `registers` is None where nothing is register-tiled.
    `transposed` is the loop order of a source that is read in another order than the result is written. `passes` are
    what operations walk one after the other, each all of an rTask; empty where there is one. `copied` says that tiles which
    do not divide accumulate in memory of their own, and copy the result out.
    """

    extents: tuple[int, ...]
    axes: tuple[int, ...]
    loops: tuple[int, ...]
    steps: tuple[int, ...]
    exact: bool
    registers: RegisterLoops | None = None
    transposed: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    passes: tuple[tuple[Operand, ...], ...] = ()
    copied: bool = False

    def whole(self) -> CutSpace:
        """Without any cut."""
        return replace(self, loops=(), transposed=())


@dataclass(frozen=True)
class Ranked:
    """A tile of the sink's loops (whole extents where nothing is cut), its register tile and predicted time."""

    tile: tuple[int, ...]
    register: RegisterTile | None
    us: float
    bound: str


def pieces(extent: int, step: int, exact: bool) -> list[int]:
    """Tile sizes of a loop, descending, the whole loop first.

    Divisors that are multiples of `step`, where `extent` is one itself or `exact` asks for divisors; otherwise even
    divisions rounded up to multiples of `step`, whose last tile overlaps its neighbour.
    """
    if extent % step == 0 and (step > 1 or exact):
        return [step * d for d in reversed(divisors(extent // step))]
    if exact:
        return list(reversed(divisors(extent)))
    even = (step * size for size in even_divisions(-(-extent // step)))
    return sorted({extent, *(size for size in even if size < extent)}, reverse=True)


def even_divisions(extent: int) -> list[int]:
    """The sizes of `extent` in 1, 2, 3, ... equal pieces, rounded up, each once, descending."""
    root = math.isqrt(extent)
    # Of few pieces each number has a size of its own; small sizes are tried one by one.
    large = [-(-extent // count) for count in range(1, root + 1)]
    small = (size for size in range(large[-1] - 1, 0, -1) if -(-extent // -(-extent // size)) == size)
    return [*dict.fromkeys(large), *small]


TRANSPOSED_RUNS = (32, 16, 64)
"""Elements of source and result that a tile of a copy between loop orders takes side by side, preferred first."""
_INTERLEAVED = 8
"""Elements between neighbours of the source below which the result still fills cache lines with them."""


def transposing_tile(
    extents: tuple[int, ...], source_order: Sequence[int], block: int
) -> tuple[int, ...] | None:
    """The tile of a copy that reads in another order than it writes; None when both run along the same loop.

    `source_order` are the loops that the source's dimensions follow, outer first. The tile takes about `block`
    consecutive elements of the source and of the result, so that every cache line is used up while it is near. A
    result that interleaves a few rows of its source runs along them as well.
    """
    if not source_order or math.prod(extents[source_order[-1] + 1 :]) < _INTERLEAVED:
        return None
    tile = [1] * len(extents)
    tile[-1] = min(extents[-1], block)
    run = 1
    for loop in reversed(source_order):
        if run >= block or loop == len(extents) - 1:
            break
        tile[loop] = min(extents[loop], -(-block // run))
        run *= tile[loop]
    return tuple(tile)


def powers(extent: int, step: int) -> list[int]:
    """Tile sizes that know nothing of the loop: `step` times powers of two, descending, the whole loop first."""
    found = [extent]
    size = step << max(0, (extent // step).bit_length())
    while size > step:
        size //= 2
        if size < extent:
            found.append(size)
    return found


def tile_sizes(space: CutSpace, loop: int, steps: Sequence[int] = ()) -> tuple[int, ...]:
    """All sizes to choose of for one loop of a space, ascending, the whole loop last.

    Even divisions of it, as they are and rounded up to what tiles are aligned with (`steps` adds to that); powers of two;
    what copies that turn their operand around use up cache lines with. All are whole blocks of packed operands or divide
    one, and divide the loop where nothing else is cut.
    """
    extent, block = space.extents[loop], space.blocks[loop] if space.blocks else 1
    if loop not in space.loops:
        return (extent,)
    found = {extent}
    for step in {1, space.steps[loop], *steps}:
        found |= {*pieces(extent, step, space.exact), *powers(extent, step)}
    for run in TRANSPOSED_RUNS if space.transposed else ():
        turned = transposing_tile(space.extents, space.transposed, run)
        found |= {turned[loop]} if turned else set()
    return tuple(
        sorted(
            size
            for size in found
            if not (size % block and block % size) and not (space.exact and extent % size)
        )
    )


def aligned_tiles(
    space: CutSpace, most_tasks: int, epsilon: float = 1.0, with_shape: bool = True
) -> np.ndarray:
    """All tiles [n, loops] that code generation takes and that make at most `most_tasks` rTasks; the whole one first.

    A last tile that overlaps its neighbour computes at most `epsilon` of the loop twice (Roller, OSDI'22, §3.1).
    Without `with_shape` sizes follow from nothing but the steps.
    """
    choices = []
    for loop, extent in enumerate(space.extents):
        sizes = [extent]
        if loop in space.loops:
            free = not with_shape and not space.exact
            sizes = (
                powers(extent, space.steps[loop]) if free else pieces(extent, space.steps[loop], space.exact)
            )
        block = space.blocks[loop] if space.blocks else 1
        sizes = [s for s in sizes if -extent % s <= epsilon * extent and not (s % block and block % s)]
        # As many sizes as are tried, evenly among those there are.
        choices.append(sizes[:: -(-len(sizes) // _MOST_SIZES)])
    listed = list(itertools.product(*choices))
    grids = np.asarray(listed, dtype=np.int64).reshape(len(listed), len(space.extents))
    tasks = np.prod(-(-np.asarray(space.extents, dtype=np.int64) // grids), axis=1)
    return grids[tasks <= max(1, most_tasks)]


@cache
def _efficiency(
    rows: int, columns: int, lanes: int, registers: int, widths: tuple[int, ...] | None
) -> tuple[RegisterTile, float]:
    """The register tile of `rows` x `columns` results, and the part of the multiplier's peak it can use."""
    tile = choose_register_tile(rows, columns, lanes, registers, widths)
    return tile, register_efficiency(rows, columns, lanes, tile)


def register_efficiency(rows: int, columns: int, lanes: int, tile: RegisterTile) -> float:
    """The part of the multiply-adds of a register tile that are useful, times how busy its accumulators keep the units.

    Eight accumulators cover two units of four cycles' latency.
    """
    vectors = len(register_pieces(tile.vector, lanes))
    computed = -(-rows // tile.unroll) * tile.unroll * -(-columns // tile.vector) * vectors * lanes
    return rows * columns / computed * min(1.0, tile.unroll * vectors / 8)


def streams(nbytes: int, target: Target) -> bool:
    """Whether results are stored past the caches: beside so much else the last cache keeps none for who reads them next."""
    return nbytes > target.memory[1].capacity_bytes


class CpuModel:
    """Predicted times of rTask tiles of one workload on the cores of one CPU.

    It is blind to what the `rules` that are off would see: without `execution_unit` register tiles are one vector,
    which neither hides latency nor shares what it loads; without `memory_transaction` scattered bytes cost what
    contiguous ones do.
    """

    def __init__(
        self,
        workload: Workload,
        space: CutSpace,
        target: Target,
        task_us: float = TASK_US,
        rules: frozenset[str] = frozenset(RULES),
    ):
        self.workload, self.space, self.target = workload, space, target
        self.task_us, self.rules = task_us, rules
        self.run_bytes = (
            _RUN_TRANSACTIONS * target.memory[0].transaction_bytes if "memory_transaction" in rules else 0.0
        )
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

    def most_tasks(self) -> int:
        return (_MOST_SHORT_TASKS if self.space.passes else _MOST_TASKS) * self.cores

    def predict(
        self, tiles: np.ndarray, register: RegisterTile | None = None
    ) -> tuple[np.ndarray, list[str], list[RegisterTile | None]]:
        """Microseconds of each of `tiles` [n, sink's loops], what bounds it, and its register tile.

        That is `register` as far as it fits, the best where none is given.
        """
        tasks = self.tasks(tiles)
        registers = [self.register(tile, register) for tile in map(tuple, tiles.tolist())]
        nest = self.nest(tiles, [tile for tile, _ in registers])
        nbytes = self.nbytes(nest)
        efficiency = np.asarray([e for _, e in registers])
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
        return us, [names[i] for i in bound], [tile for tile, _ in registers]

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
        each = np.asarray([level.bandwidth_of(n, self.cores) / n for n in range(1, self.cores + 1)])
        return each[np.minimum(tasks, self.cores) - 1]

    def nest(self, tiles: np.ndarray, registers: Sequence[RegisterTile | None], depth: int = 0) -> np.ndarray:
        """Ever larger parts of the generated loops [depth, n, axes]: the register tile first, the whole rTask last.

        From inside out these are the reductions, the loop that is unrolled, that of the vectors, and the sink's others; and
        the reductions again where all others run inside of blocks of `depth` steps.
        """
        workload, space = self.workload, self.space
        task = np.tile(np.asarray(workload.extents, dtype=np.int64), (len(tiles), 1))
        task[:, list(space.axes)] = tiles
        tile = np.ones_like(task)
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
        order += [axis for axis in reversed(workload.parallel) if axis not in order]
        parts = [tile.copy()]
        cut = split([workload.axes[axis].extent for axis in workload.reduction], depth) if depth else None
        if cut is not None:
            position, size = cut
            for axis in order[: len(workload.reduction)]:
                place = workload.reduction.index(axis)
                tile[:, axis] = 1 if place < position else size if place == position else task[:, axis]
                parts.append(tile.copy())
            order = [*order[len(workload.reduction) :], *order[: len(workload.reduction)]]
        for axis in order:
            tile[:, axis] = task[:, axis]
            parts.append(tile.copy())
        return np.stack(parts)

    def traffic(self, nest: np.ndarray, nbytes: np.ndarray, level: MemoryLevel) -> np.ndarray:
        """Bytes that one rTask loads into a cache: [n].

        The largest part of the nest that half of the cache holds stays there from one step of the loop around it to
        the next, so that loop loads what it touches once, and every loop further out loads all of it again.
        """
        fits = nbytes <= level.capacity_bytes / 2
        depth = np.where(fits.all(axis=0), len(nest) - 1, np.argmin(fits, axis=0))
        column = np.arange(nest.shape[1])
        part = nest[depth, column]
        again = (-(-nest[-1] // part)).astype(float).prod(axis=1)
        loaded = nbytes[depth, column] + self.runs(part) * self.run_bytes
        return loaded * again

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

    def register(
        self, tile: tuple[int, ...], asked: RegisterTile | None = None
    ) -> tuple[RegisterTile | None, float]:
        """The register tile of an rTask, `asked` as far as it fits, and the part of the multiplier's peak it can use."""
        loops = self.space.registers
        if loops is None:
            return None, _PLAIN
        rows = tile[loops.unroll] if loops.unroll is not None else loops.unroll_extent
        columns = tile[loops.vector] if loops.vector is not None else loops.vector_extent
        if asked is not None:
            taken = RegisterTile(min(asked.unroll, rows), min(asked.vector, columns))
            return taken, register_efficiency(rows, columns, self.lanes, taken)
        if "execution_unit" not in self.rules:
            narrow = min(loops.widths or (self.lanes,), key=lambda width: (abs(width - self.lanes), width))
            single = RegisterTile(1, min(narrow, columns))
            return single, register_efficiency(rows, columns, self.lanes, single)
        return _efficiency(rows, columns, self.lanes, self.target.registers_per_thread, loops.widths)

    def rank(self, tiles: np.ndarray) -> list[Ranked]:
        """The tiles by rising predicted time; fewer rTasks first where times are equal."""
        return self.ranked(tiles, *self.predict(tiles))

    def ranked(
        self,
        tiles: np.ndarray,
        us: np.ndarray,
        bounds: list[str],
        registers: Sequence[RegisterTile | None],
    ) -> list[Ranked]:
        """Tiles in the order of what was predicted of them."""
        order = np.lexsort((*tiles.T, self.tasks(tiles), us))
        return [
            Ranked(tuple(int(v) for v in tiles[i]), registers[i], round(float(us[i]), 3), bounds[i])
            for i in order
        ]
