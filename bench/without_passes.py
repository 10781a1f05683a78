"""What passes are worth: `python -m tilewright.bench.without_passes lstm --without order-dispatches`.

Compiles models of the suite twice, with all passes and without some, and calls both in turns, a round each, so that a
busy machine slows both. A round counts by its shortest call.
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
from tilewright.compiler.phases import PHASES, Report, package_module
from tilewright.compiler.pipeline import registry
from tilewright.compiler.pipeline.pipeline import run_pipeline
from tilewright.compiler.targets.target import resolve
from tilewright.runtime.binding import bind
from tilewright.runtime.model import CompiledModel
from tilewright.runtime.settings import num_threads

KINDS = ("without", "with")
COUNTS = ("dispatches", "arena_bytes")


def compiled(name: str, without: tuple[str, ...]) -> tuple[CompiledModel, tuple]:
    """A model of the suite for this machine, and its inputs."""
    module, inputs = build(name)
    return compile_without(module, inputs, without), inputs


def compile_without(module: Any, inputs: tuple, without: tuple[str, ...]) -> CompiledModel:
    """A model that is compiled by all passes but those named, in this process, for this machine."""
    imported, target = import_model(module, inputs), resolve("cpu")
    for phase in PHASES:
        kept = [spec for spec in phase.passes(target) if spec.partition("{")[0] not in without]
        run_pipeline(imported.module.operation, f"builtin.module({','.join(kept)})")
    package = package_module(imported.module, target, Report())
    executable = bind(package, list(imported.weights))
    return CompiledModel(executable, imported.signature, imported.state, imported.weights)


def shortest_us(model: CompiledModel, inputs: tuple, seconds: float) -> float:
    """The shortest call of those that take `seconds` together, three at least."""
    found: list[float] = []
    while len(found) < 3 or sum(found) < seconds:
        start = time.perf_counter()
        model(*inputs)
        found.append(time.perf_counter() - start)
    return min(found) * 1e6


def compare(name: str, without: tuple[str, ...], rounds: int, seconds: float) -> dict[str, Any]:
    """One model compiled both ways: dispatches, bytes of arena, times of every round."""
    models = {kind: compiled(name, without if kind == "without" else ()) for kind in KINDS}
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(rounds):
        for kind, (model, inputs) in models.items():
            times[kind].append(round(shortest_us(model, inputs, seconds), 1))
    programs = {kind: model.executable.package.main for kind, (model, _) in models.items()}
    return {
        "model": name,
        "dispatches": {kind: len(program.steps) for kind, program in programs.items()},
        "arena_bytes": {kind: program.arena_bytes for kind, program in programs.items()},
        "rounds_us": times,
        "median_us": {kind: statistics.median(own) for kind, own in times.items()},
        "least_us": {kind: min(own) for kind, own in times.items()},
        "load_1min": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    """Prints a table as Markdown, and writes a record where `-o` says."""
    parser = argparse.ArgumentParser(prog="python -m tilewright.bench.without_passes", description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--without", action="append", required=True, choices=registry.names(), metavar="PASS")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.4, help="of one model in one round")
    parser.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    record: dict[str, Any] = {
        "command": f"python -m tilewright.bench.without_passes {' '.join(sys.argv[1:])}",
        "machine": machine(),
        "threads": num_threads(),
        "cases": [],
    }
    print(
        "| model | dispatches | arena, B | without, ms | with, ms | ratio | of the least |\n|" + " --- |" * 7
    )
    for name in asked.models:
        case = compare(name, tuple(asked.without), asked.rounds, asked.seconds)
        record["cases"].append(case)
        cells = [name, *(" → ".join(f"{case[key][kind]:,}" for kind in KINDS) for key in COUNTS)]
        cells += [f"{case['median_us'][kind] / 1e3:.2f}" for kind in KINDS]
        cells += [f"{case[key]['with'] / case[key]['without']:.2f}" for key in ("median_us", "least_us")]
        print(f"| {' | '.join(cells)} |", flush=True)
        if asked.output:
            asked.output.write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
