"""What a contraction takes on a GPU, tile by tile: the micro-performance model of pipelined kernels, over arrays of tiles.

A block fills `stages` buffers, then repeats: while one part of K is computed, those behind it are on their way (cp.async,
or TMA). A step therefore takes as long as the slowest of

    compute   multiply-adds at the rate of the execution unit: lanes, mma.sync, wgmma
    issue     the instructions around them, one per scheduler and cycle
    shared    what is written to shared memory and read from it, 128 B per cycle
    L2        what the tile loads; blocks of a cluster load B for each other
    latency   a load's, divided by the loads that are in flight

and a wave as long as filling the pipeline, the steps of the blocks that share a multiprocessor, and their epilogue. The
last wave is solved with the blocks it has, and nothing is faster than DRAM delivers what no wave finds in L2.

Sources: Roller, OSDI'22, §3.3; Volkov, "Understanding Latency Hiding on GPUs", 2016 (Little's law); Osama et al.,
"Stream-K", PPoPP'23, §2 (waves and tails).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.compiler.nouns.workload import BITS
from tilewright.compiler.targets.occupancy import resident_blocks
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.gemm_resources import INSTRUCTIONS, MOST_ASKED_BLOCKS, GemmTiles
from tilewright.compiler.tuning.model.gemm_shape import ACCESS_BYTES, Gemm
from tilewright.compiler.tuning.model.instructions import DIVISION, LOOP
from tilewright.compiler.tuning.model.overlap import waves_of
from tilewright.compiler.tuning.model.rates import dram_gbps, l2_gbps

MMA_LATENCY = 33.0
"""Cycles from an `mma.sync` m16n8k16 to the next that needs its sums. Source: Luo et al., "Benchmarking and Dissecting
the Nvidia Hopper GPU Architecture", 2024, table VI (A100 33.0, H100 32.1)."""

L2_PORT_BYTES = 64
"""What one multiprocessor takes from L2 in a cycle, at most. Source: NVIDIA A100 whitepaper, V1.0, "A100 L2 cache"."""

ASYNC_BYTES = 4
"""The least that an asynchronous copy moves; less goes through registers. Source: PTX ISA, `cp.async`."""

LANE_BYTES = 4
"""What a lane takes of the 128 B that a warp moves to or from L1 and shared memory in a cycle, however few bytes it asks for:
a multiprocessor has 32 load/store units. Source: NVIDIA A100 whitepaper, V1.0, figure 7."""

BOUNDS = ("compute", "issue", "shared", "L2", "latency")
"""What a step can wait for, in the order in which ties are settled; DRAM and filling come in as a whole."""


@dataclass(frozen=True)
class GemmEstimate:
    """Of n tiles, arrays [n]: microseconds, blocks per multiprocessor, multiprocessors' waves, DRAM bytes, raster.

    `read_bytes` are those of A and B among the DRAM bytes. `parts_us` are the times that single resources would take alone; `bound` names the slowest.
    """

    us: np.ndarray
    resident: np.ndarray
    waves: np.ndarray
    dram_bytes: np.ndarray
    raster: np.ndarray
    parts_us: dict[str, np.ndarray]
    read_bytes: tuple[np.ndarray, np.ndarray]

    @property
    def effort(self) -> np.ndarray:
        """All that is taken of the multiprocessors and of DRAM together, in microseconds: what overlaps has to be done."""
        return np.sum([part for name, part in self.parts_us.items() if name != "latency"], axis=0)

    def bound(self, position: int) -> str:
        """The resource that the tile at `position` waits for."""
        return max(self.parts_us, key=lambda name: float(self.parts_us[name][position]))


def estimate(
    gemm: Gemm,
    kind: str,
    dtype: str,
    tiles: GemmTiles,
    splits: np.ndarray,
    target: Target,
    raster: np.ndarray | None = None,
) -> GemmEstimate:
    """Times of `tiles` with K in `splits` parts; `dtype` is what is multiplied (tf32 of f32 operands).

    Rows of blocks are walked together `raster` at a time; as many as make DRAM bytes few where it is not given.
    """
    machine = Machine.of(target, kind, dtype)
    rows, columns = -(-gemm.m // tiles.block_m), -(-gemm.n // tiles.block_n)
    if kind == "wgmma":
        rows = -(-rows // tiles.cluster) * tiles.cluster
    whole = (rows * columns * gemm.batch).astype(float)
    steps = gemm.steps(kind, tiles.block_k)
    part_steps = np.ceil(steps / splits)
    registers = tiles.registers
    if kind == "wgmma":
        # One consumer and its producer take what there is once partial sums have to be addressed as well.
        registers = np.where((splits > 1) & (tiles.threads == 256), target.registers_per_thread, registers)
    resident = resident_blocks(target, tiles.threads, registers, tiles.shared_bytes)
    legal = resident > 0
    resident = np.clip(resident, 1, MOST_ASKED_BLOCKS)
    cores = target.num_cores // tiles.cluster * tiles.cluster
    step = _Steps(gemm, kind, tiles, machine, target)
    divided = splits > 1
    store = _epilogue_ns(gemm, tiles, machine, np.zeros(len(tiles), dtype=bool))
    store_divided = _epilogue_ns(gemm, tiles, machine, divided)
    fill = machine.load_ns + machine.shared_ns

    def wave(blocks: np.ndarray, count: np.ndarray, ends: np.ndarray) -> np.ndarray:
        return fill + count * step.ns(blocks) + blocks * ends + machine.load_ns

    # wgmma kernels are persistent, and divide only tiles that fill no whole wave; others divide all of them.
    room = cores * resident
    if kind == "wgmma":
        full = np.floor(whole / room)
        left = (whole - full * room) * np.where(divided, splits, 1)
        turns = np.ceil(left / room)
        body = full * (steps * step.ns(resident) + store) + turns * (
            part_steps * step.ns(resident) + np.where(divided, store_divided, store)
        )
        total = fill + body + machine.load_ns
        waves = full + left / room
    else:
        blocks = whole * splits
        full, rest = waves_of(blocks, room, cores)
        ends = np.where(divided, store_divided, store)
        total = full * wave(resident.astype(float), part_steps, ends)
        total = total + np.where(rest > 0, wave(np.maximum(rest, 1.0), part_steps, ends), 0.0)
        waves = blocks / room
    # Divided sums are written, counted and added up by the last block of a tile.
    total = total + np.where(divided, 2 * machine.load_ns, 0.0)
    read, share, raster = _read_bytes(gemm, tiles, target, rows, columns, np.minimum(whole, room), raster)
    dram = read + gemm.results * gemm.result_bytes + gemm.extra_bytes
    dram_ns = dram / machine.dram_gbps
    busy = np.maximum(total, dram_ns + machine.load_ns)
    full_load = whole * steps / target.num_cores
    parts = {name: full_load * value / 1e3 for name, value in step.alone().items()}
    parts["DRAM"] = dram_ns / 1e3
    idle = np.maximum(total - dram_ns, 0.0) / 1e3
    # What no resource accounts for is latency: filling, draining and waves that are not full.
    parts["latency"] = np.maximum(idle - np.maximum.reduce([v for k, v in parts.items() if k != "DRAM"]), 0.0)
    us = np.where(legal, busy / 1e3 + target.start_us, np.inf)
    return GemmEstimate(us, resident, waves, dram, raster, parts, (read * share, read * (1 - share)))


@dataclass(frozen=True)
class Machine:
    """Rates of one multiprocessor for one kind of kernel, in units per nanosecond; latencies in nanoseconds."""

    flops: float
    issue: float
    shared: float
    l2_gbps: float
    port_gbps: float
    dram_gbps: float
    load_ns: float
    shared_ns: float
    cycle_ns: float
    schedulers: int

    @classmethod
    def of(cls, target: Target, kind: str, dtype: str) -> Machine:
        peak = target.peak_gflops.get(dtype, target.peak_gflops["f32"])
        if kind == "simt":
            peak = target.sustained_gflops if dtype == "f32" and target.sustained_gflops else peak
            if dtype not in ("f32", "f64"):
                peak = target.peak_gflops["f32"]
        elif kind == "mma":
            peak *= target.mma_share
        cores, ghz = target.num_cores, target.clock_ghz or 1.0
        dram = target.memory[0]
        shared = target.level("shared")
        schedulers = max(1, target.schedulers)
        return cls(
            float(peak) / cores,
            schedulers * ghz,
            shared.bandwidth_gbps / cores,
            l2_gbps(target) / cores,
            L2_PORT_BYTES * ghz,
            dram_gbps(target),
            dram.latency_ns,
            shared.latency_ns,
            1 / ghz,
            schedulers,
        )


class _Steps:
    """Nanoseconds that one step of one block takes of every resource, [n] each."""

    def __init__(self, gemm: Gemm, kind: str, tiles: GemmTiles, machine: Machine, target: Target):
        self.tiles, self.machine = tiles, machine
        bm, bn, bk = tiles.block_m, tiles.block_n, tiles.block_k
        if kind == "wgmma" and gemm.run:
            # What boxes leave of a stage is not multiplied, as far as instructions of a quarter of it tell.
            bk = np.minimum(bk, -(-4 * gemm.run // bk) * bk // 4)
        item = gemm.item_bytes
        self.compute = 2.0 * bm * bn * bk / machine.flops
        self.chain: np.ndarray | float = 0.0
        scattered = scattered_factors(gemm, kind)
        # A scattered element is loaded by a lane of its own, and stored by one.
        staged = sum(
            across * bk * (2 * LANE_BYTES if alone else item) for across, alone in zip((bm, bn), scattered)
        )
        copies, index = _copies(gemm, kind, tiles, target.compute_capability >= 80)
        if kind == "simt":
            wide = BITS[gemm.sum_dtype] // 8
            per_warp = bk * (tiles.thread_m * tiles.thread_n + _simt_reads(tiles, wide))
            # What lanes receive counts, 128 B per cycle, whether several receive the same or not.
            read = bk * (tiles.thread_m + tiles.thread_n) * wide * 32 * tiles.warps
            instructions = tiles.warps * (per_warp + LOOP) + copies + index
        elif kind == "wgmma":
            # Each warpgroup's instructions read their rows of A and all of B themselves.
            read = tiles.warps / 4 * (64 + bn) * bk * item
            instructions = np.full(len(tiles), 64.0)
        else:
            shape = INSTRUCTIONS["mma" if kind == "mma" else kind, _multiplied(kind, gemm)][1]
            read = (tiles.warp_m + tiles.warp_n) * bk * item * tiles.warps
            count = tiles.warp_m * tiles.warp_n * bk / np.prod(shape) * (4 if kind == "volta" else 1)
            instructions = tiles.warps * (count + read / tiles.warps / 512 + LOOP) + copies + index
            # Each warp's sums wait for their last, however few independent ones it has.
            self.chain = tiles.block_k / shape[2] * MMA_LATENCY * machine.cycle_ns
        self.issue = instructions / machine.issue
        self.shared = (read + staged) / machine.shared
        own = bm + bn / tiles.cluster
        self.loads = own * bk * item
        self.l2 = self.loads / machine.l2_gbps
        self.port = self.loads / machine.port_gbps
        # What goes through registers is waited for within the step that loads it, however many stages there are.
        self.in_flight = np.ones(len(tiles)) if any(scattered) else np.maximum(tiles.stages - 1, 1)
        # Warps that wait at a block's barrier, then for shared memory, are covered by those of other blocks only.
        self.barrier = machine.shared_ns if kind != "wgmma" else 0.0
        self.kind = kind

    def ns(self, resident: np.ndarray) -> np.ndarray:
        """One step of each of `resident` blocks on a multiprocessor."""
        # A scheduler without a warp does not issue.
        busy = np.minimum(1.0, resident * self.tiles.warps / self.machine.schedulers)
        compute = np.maximum(resident * np.maximum(self.compute, self.issue) / busy, self.chain)
        compute = compute + self.barrier / resident
        memory = resident * np.maximum(self.shared, self.l2)
        return np.maximum(np.maximum(compute, memory), self.machine.load_ns / self.in_flight)

    def alone(self) -> dict[str, np.ndarray]:
        """Of one step, each resource by itself."""
        return {"compute": self.compute, "issue": self.issue, "shared": self.shared, "L2": self.l2}


def scattered_factors(gemm: Gemm, kind: str) -> tuple[bool, bool]:
    """Whether each factor's elements lie too far apart for asynchronous copies and are loaded and stored one by one."""
    if kind == "wgmma":
        return False, False
    a, b = (vector * gemm.item_bytes < ASYNC_BYTES for vector in (gemm.a_vector, gemm.b_vector))
    return a, b


def _multiplied(kind: str, gemm: Gemm) -> str:
    return "tf32" if gemm.dtype == "f32" else "f16" if kind == "volta" else gemm.dtype


def _simt_reads(tiles: GemmTiles, item: int) -> np.ndarray:
    """Loads of fragments per thread and step of k, 16 bytes at a time."""
    lanes = ACCESS_BYTES // item
    return -(-tiles.thread_m // lanes) + -(-tiles.thread_n // lanes)


def _copies(gemm: Gemm, kind: str, tiles: GemmTiles, asynchronous: bool) -> tuple[np.ndarray, np.ndarray]:
    """Warp instructions per block and step that copy into shared memory, and those that compute where from."""
    if kind == "wgmma":
        zero = np.zeros(len(tiles))
        return zero, zero
    copies, index = np.zeros(len(tiles)), np.zeros(len(tiles))
    for extent, width in ((tiles.block_m, gemm.a_vector), (tiles.block_n, gemm.b_vector)):
        accesses = extent * tiles.block_k / width / 32
        # Without asynchronous copies an element is loaded and then stored.
        copies += accesses * (1 if asynchronous and width * gemm.item_bytes >= ASYNC_BYTES else 2)
        # Addresses of neighbours advance evenly; where none are aligned, each is computed by itself.
        index += accesses * (1 if width > 1 else DIVISION)
    return copies, index


def _epilogue_ns(gemm: Gemm, tiles: GemmTiles, machine: Machine, divided: np.ndarray) -> np.ndarray:
    """Storing one block's results, and reading what the epilogue adds, through L2; partial sums are f32, there and back."""
    elements = tiles.block_m * tiles.block_n
    extra = gemm.extra_bytes / max(1, gemm.results)
    nbytes = elements * (gemm.result_bytes + extra) + np.where(divided, elements * 8, 0)
    return nbytes / machine.l2_gbps


def _read_bytes(
    gemm: Gemm,
    tiles: GemmTiles,
    target: Target,
    rows: np.ndarray,
    columns: np.ndarray,
    at_once: np.ndarray,
    raster: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bytes of A and B from DRAM, which share of them is A's, and the group of rows of blocks that makes them few, or the one that is given.

    Blocks that run at once cover a rectangle of tiles, as square as can be in bytes; what they share is loaded once. A group
    is walked column by column, then the next one: more blocks than one has go down its rows, clusters at a time.
    Half of L2 is for operands: where all of them fit, they are loaded once.
    """
    l2 = next((m.capacity_bytes for m in target.memory if m.name == "L2"), 0)
    per_batch = np.minimum(at_once, rows * columns)
    height = np.sqrt(per_batch * tiles.block_n / tiles.block_m)
    group = np.round(height / tiles.cluster) if raster is None else np.asarray(raster, dtype=float)
    group = np.clip(group, 1, np.ceil(rows / tiles.cluster))
    height = np.minimum(np.maximum(group * tiles.cluster, np.ceil(per_batch / columns)), rows)
    width = np.clip(np.ceil(per_batch / height), 1, columns)
    waves = np.maximum(rows * columns / (height * width), 1.0) * gemm.batch
    # Windows of a convolution overlap: rows are that much shorter in memory, and blocks find them in caches.
    whole = gemm.batch * gemm.m * gemm.k * gemm.item_bytes
    distinct = min(1.0, gemm.a_bytes / whole) if gemm.a_bytes else 1.0
    read_a, read_b = height * tiles.block_m * distinct, width * tiles.block_n
    read = waves * (read_a + read_b) * gemm.k * gemm.item_bytes
    least = float(gemm.a_bytes + gemm.b_bytes)
    if least > l2 / 2:
        read, share = np.maximum(read, least), read_a / (read_a + read_b)
    else:
        read, share = np.full(len(tiles), least), np.full(len(tiles), gemm.a_bytes / max(least, 1.0))
    # A convolution's image is no larger for being walked several times.
    read = np.minimum(read, least * np.maximum(1.0, rows * columns))
    return read, share, group.astype(np.int64)
