"""What the model knows of n kernels of one kind on a GPU: columns, movements between memories, and loops, as arrays [n].

kernel.columns["shared"]        // bytes of shared memory of one block
kernel.movements[0]             // in0 into shared memory: 8 KiB at a time, 32 times, in runs of 128 B
kernel.loops[0]                 // 128 blocks along the batch, which all together touch 3 MiB of in0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.compiler.nouns.workload import Operand
from tilewright.compiler.targets.occupancy import REGISTER_UNIT, resident_blocks
from tilewright.compiler.targets.target import Target

SECTOR_BYTES = 32
"""What an access of global memory is cut into. Source: CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory"."""
WAVEFRONT_BYTES = 128
"""What all banks of shared memory give at once: 32 of 4 bytes. Source: CUDA C Programming Guide, "Shared Memory"."""
PARTIAL = "partial"
"""The name of partial sums, which are no operand, among the bytes that move."""

UNITS = {
    "blocks": "blocks of the grid",
    "tasks": "rTasks",
    "threads": "threads of a block",
    "warps": "warps of a block",
    "registers": "32-bit registers of a thread, estimated",
    "spilled": "32-bit registers of a thread that it needs and has not",
    "shared": "bytes of shared memory of a block",
    "resident": "blocks that a multiprocessor holds at once",
    "occupancy": "warps of a multiprocessor, of those that it could hold",
    "waves": "rTasks over those that run at once",
    "last_wave": "part of the last wave that has rTasks",
    "computed": "points computed, of those that are needed",
    "arithmetic": "multiply-adds of all blocks",
    "instructions": "instructions of warps of all blocks",
    "steps": "steps of a block's main loop",
    "stages": "steps whose data shared memory holds at once",
    "flying": "bytes that a block has on their way at once",
    "split": "blocks that share one result",
    "cluster": "blocks that load for each other",
    "raster": "rows of blocks that are walked together",
    "conflicts": "wavefronts of shared memory, of those that its bytes need",
    "traffic": "bytes out of a memory, of all blocks",
    "footprint": "bytes that a block touches",
    "run": "bytes side by side in global memory",
    "sectors": "bytes used of those of their sectors",
    "vector": "bytes of one access of a thread",
    "deferred": "0 or 1",
}
"""What columns count, by their names up to the first dot: `traffic.L2.in0` is that of one memory and one operand."""

ARITHMETIC = ("fma", "mma", "wgmma", "special")
"""Units that multiply and add: lanes, matrix units of a warp and of four, and lanes for functions (as multiply-adds' worth)."""
LEVELS = ("DRAM", "L2", "shared")
"""Memories whose traffic is counted, by what a kernel loads out of each, or stores into it."""
PARTS = ("compute", "issue", "shared", "L2", "DRAM", "latency")
"""Resources that a kernel can wait for."""


@dataclass
class Movement:
    """Bytes of an operand that one block moves `into` a memory at a time, and how `times` it does: [n] each.

    `run` are bytes side by side in global memory, `sectors` the used part of their sectors, `vector` bytes of one access,
    `conflicts` wavefronts over those needed, `deferred` whether nobody waits for it.
    """

    into: str
    operand: str
    nbytes: np.ndarray
    times: np.ndarray
    run: np.ndarray
    sectors: np.ndarray
    vector: np.ndarray
    conflicts: np.ndarray
    deferred: np.ndarray


INTO = ("shared", "registers", "global")
"""Memories that movements go into."""


@dataclass
class GpuLoop:
    """A loop, outer ones first: its place, its length [n], the points of all of its steps [n], and the bytes that these
    touch of every operand [n, operands]."""

    place: str
    length: np.ndarray
    points: np.ndarray
    touched: np.ndarray


PLACES = ("of blocks", "of steps", "of threads", "in registers")


@dataclass
class GpuKernel:
    """n kernels of one kind: `us` and `parts_us` are predicted times, of all and of each resource alone."""

    operands: tuple[str, ...]
    columns: dict[str, np.ndarray]
    movements: list[Movement]
    loops: list[GpuLoop]
    us: np.ndarray
    parts_us: dict[str, np.ndarray]
    dtype: str = "f32"
    labels: dict[str, str] = field(default_factory=dict)


def standing(
    target: Target,
    tasks: np.ndarray,
    blocks: np.ndarray,
    threads: np.ndarray,
    registers: np.ndarray,
    shared_bytes: np.ndarray,
    asked: np.ndarray | None = None,
    needed: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """The columns that say how blocks stand on the device; the assembler leaves registers for `asked` of them.

    A thread spills where it has less than it has `needed`, which are `registers` where it is left out.
    """
    warps = np.ceil(threads / target.warp_size)
    most = most_registers(target, threads, asked)
    taken = np.minimum(registers, most).astype(np.int64)
    held = resident_blocks(target, threads, taken, shared_bytes)
    resident = np.maximum(held, 1).astype(float)
    waves = tasks / (resident * target.num_cores)
    room = (target.core_threads or 2048) / target.warp_size
    return {
        "blocks": blocks.astype(float),
        "tasks": tasks.astype(float),
        "threads": threads.astype(float),
        "warps": warps,
        "registers": taken.astype(float),
        "spilled": np.maximum((registers if needed is None else needed) - most, 0).astype(float),
        "shared": np.asarray(shared_bytes, dtype=float),
        "resident": resident,
        "occupancy": np.minimum(resident * warps / room, 1.0),
        "waves": waves,
        "last_wave": waves / np.maximum(np.ceil(waves), 1.0),
    }


def most_registers(target: Target, threads: np.ndarray, asked: np.ndarray | None = None) -> np.ndarray:
    """Registers that a thread can have where so many blocks are asked for, one where nothing is: [n].

    Warps are given whole units of them (`targets.occupancy`).
    """
    held = target.level("registers").capacity_bytes // 4
    warps = -(-threads // target.warp_size) * np.maximum(1 if asked is None else asked, 1)
    each = held // warps // REGISTER_UNIT * REGISTER_UNIT // target.warp_size // 8 * 8
    return np.minimum(target.registers_per_thread, np.maximum(each, 16))


def wavefronts(addresses: np.ndarray, nbytes: int) -> np.ndarray:
    """Wavefronts in which a warp's lanes access `nbytes` each at `addresses` [n, lanes], over those that are needed: [n].

    As many lanes as fill all banks go at once; those of them that want different words of one bank wait for each other.
    """
    unit = max(4, nbytes)
    places = WAVEFRONT_BYTES // unit
    lanes = addresses.shape[1]
    total = np.zeros(len(addresses))
    groups = 0
    for first in range(0, lanes, places):
        words = np.sort(addresses[:, first : first + places] // unit, axis=1)
        fresh = np.ones(words.shape, dtype=bool)
        fresh[:, 1:] = words[:, 1:] != words[:, :-1]
        counts = np.zeros((len(words), places))
        np.add.at(counts, (np.arange(len(words))[:, None], words % places), fresh)
        total += np.maximum(counts.max(axis=1), 1)
        groups += 1
    return total / groups


def run_share(run_bytes: np.ndarray) -> np.ndarray:
    """The used part of the sectors of runs that begin at sectors: [n]."""
    return run_bytes / (np.ceil(run_bytes / SECTOR_BYTES) * SECTOR_BYTES)


def lane_share(operand: Operand, strides: Sequence[int], points: np.ndarray) -> tuple[float, float]:
    """(the used part of sectors, longest run in bytes) where the lanes of a warp access an operand at `points` [lanes, axes].

    Elements that several lanes want count once.
    """
    item = operand.element_bytes
    address = np.zeros(len(points), dtype=np.int64)
    for index, stride in zip(operand.index_map, strides):
        position = np.full(len(points), index.offset, dtype=np.int64)
        for term in index.terms:
            own = points[:, term.variable] // term.divisor
            position += (own % term.modulus if term.modulus else own) * term.scale
        address += position * stride
    places = np.sort(address)
    places -= places[0]
    steps = np.diff(places)
    distinct = 1 + np.count_nonzero(steps)
    sectors = 1 + np.count_nonzero(np.diff(places * item // SECTOR_BYTES))
    breaks = np.flatnonzero(steps > 1)
    ends, starts = np.append(places[breaks], places[-1]), np.append(0, places[breaks + 1])
    return distinct * item / (sectors * SECTOR_BYTES), float((ends - starts + 1).max() * item)


def by_movements(movements: Sequence[Movement], blocks: np.ndarray) -> dict[str, np.ndarray]:
    """The columns of operands that follow from movements between global memory and a block."""
    found: dict[str, np.ndarray] = {}
    for move in movements:
        if move.into == "registers" and f"run.{move.operand}" in found:
            continue
        for name in ("run", "sectors", "vector", "deferred"):
            found[f"{name}.{move.operand}"] = np.asarray(getattr(move, name), dtype=float)
    return found


def traffic(by_operand: Mapping[str, Mapping[str, np.ndarray]], count: int) -> dict[str, np.ndarray]:
    """Columns of bytes by memory and operand, and their sums."""
    found: dict[str, np.ndarray] = {}
    for level in LEVELS:
        own = by_operand.get(level, {})
        for name, nbytes in own.items():
            found[f"traffic.{level}.{name}"] = np.broadcast_to(np.asarray(nbytes, dtype=float), (count,))
        found[f"traffic.{level}"] = np.sum(list(own.values()), axis=0) if own else np.zeros(count)
        found[f"traffic.{level}"] = np.broadcast_to(found[f"traffic.{level}"], (count,)).astype(float)
    return found
