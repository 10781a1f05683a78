"""Kernels of GPUs that multiply no matrices, for many schedules of one kernel at once: element-wise, windows, rows and the rest.

What blocks have comes from `gpu_deals`; here it becomes traffic, instructions, waves and time (`block_work.BlockWork`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.workload import Operand, Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.block_work import BlockWork, touched_bytes
from tilewright.compiler.tuning.model.gpu_deals import Deal, deal_of, line_of
from tilewright.compiler.tuning.model.gpu_kernel import (
    GpuKernel,
    GpuLoop,
    Movement,
    by_movements,
    lane_share,
    standing,
    traffic,
)
from tilewright.compiler.tuning.model.roles import element_strides
from tilewright.compiler.tuning.model.statements import RESULT, read_statements

OTHER_REGISTERS = 16
"""Registers of a thread for its number, addresses and loops."""
ADDRESS_REGISTERS = 2
"""Those of the address of one operand."""
SPECIAL = 4
"""Instructions of lanes that a function of the special units takes the place of: there are a quarter as many of them.
Source: CUDA C Programming Guide, "Arithmetic Instructions" (16 per cycle and multiprocessor, of 64 multiply-adds)."""
MOST_FLYING = 8
"""Accesses of a thread that are under way together."""


def stream_kernel(
    workload: Workload, kernel: str, schedules: Sequence[Schedule], target: Target
) -> GpuKernel:
    """n schedules of a kernel that is no contraction and no attention."""
    deal = deal_of(workload, kernel, schedules)
    tiles = [schedule.gpu or GpuTile() for schedule in schedules]
    threads = np.asarray([tile.threads for tile in tiles], dtype=np.int64)
    operands = named_operands(workload)
    count = len(schedules)
    is_cut = kernel in ("sort", "scan", "scatter")
    touched = {}
    for operand in operands:
        inside = operand.tile_bytes(deal.box).astype(float)
        # What is not followed element by element is dealt out evenly.
        touched[operand.name] = np.full(count, operand.nbytes) / deal.blocks if is_cut else inside
    moves = [_movement(o, deal, touched[o.name], o is operands[-1]) for o in operands]
    computed = deal.computed if len(deal.computed) else _computed(workload, deal, is_cut)
    fma, special = _work(workload, kernel, deal)
    fma, special = fma * computed, special * computed
    width = np.asarray([max(1, o.element_bytes // 4) for o in operands]).sum()
    held = np.minimum(deal.each, MOST_FLYING if kernel != "rows" else 1 << 20) * deal.vector
    kept = held * max(o.element_bytes for o in operands) / 4 * (1 if kernel == "rows" else width / 2)
    registers = (OTHER_REGISTERS + ADDRESS_REGISTERS * len(operands) + np.ceil(kept)).astype(np.int64)
    shared = deal.shared.astype(np.int64)
    columns = standing(target, deal.blocks, deal.blocks, threads, registers, shared)
    passes = {o.name: deal.passes.get(o.name, np.ones(count)) for o in operands}
    l2 = {o.name: deal.blocks * touched[o.name] * passes[o.name] for o in operands}
    dram = _dram(workload, operands, count)
    # More elements than 16 bytes have are several accesses.
    accesses = np.sum([l2[o.name] / move.vector for o, move in zip(operands, moves)], axis=0)
    lanes = fma + SPECIAL * special + accesses * _taps(workload, kernel)
    flying = threads * np.minimum(deal.each, MOST_FLYING) * deal.vector * operands[0].element_bytes
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
    columns |= traffic({"DRAM": dram, "L2": l2}, count) | by_movements(moves, deal.blocks)
    wasted = np.sum([l2[o.name] / move.sectors for o, move in zip(operands, moves)], axis=0)
    work = BlockWork(
        deal.blocks.astype(float),
        threads,
        columns["registers"].astype(np.int64),
        shared,
        wasted,
        columns["traffic.DRAM"],
        lanes,
        flying,
    )
    parts = work.parts_us(target)
    parts = {("DRAM" if name == target.memory[0].name else name): value for name, value in parts.items()}
    barriers = (deal.waits if len(deal.waits) else 0 * ones) * target.level("shared").latency_ns / 1e3
    # What one block writes and counts, another sees by reading the count and the values after it.
    barriers = (
        barriers + (deal.rounds if len(deal.rounds) else 0 * ones) * 2 * target.memory[0].latency_ns / 1e3
    )
    us = work.us(target) + barriers * np.ceil(columns["waves"])
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


def _computed(workload: Workload, deal: Deal, is_cut: bool) -> np.ndarray:
    """Points computed of those that are needed: blocks of ragged rows or results reach beyond the end."""
    if is_cut:
        return np.ones(len(deal.blocks))
    own = list(workload.parallel)
    points = math.prod(workload.extents[a] for a in own)
    rows = deal.box[:, own].astype(float).prod(axis=1)
    return np.maximum(deal.blocks / deal.split * rows / max(1, points), 1.0)


def _work(workload: Workload, kernel: str, deal: Deal) -> tuple[np.ndarray, np.ndarray]:
    """Operations of lanes and of special units for all points: [n] each."""
    ones = np.ones(len(deal.blocks))
    if kernel in ("sort", "scan"):
        count, length = line_of(workload)
        stages = math.log2(max(2, length))
        # A bitonic network compares every element log(n) (log(n) + 1) / 2 times, a scan adds it a few times.
        each = stages * (stages + 1) / 2 if kernel == "sort" else 2 + math.log2(32)
        return ones * count * length * each, 0 * ones
    fma = special = 0.0
    for s in read_statements(workload):
        points = math.prod(workload.extents[a] for a in s.loops)
        math_ops = sum(op.dialect == "math" and op.name not in ("absf", "fma") for op in s.arithmetic)
        fma += points * (len(s.arithmetic) - math_ops)
        special += points * math_ops
    return ones * max(fma, 1.0), ones * special


def _taps(workload: Workload, kernel: str) -> float:
    """How often an element that windows share is loaded: once for each point of them."""
    if kernel not in ("windows", "elementwise"):
        return 1.0
    return float(math.prod(workload.extents[a] for a in workload.reduction))


def _dram(workload: Workload, operands: Sequence[Operand], count: int) -> dict[str, np.ndarray]:
    """Bytes to and from DRAM: all that is touched, once."""
    whole = sum(o.nbytes for o in operands)
    share = touched_bytes(workload) / max(1, whole)
    return {o.name: np.full(count, o.nbytes * share) for o in operands}


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
