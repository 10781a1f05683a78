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
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright.bench.roller_construct import spearman, workload_of
from tilewright.bench.suites import roller_rows
from tilewright.compiler.target import Target
from tilewright.compiler.tuning.roller import ConstructOptions, construct, evaluate
from tilewright.compiler.workload import Workload

Tiles = tuple[tuple[int, ...], tuple[int, ...]]
"""The thread's tile and the block's."""

KINDS = {"conv2d_layer": "conv2d", "depthwise_conv2d_layer": "depthwise_conv2d", "matmul_layer": "matmul"}


@dataclass(frozen=True)
class Compared:
    """One operator on one device.

    `spearman` is between predicted and measured times of the valid programs; `nearest` the best measured time over
    that of the measured program whose tiles are nearest to the constructed ones, 1 where that is the best.
    """

    name: str
    kind: str
    programs: int
    spearman: float
    nearest: float
    best_ms: float
    distance: float

    def to_json(self) -> dict:
        return {
            "name": self.name,
            "kind": self.kind,
            "programs": self.programs,
            "spearman": None if math.isnan(self.spearman) else round(self.spearman, 4),
            "best_over_nearest": round(self.nearest, 4),
            "best_ms": round(self.best_ms, 5),
            "distance": round(self.distance, 2),
        }


def read(path: Path) -> Iterator[dict]:
    """The records of one file; raises OSError or ValueError for one that is none."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def _key(workload: Sequence) -> tuple | None:
    """What identifies an operator in a record, None for kinds without tiles."""
    kind, *rest = workload
    if kind == "matmul_layer":
        return ("matmul", *rest)
    if kind == "depthwise_conv2d_layer":
        return ("depthwise_conv2d", *rest[:5], rest[6])
    if kind == "conv2d_layer":
        return ("conv2d", *rest[:7])
    return None


def _row_key(row: dict) -> tuple | None:
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


def compare(path: Path, target: Target, options: ConstructOptions) -> list[Compared]:
    """Every operator of roller119 that the file at `path` has programs of, in the suite's order."""
    rows = {key: row for row in roller_rows() if (key := _row_key(row))}
    grouped: dict[str, list[tuple[Tiles, tuple[int, ...], float]]] = {}
    workloads = {row["name"]: workload_of(row) for row in rows.values()}
    for record in read(path):
        row = rows.get(_key(record["workload"]) or ())
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
        workload, target, [tiles for tiles, _, _ in measured], [steps for _, steps, _ in measured]
    )
    ours = construct(workload, target, options)[0]
    own = _features([tuple(tile for _, tile in ours.levels)], workload)[0]  # type: ignore[list-item]
    distances = np.abs(_features([tiles for tiles, _, _ in measured], workload) - own).sum(axis=1)
    nearest = int(np.lexsort((times, distances))[0])
    return Compared(
        name, kind, len(times), spearman(predicted, times), float(times.min() / times[nearest]), float(times.min()),
        float(distances[nearest]),
    )  # fmt: skip


def _features(programs: Sequence[Tiles], workload: Workload) -> np.ndarray:
    """Binary logarithms of all tile sizes, no larger than the axes: [n, 2 x axes]."""
    sizes = np.asarray(programs, dtype=float).reshape(len(programs), 2, -1)
    return np.log2(np.minimum(sizes, np.asarray(workload.extents))).reshape(len(programs), -1)


def summarise(compared: Sequence[Compared]) -> dict[str, dict[str, float]]:
    """Medians and means over operators, all and per kind."""
    summary = {}
    for kind in ["all", *sorted({c.kind for c in compared})]:
        chosen = [c for c in compared if kind in ("all", c.kind)]
        correlations = [c.spearman for c in chosen if not math.isnan(c.spearman)]
        nearest = np.asarray([c.nearest for c in chosen])
        summary[kind] = {
            "operators": len(chosen),
            "programs": sum(c.programs for c in chosen),
            "median_spearman": round(float(np.median(correlations)), 3) if correlations else None,
            "geometric_mean_best_over_nearest": round(float(np.exp(np.log(nearest).mean())), 3),
        }
    return summary
