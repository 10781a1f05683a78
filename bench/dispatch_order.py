"""What the order of dispatches is worth: `python -m tilewright.bench.dispatch_order lstm nasnet_cell`.

Compiles models of the suite twice, with and without `order-dispatches`: the same kernels, as often, in another order.
Both are called in turns, a round each, so that a busy machine slows both; a round counts by its shortest call.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from tilewright.bench.machine import machine
from tilewright.bench.models import build
from tilewright.compiler.driver import import_model
from tilewright.compiler.passes.order_dispatches import OrderDispatches
from tilewright.compiler.phases import PHASES, Report, package_module
from tilewright.compiler.pipeline import run_pipeline
from tilewright.compiler.target import resolve
from tilewright.runtime.binding import bind
from tilewright.runtime.model import CompiledModel
from tilewright.runtime.settings import num_threads


def compiled(name: str, is_ordered: bool) -> tuple[CompiledModel, tuple]:
    """A model for this machine and its inputs; the given order of dispatches unless `is_ordered`."""
    module, inputs = build(name)
    imported, target = import_model(module, inputs), resolve("cpu")
    for phase in PHASES:
        kept = [p for p in phase.passes(target) if is_ordered or not p.startswith(OrderDispatches.name())]
        run_pipeline(imported.module.operation, f"builtin.module({','.join(kept)})")
    package = package_module(imported.module, target, Report())
    executable = bind(package, list(imported.weights))
    return CompiledModel(executable, imported.signature, imported.state, imported.weights), inputs


def shortest_us(model: CompiledModel, inputs: tuple, seconds: float) -> float:
    """The shortest call of those that take `seconds` together, three at least."""
    found: list[float] = []
    while len(found) < 3 or sum(found) < seconds:
        start = time.perf_counter()
        model(*inputs)
        found.append(time.perf_counter() - start)
    return min(found) * 1e6


def compare(name: str, rounds: int, seconds: float) -> dict[str, Any]:
    """One model in both orders: dispatches, places at which another one runs, bytes of arena, times of every round."""
    models = {kind: compiled(name, kind == "ordered") for kind in ("given", "ordered")}
    times: dict[str, list[float]] = {kind: [] for kind in models}
    for _ in range(rounds):
        for kind, (model, inputs) in models.items():
            times[kind].append(round(shortest_us(model, inputs, seconds), 1))
    programs = {kind: model.executable.package.main for kind, (model, _) in models.items()}
    given, ordered = ([s.dispatch for s in programs[kind].steps] for kind in ("given", "ordered"))
    return {
        "model": name,
        "dispatches": len(given),
        "moved": sum(a != b for a, b in zip(given, ordered)),
        "arena_bytes": {kind: program.arena_bytes for kind, program in programs.items()},
        "rounds_us": times,
        "median_us": {kind: statistics.median(own) for kind, own in times.items()},
        "least_us": {kind: min(own) for kind, own in times.items()},
    }


def main() -> None:
    """Prints a table as Markdown, and writes a record where `-o` says."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.bench.dispatch_order", description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.4, help="of one model in one round")
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    record: dict[str, Any] = {
        "command": f"python -m tilewright.bench.dispatch_order {' '.join(sys.argv[1:])}",
        "machine": machine(),
        "threads": num_threads(),
        "cases": [],
    }
    print("| model | dispatches | moved | arena, B | given, ms | ordered, ms | ratio | of the least |")
    print("|" + " --- |" * 8)
    for name in asked.models:
        case = compare(name, asked.rounds, asked.seconds)
        record["cases"].append({**case, "load_1min": round(os.getloadavg()[0], 2)})
        given, ordered = (case["median_us"][kind] for kind in ("given", "ordered"))
        arena = " → ".join(f"{case['arena_bytes'][kind]:,}" for kind in ("given", "ordered"))
        cells = [name, case["dispatches"], case["moved"], arena, f"{given / 1e3:.2f}", f"{ordered / 1e3:.2f}"]
        least = case["least_us"]["ordered"] / case["least_us"]["given"]
        print(f"| {' | '.join(map(str, cells))} | {ordered / given:.2f} | {least:.2f} |", flush=True)
        if asked.output:
            asked.output.write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
