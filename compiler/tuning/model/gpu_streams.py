"""Kernels of GPUs that multiply no matrices, for many schedules of one kernel at once: element-wise, windows, rows and the rest.

What blocks have comes from `gpu_deals`; here it becomes traffic, instructions, waves and time (`block_work.BlockWork`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.workload import Operand, Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.block_work import BlockWork, touched_bytes
from tilewright.compiler.tuning.model.deal import Deal
from tilewright.compiler.tuning.model.gpu_deals import deal_of
from tilewright.compiler.tuning.model.gpu_kernel import (
    GpuKernel,
    GpuLoop,
    Movement,
    by_movements,
    lane_share,
    standing,
    traffic,
)
from tilewright.compiler.tuning.model.gpu_windows import MOST_FLYING
from tilewright.compiler.tuning.model.roles import element_strides
from tilewright.compiler.tuning.model.statements import RESULT, read_statements

OTHER_REGISTERS = 16
"""Registers of a thread for its number, addresses and loops."""
ADDRESS_REGISTERS = 2
"""Those of the address of one operand."""
SPECIAL = 4
"""Instructions of lanes that a function of the special units takes the place of: there are a quarter as many of them.
Source: CUDA C Programming Guide, "Arithmetic Instructions" (16 per cycle and multiprocessor, of 64 multiply-adds)."""
_SPILL_BYTES = 8
"""What a register that a thread lacks takes: it is stored once, and loaded once."""


def stream_kernel(
    workload: Workload, kernel: str, schedules: Sequence[Schedule], target: Target
) -> GpuKernel:
    """n schedules of a kernel that is no contraction and no attention."""
    deal = deal_of(workload, kernel, schedules)
    tiles = [schedule.gpu or GpuTile() for schedule in schedules]
    threads = np.asarray([tile.threads for tile in tiles], dtype=np.int64)
    operands = named_operands(workload)
    count = len(schedules)
    touched = {o.name: o.tile_bytes(deal.box).astype(float) for o in operands} | deal.touched
    moves = [_movement(o, deal, touched[o.name], o is operands[-1]) for o in operands]
    computed = deal.said("computed", _computed(workload, deal))
    fma, special = _work(workload)
    fma, special = deal.said("fma", fma * computed), special * computed
    width = np.asarray([max(1, o.element_bytes // 4) for o in operands]).sum()
    held = np.minimum(deal.each, MOST_FLYING if kernel != "rows" else 1 << 20) * deal.vector
    kept = held * max(o.element_bytes for o in operands) / 4 * (1 if kernel == "rows" else width / 2)
    usual = OTHER_REGISTERS + ADDRESS_REGISTERS * len(operands) + np.ceil(kept)
    registers = deal.said("registers", usual).astype(np.int64)
    shared = deal.shared.astype(np.int64)
    columns = standing(
        target, deal.blocks, deal.blocks, threads, registers, shared, needed=deal.said("needed", registers)
    )
    passes = {o.name: deal.passes.get(o.name, np.ones(count)) for o in operands}
    l2 = {o.name: deal.blocks * touched[o.name] * passes[o.name] for o in operands}
    dram = _dram(workload, operands, deal, touched)
    # More elements than 16 bytes have are several accesses.
    accesses = np.sum([l2[o.name] / move.vector for o, move in zip(operands, moves)], axis=0)
    lanes = fma + SPECIAL * special + deal.said("issued", accesses)
    usual = threads * np.minimum(deal.each, MOST_FLYING) * deal.vector * operands[0].element_bytes
    # What lies beyond the end is nothing that a thread waits for.
    flying = deal.said("flying", usual) / np.maximum(computed, 1.0)
    ones = np.ones(count)
    columns |= {
        "computed": computed,
        "arithmetic.fma": fma,
        "arithmetic.mma": 0 * ones,
        "arithmetic.wgmma": 0 * ones,
        "arithmetic.special": special,
        "instructions": lanes / target.warp_size,
        "steps": deal.steps.astype(float),
        "stages": ones,
        "flying": flying.astype(float),
        "split": deal.split.astype(float),
        "cluster": ones,
        "raster": ones,
        "conflicts": deal.conflicts,
        "footprint": np.sum(list(touched.values()), axis=0),
    }
    columns |= traffic({"DRAM": dram, "L2": l2, "shared": deal.through_shared}, count)
    columns |= by_movements(moves, deal.blocks)
    wasted = np.sum([l2[o.name] / move.sectors for o, move in zip(operands, moves)], axis=0)
    wasted = wasted + _SPILL_BYTES * columns["spilled"] * threads * deal.blocks
    shared_ns, l2_ns = (
        target.level("shared").latency_ns,
        next((m.latency_ns for m in target.memory if m.name == "L2"), target.memory[0].latency_ns),
    )
    chain_ns = deal.said("waits", 0.0) * shared_ns + deal.said("turns", 0.0) * l2_ns
    chain_ns = chain_ns + deal.said("cycles", 0.0) / (target.clock_ghz or 1.0)
    work = BlockWork(
        deal.blocks.astype(float),
        threads,
        columns["registers"].astype(np.int64),
        shared,
        wasted,
        columns["traffic.DRAM"],
        lanes,
        flying,
        columns["traffic.shared"] * deal.conflicts,
        chain_ns,
    )
    parts = work.parts_us(target)
    parts = {("DRAM" if name == target.memory[0].name else name): value for name, value in parts.items()}
    # What one block writes and counts, another sees by reading the count and the values after it.
    rounds = deal.said("rounds", 0.0) * 2 * target.memory[0].latency_ns / 1e3
    us = work.us(target) + rounds * np.ceil(columns["waves"])
    loops = _loops(workload, deal, threads, operands, touched)
    return GpuKernel(tuple(o.name for o in operands), columns, moves, loops, us, parts)


def named_operands(workload: Workload) -> tuple[Operand, ...]:
    """Inputs called `in0`, `in1`, ... by their numbers, and the result `out`, last."""
    inputs = [replace(o, name=f"in{n}") for n, o in enumerate(workload.operands) if not o.output]
    return (*inputs, replace(workload.output, name=RESULT))


def _movement(operand: Operand, deal: Deal, touched: np.ndarray, stored: bool) -> Movement:
    # Schedules whose warps access the same points have one array of them.
    known: dict[int, tuple[float, float]] = {}
    found = []
    for points in deal.stored if stored else deal.lanes:
        if id(points) not in known:
            known[id(points)] = lane_share(operand, element_strides(operand), points)
        found.append(known[id(points)])
    shares, runs = np.asarray(found).T
    ones = np.ones(len(found))
    vector = np.minimum(deal.vector * operand.element_bytes, np.minimum(runs, 16.0))
    return Movement(
        "global" if stored else "registers",
        operand.name,
        touched,
        np.maximum(deal.passes.get(operand.name, ones), 1).astype(float),
        runs,
        shares,
        vector,
        ones,
        0 * ones,
    )


def _computed(workload: Workload, deal: Deal) -> np.ndarray:
    """Points computed of those that are needed: blocks of ragged rows or results reach beyond the end."""
    own = list(workload.parallel)
    points = math.prod(workload.extents[a] for a in own)
    rows = deal.box[:, own].astype(float).prod(axis=1)
    return np.maximum(deal.blocks / deal.split * rows / max(1, points), 1.0)


def _work(workload: Workload) -> tuple[float, float]:
    """Operations of lanes and of special units for all points."""
    fma = special = 0.0
    for s in read_statements(workload):
        points = math.prod(workload.extents[a] for a in s.loops)
        math_ops = sum(op.dialect == "math" and op.name not in ("absf", "fma") for op in s.arithmetic)
        fma += points * (len(s.arithmetic) - math_ops)
        special += points * math_ops
    return max(fma, 1.0), special


def _dram(
    workload: Workload, operands: Sequence[Operand], deal: Deal, touched: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Bytes to and from DRAM: all that is touched, once."""
    whole = sum(o.nbytes for o in operands)
    share = touched_bytes(workload) / max(1, whole)
    found = {o.name: np.full(len(deal.blocks), o.nbytes * share) for o in operands}
    return found | {name: deal.blocks * touched[name] for name in deal.touched}


def _loops(
    workload: Workload,
    deal: Deal,
    threads: np.ndarray,
    operands: Sequence[Operand],
    touched: dict[str, np.ndarray],
) -> list[GpuLoop]:
    """The loops of blocks, steps, threads and of what one thread has, outer ones first."""
    ones = np.ones(len(threads))
    own = (deal.each * deal.vector).astype(float)
    points = [own, own * threads, own * threads * deal.steps, own * threads * deal.steps * deal.blocks]
    block = np.stack([touched[o.name] for o in operands], axis=1)
    whole = np.asarray([float(o.nbytes) for o in operands])
    items = np.asarray([float(o.element_bytes) for o in operands])
    one = np.minimum(np.maximum(own[:, None] * items, items), np.maximum(block, items))
    step = np.maximum(one, block / np.maximum(deal.steps, 1)[:, None])
    block = np.maximum(block, step)
    return [
        GpuLoop("of blocks", deal.blocks.astype(float), points[3], np.maximum(whole * ones[:, None], block)),
        GpuLoop("of steps", deal.steps.astype(float), points[2], block),
        GpuLoop("of threads", threads.astype(float), points[1], step),
        GpuLoop("in registers", own, points[0], one),
    ]
