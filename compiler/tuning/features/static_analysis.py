"""What Pruner's static analyser reads of GPU programs: the work of each innermost statement, and what five penalties say.

    found = static_analysis(programs, target)     // [n, inputs + 2, 8]: the fetch of each input, the arithmetic, the store

Source: Pruner (ASPLOS'25), §2.3. The paper leaves open what is counted; here work includes the padding of ragged tiles, a
register access is an operand's element that a thread loads for its tile, and a run of elements side by side is the "innermost
dimension" of a data tile, which lanes of a store that are some elements apart share. The penalty of residency is ours: a core
that holds few warps waits for each of them.
"""

from __future__ import annotations

import numpy as np

from tilewright.compiler.targets.occupancy import resident_blocks
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.features.feature_set import Steps
from tilewright.compiler.tuning.features.tiled_programs import TiledPrograms, run_of
from tilewright.compiler.tuning.roller.threads import IMPLICIT_REGISTERS

COLUMNS = {
    "compute": "us at the device's peak",
    "memory": "us at the device's bandwidth",
    "registers": "registers over the limit, at least 1",
    "accesses": "1 + register accesses per operation",
    "warp": "threads over lanes of their warps",
    "kernel": "blocks or warps over those of their waves",
    "residency": "warps of a core over those that hide latency, at most 1",
    "transactions": "elements over those of their transactions",
}
TRANSACTION_BYTES = 32
"""Of global memory, n_l*: a sector. Source: Jia et al., "Dissecting the NVIDIA Volta GPU Architecture via Microbenchmarking",
2018, §3.1."""
MISSES = 0.35
"""The part of fetched and stored bytes that is paid for at the bandwidth of DRAM; caches have the rest. This and the next two
were chosen together on the first 128 measured programs of operators on a V100 and a K80, of {0.1, 0.15, 0.2, 0.25, 0.35, 0.5}."""
BLOCKS_AT_ONCE = 8
"""Blocks that a core runs at once, n_b: of {2, 4, 8, what fits}."""
WARPS_PER_SCHEDULER = 2
"""Warps that hide each other's latency, for each scheduler of a core: of {0, 1, 2, 4, 8}."""


def static_analysis(programs: TiledPrograms, target: Target) -> Steps:
    """The statements of each program: [n, inputs + 2, 8]."""
    workload = programs.workload
    bandwidth = target.memory[0].bandwidth_gbps * 1e3
    repeats = programs.blocks * programs.fetches
    found = []
    for operand in workload.inputs:
        nbytes = operand.tile_bytes(programs.block) * repeats
        share = _used(run_of(operand, programs.block), operand.element_bytes)
        found.append(analysed(len(programs), memory=MISSES * nbytes / bandwidth, transactions=share))
    peak = (target.sustained_gflops or target.peak_gflops["f32"]) * 1e3
    flops = workload.flops_per_point * repeats * programs.block.astype(float).prod(axis=1)
    results = programs.thread.astype(float).prod(axis=1)
    loaded = np.sum([o.tile_shape(programs.thread).prod(axis=1) for o in workload.inputs], axis=0)
    taken = results + loaded + IMPLICIT_REGISTERS
    warps = np.ceil(programs.threads / target.warp_size)
    found.append(
        analysed(
            len(programs),
            compute=flops / peak,
            registers=np.maximum(taken / target.registers_per_thread, 1.0),
            accesses=1 + loaded / (results * max(workload.flops_per_point, 1.0)),
            warp=programs.threads / (warps * target.warp_size),
            kernel=filled(programs.blocks, warps, target),
            residency=_residency(programs, taken, warps, target),
        )
    )
    out = workload.output
    share = _used(run_of(out, programs.block), out.element_bytes)
    share = share / np.minimum(programs.lane_step, TRANSACTION_BYTES // out.element_bytes)
    nbytes = out.tile_bytes(programs.block) * programs.blocks
    found.append(analysed(len(programs), memory=MISSES * nbytes / bandwidth, transactions=share))
    values = np.stack(found, axis=1)
    return Steps(tuple(COLUMNS), tuple(COLUMNS.values()), values, np.full(len(programs), values.shape[1]))


def filled(blocks: np.ndarray, warps: np.ndarray, target: Target) -> np.ndarray:
    """P_kernel (eq. 3): of large kernels the share of their waves of blocks that is filled, of others that of warps."""
    at_once = target.num_cores * BLOCKS_AT_ONCE
    resident = target.num_cores * (target.core_threads or 2048) / target.warp_size
    waves = blocks / (np.ceil(blocks / at_once) * at_once)
    own = blocks * warps
    return np.where(blocks >= at_once, waves, own / (np.ceil(own / resident) * resident))


def _residency(programs: TiledPrograms, taken: np.ndarray, warps: np.ndarray, target: Target) -> np.ndarray:
    """The share of the warps that hide each other's latency that a core holds: [n]."""
    shared = np.sum([operand.tile_bytes(programs.block) for operand in programs.workload.inputs], axis=0)
    registers = np.minimum(taken, target.registers_per_thread).astype(np.int64)
    held = np.maximum(resident_blocks(target, programs.threads, registers, shared), 1) * warps
    return hidden(held, target)


def hidden(warps: np.ndarray, target: Target) -> np.ndarray:
    """The same of so many warps of a core."""
    return np.minimum(warps / (WARPS_PER_SCHEDULER * max(1, target.schedulers)), 1.0)


def _used(run: np.ndarray, element_bytes: int) -> np.ndarray:
    """P_mem: elements of a run over those of the transactions that it takes."""
    transaction = max(1, TRANSACTION_BYTES // element_bytes)
    return run / (np.ceil(run / transaction) * transaction)


def analysed(count: int, **known: np.ndarray) -> np.ndarray:
    """One statement: [n, 8], no work and no penalty where nothing is said."""
    columns = [known.get(name, np.full(count, float(name not in ("compute", "memory")))) for name in COLUMNS]
    return np.stack(columns, axis=1)
