"""rTask tiles of a dispatch on a CPU: all that conform to what code generation can cut, ranked by a model of the machine.

The construction's tiles become rTasks here: code is generated for one level of tiles over the sink's parallel loops and
a register tile inside, so what is left to decide is the part of Roller's scale-out (OSDI'22, §3.2) that decides on one
core's share: tiles aligned with packed blocks, shared rows and divisors, evenly spread over the cores.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from tilewright.compiler.nouns.cut_space import CutSpace
from tilewright.compiler.nouns.register_tiles import RegisterTile, divisors
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.register_tile import choose_register_tile
from tilewright.compiler.tuning.model.rates import TASK_US
from tilewright.compiler.tuning.model.rtask_times import RTaskTimes, register_efficiency
from tilewright.compiler.tuning.roller.options import RULES

_MOST_SIZES = 24
"""Sizes tried per loop: an extent has few divisors, but many even divisions."""
_MOST_TASKS = 64
"""rTasks per core: beyond, starting them costs more than evening out is worth."""
_MOST_SHORT_TASKS = 2048
"""The same where small rTasks keep what several operations walk in a cache, which is worth many a start."""
_PLAIN = 0.5
"""Arithmetic of loops without a register tile reaches this part of the multiply-add peak: one operation counts where
two could."""

_STEPS = 0.25
"""The same of one lane where every step waits for the one before it, as in scans and sorts: one operation a cycle, where two
multiply-adds could start."""


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


class CpuModel(RTaskTimes):
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
        super().__init__(workload, space, target, task_us, "memory_transaction" in rules)
        self.rules = rules

    def most_tasks(self) -> int:
        return (_MOST_SHORT_TASKS if self.space.passes else _MOST_TASKS) * self.cores

    def predict(
        self, tiles: np.ndarray, register: RegisterTile | None = None
    ) -> tuple[np.ndarray, list[str], list[RegisterTile | None]]:
        """Microseconds of each of `tiles` [n, sink's loops], what bounds it, and its register tile.

        That is `register` as far as it fits, the best where none is given.
        """
        found = [self.register(tile, register) for tile in map(tuple, tiles.tolist())]
        registers = [tile for tile, _ in found]
        us, bounds = self.times(tiles, registers, np.asarray([efficiency for _, efficiency in found]))
        return us, bounds, registers

    def register(
        self, tile: tuple[int, ...], asked: RegisterTile | None = None
    ) -> tuple[RegisterTile | None, float]:
        """The register tile of an rTask, `asked` as far as it fits, and the part of the multiplier's peak it can use."""
        loops = self.space.registers
        if loops is None:
            return None, _PLAIN if not self.workload.sequential else _STEPS / self.lanes
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
