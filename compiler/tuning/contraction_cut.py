"""Cuts of contractions into rTasks: the grid with the least estimated time among those that fill the workers.

Time of a grid is its busiest worker's multiply-adds at the register tile's efficiency, plus the bytes that all
rTasks together bring in from the next shared cache: small tiles balance, large ones re-use what they read.
Works on plain numbers and target data; the construction of tiles by alignment replaces it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.compiler.tuning.cut import pieces
from tilewright.compiler.tuning.register_tile import choose_register_tile, register_pieces

_MOST_SIZES = 24
"""Sizes tried per loop: an extent has few divisors, but many even divisions."""


@dataclass(frozen=True)
class Machine:
    """What the estimate knows of the target: cores, their vectors, GFLOP/s and shared GB/s of all together."""

    cores: int
    lanes: int
    registers: int
    gflops: float
    shared_gbps: float
    private_bytes: int


@dataclass(frozen=True)
class ContractionCut:
    """A contraction with its fused epilogue.

    `extents` are those of the sink's loops, of which `loops` may be cut; tiles are multiples of `steps[i]`, and
    divide where `exact`. `footprint(tile)` is the bytes one rTask touches: of operands that do not follow the
    vector loop, read again for every register tile along it, and of all others. `unroll` and `vector` are the loops of
    the register tile (None when there is none), `widths` the vector extents that packing allows.
    """

    extents: tuple[int, ...]
    loops: tuple[int, ...]
    steps: tuple[int, ...]
    exact: bool
    flops: float
    footprint: Callable[[tuple[int, ...]], tuple[float, float]]
    unroll: int | None
    vector: int
    widths: tuple[int, ...] | None


def cut_contraction(
    problem: ContractionCut, machine: Machine, minimum_flops: float, max_tasks: int
) -> tuple[int, ...]:
    """Tile sizes of the sink's loops, 0 where a loop stays whole."""
    choices = []
    for loop, extent in enumerate(problem.extents):
        sizes = pieces(extent, problem.steps[loop], problem.exact) if loop in problem.loops else [extent]
        stride = -(-len(sizes) // _MOST_SIZES)
        choices.append(sizes[::stride])
    most = max(1, min(max_tasks, int(problem.flops / minimum_flops)))
    best = min(
        (tile for tile in itertools.product(*choices) if _count(problem.extents, tile) <= most),
        key=lambda tile: (estimate_us(problem, machine, tile), _count(problem.extents, tile)),
        default=problem.extents,
    )
    return tuple(0 if size == extent else size for size, extent in zip(best, problem.extents))


def _count(extents: tuple[int, ...], tile: tuple[int, ...]) -> int:
    return math.prod(-(-extent // size) for extent, size in zip(extents, tile))


def estimate_us(problem: ContractionCut, machine: Machine, tile: tuple[int, ...]) -> float:
    """Estimated microseconds of the grid that `tile` makes."""
    tasks = _count(problem.extents, tile)
    rows = tile[problem.unroll] if problem.unroll is not None else 1
    columns = tile[problem.vector]
    register = choose_register_tile(rows, columns, machine.lanes, machine.registers, problem.widths)
    vectors = len(register_pieces(register.vector, machine.lanes))
    computed = (
        -(-rows // register.unroll)
        * register.unroll
        * -(-columns // register.vector)
        * vectors
        * machine.lanes
    )
    useful = rows * columns / computed
    busy = min(1.0, register.unroll * vectors / 8)
    task_flops = problem.flops * math.prod(tile) / math.prod(problem.extents)
    rounds = -(-tasks // machine.cores)
    compute_us = rounds * task_flops / (machine.gflops / machine.cores * useful * busy) / 1e3
    rows_bytes, other_bytes = problem.footprint(tile)
    passes = -(-columns // register.vector) if rows_bytes > machine.private_bytes else 1
    nbytes = rows_bytes * passes + other_bytes
    # Few rounds leave little to even out between workers that other processes slow down.
    return compute_us * (1 + 0.1 / rounds) + tasks * nbytes / machine.shared_gbps / 1e3
