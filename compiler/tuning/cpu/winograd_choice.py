"""Whether a convolution is worth Winograd's algorithm, with which F(m, r), and how it is cut into rTasks.

An rTask transforms the input tiles of its block, multiplies them by all filters of its block, and transforms the
products back, with everything in between in the core's own cache. A cut along the filters transforms the input
again for each piece, a cut along the image reads the filters again; the estimate weighs the two.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from tilewright.compiler.nouns.register_tiles import packed_widths
from tilewright.compiler.nouns.winograd_transforms import straight_line, supported, transforms
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.register_tile import VECTOR_LOAD, choose_register_tile, vector_load
from tilewright.compiler.tuning.model.overlap import exposed
from tilewright.compiler.tuning.model.rtask_times import register_efficiency

OUTPUTS = (4, 2)
"""The m of F(m, r) that are tried, preferred first."""

_GAIN = 0.85
"""Winograd's algorithm is taken where its estimated time is at most this part of the direct one's: it rounds more
and stores four times the filters."""

_ISSUE = 1.5
"""Cycles per vector operation in the transforms, in units of one multiply-add: loads and stores do not overlap fully."""

_EXPOSED = 0.5
"""The part of the time for what passes through the shared cache that prefetching does not hide."""

_BYTES = 4


@dataclass(frozen=True)
class WinogradMachine:
    """Cores, lanes and number of vector registers, f32 GFLOP/s of all cores, GB/s that all cores read of main memory
    and of the cache that they share, bytes of one core's own cache, and `vector_load` (`register_tile.py`)."""

    cores: int
    lanes: int
    registers: int
    gflops: float
    memory_gbps: float
    shared_gbps: float
    private_bytes: int
    vector_load: float = VECTOR_LOAD

    @classmethod
    def of(cls, target: Target) -> WinogradMachine:
        """A CPU's numbers, for f32."""
        return cls(
            target.num_cores,
            target.vector_bits // 32,
            target.registers_per_thread,
            float(target.peak_gflops["f32"]),
            float(target.memory[0].bandwidth_gbps),
            float(target.memory[1].bandwidth_gbps),
            target.own_cache.capacity_bytes,
            vector_load(target),
        )


@dataclass(frozen=True)
class WinogradProblem:
    """A stride-1 convolution: `images` x `height` x `width` x `filters` outputs of taps x taps x `channels` products;
    `block` output channels are stored together."""

    images: int
    height: int
    width: int
    filters: int
    taps: int
    channels: int
    block: int


@dataclass(frozen=True)
class WinogradChoice:
    """F(outputs, taps) with rTasks of `tile` images, rows, columns and filters; `us` is the estimate, and `streams`
    whether the filters take longer to come from memory than the cores compute."""

    outputs: int
    tile: tuple[int, int, int, int]
    us: float
    streams: bool = False


def choose_winograd(problem: WinogradProblem, machine: WinogradMachine) -> WinogradChoice | None:
    """The best choice, None where direct convolution is estimated to be about as fast."""
    found = [choice for m in OUTPUTS for choice in ranked_tiles(problem, machine, m)[:1]]
    best = min(found, key=lambda choice: choice.us, default=None)
    return best if best is not None and best.us <= _GAIN * direct_us(problem, machine) else None


def ranked_tiles(
    problem: WinogradProblem,
    machine: WinogradMachine,
    outputs: int,
    cuttable: tuple[bool, bool, bool, bool] = (True, True, True, True),
) -> list[WinogradChoice]:
    """The cuts for F(outputs, taps), those with the least estimated time first; none where it does not fit the convolution.

    `cuttable` tells whether images, rows, columns and filters may be cut. An output is rounded as its place in a tile
    has it, so that rTasks may overlap only where their tiles coincide.
    """
    if not supported(outputs, problem.taps) or min(problem.height, problem.width) < outputs:
        return []
    images = _divisors(problem.images)
    coincide = problem.height % outputs == 0 and problem.width % outputs == 0
    rows = _cuts(problem.height, outputs, coincide)
    columns = _cuts(problem.width, outputs, coincide)
    filters = [d * problem.block for d in _divisors(problem.filters // problem.block)]
    extents = (problem.images, problem.height, problem.width, problem.filters)
    choices = []
    for tile in itertools.product(images, rows, columns, filters):
        n, h, w, _ = tile
        # Blocks of several rows or images hold whole rows: their windows overlap least.
        plain = (w == problem.width or h == rows[0]) and (h == problem.height or n == 1)
        if plain and all(may or size == extent for may, size, extent in zip(cuttable, tile, extents)):
            choices.append(estimate(problem, machine, outputs, tile))
    choices = choices or [estimate(problem, machine, outputs, extents)]
    return sorted(choices, key=lambda choice: (choice.us, _count(problem, choice.tile)))


def _divisors(extent: int) -> list[int]:
    return [d for d in range(1, extent + 1) if extent % d == 0]


def _cuts(extent: int, step: int, overlapping: bool) -> list[int]:
    """Sizes, ascending, that cut `extent` evenly, and where pieces may overlap all multiples of `step`."""
    sizes = {d for d in _divisors(extent) if d >= step}
    if overlapping:
        steps = extent // step
        sizes |= {math.ceil(steps / count) * step for count in range(2, steps + 1)}
    return sorted(sizes)


def _count(problem: WinogradProblem, tile: tuple[int, int, int, int]) -> int:
    extents = (problem.images, problem.height, problem.width, problem.filters)
    return math.prod(-(-extent // size) for extent, size in zip(extents, tile))


def estimate(
    problem: WinogradProblem, machine: WinogradMachine, outputs: int, tile: tuple[int, int, int, int]
) -> WinogradChoice:
    """The whole convolution, cut into rTasks of `tile`."""
    images, height, width, filters = tile
    matrices = transforms(outputs, problem.taps)
    n, m, planes = matrices.points, outputs, matrices.points**2
    tiles = images * -(-height // m) * -(-width // m)
    core_gflops = machine.gflops / machine.cores
    operation_us = 2 * machine.lanes / core_gflops / 1e3
    forward = 2 * n * len(straight_line(matrices.data).steps) + 3 * planes
    backward = (n + m) * len(straight_line(matrices.output).steps) + planes + 4 * m * m
    vectors = (-(-problem.channels // machine.lanes), -(-filters // machine.lanes))
    transform_us = _ISSUE * operation_us * tiles * (vectors[0] * forward + vectors[1] * backward)
    products = 2.0 * planes * tiles * problem.channels * filters
    rows, efficiency = _efficiency(tiles, problem.block, machine)
    multiply_us = products / (core_gflops * efficiency) / 1e3
    filter_bytes = planes * problem.channels * filters * _BYTES
    own_bytes = planes * tiles * (problem.channels + problem.block) * _BYTES
    tasks = _count(problem, tile)
    rounds = -(-tasks // machine.cores)
    # Filters that fit beside the data in a core's own cache are read once; others again by every rTask.
    stay = filters == problem.filters and filter_bytes + own_bytes <= machine.private_bytes
    fetched = filter_bytes * (1 if stay else rounds)
    spilled = 2 * max(0, own_bytes - machine.private_bytes) * rounds
    all_bytes = planes * problem.channels * problem.filters * _BYTES
    # What comes from memory the first time passes through the shared cache on its way.
    shared_us = max(0, (fetched + spilled) * machine.cores - all_bytes) / machine.shared_gbps / 1e3
    memory_us = all_bytes / machine.memory_gbps / 1e3
    compute_us = rounds * (multiply_us + transform_us)
    images_cut = _count(problem, (*tile[:3], problem.filters))
    waited_us = exposed(rounds * multiply_us, memory_us, rows / (tiles * images_cut))
    return WinogradChoice(
        outputs, tile, compute_us + waited_us + _EXPOSED * shared_us, memory_us > compute_us
    )


def direct_us(problem: WinogradProblem, machine: WinogradMachine) -> float:
    """Microseconds of the direct convolution at the register tile's efficiency."""
    points = problem.images * problem.height * problem.width
    flops = 2.0 * points * problem.filters * problem.taps**2 * problem.channels
    rows, busy = _efficiency(problem.width, problem.block, machine)
    compute_us = flops / (machine.gflops * 0.95 * busy) / 1e3
    weight_bytes = problem.taps**2 * problem.channels * problem.filters * _BYTES
    return compute_us + exposed(compute_us, weight_bytes / machine.memory_gbps / 1e3, rows / points)


def _efficiency(rows: int, columns: int, machine: WinogradMachine) -> tuple[int, float]:
    """The rows of the register tile of a contraction of these extents, and the part of the peak that it reaches."""
    widths = packed_widths(columns, machine.lanes)
    lanes, registers = machine.lanes, machine.registers
    tile = choose_register_tile(rows, columns, lanes, registers, widths, vector_load=machine.vector_load)
    return tile.unroll, register_efficiency(rows, columns, machine.lanes, tile)
