"""Candidate schedules of one dispatch on a CPU: aligned rTask tiles by predicted time, then other tiles in registers.

What code generation can cut leaves so few aligned tiles (a few hundred) that all are evaluated at once, where Roller's
construction enlarges one tile step by step (OSDI'22, Figure 8); ties and ranks are the micro-performance model's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.compiler.nouns.cut_space import CutSpace
from tilewright.compiler.nouns.register_tiles import RegisterTile, register_pieces
from tilewright.compiler.nouns.schedule import Reduction, Schedule
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.rtask_tiles import (
    TRANSPOSED_RUNS,
    CpuModel,
    Ranked,
    aligned_tiles,
    transposing_tile,
)
from tilewright.compiler.tuning.model.rates import TASK_US
from tilewright.compiler.tuning.model.rtask_times import register_efficiency
from tilewright.compiler.tuning.roller.options import ConstructOptions

_TRANSPOSED_POINTS = 4096
"""Below, source and result of a copy are both in L1 whatever the order."""
EPSILON = 0.05
"""What may be computed twice without being noticed: cores are rarely even to more than that."""
FEWEST = 4
"""Tiles to choose from, before more is computed twice."""
_ALIKE = 1.25
"""Tiles whose every size is within this factor of another's are not worth a measurement of their own."""
_WORTH = 1.6
"""Candidates predicted slower than the first by more than this factor are not worth a measurement."""


Others = Callable[[tuple[int, ...]], Iterator[tuple[Reduction, ...]] | None]


@dataclass(frozen=True)
class Candidate:
    """A schedule, what it should take, and what bounds it: compute or a memory level; by whom it was proposed."""

    schedule: Schedule
    us: float
    bound: str
    proposer: str = ""


def cpu_candidates(
    workload: Workload,
    space: CutSpace,
    target: Target,
    options: ConstructOptions,
    task_us: float = TASK_US,
    others: Others = lambda tile: None,
) -> list[Candidate]:
    """At most `options.top_k` schedules, the one to use without a measurement first.

    `others(tile)` lists what the dispatch's reductions can be beside the best, None where register tiles say it all.
    """
    space = relaxed(space, options)
    model = CpuModel(workload, space, target, task_us, options.rules)
    ranked = model.rank(_tiles(space, model, options))
    if space.transposed and math.prod(space.extents) > _TRANSPOSED_POINTS:
        ranked = [*_transposing(space, model), *ranked]
    found = []
    for chosen, fixed, reductions in _interleaved(ranked, model, options.top_k, others):
        levels = cache_levels(model, chosen)
        register = chosen.register if fixed or "execution_unit" not in options.rules else None
        unroll, vector = (register.unroll, register.vector) if register else (0, 0)
        schedule = Schedule(_cut(chosen.tile, space), unroll, vector, levels, reductions=reductions)
        found.append(Candidate(schedule, chosen.us, chosen.bound))
    return found


def _cut(tile: tuple[int, ...], space: CutSpace) -> tuple[int, ...]:
    return tuple(0 if size == extent else size for size, extent in zip(tile, space.extents))


def _tiles(space: CutSpace, model: CpuModel, options: ConstructOptions) -> np.ndarray:
    """The aligned tiles; epsilon grows while there are too few to choose from, as where loops have few divisors."""
    if "tensor_shape" not in options.rules:
        return aligned_tiles(space, model.most_tasks(), with_shape=False)
    epsilon = max(options.epsilon, EPSILON)
    while True:
        tiles = aligned_tiles(space, model.most_tasks(), epsilon)
        if len(tiles) >= min(FEWEST, options.top_k) or epsilon >= options.epsilon_limit:
            return tiles
        epsilon += options.epsilon_step


def relaxed(space: CutSpace, options: ConstructOptions) -> CutSpace:
    """The space without the alignments that are switched off, as far as code generation can do without.

    Without `memory_transaction` tiles need not be whole blocks, rows or vectors, and copies run as they are written.
    """
    if "memory_transaction" in options.rules:
        return space
    return replace(space, steps=(1,) * len(space.steps), transposed=())


def _transposing(space: CutSpace, model: CpuModel) -> list[Ranked]:
    """Tiles that use up every cache line of source and result while it is near, of 32, 16 and 64 elements."""
    found = [transposing_tile(space.extents, space.transposed, block) for block in TRANSPOSED_RUNS]
    tiles = np.asarray(list(dict.fromkeys(t for t in found if t)), dtype=np.int64)
    if not len(tiles):
        return []
    us, bounds, _ = model.predict(tiles)
    return [
        Ranked(tuple(int(v) for v in tile), None, round(float(t), 3), b)
        for tile, t, b in zip(tiles, us, bounds)
    ]


Proposal = tuple[Ranked, bool, tuple[Reduction, ...]]
"""A tile, whether its register tile is fixed, and its reductions where they are."""


def _interleaved(ranked: Sequence[Ranked], model: CpuModel, count: int, others: Others) -> Iterator[Proposal]:
    """The best tile, then in turn other tiles and other register tiles, or reductions, of the best."""
    if not ranked:
        return
    best = ranked[0]
    yield best, False, ()
    tiles: Iterator[Proposal] = ((tile, False, ()) for tile in distinct(ranked))
    recut = others(_cut(best.tile, model.space))
    registers: Iterator[Proposal]
    if recut is None:
        registers = ((tile, True, ()) for tile in _registers(best, model))
    else:
        registers = ((best, False, reductions) for reductions in recut)
    left = count - 1
    while left > 0:
        start = left
        for source in (tiles, tiles, registers):
            following = next(source, None) if left else None
            if following is not None:
                left -= 1
                yield following
        if left == start:
            return


def distinct(ranked: Sequence[Ranked]) -> Iterator[Ranked]:
    """Those after the first that are another tile than all before them, while they are worth a measurement."""
    taken = [ranked[0].tile]
    for candidate in ranked[1:]:
        if candidate.us > _WORTH * ranked[0].us:
            return
        if not any(_alike(candidate.tile, tile) for tile in taken):
            taken.append(candidate.tile)
            yield candidate


def _alike(left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    return all(max(a, b) <= _ALIKE * min(a, b) for a, b in zip(left, right))


def _registers(best: Ranked, model: CpuModel) -> Iterator[Ranked]:
    """The best tile with other register tiles, most efficient first."""
    loops = model.space.registers
    if loops is None or best.register is None or "execution_unit" not in model.rules:
        return
    rows = best.tile[loops.unroll] if loops.unroll is not None else loops.unroll_extent
    columns = best.tile[loops.vector] if loops.vector is not None else loops.vector_extent
    scored = []
    for tile in register_tiles(rows, columns, model.lanes, model.target.registers_per_thread, loops.widths):
        vectors = len(register_pieces(tile.vector, model.lanes))
        loads = (tile.unroll + vectors) / (tile.unroll * vectors)
        score = register_efficiency(rows, columns, model.lanes, tile) / (1 + loads)
        scored.append((-score, tile.unroll * vectors, tile.unroll, tile.vector, tile))
    for *_, tile in sorted(scored, key=lambda row: row[:4]):
        if tile != best.register:
            yield replace(best, register=tile)


def register_tiles(
    rows: int, columns: int, lanes: int, registers: int, widths: tuple[int, ...] | None
) -> list[RegisterTile]:
    """All register tiles of a row count and a width that leave no spills; widths are those packing allows."""
    found = []
    for width in sorted({min(w, columns) for w in widths or tuple(lanes * v for v in (1, 2, 3, 4, 6, 8))}):
        vectors = len(register_pieces(width, lanes))
        for unroll in range(1, min(rows, registers) + 1):
            if unroll * vectors + vectors + 1 <= registers:
                found.append(RegisterTile(unroll, width))
    return found


def cache_levels(model: CpuModel, chosen: Ranked, depth: int = 0) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """(level, tile over the workload's axes): the largest part of an rTask's loop nest that half of each level holds.

    `depth` are the steps of the blocks that its reduction is summed in, 0 for all at once.

    Half, as streams take the rest (Low et al., "Analytical Modeling Is Enough for High-Performance BLIS", TOMS 2016,
    §4); of a level that cores share, one core's part.
    """
    nest = model.nest(np.asarray([chosen.tile], dtype=np.int64), [chosen.register], depth)[:, 0]
    nbytes = model.geometry.nbytes(nest).sum(axis=1)
    levels = [("registers", tuple(nest[0].tolist()))]
    for level in reversed(model.target.memory[1:-1]):
        fitting = np.flatnonzero(nbytes <= level.capacity_bytes / 2 / max(1, level.shared_by))
        levels.append((level.name, tuple(nest[int(fitting[-1]) if len(fitting) else 0].tolist())))
    return tuple(levels)
