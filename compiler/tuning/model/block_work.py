"""Times of a GPU's kernels that multiply no matrices: whole waves of blocks that take what the slowest resource takes.

Blocks work on their own and reuse nothing. Of n schedules at once; all that is needed are counts and a target.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.occupancy import resident_blocks
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.overlap import unevenness
from tilewright.compiler.tuning.model.rates import dram_gbps, l2_gbps


@dataclass(frozen=True)
class BlockWork:
    """What kernels take whose blocks work on their own and reuse nothing, of n schedules: [n] each.

    How many blocks there are, threads and registers and shared bytes of one, bytes of all blocks through L2 and to or from
    DRAM, instructions of single lanes, and the bytes that one block has on their way at once. `staged_bytes` of all blocks go
    through shared memory, what conflicts take of its wavefronts included; `chain_ns` passes in a block while its threads wait for
    barriers, for each other, and for what they computed last.
    """

    blocks: np.ndarray
    threads: np.ndarray
    registers: np.ndarray
    shared_bytes: np.ndarray
    moved_bytes: np.ndarray
    dram_bytes: np.ndarray
    issued: np.ndarray
    flying_bytes: np.ndarray
    staged_bytes: np.ndarray | float = 0.0
    chain_ns: np.ndarray | float = 0.0

    def resident(self, target: Target) -> np.ndarray:
        """Blocks that a multiprocessor holds, one at least."""
        held = resident_blocks(target, self.threads, self.registers, self.shared_bytes)
        return np.maximum(1, held)

    def parts_us(self, target: Target) -> dict[str, np.ndarray]:
        """Microseconds that each resource takes in whole waves."""
        cores, resident = target.num_cores, self.resident(target)
        per_core, uneven = np.ceil(self.blocks / cores), unevenness(self.blocks, cores)
        dram, ghz = target.memory[0], target.clock_ghz or 1.0
        used = np.minimum(1.0, resident * self.threads / (target.schedulers * target.warp_size * 4))
        issue = self.issued / (cores * target.schedulers * target.warp_size * ghz) * uneven / used
        # Enough bytes must be on their way to cover a load's latency (Little's law).
        flying = self.flying_bytes * np.minimum(per_core, resident) * np.minimum(self.blocks, cores)
        # What a block's threads wait for one after the other, waves of blocks do.
        waves = np.ceil(self.blocks / (cores * resident))
        found = {
            dram.name: self.dram_bytes / dram_gbps(target),
            "L2": self.moved_bytes / l2_gbps(target) * uneven,
            "issue": issue,
            "shared": self.staged_bytes / target.level("shared").bandwidth_gbps * uneven,
            "latency": self.dram_bytes / np.maximum(flying, 1) * dram.latency_ns + self.chain_ns * waves,
        }
        return {name: ns / 1e3 for name, ns in found.items()}

    def us(self, target: Target) -> np.ndarray:
        """Microseconds of the slowest resource, filling and draining included."""
        slowest = np.stack(list(self.parts_us(target).values())).max(axis=0)
        return slowest + 2 * target.memory[0].latency_ns / 1e3 + target.start_us


def touched_bytes(workload: Workload) -> float:
    """Bytes of all operands that some point reads or writes: rows that strides skip do not move."""
    total = 0.0
    for operand in workload.operands:
        count = float(operand.element_bytes)
        for dimension, (index, extent) in enumerate(zip(operand.index_map, operand.shape)):
            steps = math.prod(workload.extents[term.variable] for term in index.terms)
            # Along the last dimension whole transactions come in.
            last = dimension == len(operand.shape) - 1
            count *= extent if last or not index.terms else min(extent, steps)
        total += count
    return total
