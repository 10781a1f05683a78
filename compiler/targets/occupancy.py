"""How many blocks of threads one multiprocessor holds at once, from what each block takes: for many kernels at once.

Source: NVIDIA, CUDA C++ Programming Guide, "Hardware Multithreading", and the occupancy calculator of the toolkit.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.targets.target import Target

REGISTER_UNIT = 256
"""Registers are handed to warps in multiples of this many. Source: CUDA occupancy calculator, all of sm_30 to sm_90."""

Counts = np.ndarray | int


def register_limit(target: Target, threads: int) -> int:
    """Registers that each of `threads` threads of one block can have."""
    warps = -(-threads // target.warp_size)
    per_warp = target.level("registers").capacity_bytes // 4 // warps // REGISTER_UNIT * REGISTER_UNIT
    return min(target.registers_per_thread, per_warp // target.warp_size // 8 * 8)


def shared_limit(target: Target) -> int:
    """Bytes of dynamic shared memory that one block can have: more than the 48 KiB that Roller's tiles are held to."""
    return target.level("shared").capacity_bytes


def resident_blocks(target: Target, threads: Counts, registers: Counts, shared_bytes: Counts) -> np.ndarray:
    """Blocks per multiprocessor, by threads, registers per thread and bytes of shared memory per block; 0: none fits.

    Each scheduler has its own part of the registers, and a warp's are all in one of them.
    """
    warp = target.warp_size
    warps = -(-np.asarray(threads) // warp)
    taken = -(-np.asarray(registers) * warp // REGISTER_UNIT) * REGISTER_UNIT
    parts = target.schedulers or 1
    part = target.level("registers").capacity_bytes // 4 // parts
    shared = np.asarray(shared_bytes) + target.block_reserved_bytes
    core_shared = target.core_shared_bytes or target.level("shared").capacity_bytes
    limits = (
        part // np.maximum(taken, 1) * parts // np.maximum(warps, 1),
        (target.core_threads or 2048) // (warps * warp),
        np.full(np.shape(warps), target.core_blocks or 32),
        core_shared // np.maximum(shared, 1),
    )
    fitting = np.asarray(limits[0])
    for limit in limits[1:]:
        fitting = np.minimum(fitting, limit)
    legal = (
        (np.asarray(registers) <= target.registers_per_thread)
        & (np.asarray(threads) <= (target.block_threads or 1024))
        & (np.asarray(shared_bytes) <= target.level("shared").capacity_bytes)
    )
    return np.where(legal, fitting, 0)


def occupancy(target: Target, threads: int, registers: int, shared_bytes: int) -> float:
    """The part of a multiprocessor's warps that are in use when it holds as many blocks as it can."""
    warps = -(-threads // target.warp_size)
    blocks = int(resident_blocks(target, threads, registers, shared_bytes))
    return blocks * warps / ((target.core_threads or 2048) / target.warp_size)
