"""Runs the suite `cost-models` and writes what it found: JSON, tables in Markdown and on the console, a plot."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Table

from tilewright.bench.baseline_models import make_model, model_names
from tilewright.bench.cost_models import Sizes, files_of, measured_operators, rank
from tilewright.bench.feature_importance import importance
from tilewright.bench.machine import machine
from tilewright.bench.replay import BUDGET, DRAFTS, compare, searches
from tilewright.bench.transfer import transfer
from tilewright.compiler.terminal import console as new_console

_SHOWN = (
    "debiased top-1", "debiased top-5", "first128 top-1", "first128 top-5", "first128 top-16", "whole top-1",
    "whole top-5", "whole trials-95%", "whole trials-98%",
)  # fmt: skip
_TRANSFERRED = ("debiased top-1", "debiased top-5", "first128 top-1", "first128 top-16")

LEARNERS = ("tile-trees",)
"""Models that searches are replayed with and that are transferred; the rest only rank, for networks take minutes to learn."""
TRANSFERS = (("k80", "v100"), ("k80", "mi50"))
_REPLAYED = {"v100"}
CURVES, COUNTS = ("flow-trees-regression", "flow-trees-graded", "pacm"), (16, 64, 1000)
"""Models that are judged on fewer and on more programs of each operator too; how many."""
SHUFFLED = ("flow-trees-regression", "pacm")
"""Models whose features are shuffled."""


def run(
    folder: Path, models: Sequence[str], devices: Sequence[str], sizes: Sizes, output: Path | None
) -> None:
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
        "replayed": [],
        "curves": [],
        "importance": [],
        "transferred": [],
    }
    begun, known = time.perf_counter(), {}
    learners = [name for name in names if name in LEARNERS]

    def keep(section: str, found: Sequence[Any], **more: str) -> None:
        data[section] += [{**more, **(one if isinstance(one, dict) else one.to_json())} for one in found]
        data["seconds"] = round(time.perf_counter() - begun, 1)
        write(path, data)

    with progress.status("reading") as status:
        for file in files_of(folder, devices):
            status.update(f"reading {file.name}")
            operators = measured_operators(file)
            known[operators[0].target.name] = operators
            data["devices"][operators[0].target.name] = {
                "operators": len(operators),
                "programs": sum(map(len, operators)),
            }
            for name in names:
                status.update(f"{operators[0].target.name}: {name}")
                keep("ranked", [rank(operators, name, make_model, sizes)])
        for number, name in enumerate(learners):
            for device in _REPLAYED & known.keys():
                for pool, draft in DRAFTS.items():
                    wanted = [s for s in searches(name, draft) if s.model == name or not number]
                    found = compare(
                        known[device], wanted, make_model, sizes.seeds, sizes.learned, status.update, pool
                    )
                    keep("replayed", found, device=device)
            for source, target in TRANSFERS:
                if source in known and target in known:
                    found = transfer(known[source], known[target], name, make_model, sizes, status.update)
                    keep("transferred", found)
        for name in (name for name in names if name in CURVES):
            for device in _REPLAYED & known.keys():
                if name in SHUFFLED:
                    status.update(f"{device}: what {name} reads")
                    keep("importance", importance(known[device], name, make_model, sizes))
                for count in COUNTS:
                    status.update(f"{device}: {name}, {count} programs of each operator")
                    ranked = rank(known[device], name, make_model, replace(sizes, learned=count))
                    keep("curves", [{**ranked.to_json(), "learned": count}])
    for table in [*ranking_tables(data), *replay_tables(data), *transfer_tables(data)]:
        console.print(table)
    plot = path.with_suffix(".png")
    try:
        draw(plot, data)
    except ModuleNotFoundError as missing:
        console.print(f"no plot: {missing}; pip install 'tilewright[bench]'")
    console.print(f"{path}" + (f", {plot}" if plot.exists() else ""))


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
        for row in _of_section(data, "ranked", device):
            table.add_row(
                row["model"],
                *(figure(row["scores"][name]) if name in row["scores"] else "" for name in _SHOWN),
            )
        tables.append(table)
    return tables


def markdown(table: Table) -> str:
    """A table for a document: its title in bold above it."""
    columns = [list(column.cells) for column in table.columns]
    names = [str(column.header) for column in table.columns]
    rules = ["---:" if column.justify == "right" else "---" for column in table.columns]
    lines = [names, rules, *zip(*columns)]
    return f"**{table.title}**\n\n" + "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def replay_tables(data: Mapping[str, Any]) -> list[Table]:
    """Trials of each search, a table for each device."""
    tables = []
    for device, pool in dict.fromkeys((row["device"], row["pool"]) for row in data["replayed"]):
        title = f"{device}: searches replayed on pools `{pool}`; trials to a share of the best speed, at most {BUDGET}"
        table = Table(title=title, title_justify="left")
        for name in ("search", "95%", "98%", "searches that reached 98%"):
            table.add_column(name, justify="left" if name == "search" else "right")
        for row in _of_section(data, "replayed", device):
            if row["pool"] == pool:
                table.add_row(
                    row["search"],
                    *(figure(row["trials"][s]) for s in ("95%", "98%")),
                    f"{row['reached']:.0%}",
                )
        tables.append(table)
    return tables


def transfer_tables(data: Mapping[str, Any]) -> list[Table]:
    """What each method makes of so many programs of the target: a table for each pair of devices."""
    tables = []
    for source, target in dict.fromkeys((row["source"], row["target"]) for row in data["transferred"]):
        table = Table(title=f"from {source} to {target}", title_justify="left")
        for name in ("model", "method", "programs", *_TRANSFERRED):
            table.add_column(name, justify="left" if name in ("model", "method") else "right")
        for row in data["transferred"]:
            if (row["source"], row["target"]) == (source, target):
                scores = [figure(row["scores"][name]) for name in _TRANSFERRED if name in row["scores"]]
                table.add_row(row["model"], row["method"], str(row["programs"]), *scores)
        tables.append(table)
    return tables


def plots() -> Any:
    """`pyplot`, drawing into files; raises ModuleNotFoundError where matplotlib is not installed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def draw(path: Path, data: Mapping[str, Any]) -> None:
    """For every device and three scores, a bar per model, with the standard deviation over seeds."""
    pyplot = plots()
    devices = list(data["devices"])
    figure_, axes = pyplot.subplots(
        1, len(devices), figsize=(5 * len(devices), 4), squeeze=False, sharey=True
    )
    for place, device in zip(axes[0], devices):
        rows, shown = _of_section(data, "ranked", device), _SHOWN[:5]
        width = 0.8 / max(1, len(rows))
        for number, row in enumerate(rows):
            spreads = [row["scores"].get(name, {"mean": 0.0, "std": 0.0}) for name in shown]
            at = [n + number * width for n in range(len(shown))]
            means, deviations = ([s[what] for s in spreads] for what in ("mean", "std"))
            place.bar(at, means, width, yerr=deviations, label=row["model"])
        place.set_xticks([n + 0.4 for n in range(len(shown))], [name.replace(" ", "\n") for name in shown])
        place.set(title=device, ylim=(0, 1))
    axes[0][0].set_ylabel("best of the pool over the best ranked first")
    axes[0][-1].legend(frameon=False, fontsize=8)
    figure_.tight_layout()
    figure_.savefig(path, dpi=110)
    pyplot.close(figure_)


def _of_section(data: Mapping[str, Any], section: str, device: str) -> list[Mapping[str, Any]]:
    return [row for row in data[section] if row["device"] == device]
