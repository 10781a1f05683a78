"""Runs the suite `few-trials` and writes what it found: JSON after every case, and tables."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rich.table import Table

from tilewright.bench.cost_models_report import write
from tilewright.bench.few_trials import FEW, LIMIT_S, QUICK_TRIALS, SEEDS, TRIALS, measure_case
from tilewright.bench.machine import machine, versions
from tilewright.bench.measured_dispatches import heaviest_task
from tilewright.bench.ranking_scores import geometric_mean
from tilewright.bench.suites import suite
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.targets.target import Target
from tilewright.compiler.terminal import console as new_console

if TYPE_CHECKING:  # asked for where it is used, behind the variables that number threads
    from tilewright.compiler.profiler.local_device import LocalCpuDevice

SUITE = "few-trials"


def run(only: Sequence[str], quick: bool, threads: int, records: Path | None, output: Path | None) -> None:
    """Raises TilewrightError for a case that there is not, that does not compile, or of which nothing runs."""
    from tilewright.compiler.ir import ir
    from tilewright.compiler.workers.pool import prepare

    console, progress, started = new_console(), new_console(stderr=True), datetime.now(UTC)
    try:
        cases = suite("resnet18-conv", only, quick and not only)
    except ValueError as error:
        raise TilewrightError(str(error)) from None
    path = output or Path("bench/results") / f"{SUITE}-{started:%Y%m%d-%H%M%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = records or path.with_suffix(".sqlite")
    data: dict[str, Any] = {
        "suite": SUITE, "at": started.isoformat(timespec="seconds"), "machine": machine(),
        "versions": versions(), "threads": threads, "few": FEW, "limit_s": LIMIT_S, "cases": [],
    }  # fmt: skip
    begun = time.perf_counter()
    prepare()
    trials, seeds = (QUICK_TRIALS, 1) if quick else (TRIALS, SEEDS)
    with progress.status("measuring") as status, TemporaryDirectory() as folder:
        unknown = (Path(folder) / f"{number}.sqlite" for number in itertools.count())
        for case in cases:
            task = heaviest_task(case)
            make_device = partial(_device, task.target, threads, unknown)
            with task.module.context, ir.Location.unknown(task.module.context):
                found = measure_case(
                    case.name, task, make_device, kept, trials, seeds=seeds, say=status.update
                )
            data["cases"].append(found.to_json())
            data["seconds"] = round(time.perf_counter() - begun, 1)
            write(path, data)
    for table in tables(data):
        console.print(table)
    console.print(str(path))


def _device(target: Target, threads: int, unknown: Iterator[Path], records: Path | None) -> LocalCpuDevice:
    """This CPU with these records, or with none that anything is known of."""
    from tilewright.compiler.profiler.candidate_bench import MeasureOptions
    from tilewright.compiler.profiler.local_device import LocalCpuDevice

    return LocalCpuDevice(target, MeasureOptions(threads=threads), records or next(unknown))


def tables(data: Mapping[str, Any]) -> list[Table]:
    """The cases, each strategy by its slowest choice of all seeds, and what each strategy comes to."""
    rows, few = data["cases"], data["few"]
    names = list(dict.fromkeys(found["strategy"] for row in rows for found in row["searches"]))
    cases = Table(
        title=f"{few} trials against random ones, {data['threads']} thread(s); us of a race, the slowest choice of all seeds",
        title_justify="left",
    )
    for name in ("case", "space", "random trials", "failed", "s", "constructed", "random"):
        cases.add_column(name, justify="left" if name == "case" else "right")
    for name in names:
        for what in (name, f"{name} over random", f"{name}, s at most"):
            cases.add_column(what, justify="right")
    for row in rows:
        cells = []
        for name in names:
            own = [found for found in row["searches"] if found["strategy"] == name]
            worst = min(own, key=lambda found: found["gain"])
            longest = max(found["seconds"] for found in own)
            cells += [f"{worst['us']:.0f}", f"{worst['gain']:.3f}x", f"{longest:.1f}"]
        cases.add_row(
            row["case"], f"{row['space']:,}", f"{row['random']['trials']:,}", str(row["random"]["failures"]),
            f"{row['random']['seconds']:.0f}", f"{row['constructed_us']:.0f}", f"{row['random_us']:.0f}", *cells,
        )  # fmt: skip
    found = Table(
        title=f"level with random or faster, in {few} trials and {data['limit_s']:.0f} s at most",
        title_justify="left",
    )
    for name in ("strategy", "searches", "cases with all seeds", "over random", "slowest", "s at most"):
        found.add_column(name, justify="left" if name == "strategy" else "right")
    for name in names:
        by_case = [[s for s in row["searches"] if s["strategy"] == name] for row in rows]
        own = [one for searches in by_case for one in searches]
        gains = [one["gain"] for one in own]
        found.add_row(
            name,
            f"{sum(one['reached'] for one in own)} of {len(own)}",
            f"{sum(all(one['reached'] for one in searches) for searches in by_case)} of {len(rows)}",
            f"{geometric_mean(gains):.3f}x",
            f"{min(gains):.3f}x",
            f"{max(one['seconds'] for one in own):.1f}",
        )
    return [cases, found]
