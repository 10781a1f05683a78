"""The micro-performance model: how long schedules take, from their features and a target's data, many at once.

Each statement of an rTask takes as long as its slowest resource: arithmetic at the rate that its loops attain, loads and
stores of registers, or what it moves between two levels of memory over the bandwidth of the outer one (Roller, OSDI'22,
§3.3). Statements follow each other, rTasks are dealt to cores in rounds, and starting each takes time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.nouns.schedule import FETCHING, Schedule
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.cpu_features import WALKS, CpuFeatures, Part, caches, cpu_features
from tilewright.compiler.tuning.model.overlap import partly_hidden
from tilewright.compiler.tuning.model.rates import TASK_US, core_gbps

LOOP_START = 24
"""Multiply-adds that could have been started while a loop nest begins and ends: filling the pipeline, one exit that was
predicted wrong (Fog, "The microarchitecture of Intel, AMD and VIA CPUs": 13 to 20 cycles, two multiply-adds each)."""
SPILL = 3.0
"""Multiply-adds that could have been started while a sum is stored and loaded: a cycle for the one, half of one for the other."""
STORES_PER_LOAD = 0.5
"""Stores that a core starts for each load: one per cycle beside two loads. Source: Fog, as above."""
WALK_US = 0.004
"""Finding a page's address again, beside all else: measured on Zen 4 with products of 128 to 512 rows whose second operands have
3,072 and 4,032 rows, 2 to 8 ns."""
WAITED_WALK_US = 0.02
"""The same where memory is waited for, and not products: measured on Zen 4 with sums of 4,096 columns of as many rows, 512 bytes
of each in turn, and with the same in blocks of 64 rows (`mean-columns-4096x4096` of the suite `memory`, its schedule edited)."""
UNFETCHED = 0.5
"""The part of the shorter of products and the coming in of their panels that shows where panels are not fetched ahead. Measured
on Sapphire Rapids: 0.2 with 128 rows, 0.5 with 16, 1.1 under convolutions of 7 x 7."""


@dataclass(frozen=True)
class Prediction:
    """Microseconds of n schedules, and the resource that bounds each."""

    us: np.ndarray
    bound: list[str]


def predict(workload: Workload, schedules: Sequence[Schedule], target: Target) -> Prediction:
    """The time of complete schedules on a CPU or a GPU; raises ScheduleError as `cpu_features` and `gpu_features` do."""
    if target.kind != "cpu":
        # What compiling for a CPU does not need is not loaded for it.
        from tilewright.compiler.tuning.model.gpu_features import gpu_features

        found = gpu_features(workload, schedules, target)
        return Prediction(found.us, found.bound)
    return from_features(workload, cpu_features(workload, schedules, target), target)


def from_features(workload: Workload, found: CpuFeatures, target: Target) -> Prediction:
    """The same of features of CPU schedules that are there already."""
    times: dict[str, np.ndarray] = {}
    task_us = np.zeros(len(found))
    for number, part in enumerate(found.parts, 1):
        own = resources(workload, part, found, target)
        if number == len(found.parts) and found["streamed"].any():
            below = target.memory[0]
            own[below.name] = own.get(below.name, 0.0) + _streamed_us(workload, found, target)
        core = np.maximum(own["compute"], own["registers"])
        moved = [us for name, us in own.items() if name not in ("compute", "registers", "page walks")]
        task_us = task_us + partly_hidden(core, moved) + own["page walks"]
        task_us = task_us + UNFETCHED * np.minimum(core, _unfetched_us(part, found, target))
        for name, us in own.items():
            times[name] = times.get(name, 0.0) + us
    cores = target.num_cores
    rounds = found["rounds"]
    us = rounds * task_us + found["rounds"] * TASK_US
    if cores > 1:
        us = us + np.where(found["tasks"] > 1, target.start_us, 0.0)
    names = list(times)
    bound = np.stack([times[name] for name in names]).argmax(axis=0)
    return Prediction(us, [names[i] for i in bound])


def _streamed_us(workload: Workload, found: CpuFeatures, target: Target) -> np.ndarray:
    """Microseconds in which the results of one rTask go past the caches: [n].

    What the caches would have kept for the kernel that reads it comes back from memory.
    """
    below, last = target.memory[0], caches(target)[-1]
    instances = target.num_cores / max(1, min(last.shared_by, target.num_cores))
    moved = found["streamed"] * (2 if workload.nbytes <= last.capacity_bytes * instances else 1)
    return moved / core_gbps(below, found["tasks"], target.num_cores) / 1e3


def _unfetched_us(part: Part, found: CpuFeatures, target: Target) -> np.ndarray:
    """Microseconds in which panels that could be fetched ahead, and are not, come into a core's own last cache: [n]."""
    levels = caches(target)
    own = max((number for number, level in enumerate(levels) if level.shared_by == 1), default=0)
    below = [*levels[1:], target.memory[0]][own]
    loaded = np.zeros(len(found))
    for name, nbytes in part.traffic[levels[own].name].items():
        loaded = loaded + nbytes * found.columns.get(f"packed.{name}", 0.0)
    fetching = np.isin(part.kind, FETCHING) if len(part.kind) else np.zeros(len(found), dtype=bool)
    us = loaded / core_gbps(below, found["tasks"], target.num_cores) / 1e3
    return np.where(fetching & (found["prefetch"] == 0), us, 0.0)


def resources(workload: Workload, part: Part, found: CpuFeatures, target: Target) -> dict[str, np.ndarray]:
    """Microseconds that one statement of one rTask takes of each resource of one core, by name."""
    counts, cores = part.counts, target.num_cores
    vector_bytes = target.vector_bits // 8
    started = target.peak_gflops["f32"] / cores * 1e3 / (2 * target.vector_bits / 32)
    loaded = target.level("L1").bandwidth_gbps / cores * 1e3 / vector_bytes
    work = counts["arithmetic"] + counts["stalled"] + counts["shuffles"] + counts["starts"] * LOOP_START
    # Sums without a register are between two multiply-adds in memory: what brings them there and back is waited for.
    work = work + counts["spilled"] * SPILL
    moved = counts["loads"] / loaded
    stored = counts["stores"] / (loaded * STORES_PER_LOAD)
    times = {"compute": work / started, "registers": np.maximum(moved, stored)}
    core = np.maximum(times["compute"], times["registers"])
    levels = caches(target)
    active = np.minimum(found["tasks"], cores)
    for level, below in zip(levels, [*levels[1:], target.memory[0]]):
        sharers = max(1, min(level.shared_by, cores))
        # What all instances of a cache hold was left there by the kernel before, in that of any core.
        missing = 1 - sharers / cores if workload.nbytes <= level.capacity_bytes * cores / sharers else 1.0
        if missing:
            times[below.name] = part.loaded(level.name) * missing / core_gbps(below, active, cores) / 1e3
    memory = [us for name, us in times.items() if name not in ("compute", "registers")]
    waited = np.max(memory, axis=0, initial=0.0) > core
    times["page walks"] = counts[WALKS] * np.where(waited, WAITED_WALK_US, WALK_US)
    return times
