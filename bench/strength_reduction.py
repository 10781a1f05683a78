"""What LLVM's loop strength reduction is worth: `python -m tilewright.bench.strength_reduction mobilenet_v2`.

Compiles models twice in this process, once with the pass in every kernel that calls run and once with the compiler's rule
for leaving it out, and times every step of both in turns. Steps whose code is the same either way say how well it is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from tilewright.bench.machine import machine
from tilewright.bench.models import build
from tilewright.compiler.codegen import machine_code
from tilewright.compiler.driver import compile_imported, import_model
from tilewright.runtime.model import CompiledModel
from tilewright.runtime.settings import num_threads

KINDS = {"everywhere": 1 << 62, "by the rule": machine_code.MANY_ADDRESSES}
"""From how many addresses on a kernel goes without the pass."""


def compiled(name: str, precision: str, addresses: int) -> tuple[CompiledModel, tuple, float]:
    """A model compiled cold with another threshold, its inputs, and the seconds of CPU that the compilation took."""
    module, inputs = build(name)
    machine_code.MANY_ADDRESSES = addresses
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(TILEWRIGHT_CACHE_DIR=folder, TILEWRIGHT_COMPILE_WORKERS="0")
        imported = import_model(module, inputs)
        start = time.process_time()
        model = compile_imported(imported, "cpu", {"precision": precision})
        return model, inputs, time.process_time() - start


def compare(name: str, precision: str, rounds: int) -> dict[str, Any]:
    """One model both ways: seconds to compile, and per family of changed and of equal steps their number and times."""
    made = {kind: compiled(name, precision, addresses) for kind, addresses in KINDS.items()}
    models = {kind: model.executable for kind, (model, _, _) in made.items()}
    inputs = [x.numpy() for x in next(iter(made.values()))[1]]
    times: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    for number in range(rounds + 1):
        for kind in sorted(KINDS, reverse=bool(number % 2)):
            steps = models[kind].profile(*inputs, repeats=1)
            if number:
                times[kind].append([step.time_us for step in steps])
    medians = {
        kind: [statistics.median(own) for own in zip(*rows, strict=True)] for kind, rows in times.items()
    }
    objects = {
        kind: [m.package.kernels[step.kernel].object for step in m.package.main.steps]
        for kind, m in models.items()
    }
    notes = models["by the rule"].package.notes["dispatches"]
    families: dict[str, dict[str, Any]] = defaultdict(lambda: {"steps": 0, **dict.fromkeys(KINDS, 0.0)})
    for number, note in enumerate(notes):
        changed = len({objects[kind][number] for kind in KINDS}) > 1
        row = families[f"{note['operator']}, {'changed' if changed else 'equal'}"]
        row["steps"] += 1
        for kind in KINDS:
            row[kind] = round(row[kind] + medians[kind][number], 2)
    return {
        "model": name,
        "precision": precision,
        "compile_cpu_s": {kind: round(seconds, 2) for kind, (_, _, seconds) in made.items()},
        "steps_us": dict(sorted(families.items())),
        "load_1min": round(os.getloadavg()[0], 2),
    }


def main() -> None:
    """Prints a table as Markdown, and writes a record where `-o` says."""
    parser = argparse.ArgumentParser(
        prog="python -m tilewright.bench.strength_reduction", description=__doc__
    )
    parser.add_argument("models", nargs="+")
    parser.add_argument("--precision", default="f32", choices=("f32", "bf16"))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("-o", "--output", type=Path, help="a record that the cases are added to")
    asked = parser.parse_args()
    record: dict[str, Any] = {"commands": [], "machine": machine(), "threads": num_threads(), "cases": []}
    if asked.output and asked.output.exists():
        record = json.loads(asked.output.read_text())
    record["commands"].append(f"python -m tilewright.bench.strength_reduction {' '.join(sys.argv[1:])}")
    print("| model | steps | number | everywhere, us | by the rule, us | ratio |\n|" + " --- |" * 6)
    for name in asked.models:
        case = compare(name, asked.precision, asked.rounds)
        record["cases"].append(case)
        print(f"| {name} | compilation, CPU s | | {' | '.join(map(str, case['compile_cpu_s'].values()))} | |")
        for family, row in case["steps_us"].items():
            before, after = (row[kind] for kind in KINDS)
            print(f"| {name} | {family} | {row['steps']} | {before} | {after} | {after / before:.3f} |")
        sys.stdout.flush()
        if asked.output:
            asked.output.write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
