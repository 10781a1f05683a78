"""How times of single resources become the time of all: what overlaps, what waits, and waves that are not full.

Every model of this compiler combines its counts by these: complete schedules (`micro_performance`), rTasks whose loops are not
chosen yet (`rtask_times`), kernels of GPUs (`block_work`, `gemm_model`), and Roller's programs (`tuning/roller`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MANY = 64
"""Independent parts of work beyond which their overlap is taken as complete."""
OVERLAP = 0.25
"""The part of what is not slowest that shows beside it on a CPU: chosen from schedules measured on Zen 5."""


def partly_hidden(core: np.ndarray, moved: Sequence[np.ndarray]) -> np.ndarray:
    """The time of a core's arithmetic and of what it moves between caches, of which `OVERLAP` shows beside the slowest: [n].

    Caches wait for one another in part. Source: Stengel et al., "Quantifying Performance Bottlenecks of Stencil Computations
    Using the Execution-Cache-Memory Model", ICS'15.
    """
    slowest = np.maximum.reduce([core, *moved])
    return slowest + OVERLAP * (core + np.sum(moved, axis=0) - slowest)


def one_by_one(core: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """The same where transfers `moved` [k, n] wait for one another, and overlap with arithmetic: [n].

    The execution-cache-memory model itself (Stengel et al., ICS'15).
    """
    return np.maximum(core, moved.sum(axis=0))


def exposed(compute: float, arrival: float, first: float) -> float:
    """The time waited for an operand that takes `arrival` to come, while its `first` part of `compute` is done.

    What comes later is computed on from a cache: passes over it hide nothing of its arrival.
    """
    return max(0.0, arrival - compute * min(1.0, first))


def unevenness(tasks: np.ndarray, cores: int) -> np.ndarray:
    """What tasks of one length take over what they would if all of `cores` were busy to the end: [n]."""
    return np.ceil(tasks / cores) * cores / np.maximum(tasks, 1)


def waves_of(blocks: np.ndarray, room: np.ndarray, cores: int) -> tuple[np.ndarray, np.ndarray]:
    """(full waves of `room` blocks, blocks of the busiest of `cores` in the last one): [n] each."""
    full = np.floor(blocks / room)
    return full, np.ceil((blocks - full * room) / cores)


def in_waves(
    full: np.ndarray,
    rest: np.ndarray,
    resident: np.ndarray,
    parts: np.ndarray,
    memory: np.ndarray,
    core: np.ndarray,
    delay: np.ndarray,
) -> np.ndarray:
    """The time of `full` waves of `resident` blocks on a unit and of one of `rest`, as `waves_of` has them: [n].

    Each block is `parts` that wait on their own, and takes `memory`, `core` and `delay` as `mean_value_analysis` has them.
    """
    sizes = np.stack([resident * parts, np.maximum(rest, 1) * parts])
    per_part = mean_value_analysis(memory / parts, core / parts, delay, sizes)
    return full * sizes[0] * per_part[0] + np.where(rest > 0, sizes[1] * per_part[1], 0.0)


def mean_value_analysis(
    memory: np.ndarray, core: np.ndarray, delay: np.ndarray, resident: np.ndarray
) -> np.ndarray:
    """Cycles per block when `resident` [k, n] blocks share a unit: [k, n].

    A block waits `delay` cycles, takes `memory` cycles of bandwidth and, behind its barrier, `core` cycles of the
    multiprocessor, again and again: a closed network of two queues, solved by mean value analysis (Reiser and
    Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks", JACM 1980). One block alone takes the sum,
    many take the maximum of the two.
    """
    result = np.zeros(resident.shape)
    waiting_memory = np.zeros(len(memory))
    waiting_core = np.zeros(len(memory))
    wanted = np.clip(np.floor(resident), 1, MANY)
    for blocks in range(1, int(wanted.max()) + 1):
        in_memory, in_core = memory * (1 + waiting_memory), core * (1 + waiting_core)
        rate = blocks / (delay + in_memory + in_core)
        result = np.where(wanted == blocks, 1 / rate, result)
        waiting_memory, waiting_core = rate * in_memory, rate * in_core
    return result
