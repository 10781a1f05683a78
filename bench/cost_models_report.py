"""Runs the suite `cost-models` and writes what it found: JSON, tables in Markdown and on the console, a plot."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from tilewright.bench.baseline_models import make_model, model_names
from tilewright.bench.cost_models import Sizes, files_of, measured_operators, rank
from tilewright.bench.machine import machine
from tilewright.compiler.terminal import console as new_console

_SHOWN = (
    "debiased top-1", "debiased top-5", "first128 top-1", "first128 top-5", "first128 top-16", "whole top-1",
    "whole top-5", "whole trials-95%", "whole trials-98%",
)  # fmt: skip


def run(folder: Path, models: Sequence[str], device: str | None, sizes: Sizes, output: Path | None) -> None:
    """Ranks with each model on each device, and writes after each; raises TilewrightError for what does not exist."""
    names = list(models) or model_names()
    for name in names:
        make_model(name, 0)
    console, progress = new_console(), new_console(stderr=True)
    started, where = datetime.now(UTC), machine()
    path = output or Path("bench/results") / f"cost-models-{started:%Y%m%d-%H%M%S}.json"
    data: dict[str, Any] = {
        "suite": "cost-models",
        "at": started.isoformat(timespec="seconds"),
        "machine": where,
        "seeds": sizes.seeds,
        "folds": sizes.folds,
        "learned_per_operator": sizes.learned,
        "devices": {},
        "ranked": [],
    }
    begun = time.perf_counter()
    with progress.status("reading") as status:
        for file in files_of(folder, device):
            status.update(f"reading {file.name}")
            operators = measured_operators(file)
            data["devices"][operators[0].target.name] = {
                "operators": len(operators),
                "programs": sum(map(len, operators)),
            }
            for name in names:
                status.update(f"{operators[0].target.name}: {name}")
                data["ranked"].append(rank(operators, name, make_model, sizes).to_json())
                data["seconds"] = round(time.perf_counter() - begun, 1)
                write(path, data)
    for table in ranking_tables(data):
        console.print(table)
    console.print(f"{path}")


def write(path: Path, data: Mapping[str, Any]) -> None:
    """A file of results; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data, indent=1) + "\n")


def figure(spread: Mapping[str, Any]) -> str:
    """A mean and its standard deviation over seeds, with the digits that matter."""
    digits = 3 if spread["mean"] < 2 else 1
    return f"{spread['mean']:.{digits}f} ± {spread['std']:.{digits}f}"


def ranking_tables(data: Mapping[str, Any]) -> list[Table]:
    """For every device, a row per model."""
    tables = []
    for device, found in data["devices"].items():
        title = f"{device}: {found['operators']} operators held out in {data['folds']} folds, {data['seeds']} seeds"
        table = Table(title=title, title_justify="left")
        table.add_column("model")
        for name in _SHOWN:
            table.add_column(name, justify="right")
        for row in _of(data, device):
            table.add_row(
                row["model"],
                *(figure(row["scores"][name]) if name in row["scores"] else "" for name in _SHOWN),
            )
        tables.append(table)
    return tables


def ranking_markdown(data: Mapping[str, Any], device: str) -> str:
    """The table of one device as Markdown, for a document."""
    lines = [f"| model | {' | '.join(_SHOWN)} |", f"| --- |{' ---: |' * len(_SHOWN)}"]
    for row in _of(data, device):
        cells = [figure(row["scores"][name]) if name in row["scores"] else "" for name in _SHOWN]
        lines.append(f"| `{row['model']}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _of(data: Mapping[str, Any], device: str) -> list[Mapping[str, Any]]:
    return [row for row in data["ranked"] if row["device"] == device]
