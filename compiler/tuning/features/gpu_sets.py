"""The sets of features of schedules for GPUs: the same columns for every workload and kernel, from the model's counts alone.

    gpu_features(workload, schedules, target, frozenset({"statement", "data-flow"}))

- `micro-performance`: microseconds that each resource would take alone, and what is predicted (Roller, OSDI'22, §3.3).
- `statement`: what all blocks execute and move, how blocks stand on the device, and of the `OPERANDS` that move most
  their bytes, runs and sectors. Counted where Ansor (OSDI'20, appendix B) counts.
- `data-flow`: a step for each movement between memories in the order of time, the arithmetic among them. Pruner (ASPLOS'25,
  §2.4) has 23 columns and does not name them: these are ours.
- `loop-context`, `context-relation`: the loops of blocks, steps, threads and registers. AutoTVM (NeurIPS'18), §3.1, §4.
- `static-analysis`: the fetch of each operand, the arithmetic and the store with their penalties. Pruner, §2.3.

Counts and bytes are binary logarithms of one more, so that columns of any workload have one scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.compiler.nouns.schedule import KERNELS, Schedule
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.features.feature_set import Features, Steps, Table
from tilewright.compiler.tuning.features.loop_context import STATEMENT, relations
from tilewright.compiler.tuning.features.static_analysis import COLUMNS as ANALYSED
from tilewright.compiler.tuning.features.static_analysis import MISSES, analysed, filled, hidden
from tilewright.compiler.tuning.model.gpu_features import GpuFeatures
from tilewright.compiler.tuning.model.gpu_features import gpu_features as counts_of
from tilewright.compiler.tuning.model.gpu_kernel import (
    ARITHMETIC,
    INTO,
    LEVELS,
    PARTS,
    PLACES,
    UNITS,
    GpuKernel,
)
from tilewright.compiler.tuning.model.gpu_streams import named_operands

OPERANDS = 4
"""Operands of the set `statement`: beyond, they are in the sums only."""
CONTEXT_OPERANDS = 3
"""Operands with columns of their own in loops' contexts."""

_KINDS = KERNELS
_RATIOS = ("occupancy", "last_wave", "computed", "conflicts")
_TOTALS = (
    *(
        "blocks",
        "tasks",
        "threads",
        "warps",
        "registers",
        "spilled",
        "shared",
        "resident",
        "waves",
        "instructions",
    ),
    *("steps", "stages", "flying", "split", "cluster", "raster", "footprint"),
)
_OF_OPERANDS = {"run": "log2 B", "sectors": "share", "vector": "log2 B", "deferred": "0 or 1"}
_FLOW = {
    **{f"into {memory}": "0 or 1" for memory in INTO},
    "arithmetic": "0 or 1",
    "bytes of all blocks": "log2 B",
    "bytes of a block": "log2 B",
    "bytes at once": "log2 B",
    "times": "log2 times",
    "run": "log2 B",
    "sectors": "share",
    "vector": "log2 B",
    "deferred": "0 or 1",
    "conflicts": "log2 ratio",
    "operations": "log2 multiply-adds of a block",
    "operations per byte": "log2 per B",
    "threads": "log2 threads",
    "share of its memory": "log2 ratio",
    "blocks per core": "log2 blocks",
    "last wave": "share",
    "occupancy": "share",
}
_CONTEXT = {
    **{f"loop {place}": "0 or 1" for place in PLACES},
    STATEMENT: "0 or 1",
    "length": "log2 steps",
    "iterations": "log2 steps",
    "points": "log2 points",
    "touched": "log2 B",
    "arithmetic": "log2 multiply-adds",
    "loads": "log2 B",
    **{
        f"{name} of operand {place + 1}": {"touched": "log2 B", "reuse": "log2 times"}[name]
        for place in range(CONTEXT_OPERANDS)
        for name in ("touched", "reuse")
    },
    **{f"computed by {kind}": "0 or 1" for kind in _KINDS},
}


def gpu_features(
    workload: Workload, schedules: Sequence[Schedule], target: Target, sets: frozenset[str]
) -> Features:
    """These sets of complete schedules; raises ScheduleError for one that leaves a field out, ValueError for other sets."""
    if unknown := sets - _SETS.keys():
        raise ValueError(f"GPUs have the features {', '.join(_SETS)}, found {', '.join(sorted(unknown))}")
    found = counts_of(workload, schedules, target)
    return {name: _SETS[name](workload, found, target) for name in sorted(sets)}


def _table(columns: dict[str, tuple[str, np.ndarray]]) -> Table:
    units = tuple(unit for unit, _ in columns.values())
    return Table(tuple(columns), units, np.stack([values for _, values in columns.values()], axis=1))


def _micro_performance(workload: Workload, found: GpuFeatures, target: Target) -> Table:
    columns = {name: ("us", found.parts_us[name]) for name in PARTS}
    return _table(columns | {"us": ("us", found.us), "waves": (UNITS["waves"], found["waves"])})


def _statement(workload: Workload, found: GpuFeatures, target: Target) -> Table:
    columns = {name: (UNITS[name], found[name]) for name in _RATIOS}
    columns |= {name: (f"log2 {UNITS[name]}", _log(found[name])) for name in _TOTALS}
    for unit in ARITHMETIC:
        columns[f"arithmetic of {unit}"] = ("log2 multiply-adds", _log(found[f"arithmetic.{unit}"]))
    for level in LEVELS:
        columns[f"bytes out of {level}"] = ("log2 B", _log(found[f"traffic.{level}"]))
    columns["arithmetic per byte of L2"] = (
        "log2 per B",
        _log(_operations(found)) - _log(found["traffic.L2"]),
    )
    columns["registers of its limit"] = (
        "share",
        (found["registers"] + found["spilled"]) / target.registers_per_thread,
    )
    columns["shared of its limit"] = ("share", found["shared"] / target.level("shared").capacity_bytes)
    names = [o.name for o in named_operands(workload)]
    moved = np.stack([found[f"traffic.L2.{name}"] for name in names], axis=1)
    order = np.argsort(-moved, axis=1, kind="stable")
    for place in range(OPERANDS):
        for column, unit in _OF_OPERANDS.items():
            values = _at_place([found[f"{column}.{name}"] for name in names], order, place)
            columns[f"{column} of operand {place + 1}"] = (unit, _log(values) if unit == "log2 B" else values)
        for level in LEVELS:
            values = _at_place([found[f"traffic.{level}.{name}"] for name in names], order, place)
            columns[f"bytes of operand {place + 1} out of {level}"] = ("log2 B", _log(values))
    for kind in _KINDS:
        columns[f"computed by {kind}"] = ("0 or 1", (_kernel_names(found) == kind).astype(float))
    return _table(columns)


def _kernel_names(found: GpuFeatures) -> np.ndarray:
    """The families by name: Volta's instruction is one of `mma`, attention of warpgroups one of `attention`."""
    names = [kind.partition(" ")[0].replace("volta", "mma") for kind in found.kind.tolist()]
    return np.asarray(names, dtype="U16")


def _operations(found: GpuFeatures) -> np.ndarray:
    return np.sum([found[f"arithmetic.{unit}"] for unit in ARITHMETIC], axis=0)


def _at_place(columns: Sequence[np.ndarray], order: np.ndarray, place: int) -> np.ndarray:
    """The value of the operand at a place of `order`, 0 where there are fewer: [n]."""
    if place >= order.shape[1]:
        return np.zeros(len(order))
    return np.take_along_axis(np.stack(columns, axis=1), order[:, place : place + 1], axis=1)[:, 0]


def _joined(found: GpuFeatures, columns: dict[str, str], blocks: Sequence[np.ndarray]) -> Steps:
    """The steps of all groups of kernels as one set: those of each group are [rows, steps, columns]."""
    longest = max((values.shape[1] for values in blocks), default=0)
    whole = np.zeros((len(found), longest, len(columns)))
    lengths = np.zeros(len(found), dtype=np.int64)
    for (rows, _), values in zip(found.groups, blocks):
        whole[rows, : values.shape[1]] = values
        lengths[rows] = values.shape[1]
    return Steps(tuple(columns), tuple(columns.values()), whole, lengths)


def _data_flow(workload: Workload, found: GpuFeatures, target: Target) -> Steps:
    blocks = [_flow(found, rows, kernel, target) for rows, kernel in found.groups]
    return _joined(found, _FLOW, blocks)


def _flow(found: GpuFeatures, rows: np.ndarray, kernel: GpuKernel, target: Target) -> np.ndarray:
    """The movements of kernels of one kind: what comes in, the arithmetic, what goes out: [rows, steps, columns]."""
    count, ones = len(rows), np.ones(len(rows))
    own = {name: found[name][rows] for name in ("blocks", "threads", "last_wave", "occupancy", "shared")}
    operations = _operations(found)[rows] / own["blocks"]
    room = {
        "shared": ones * target.level("shared").capacity_bytes,
        "registers": 4.0 * target.registers_per_thread * own["threads"],
        "global": ones * max((m.capacity_bytes for m in target.memory if m.name == "L2"), default=1 << 20),
    }

    def step(kind: str, **values: np.ndarray) -> np.ndarray:
        known = {
            f"into {kind}" if kind in INTO else kind: ones,
            "operations": _log(operations),
            "threads": _log(own["threads"]),
            "blocks per core": _log(own["blocks"] / target.num_cores),
            "last wave": own["last_wave"],
            "occupancy": own["occupancy"],
            **values,
        }
        return np.stack([np.broadcast_to(known.get(name, 0 * ones), (count,)) for name in _FLOW], axis=1)

    steps, stores = [], []
    for move in kernel.movements:
        whole = move.nbytes * move.times
        made = step(
            move.into,
            **{
                "bytes of all blocks": _log(whole * own["blocks"]),
                "bytes of a block": _log(whole),
                "bytes at once": _log(move.nbytes),
                "times": _log(move.times),
                "run": _log(move.run),
                "sectors": move.sectors,
                "vector": _log(move.vector),
                "deferred": move.deferred,
                "conflicts": np.log2(np.maximum(move.conflicts, 1.0)),
                "operations per byte": _log(operations) - _log(whole),
                "share of its memory": np.log2(np.maximum(move.nbytes, 1.0) / room[move.into]),
            },
        )
        (stores if move.into == "global" else steps).append(made)
    return np.stack([*steps, step("arithmetic"), *stores], axis=1)


def _loop_context(workload: Workload, found: GpuFeatures, target: Target) -> Steps:
    """A row for each loop, outer ones first; those of blocks have the nest of a block inside of them."""
    order = np.argsort([-o.nbytes for o in named_operands(workload)], kind="stable")[:CONTEXT_OPERANDS]
    names = [named_operands(workload)[place].name for place in order]
    items = [named_operands(workload)[place].element_bytes for place in order]
    blocks = [_context(found, rows, kernel, names, items) for rows, kernel in found.groups]
    whole = _joined(found, _CONTEXT, blocks)
    # Loops of one step say nothing, but for the outermost one of blocks and that of a block's nest.
    length, begins = (whole.values[:, :, list(_CONTEXT).index(name)] for name in ("length", STATEMENT))
    kept = (length > 0) | (begins > 0)
    kept[:, :1] = True
    kept &= np.arange(kept.shape[1]) < whole.lengths[:, None]
    place = np.argsort(~kept, axis=1, kind="stable")
    moved = np.take_along_axis(np.where(kept[:, :, None], whole.values, 0.0), place[:, :, None], axis=1)
    lengths = kept.sum(axis=1)
    return Steps(whole.names, whole.units, moved[:, : lengths.max(initial=1)], lengths)


def _context(
    found: GpuFeatures, rows: np.ndarray, kernel: GpuKernel, names: Sequence[str], items: Sequence[int]
) -> np.ndarray:
    values = np.zeros((len(rows), len(kernel.loops), len(_CONTEXT)))

    def put(slot: int, name: str, column: np.ndarray | float) -> None:
        values[:, slot, list(_CONTEXT).index(name)] = column

    iterations = np.ones(len(rows))
    inside = next((n for n, loop in enumerate(kernel.loops) if loop.place != PLACES[0]), 0)
    kinds = _kernel_names(found)[rows]
    for slot, loop in enumerate(kernel.loops):
        iterations = iterations * loop.length
        put(slot, f"loop {loop.place}", 1.0)
        put(slot, "length", np.log2(np.maximum(loop.length, 1.0)))
        put(slot, "iterations", _log(iterations))
        put(slot, "points", _log(loop.points))
        put(slot, "touched", _log(loop.touched.sum(axis=1)))
        put(slot, "arithmetic", _log(_operations(found)[rows]))
        put(slot, "loads", _log(found["traffic.L2"][rows]))
        for place, (name, item) in enumerate(zip(names, items)):
            touched = np.maximum(loop.touched[:, kernel.operands.index(name)], 1.0)
            put(slot, f"touched of operand {place + 1}", _log(touched))
            put(slot, f"reuse of operand {place + 1}", _log(loop.points * item / touched))
        for kind in _KINDS:
            put(slot, f"computed by {kind}", kinds == kind)
    put(inside, STATEMENT, 1.0)
    return values


def _context_relation(workload: Workload, found: GpuFeatures, target: Target) -> Table:
    return relations(_loop_context(workload, found, target), [f"computed by {kind}" for kind in _KINDS])


def _static_analysis(workload: Workload, found: GpuFeatures, target: Target) -> Steps:
    """Of each candidate the fetch of each input, the arithmetic and the store: [n, inputs + 2, 8]."""
    bandwidth = target.memory[0].bandwidth_gbps * 1e3
    *inputs, out = (o.name for o in named_operands(workload))
    count = len(found)

    def moved(name: str) -> np.ndarray:
        share = np.maximum(found[f"sectors.{name}"], 1e-3)
        return analysed(count, memory=MISSES * found[f"traffic.L2.{name}"] / bandwidth, transactions=share)

    operations = np.maximum(_operations(found), 1.0)
    item = max(o.element_bytes for o in named_operands(workload))
    loaded = np.where(found["traffic.shared"] > 0, found["traffic.shared"], found["traffic.L2"]) / item
    warps = found["warps"]
    arithmetic = analysed(
        count,
        compute=_compute_us(found, target),
        registers=np.maximum((found["registers"] + found["spilled"]) / target.registers_per_thread, 1.0),
        accesses=1 + loaded / (2 * operations),
        warp=found["threads"] / (warps * target.warp_size),
        kernel=filled(found["tasks"], warps, target),
        residency=hidden(found["resident"] * warps, target),
    )
    values = np.stack([*(moved(name) for name in inputs), arithmetic, moved(out)], axis=1)
    return Steps(tuple(ANALYSED), tuple(ANALYSED.values()), values, np.full(count, values.shape[1]))


def _compute_us(found: GpuFeatures, target: Target) -> np.ndarray:
    """Microseconds of all arithmetic at the peaks of the units that do it."""
    lanes = (target.sustained_gflops or target.peak_gflops["f32"]) * 1e3
    us = 2 * (found["arithmetic.fma"] + 4 * found["arithmetic.special"]) / lanes
    for rows, kernel in found.groups:
        peak = target.peak_gflops.get(kernel.dtype, target.peak_gflops["f32"]) * 1e3
        us[rows] += 2 * found["arithmetic.mma"][rows] / (peak * target.mma_share)
        us[rows] += 2 * found["arithmetic.wgmma"][rows] / peak
    return us


def _log(values: np.ndarray) -> np.ndarray:
    return np.log2(1 + np.maximum(values, 0.0))


_SETS: dict[str, Callable[[Workload, GpuFeatures, Target], Table | Steps]] = {
    "context-relation": _context_relation,
    "data-flow": _data_flow,
    "loop-context": _loop_context,
    "micro-performance": _micro_performance,
    "statement": _statement,
    "static-analysis": _static_analysis,
}
