"""Seconds that cold compiles take, from the start of a process to its end, of this checkout and others in turns.

    python -m tilewright.bench.cold_compile inception_v3 maxvit_t [--beside CHECKOUT] [--rounds 2] [-o FILE]

Every compile is `tilewright compile MODEL` in a process of its own with an empty cache, which is removed afterwards. A
CHECKOUT is a folder with an environment that `make setup` made there; its revision names it in the record.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from tilewright.bench.machine import machine, versions

HERE = Path(__file__).resolve().parents[1]
_KERNELS = re.compile(r"of (\d+) kernels")


@dataclass(frozen=True)
class Compiled:
    """One model: kernels of this checkout's program, and by revision the seconds of every round."""

    model: str
    kernels: int | None
    rounds_s: dict[str, list[float]]

    @property
    def median_s(self) -> dict[str, float]:
        return {revision: round(statistics.median(own), 3) for revision, own in self.rounds_s.items()}


def revision(checkout: Path) -> str:
    """The commit of a checkout, with `+` where it has changes; raises ClickException for a folder that is none."""
    asked = ("git", "-C", str(checkout), "describe", "--always", "--abbrev=7", "--dirty=+", "--exclude=*")
    found = subprocess.run(asked, capture_output=True, text=True)
    if found.returncode:
        raise click.ClickException(f"{checkout}: {found.stderr.strip()}")
    return found.stdout.strip()


def compile_once(checkout: Path, model: str, threads: int) -> tuple[float, int | None]:
    """Seconds of one cold compile, and the kernels that it tells of; raises ClickException where it fails."""
    tool = checkout / ".venv/bin/tilewright"
    if not tool.exists():
        raise click.ClickException(f"{checkout}: no environment there; run `make setup` in it")
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {
            "TILEWRIGHT_CACHE_DIR": str(Path(folder) / "cache"),
            "OMP_NUM_THREADS": str(threads),
        }
        asked = (str(tool), "compile", model, "-o", str(Path(folder) / "model.twm"))
        start = time.perf_counter()
        done = subprocess.run(asked, cwd=checkout, env=environment, capture_output=True, text=True)
        seconds = time.perf_counter() - start
    if done.returncode:
        raise click.ClickException(f"{checkout}: {model} does not compile: {done.stderr.strip()[-500:]}")
    told = _KERNELS.search(done.stdout + done.stderr)
    return seconds, int(told[1]) if told else None


def compare(checkouts: dict[str, Path], model: str, rounds: int, threads: int) -> Compiled:
    """A model compiled by every checkout, by revision, once in every round; the last one is this checkout."""
    kernels = None
    times: dict[str, list[float]] = {name: [] for name in checkouts}
    for _ in range(rounds):
        for name, checkout in checkouts.items():
            seconds, kernels = compile_once(checkout, model, threads)
            times[name].append(round(seconds, 3))
    return Compiled(model, kernels, times)


def row(case: Compiled) -> str:
    """Model, kernels, medians of every checkout, and the last one's over the first one's."""
    medians = list(case.median_s.values())
    cells = [case.model, str(case.kernels or "-"), *(f"{s:.1f}" for s in medians)]
    return f"| {' | '.join([*cells, f'{medians[-1] / medians[0]:.2f}'])} |"


@click.command(help=__doc__)
@click.argument("models", nargs=-1, required=True)
@click.option(
    "--beside",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    multiple=True,
    metavar="CHECKOUT",
)
@click.option("--rounds", default=2, show_default=True, type=click.IntRange(min=1))
@click.option("--threads", default=1, show_default=True, type=click.IntRange(min=1), help="Of PyTorch.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False))
def main(
    models: tuple[str, ...], beside: tuple[Path, ...], rounds: int, threads: int, output: Path | None
) -> None:
    """Prints a table as Markdown, and writes a record where `-o` says, after every model."""
    checkouts = {revision(checkout): checkout.resolve() for checkout in (*beside, HERE)}
    if len(checkouts) <= len(beside):
        raise click.UsageError("two checkouts are of one revision, which names them in the record")
    command = ["python -m tilewright.bench.cold_compile", *models, *("--beside CHECKOUT" for _ in beside)]
    command += [f"--rounds {rounds}", f"--threads {threads}"]
    record: dict[str, Any] = {
        "command": " ".join(command),
        "machine": machine(),
        "versions": versions(),
        "checkouts": list(checkouts),
        "cases": [],
    }
    click.echo(f"| model | kernels | {' | '.join(checkouts)} | ratio |\n|{' --- |' * (3 + len(checkouts))}")
    for model in models:
        case = compare(checkouts, model, rounds, threads)
        click.echo(row(case))
        record["cases"].append({**asdict(case), "median_s": case.median_s})
        if output is not None:
            output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
