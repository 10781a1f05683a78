"""The roller119 suite without running anything: programs constructed for a device, their predicted times beside published.

`tilewright bench --suite roller119 --target v100 --construct-only` constructs K programs for all 119 operators from the
target's data alone and compares the best predicted time with the published one of Roller's best of ten on a V100.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.bench.suites import roller_rows
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning import operators
from tilewright.compiler.tuning.roller import RULES, ConstructOptions, Program, construct

TABLE3 = ("memory_transaction", "execution_unit", "tensor_shape", "memory_bank")
"""The rules in the order in which Roller's Table 3 switches them on (OSDI'22, §5.1)."""

PUBLISHED_ABLATION = (1.0, 1.42, 1.88, 1.92, 1.94)
"""Table 3: baseline, then each rule added."""


def workload_of(row: Mapping[str, Any]) -> Workload:
    """The workload of a row of `data/roller119.json`; padding is outside, so inputs have the shape they are read in."""
    kind = row["kind"]
    if kind == "matmul":
        return operators.matmul(row["m"], row["n"], row["k"])
    if kind == "relu":
        return operators.elementwise(row["input"])
    if kind == "reduce_mean":
        return operators.reduction(row["input"], row["axes"])
    batch, channels, height, width = row["input"]
    out = row["output"]
    window, shape = (row["kernel"], row["stride"]), (height, width)
    if kind == "conv2d":
        return operators.conv2d(batch, channels, *out, row["filters"], *window, shape=shape)
    make = {"depthwise_conv2d": operators.depthwise_conv2d, "avg_pool2d": operators.pool2d}[kind]
    return make(batch, channels, *out, *window, shape=shape)


@dataclass(frozen=True)
class Constructed:
    """One operator: its programs, best first, what constructing them took, and what was published."""

    name: str
    kind: str
    programs: tuple[Program, ...]
    construct_ms: float
    published_ms: float

    @property
    def predicted_ms(self) -> float:
        return self.programs[0].predicted_us / 1e3

    def to_json(self) -> dict:
        best = self.programs[0]
        return {
            "name": self.name,
            "kind": self.kind,
            "predicted_ms": round(self.predicted_ms, 5),
            "published_roller_top10_ms": self.published_ms,
            "bound": best.bound,
            "programs": len(self.programs),
            "construct_ms": round(self.construct_ms, 2),
            "epsilon": round(best.epsilon, 2),
            "axes": [axis.name for axis in best.canonical.axes],
            "extents": list(best.canonical.extents),
            "tiles": {name: list(tile) for name, tile in best.canonical_levels},
            "times_us": {name: round(value, 2) for name, value in best.times_us.items()},
        }


def construct_suite(
    target: Target,
    options: ConstructOptions,
    only: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> list[Constructed]:
    """Programs for all operators of the suite, or those named; raises ValueError for a name that is not there."""
    rows = roller_rows()
    if missing := set(only) - {row["name"] for row in rows}:
        raise ValueError(f"suite `roller119` has no operator {', '.join(sorted(missing))}")
    found = []
    for row in rows:
        if only and row["name"] not in only:
            continue
        workload = workload_of(row)
        # The processor's time, of one thread: what other programs take of a shared machine does not count.
        start = time.process_time()
        programs = construct(workload, target, options)
        took = (time.process_time() - start) * 1e3
        say(f"{row['name']}: {len(programs)} programs in {took:.0f} ms")
        published = row["v100_ms"]["roller_top10"]
        found.append(Constructed(row["name"], row["kind"], tuple(programs), took, published))
    return found


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 0, equal values sharing their mean rank."""
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values))
    rank[order] = np.arange(len(values))
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.bincount(inverse, rank) / counts)[inverse]


def spearman(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> float:
    """Spearman's rank correlation; NaN for fewer than three values or constant ones."""
    first, second = ranks(np.asarray(a, dtype=float)), ranks(np.asarray(b, dtype=float))
    if len(first) < 3 or not first.std() or not second.std():
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])


def agreement(results: Sequence[Constructed]) -> dict[str, dict[str, float]]:
    """Predicted against published, over all operators and each kind: rank correlation, share within 20%, mean ratio."""
    summary = {}
    kinds = sorted({r.kind for r in results})
    for kind in ["all", *kinds]:
        chosen = [r for r in results if kind in ("all", r.kind)]
        predicted = np.asarray([r.predicted_ms for r in chosen])
        published = np.asarray([r.published_ms for r in chosen])
        ratio = predicted / published
        summary[kind] = {
            "operators": len(chosen),
            "spearman": round(spearman(predicted, published), 4),
            "within_20_percent": round(float(np.mean(np.abs(ratio - 1) <= 0.2)), 4),
            "geometric_mean_ratio": round(float(np.exp(np.log(ratio).mean())), 4),
        }
    return summary


def roofline_agreement(results: Sequence[Constructed], target: Target) -> dict[str, float]:
    """The same for the plain roofline, the larger of operations over peak and bytes over bandwidth."""
    times, published = [], []
    for result in results:
        workload = result.programs[0].workload
        flop_us = workload.flops / target.peak_gflops["f32"] / 1e3
        byte_us = workload.nbytes / target.memory[0].bandwidth_gbps / 1e3
        times.append(max(flop_us, byte_us) / 1e3)
        published.append(result.published_ms)
    ratio = np.asarray(times) / np.asarray(published)
    return {
        "spearman": round(spearman(times, published), 4),
        "within_20_percent": round(float(np.mean(np.abs(ratio - 1) <= 0.2)), 4),
        "geometric_mean_ratio": round(float(np.exp(np.log(ratio).mean())), 4),
    }


def ablation(target: Target, top_k: int) -> list[dict]:
    """Predicted speed-up over construction without alignment, each rule of Table 3 switched on in turn."""
    base: np.ndarray | None = None
    found = []
    for count in range(len(TABLE3) + 1):
        rules = frozenset(TABLE3[:count])
        results = construct_suite(target, ConstructOptions(top_k=top_k, candidates=top_k, rules=rules))
        times = np.asarray([r.predicted_ms for r in results])
        base = times if base is None else base
        speedup = base / times
        found.append(
            {
                "rules": list(TABLE3[:count]),
                "mean_speedup": round(float(speedup.mean()), 3),
                "geometric_mean_speedup": round(float(np.exp(np.log(speedup).mean())), 3),
                "published_mean_speedup": PUBLISHED_ABLATION[count],
            }
        )
    return found


def document(
    target: Target,
    results: Sequence[Constructed],
    options: ConstructOptions,
    command: str,
    extra: Mapping[str, Any],
) -> dict:
    """All figures of one run as plain JSON values."""
    times = [r.construct_ms for r in results]
    return {
        "suite": "roller119",
        "command": command,
        "target": target.name,
        "top_k": options.top_k,
        "rules": sorted(options.rules, key=RULES.index),
        "construct_ms": {"mean": round(float(np.mean(times)), 2), "worst": round(float(np.max(times)), 2)},
        "fewest_programs": min(len(r.programs) for r in results),
        "agreement": agreement(results),
        "roofline": roofline_agreement(results, target),
        **extra,
        "operators": [r.to_json() for r in results],
    }


def write(path: Path, data: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
