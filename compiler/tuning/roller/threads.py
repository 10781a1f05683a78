"""What a program takes on a device that runs threads: blocks on multiprocessors, with what they load, issue and wait for.

A block repeats, once per part of the reduction: load the input tiles (global memory -> shared memory), wait, compute
from shared memory in registers; then it stores its results. Blocks that are resident together overlap. A program takes
as long as the slowest of these, over all blocks:

    DRAM      bytes that miss the L2 cache, in whole granules, at the measured copy bandwidth
    L2        bytes that tiles load and store, in whole transactions
    shared    wavefronts of shared-memory accesses, with the conflicts of the padded layout, one per cycle
    compute   multiply-adds at the measured peak, padding of ragged tiles included
    issue     all instructions, at one per scheduler and cycle
    latency   a block's steps one after another, divided by the resident blocks

Sources: Roller, OSDI'22, §3.3, §4; Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking",
2018; NVIDIA, CUDA C Programming Guide, "Hardware Implementation"; Volkov, "Understanding Latency Hiding on GPUs", 2016.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.compiler.tuning.model.instructions import DIVISION, LOOP
from tilewright.compiler.tuning.model.overlap import in_waves, waves_of
from tilewright.compiler.tuning.model.rates import l2_gbps
from tilewright.compiler.tuning.roller.warp_access import WarpAccess

if TYPE_CHECKING:
    from tilewright.compiler.targets.target import Target
    from tilewright.compiler.tuning.roller.performance import Estimate, Performance, Tile

IMPLICIT_REGISTERS = 32
"""Registers of a thread beside its tile: addresses and loop variables. A GEMM of 96 for its tile assembles to 128."""

GRANULE_BYTES = 64
"""What a miss brings in from DRAM: a line of the L2 cache. Source: Jia et al., 2018, table 3.1 (V100)."""


@dataclass(frozen=True)
class Blocks:
    """n programs as blocks of threads; all arrays are [n] or [n, axes], as floats where they are multiplied."""

    tile: np.ndarray
    thread: np.ndarray
    blocks: np.ndarray
    threads: np.ndarray
    steps: np.ndarray
    points: np.ndarray
    results: np.ndarray
    resident: np.ndarray
    padding: np.ndarray
    spilled: np.ndarray


def evaluate_threads(
    performance: Performance,
    programs: Sequence[tuple[Tile, ...]],
    staged: np.ndarray,
    lane_steps: np.ndarray | None = None,
) -> Estimate:
    """Times of programs of (register tile, block tile); `staged` tells which copy inputs into shared memory.

    `lane_steps` [n, axes] is how far apart neighbouring threads compute; 1, as Roller's virtual threads are, if None.
    """
    from tilewright.compiler.tuning.roller.performance import Estimate

    b = _blocks(performance, programs, staged)
    device, target = performance.device, performance.device.target
    # A file may leave the clock out; rates then count per nanosecond.
    units, ghz = device.units, target.clock_ghz or 1.0
    lowest, shared = device.layers[-1], device.layers[1]
    arithmetic, reads, fetched, index = _instructions(performance, b, staged)
    access = WarpAccess(performance, b.tile, b.thread, b.padding, lane_steps)
    waves = np.where(staged[:, None], access.conflicts(), access.lines())
    wavefronts = (reads * waves).sum(axis=1)
    loads, dram, stores = _bytes(performance, b)
    stores = stores * access.store_waste()
    # What registers cannot hold goes to local memory, behind the caches: a partial result is read and written back.
    loads = loads + arithmetic * b.spilled * 8
    # Lanes read 4 bytes each, the width that bandwidth is counted in whatever a bank holds.
    # Cycles that a block takes of each resource of a unit, all its steps together.
    per_cycle = shared.bandwidth_gbps / units / ghz / 4
    cycles = {
        lowest.name: dram / b.blocks / (lowest.bandwidth_gbps / units / ghz),
        "L2": (loads * b.steps + stores) / (l2_gbps(target) / units / ghz),
        shared.name: b.steps * (wavefronts + 2 * fetched) / per_cycle / _elements_per_word(performance),
        "compute": b.steps
        * arithmetic
        * performance.space.workload.flops_per_point
        / (device.peak_gflops / units / ghz),
        "issue": b.steps
        * (
            arithmetic / _points_per_instruction(performance)
            + reads.sum(axis=1) / _elements_per_read(performance)
            + 2 * fetched
            + index
        )
        / (target.issue_lanes or device.lanes * device.teus),
    }
    memory = np.maximum(cycles[lowest.name], cycles["L2"])
    core = np.maximum(np.maximum(cycles[shared.name], cycles["compute"]), cycles["issue"])
    # A block of fewer warps than there are schedulers leaves some of them idle.
    warps = np.ceil(b.threads / device.lanes)
    alone = core * (np.maximum(1.0, device.teus / warps) - 1)
    latency = (
        np.where(staged, b.steps, 1.0) * (target.memory[0].latency_ns + _latency(target, shared.name)) * ghz
        + alone
    )
    # Without staging there is no barrier: every warp goes its own way.
    parts = np.where(staged, 1.0, warps)
    full, rest = waves_of(b.blocks, units * b.resident, units)
    total = in_waves(full, rest, b.resident, parts, memory, core, latency)
    turns = full * b.resident + rest
    times = {name: turns * taken / ghz / 1e3 for name, taken in cycles.items()}
    times[lowest.name] = dram / lowest.bandwidth_gbps / 1e3
    times["latency"] = (full + (rest > 0)) * latency / ghz / 1e3
    stacked = np.stack(list(times.values()))
    names = list(times)
    bound = [names[i] for i in stacked.argmax(axis=0)]
    return Estimate(total / ghz / 1e3 + target.start_us, bound, times)


def _points_per_instruction(performance: Performance) -> float:
    """Multiply-adds of one lane per instruction: one, or its part of a matrix instruction."""
    matrix = performance.space.matrix_multiples
    return float(np.prod(list(matrix.values()))) / performance.device.lanes if matrix else 1.0


def _elements_per_word(performance: Performance) -> float:
    """Elements in four bytes of shared memory where matrix instructions read them packed; one where threads do."""
    matrix = performance.space.matrix_multiples
    return 4 / int(performance.geometry.element_bytes[performance.inputs[0]]) if matrix else 1.0


def _elements_per_read(performance: Performance) -> float:
    """Elements that one lane reads of shared memory at once: one, or 16 bytes for matrix instructions."""
    matrix = performance.space.matrix_multiples
    return 16 / int(performance.geometry.element_bytes[performance.inputs[0]]) if matrix else 1.0


def _latency(target: Target, name: str) -> float:
    return target.level(name).latency_ns


def _blocks(performance: Performance, programs: Sequence[tuple[Tile, ...]], staged: np.ndarray) -> Blocks:
    space, target = performance.space, performance.device.target
    tile = np.asarray([p[1] for p in programs], dtype=np.int64)
    thread = np.asarray([p[0] for p in programs], dtype=np.int64)
    counts = -(-performance.extents // tile)
    parallel, reduction = space.parallel, space.reduction
    blocks = counts[:, parallel].prod(axis=1).astype(float)
    per_tile = performance.tile_threads
    threads = (-(-tile[:, parallel] // thread[:, parallel])).prod(axis=1).astype(float) * per_tile
    steps = counts[:, reduction].prod(axis=1).astype(float)
    points = tile[:, reduction].prod(axis=1).astype(float)
    results = thread[:, parallel].prod(axis=1) / per_tile
    registers = performance.footprint(0, thread) / 4 / per_tile + IMPLICIT_REGISTERS
    spilled = np.maximum(0.0, 1 - target.registers_per_thread / registers)
    registers = np.minimum(registers, target.registers_per_thread)
    warps = np.ceil(threads / performance.device.lanes) * performance.device.lanes
    _, padding = performance.leading_padding(tile, programs[0][0])
    for position, program in enumerate(programs):
        padding[position] = performance.leading_padding(tile[position : position + 1], program[0])[1][0]
    footprint = np.asarray(
        [performance.footprint(1, tile[i : i + 1], p[0])[0] for i, p in enumerate(programs)]
    )
    limits = [
        target.level("registers").capacity_bytes / 4 / (registers * warps),
        (target.core_threads or 2048) / warps,
        np.full(len(blocks), float(target.core_blocks or 32)),
        np.where(staged, target.memory[-2].capacity_bytes / np.maximum(footprint, 1), np.inf),
    ]
    resident = np.maximum(1.0, np.floor(np.min(limits, axis=0)))
    resident = np.minimum(resident, np.maximum(1.0, np.ceil(blocks / performance.device.units)))
    return Blocks(tile, thread, blocks, threads, steps, points, results, resident, padding, spilled)


def _fragments(performance: Performance, b: Blocks) -> np.ndarray:
    """Input elements that a thread reads for one point of the reduction: [n, inputs]."""
    single = b.thread.copy()
    single[:, performance.space.reduction] = 1
    return performance.staged_elements(single)[:, performance.inputs] / performance.tile_threads


def _instructions(performance: Performance, b: Blocks, staged: np.ndarray) -> tuple[np.ndarray, ...]:
    """Per block and step, in lanes: arithmetic, reads of fragments, elements fetched, index arithmetic."""
    lanes = np.ceil(b.threads / performance.device.lanes) * performance.device.lanes
    fragments = _fragments(performance, b)
    compute = lanes * b.results * b.points
    reads = (lanes * b.points)[:, None] * fragments
    staged_elements = performance.staged_elements(b.tile)[:, performance.inputs].astype(float)
    fetched = np.where(staged, staged_elements.sum(axis=1), 0.0)
    # One iteration takes one register tile's steps of the reduction.
    iterations = b.points / b.thread[:, performance.space.reduction].prod(axis=1)
    index = lanes * iterations * LOOP
    for column, row in enumerate(performance.inputs):
        operand = performance.space.workload.operands[row]
        rank = len(operand.shape)
        windowed = any(len(i.terms) > 1 for i in operand.index_map)
        cost = rank + DIVISION * (rank - 1) + (2 if windowed else 0)
        if performance.gathered[row]:
            cost += DIVISION * sum(
                1 for i in operand.index_map for t in i.terms if t.modulus or t.divisor > 1
            )
        repeated = performance.gathered[row] and windowed
        # Addresses that advance evenly are computed once and then bumped.
        per_element = np.where(b.steps > 1, cost if repeated else 1 + cost / b.steps, cost)
        index = index + np.where(staged, staged_elements[:, column] * per_element, 0.0)
        if windowed:
            index = index + lanes * b.points * fragments[:, column]
    return compute, reads, fetched, index


def _bytes(performance: Performance, b: Blocks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes that a block loads per step and stores at its end through L2, and that all of them take from DRAM."""
    geometry, device = performance.geometry, performance.device
    transaction = device.layers[-1].transaction_bytes
    spans = geometry.spans(b.tile)
    loads = np.zeros(len(b.tile))
    dram = np.zeros(len(b.tile))
    stores = np.zeros(len(b.tile))
    for row, operand in enumerate(performance.space.workload.operands):
        part = spans[:, geometry.slices[row]]
        nbytes = _transactions(operand.shape, part, operand.element_bytes, transaction)
        if operand.output:
            stores += nbytes
            dram += operand.nbytes
        else:
            loads += nbytes
            dram += _touched(performance, row)
    return loads, dram, stores


def _transactions(
    shape: tuple[int, ...], spans: np.ndarray, element_bytes: int, transaction: int
) -> np.ndarray:
    """Bytes of whole transactions that boxes `spans` [n, rank] of a row-major tensor take: [n]."""
    run = np.ones(len(spans))
    rows = np.ones(len(spans))
    contiguous = np.ones(len(spans), dtype=bool)
    for dim in range(len(shape) - 1, -1, -1):
        run = np.where(contiguous, run * spans[:, dim], run)
        rows = np.where(contiguous, rows, rows * spans[:, dim])
        contiguous &= spans[:, dim] == shape[dim]
    nbytes = run * element_bytes
    # A run starts anywhere in a transaction unless it is a whole number of them.
    extra = np.where(nbytes % transaction == 0, 0.0, transaction - element_bytes)
    return rows * (nbytes + extra)


def _touched(performance: Performance, row: int) -> float:
    """Bytes of an input that any point touches, in granules: rows that strides skip are not loaded."""
    operand = performance.space.workload.operands[row]
    whole = performance.geometry.extents[None, :]
    nbytes = float(operand.element_bytes)
    contiguous = True
    for dim in range(len(operand.shape) - 1, -1, -1):
        index, extent = operand.index_map[dim], operand.shape[dim]
        count = extent
        gaps = [t for t in index.terms if t.scale > 1]
        if gaps:
            reach = 1 + sum(
                (int(whole[0, t.variable]) - 1) * t.scale
                for t in index.terms
                if t not in gaps and not t.modulus
            )
            stride = min(t.scale for t in gaps)
            if reach < stride:
                count = -(-extent // stride) * reach
        if count < extent and not contiguous:
            nbytes *= count
            continue
        if count < extent and nbytes > GRANULE_BYTES:
            # A skipped row: what is left are runs of their own.
            nbytes = (nbytes + GRANULE_BYTES - operand.element_bytes) * count
            contiguous = False
        else:
            nbytes *= extent
    return nbytes
