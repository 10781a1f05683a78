"""The model against measured GPU programs: rank correlation per operator, and where the constructed tile falls.

Reads the programs that a tuner measured on a device for the operators of roller119, one JSON object per line in
`DEVICE.jsonl.xz`: per spatial axis `[extent, [vthread, thread, inner, inner]]`, per reduction `[extent, [middle, inner]]`,
and `ms`, null where the program failed. Elementwise operators, pooling and reductions have no such tiles and are left out.
"""

from __future__ import annotations

import json
import lzma
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tilewright.bench.roller_construct import spearman, workload_of
from tilewright.bench.suites import roller_rows
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.roller import ConstructOptions, construct, evaluate

Tiles = tuple[tuple[int, ...], tuple[int, ...]]
"""The thread's tile and the block's."""

KINDS = {"conv2d_layer": "conv2d", "depthwise_conv2d_layer": "depthwise_conv2d", "matmul_layer": "matmul"}


@dataclass(frozen=True)
class Compared:
    """One operator on one device.

    `spearman` is between predicted and measured times of the valid programs, `aligned_spearman` between those of blocks
    that are whole warps. `nearest` is the best measured time over that of the measured program whose tiles are nearest
    to the constructed ones, `picked` that over the best of the ten programs that the model likes most; 1 is perfect.
    """

    name: str
    kind: str
    programs: int
    spearman: float
    aligned_spearman: float
    nearest: float
    picked: float
    best_ms: float
    distance: float

    def to_json(self) -> dict:
        return {
            "name": self.name,
            "kind": self.kind,
            "programs": self.programs,
            "spearman": _number(self.spearman),
            "aligned_spearman": _number(self.aligned_spearman),
            "best_over_nearest": round(self.nearest, 4),
            "best_over_picked": round(self.picked, 4),
            "best_ms": round(self.best_ms, 5),
            "distance": round(self.distance, 2),
        }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def read(path: Path) -> Iterator[dict]:
    """The records of one file; raises OSError or ValueError for one that is none."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def record_key(workload: Sequence) -> tuple | None:
    """What identifies an operator in a record, None for kinds without tiles."""
    kind, *rest = workload
    if kind == "matmul_layer":
        return ("matmul", *rest)
    if kind == "depthwise_conv2d_layer":
        return ("depthwise_conv2d", *rest[:5], rest[6])
    if kind == "conv2d_layer":
        return ("conv2d", *rest[:6], rest[7])
    return None


def row_key(row: dict) -> tuple | None:
    if row["kind"] == "matmul":
        return ("matmul", row["m"], row["k"], row["n"])
    if row["kind"] == "depthwise_conv2d":
        return ("depthwise_conv2d", *row["input"], row["kernel"], row["stride"])
    if row["kind"] == "conv2d":
        return ("conv2d", *row["input"], row["filters"], row["kernel"], row["stride"])
    return None


def tiles_of(record: dict, workload: Workload) -> Tiles | None:
    """The thread's and the block's tile of a measured program over the workload's axes; None if it has other axes."""
    spatial, reduce = record["spatial"], record["reduce"]
    extents = [extent for extent, _ in (*spatial, *reduce)]
    if extents != list(workload.extents):
        return None
    thread, block = [], []
    for _, (virtual, threads, first, second) in spatial:
        thread.append(virtual * first * second)
        block.append(virtual * threads * first * second)
    for _, (middle, inner) in reduce:
        thread.append(1)
        block.append(middle * inner)
    return tuple(thread), tuple(block)


def steps_of(record: dict) -> tuple[int, ...]:
    """How far apart neighbouring threads of a measured program compute along each axis: what one computes in a row."""
    steps = [first * second for _, (_, _, first, second) in record["spatial"]]
    return (*steps, *(1 for _ in record["reduce"]))


def as_compiled(target: Target) -> Target:
    """The target with the registers that the tuner's compiler gave a thread.

    ROCm compiles kernels that do not say otherwise for work groups of 1,024 threads, all of which must be resident: on
    an MI50 that leaves 64 registers each. Source: LLVM, "User Guide for AMDGPU Backend", amdgpu-flat-work-group-size.
    """
    if not target.arch.startswith("gfx"):
        return target
    resident = target.level("registers").capacity_bytes // 4 // target.block_threads
    return replace(target, registers_per_thread=min(target.registers_per_thread, resident))


def compare(path: Path, target: Target, options: ConstructOptions) -> list[Compared]:
    """Every operator of roller119 that the file at `path` has programs of, in the suite's order."""
    rows = {key: row for row in roller_rows() if (key := row_key(row))}
    grouped: dict[str, list[tuple[Tiles, tuple[int, ...], float]]] = {}
    workloads = {row["name"]: workload_of(row) for row in rows.values()}
    for record in read(path):
        row = rows.get(record_key(record["workload"]) or ())
        if row is None or not record["ms"]:
            continue
        tiles = tiles_of(record, workloads[row["name"]])
        if tiles is not None:
            grouped.setdefault(row["name"], []).append((tiles, steps_of(record), record["ms"]))
    return [
        _compare(row["name"], row["kind"], workloads[row["name"]], grouped[row["name"]], target, options)
        for row in rows.values()
        if row["name"] in grouped
    ]


def _compare(
    name: str, kind: str, workload: Workload, measured: list[tuple[Tiles, tuple[int, ...], float]], target: Target,
    options: ConstructOptions,
) -> Compared:  # fmt: skip
    times = np.asarray([ms for _, _, ms in measured])
    predicted = evaluate(
        workload,
        as_compiled(target),
        [tiles for tiles, _, _ in measured],
        [steps for _, steps, _ in measured],
    )
    ours = construct(workload, target, options)[0]
    apart = [(1,) * len(workload.axes)]
    own = _features([tuple(tile for _, tile in ours.levels)], apart, workload)[0]
    features = _features([tiles for tiles, _, _ in measured], [steps for _, steps, _ in measured], workload)
    distances = np.abs(features - own).sum(axis=1)
    nearest = int(np.lexsort((times, distances))[0])
    threads = np.asarray(
        [math.prod(b // t for b, t in zip(block, thread) if t) for (thread, block), _, _ in measured],
        dtype=float,
    ) / np.asarray([math.prod(block[a] for a in workload.reduction) for (_, block), _, _ in measured])
    warps = threads % target.warp_size == 0
    liked = np.argsort(predicted, kind="stable")[:10]
    best = float(times.min())
    return Compared(
        name, kind, len(times), spearman(predicted, times), spearman(predicted[warps], times[warps]),
        best / float(times[nearest]), best / float(times[liked].min()), best, float(distances[nearest]),
    )  # fmt: skip


def _features(programs: Sequence, steps: Sequence[tuple[int, ...]], workload: Workload) -> np.ndarray:
    """Binary logarithms of tile sizes, no larger than the axes, and of the steps between threads: [n, 3 x axes]."""
    sizes = np.asarray(programs, dtype=float).reshape(len(programs), 2, -1)
    sizes = np.minimum(sizes, np.asarray(workload.extents)).reshape(len(programs), -1)
    return np.log2(np.concatenate([sizes, np.asarray(steps, dtype=float)], axis=1))


def summarise(compared: Sequence[Compared]) -> dict[str, dict[str, float]]:
    """Medians and means over operators, all and per kind."""
    summary = {}
    for kind in ["all", *sorted({c.kind for c in compared})]:
        chosen = [c for c in compared if kind in ("all", c.kind)]
        nearest, picked = (np.asarray([getattr(c, name) for c in chosen]) for name in ("nearest", "picked"))
        summary[kind] = {
            "operators": len(chosen),
            "programs": sum(c.programs for c in chosen),
            "median_spearman": _median([c.spearman for c in chosen]),
            "median_aligned_spearman": _median([c.aligned_spearman for c in chosen]),
            "geometric_mean_best_over_nearest": round(float(np.exp(np.log(nearest).mean())), 3),
            "geometric_mean_best_over_picked": round(float(np.exp(np.log(picked).mean())), 3),
        }
    return summary


def _median(values: Sequence[float]) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return round(float(np.median(known)), 3) if known else None
