"""Rates of a machine that times are counted by: bandwidth of DRAM, of L2, of one core among others, and what starting takes."""

from __future__ import annotations

import numpy as np

from tilewright.compiler.targets.target import MemoryLevel, Target

TASK_US = 0.03
"""Starting one rTask of a running step on a CPU: taking its number, its addresses, and a cold loop."""
_L2_SHARE = 4
"""How many times as fast as DRAM L2 is taken to be where a target leaves it out, as the K80's."""


def dram_gbps(target: Target) -> float:
    """What all cores move to and from DRAM: what they copy, where somebody measured that."""
    dram = target.memory[0]
    return dram.copy_gbps or dram.bandwidth_gbps


def l2_gbps(target: Target) -> float:
    """What all multiprocessors of a GPU take out of L2."""
    found = (level.bandwidth_gbps for level in target.memory if level.name == "L2")
    return next(found, _L2_SHARE * target.memory[0].bandwidth_gbps)


def core_gbps(level: MemoryLevel, active: np.ndarray, cores: int) -> np.ndarray:
    """GB/s that one core gets of a level while `active` of `cores` pull at once, one at least: [n]."""
    each = np.asarray([level.bandwidth_of(n, cores) / n for n in range(1, cores + 1)])
    return each[np.clip(active, 1, cores).astype(np.int64) - 1]


def roofline(nbytes: float, flops: float, target: Target) -> tuple[float, str]:
    """(microseconds, what bounds them) of a kernel that moves every byte once, at what DRAM gives or lanes compute in f32."""
    dram = target.memory[0]
    memory, compute = nbytes / dram_gbps(target), flops / target.peak_gflops["f32"]
    us = (max(memory, compute) + dram.latency_ns) / 1e3 + target.start_us
    return us, dram.name if memory >= compute else "compute"
