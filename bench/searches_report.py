"""Runs the suite `searches`: measures the samples, replays the searches, and writes JSON, tables and a plot."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from tilewright.bench.baseline_models import make_model
from tilewright.bench.cost_models_report import figure, write
from tilewright.bench.machine import machine, versions
from tilewright.bench.measured_dispatches import MeasuredDispatch, measure
from tilewright.bench.searches import (
    KNOWN,
    NEW,
    QUICK_SCHEDULES,
    SCHEDULES,
    SEARCHES,
    TRANSFERS,
    run_search,
)
from tilewright.bench.suites import suite
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.terminal import console as new_console

SEEDS, QUICK_SEEDS = 5, 2


def run(only: Sequence[str], quick: bool, threads: int, records: Path | None, output: Path | None) -> None:
    """Raises TilewrightError for a case that there is not, or that does not compile."""
    console, progress, started = new_console(), new_console(stderr=True), datetime.now(UTC)
    try:
        cases = suite("resnet18-conv", only, quick and not only)
    except ValueError as error:
        raise TilewrightError(str(error)) from None
    path = output or Path("bench/results") / f"searches-{started:%Y%m%d-%H%M%S}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    kept, seeds = records or path.with_suffix(".sqlite"), QUICK_SEEDS if quick else SEEDS
    data: dict[str, Any] = {
        "suite": "searches", "at": started.isoformat(timespec="seconds"), "machine": machine(),
        "versions": versions(), "threads": threads, "seeds": seeds, "cases": [], "searches": [], "transfer": [],
    }  # fmt: skip
    begun = time.perf_counter()
    with progress.status("measuring") as status:
        count = QUICK_SCHEDULES if quick else SCHEDULES
        pools = [measure(case, count, threads, kept, status.update) for case in cases]
        data["cases"] = [case_row(pool) for pool in pools]
        known, new = ([pool for pool in pools if pool.name in names] for names in (KNOWN, NEW))
        asked = [("searches", search, pools, []) for search in SEARCHES]
        if known and new:
            asked += [("transfer", search, new, known) for search in TRANSFERS]
        for section, search, judged, before in asked:
            status.update(f"{section}: {search.name}")
            data[section].append(run_search(judged, search, make_model, seeds, before).to_json())
            data["seconds"] = round(time.perf_counter() - begun, 1)
            write(path, data)
    for table in tables(data):
        console.print(table)
    plot = path.with_suffix(".png")
    try:
        draw(plot, data)
    except ModuleNotFoundError as missing:
        console.print(f"no plot: {missing}; pip install 'tilewright[bench]'")
    console.print(f"{path}" + (f", {plot}" if plot.exists() else ""))


def case_row(pool: MeasuredDispatch) -> dict:
    """What was measured of one case."""
    runs = pool.us[np.isfinite(pool.us)]
    return {
        "case": pool.name,
        "workload": pool.workload.key,
        "space": pool.space_size,
        "schedules": len(pool),
        "objects": len(set(pool.objects)),
        "failures": int(np.isinf(pool.us).sum()),
        "best_us": round(float(runs.min()), 2),
        "median_us": round(float(np.median(runs)), 2),
        "raced_constructed_us": round(pool.raced_us[0], 2),
        "raced_best_us": round(pool.raced_us[1], 2),
        "measuring_s": round(pool.seconds, 1),
    }


def tables(data: Mapping[str, Any]) -> list[Table]:
    """The cases, the searches of all of them, and what a transfer saves."""
    cases = Table(title=f"samples measured whole, {data['threads']} thread(s)", title_justify="left")
    for name in (
        "case",
        "space",
        "schedules",
        "objects",
        "best us",
        "median us",
        "constructed, raced",
        "best, raced",
    ):
        cases.add_column(name, justify="left" if name == "case" else "right")
    for row in data["cases"]:
        cases.add_row(
            row["case"], f"{row['space']:,}", str(row["schedules"]), str(row["objects"]),
            *(f"{row[name]:.0f}" for name in ("best_us", "median_us", "raced_constructed_us", "raced_best_us")),
        )  # fmt: skip
    found = [cases]
    for section, title in (("searches", "trials to a share of the oracle's best"), ("transfer", "C7 to C9")):
        if not data[section]:
            continue
        table = Table(title=f"{title}, {data['seeds']} seeds", title_justify="left")
        after = list(data[section][0]["best_after"])
        for name in (
            "search",
            "to 95%",
            "to 98%",
            "98% within a quarter",
            *(f"after {count}" for count in after),
        ):
            table.add_column(name, justify="left" if name == "search" else "right")
        for row in data[section]:
            table.add_row(
                row["search"], *(figure(row["trials"][s]) for s in ("95%", "98%")), f"{row['within_a_quarter']:.0%}",
                *(figure(row["best_after"][count]) for count in after),
            )  # fmt: skip
        found.append(table)
    return found


def draw(path: Path, data: Mapping[str, Any]) -> None:
    """Trials to 98% of the oracle's best by case, a bar for each search."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure_, axes = pyplot.subplots(figsize=(11, 4))
    width = 0.8 / len(data["searches"])
    names = [row["case"] for row in data["cases"]]
    for number, row in enumerate(data["searches"]):
        values = [row["trials_to_98_by_case"][name] for name in names]
        axes.bar([n + number * width for n in range(len(names))], values, width, label=row["search"])
    axes.set_xticks([n + 0.4 for n in range(len(names))], names)
    axes.set(ylabel="trials to 98% of the oracle's best", yscale="log")
    axes.legend(frameon=False, fontsize=8, ncols=3)
    figure_.tight_layout()
    figure_.savefig(path, dpi=110)
    pyplot.close(figure_)
