"""The sets of features of schedules for CPUs: the same columns for every workload, from the model's counts alone.

    cpu_features(workload, schedules, target, frozenset({"statement", "data-flow"}))

- `micro-performance`: microseconds of each resource that the micro-performance model knows, and their sum as it is
  predicted (Roller, OSDI'22, §3.3).
- `statement`: what one rTask executes and touches, summed over its statements; of the operands the `OPERANDS` that move
  most, by bytes. Counted where Ansor (OSDI'20, appendix B) counts: arithmetic, accesses, footprints, reuse and locality.
- `data-flow`: one step for each cache that each statement loads into, outer caches first, statements in their order. Pruner
  (ASPLOS'25, §2.4) has 23 columns of workloads, accesses and allocations for each buffer and does not name them: these
  are ours, for caches.
- `loop-context` and `context-relation`: `loop_context.py`.

Counts and bytes are binary logarithms of one more, so that columns of any workload have one scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.compiler.nouns.schedule import LOOPS, Schedule
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.features.feature_set import Features, Steps, Table
from tilewright.compiler.tuning.features.loop_context import context_relation, loop_context
from tilewright.compiler.tuning.model.cpu_features import UNITS, CpuFeatures, caches, share_of
from tilewright.compiler.tuning.model.cpu_features import cpu_features as counts_of
from tilewright.compiler.tuning.model.loop_nests import COUNTS
from tilewright.compiler.tuning.model.micro_performance import from_features, resources

OPERANDS = 4
"""Operands of the set `statement`: beyond, they are in the sums only."""
LEVELS = 3
"""Caches, nearest first, whose columns the sets have: those that a CPU lacks are 0."""

_RATIOS = ("balance", "computed", "utilisation", "loads_per_multiply_add")
_TOTALS = ("tasks", "rounds", *COUNTS, "footprint", "prefetch", "streamed")
_OF_OPERANDS = ("footprint", "run", "line_use", "packed", "strided")
_KINDS = tuple(LOOPS)
_FLOW = (
    *(f"into cache {level}" for level in range(1, LEVELS + 1)),
    *("bytes", "bytes of the largest operand", "share of the largest operand", "operands"),
    *("times its footprint is loaded", "footprint", "footprint over capacity"),
    *("arithmetic", "arithmetic per byte", "loads per byte", "innermost loops", "rounds"),
)
_FLOW_UNITS = (
    *("0 or 1" for _ in range(LEVELS)),
    *("log2 B", "log2 B", "ratio", "operands", "log2 ratio", "log2 B", "log2 ratio"),
    *("log2 instructions", "log2 per B", "log2 per B", "log2 loops", "log2 rTasks"),
)


def cpu_features(
    workload: Workload, schedules: Sequence[Schedule], target: Target, sets: frozenset[str]
) -> Features:
    """These sets of complete schedules; raises ScheduleError for one that leaves a field out, ValueError for other sets."""
    if unknown := sets - _SETS.keys():
        raise ValueError(f"CPUs have the features {', '.join(_SETS)}, found {', '.join(sorted(unknown))}")
    found = counts_of(workload, schedules, target)
    return {name: _SETS[name](workload, found, target) for name in sorted(sets)}


def _micro_performance(workload: Workload, found: CpuFeatures, target: Target) -> Table:
    names = ["compute", "registers", *(f"cache {level}" for level in range(2, LEVELS + 1)), "memory"]
    columns = {name: np.zeros(len(found)) for name in names}
    levels = [level.name for level in caches(target)]
    for part in found.parts:
        for resource, us in resources(workload, part, found, target).items():
            place = f"cache {levels.index(resource) + 1}" if resource in levels else resource
            columns[place if place in columns else "memory"] += us
    columns |= {"us": from_features(workload, found, target).us, "rounds": found["rounds"]}
    units = ["us of an rTask"] * len(names) + ["us", "rTasks of the busiest core"]
    return Table(tuple(columns), tuple(units), np.stack(list(columns.values()), axis=1))


def _statement(workload: Workload, found: CpuFeatures, target: Target) -> Table:
    columns: dict[str, np.ndarray] = {}
    units: list[str] = []

    def put(name: str, unit: str, values: np.ndarray) -> None:
        columns[name] = values
        units.append(unit)

    for name in _RATIOS:
        put(name, UNITS[name], found[name])
    for name in _TOTALS:
        put(name, f"log2 {UNITS[name]}", _log(found[name]))
    levels = [level.name for level in caches(target)]
    names = [name.partition(".")[2] for name in found.columns if name.startswith("footprint.")]
    for number in range(LEVELS):
        absent = number >= len(levels)
        total = np.zeros(len(found)) if absent else found[f"traffic.{levels[number]}"]
        put(f"bytes into cache {number + 1}", "log2 B", _log(total))
    order = _largest_first(found, names, levels)
    for place in range(OPERANDS):
        for column in _OF_OPERANDS:
            values = _of_operand(found, [f"{column}.{name}" for name in names], order, place)
            is_bytes = column in ("footprint", "run")
            unit = "log2 B" if is_bytes else UNITS[column]
            put(f"{column} of operand {place + 1}", unit, _log(values) if is_bytes else values)
        for number in range(LEVELS):
            level = levels[number] if number < len(levels) else ""
            moved = _of_operand(found, [f"traffic.{level}.{name}" for name in names], order, place)
            put(f"bytes of operand {place + 1} into cache {number + 1}", "log2 B", _log(moved))
    heaviest = np.argmax([part.counts["arithmetic"] + part.counts["loads"] for part in found.parts], axis=0)
    kinds = np.stack([part.kind.astype("U9") for part in found.parts])[heaviest, np.arange(len(found))]
    for kind in _KINDS:
        put(f"computed by {kind}", "0 or 1", (kinds == kind).astype(float))
    return Table(tuple(columns), tuple(units), np.stack(list(columns.values()), axis=1))


def _largest_first(found: CpuFeatures, names: Sequence[str], levels: Sequence[str]) -> np.ndarray:
    """The operands by the bytes that the nearest cache loads of them: [n, operands]."""
    moved = np.stack([found[f"traffic.{levels[0]}.{name}"] for name in names], axis=1)
    return np.argsort(-moved, axis=1, kind="stable")


def _of_operand(found: CpuFeatures, columns: Sequence[str], order: np.ndarray, place: int) -> np.ndarray:
    """The value of the operand at a place of `order`, 0 where there are fewer or the column is unknown: [n]."""
    if place >= order.shape[1] or columns[0] not in found.columns:
        return np.zeros(len(order))
    values = np.stack([found[name] for name in columns], axis=1)
    return np.take_along_axis(values, order[:, place : place + 1], axis=1)[:, 0]


def _data_flow(workload: Workload, found: CpuFeatures, target: Target) -> Steps:
    steps = []
    levels = caches(target)[:LEVELS]
    count = len(found)
    for part in found.parts:
        arithmetic, loads = part.counts["arithmetic"], part.counts["loads"]
        for number, level in reversed(list(enumerate(levels))):
            by_operand = np.stack(list(part.traffic[level.name].values()), axis=1)
            nbytes, largest = by_operand.sum(axis=1), by_operand.max(axis=1)
            nearest = np.sum(list(part.traffic[levels[0].name].values()), axis=0)
            steps.append(
                [
                    *(np.full(count, float(place == number)) for place in range(LEVELS)),
                    _log(nbytes),
                    _log(largest),
                    largest / np.maximum(nbytes, 1.0),
                    np.full(count, float(by_operand.shape[1])),
                    _log(nbytes) - _log(found["footprint"]),
                    _log(found["footprint"]),
                    _log(found["footprint"]) - np.log2(1 + share_of(level, target)),
                    _log(arithmetic),
                    _log(arithmetic) - _log(nbytes),
                    _log(loads) - _log(nearest),
                    _log(part.counts["starts"]),
                    _log(found["rounds"]),
                ]
            )
    values = np.stack([np.stack(step, axis=1) for step in steps], axis=1)
    return Steps(_FLOW, _FLOW_UNITS, values, np.full(count, values.shape[1]))


def _log(values: np.ndarray) -> np.ndarray:
    return np.log2(1 + np.maximum(values, 0.0))


_SETS: dict[str, Callable[[Workload, CpuFeatures, Target], Table | Steps]] = {
    "context-relation": context_relation,
    "data-flow": _data_flow,
    "loop-context": loop_context,
    "micro-performance": _micro_performance,
    "statement": _statement,
}
