"""A model's constructed program raced as a search does it: against itself, or against the one that a lock compiles.

    python -m tilewright.bench.race_programs resnet18 [--lock resnet18.tune.lock] [--races 8] [--threads 2] [-o FILE]

Against itself it tells what sittings differ by on this machine, and how often noise alone has a program taken.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from tilewright.bench.machine import machine, versions
from tilewright.bench.ranking_scores import geometric_mean
from tilewright.compiler.tuning.search.program_race import Raced


@click.command()
@click.argument("model")
@click.option("--lock", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--races", default=8, show_default=True, type=click.IntRange(1))
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1))
@click.option("-o", "--output", type=click.Path(path_type=Path))
def main(model: str, lock: Path | None, races: int, threads: int, output: Path | None) -> None:
    """Race MODEL's programs, with a line for every race; raises TilewrightError for a model or a lock that does not compile."""
    from tilewright.compiler import driver
    from tilewright.compiler.cli.compile import example_inputs
    from tilewright.compiler.cli.models import load_model
    from tilewright.compiler.options import check_options
    from tilewright.compiler.profiler.program_bench import ProgramBench
    from tilewright.compiler.targets.target import resolve

    loaded, where = load_model(model), machine()
    imported = driver.import_model(loaded.model, example_inputs(loaded, None))
    options = check_options({"lock": lock} if lock else {})
    target = driver.lock_target(options) if lock else resolve("cpu")
    again = driver.import_model(loaded.model, example_inputs(loaded, None))
    constructed = driver.compile_package(imported.module, target, check_options({}))
    other = driver.compile_package(again.module, target, options) if lock else replace(constructed)
    found: list[Raced] = []
    with ProgramBench(constructed, imported.weights, threads) as bench:
        for number in range(1, races + 1):
            found.append(bench.race(constructed, other))
            click.echo(f"{number}: {line(found[-1])}")
    click.echo(summary(found))
    if output is not None:
        data = {
            "model": model, "at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": where,
            "versions": versions(), "threads": threads, "lock": lock.name if lock else None,
            "races": [row(raced) for raced in found],
        }  # fmt: skip
        output.write_text(json.dumps(data, indent=1) + "\n")


def line(raced: Raced) -> str:
    """`1.002x, left: 1.009 0.994 1.003 0.998`."""
    if raced.gain is None:
        return raced.error
    sittings = " ".join(f"{sitting.gain:.3f}" for sitting in raced.sittings)
    return f"{raced.gain:.3f}x, {'taken' if raced.is_faster else 'left'}: {sittings}"


def summary(races: list[Raced]) -> str:
    """What all races come to: the mean, how many were taken, and the range of single sittings."""
    gains = [raced.gain for raced in races if raced.gain is not None]
    if not gains:
        return f"none of {len(races)} races came to its end"
    sittings = [sitting.gain for raced in races if raced.gain is not None for sitting in raced.sittings]
    taken = sum(raced.is_faster for raced in races)
    return (
        f"{geometric_mean(gains):.3f}x in the geometric mean, taken in {taken} of {len(races)} races; "
        f"single sittings from {min(sittings):.3f} to {max(sittings):.3f}"
    )


def row(raced: Raced) -> dict[str, Any]:
    """A race in the record."""
    return {
        "gain": None if raced.gain is None else round(raced.gain, 4),
        "taken": raced.is_faster,
        "error": raced.error,
        "us": None if raced.us is None else [round(us, 2) for us in raced.us],
        "sittings": [round(sitting.gain, 4) for sitting in raced.sittings],
    }


if __name__ == "__main__":
    main()
