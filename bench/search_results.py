"""Records of the suites `cost-models`, `searches` and `few-trials` as pages with tables and plots, under `docs/results/`.

    python -m tilewright.bench.search_results [RECORDS..] [--folder docs/results]

Records of one suite make one page: each may hold other devices or models.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tilewright.bench import cost_models_report, few_trials_report, searches_report
from tilewright.bench.baseline_models import model_names
from tilewright.bench.cost_models_report import (
    figure,
    markdown,
    ranking_tables,
    replay_tables,
    transfer_tables,
)

ROOT = Path(__file__).parent.parent
_SECTIONS = ("ranked", "replayed", "curves", "importance", "transferred")
_POOLS = {"debiased top-1": "o", "first128 top-1": "s", "whole top-1": "^"}
_MOST = 12
"""Columns that are shown of each model."""

Record = dict[str, Any]


@click.command()
@click.argument("records", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option(
    "--folder", type=click.Path(path_type=Path), default=ROOT / "docs" / "results", show_default=True
)
def main(records: tuple[Path, ...], folder: Path) -> None:
    """Write a page for each suite of RECORDS, by default for all records of searches in bench/results."""
    kept = ROOT / "bench" / "results"
    names = ("cost-models*.json", "searches*.json", "few-trials*.json")
    paths = records or tuple(sorted(path for name in names for path in kept.glob(name)))
    if not paths:
        raise click.ClickException(
            "no record in bench/results; `tilewright bench --suite cost-models` makes one"
        )
    folder.mkdir(parents=True, exist_ok=True)
    found = [(path.name, json.loads(path.read_text())) for path in paths]
    pages = {"cost-models": cost_models_page, "searches": searches_page, "few-trials": few_trials_page}
    for suite, write in pages.items():
        own = [(name, data) for name, data in found if data["suite"] == suite]
        if own:
            (folder / f"{suite}.md").write_text(write(own, folder))
            click.echo(f"{folder / suite}.md of {', '.join(name for name, _ in own)}")


def merged(records: Sequence[Record]) -> Record:
    """Records of `cost-models` as one; raises ClickException where they have other seeds, folds or programs to learn from."""
    first = records[0]
    for name in ("seeds", "folds", "learned_per_operator"):
        if values := {record[name] for record in records} - {first[name]}:
            raise click.ClickException(
                f"records of one page have the same `{name}`; found {first[name]}, {values}"
            )
    devices = {name: found for record in records for name, found in record["devices"].items()}
    order = {name: number for number, name in enumerate(model_names())}
    sections = {section: [row for record in records for row in record[section]] for section in _SECTIONS}
    sections["ranked"].sort(key=lambda row: (row["device"], order.get(row["model"], len(order))))
    return {
        **first,
        "devices": {name: devices[name] for name in sorted(devices)},
        **sections,
    }


def cost_models_page(records: Sequence[tuple[str, Record]], folder: Path) -> str:
    """The page of the suite `cost-models`; its plots are written beside it."""
    data = merged([record for _, record in records])
    parts = ["# Cost models on operators that they have not seen", _COST_MODELS, _commands(records)]
    parts.append(
        f"{data['folds']} folds of whole operators, {data['learned_per_operator']} programs of each of the others to learn from; "
        f"mean and standard deviation over {data['seeds']} seeds. 1 is perfect."
    )
    parts += map(markdown, ranking_tables(data))
    plots: list[tuple[str, str, Callable[[Path, Record], None]]] = [
        ("ranked", "Top-1 by model and pool", _draw_ranked),
        ("curves", "Debiased Top-1 by the programs of each operator that were learned from", _draw_curves),
        ("importance", "What each model loses of its rank correlation without a column", _draw_importance),
    ]
    titles = {
        "ranked": "",
        "curves": "## More and fewer programs",
        "importance": "## What the models live on",
    }
    for section, caption, draw in plots:
        if not data[section]:
            continue
        name = f"cost-models-{section}.png"
        draw(folder / name, data)
        parts += filter(None, (titles[section], f"![{caption}]({name})"))
        if section == "curves":
            parts.append(_curve_table(data))
        if section == "importance":
            parts.append(_importance_table(data))
    if data["replayed"]:
        parts += ["## Searches replayed", _REPLAYED, *map(markdown, replay_tables(data))]
    if data["transferred"]:
        parts += ["## From one device to another", *map(markdown, transfer_tables(data))]
    return "\n\n".join(parts) + "\n"


def searches_page(records: Sequence[tuple[str, Record]], folder: Path) -> str:
    """The page of the suite `searches`: a section for every record."""
    parts = ["# Searches on a CPU against an oracle", _SEARCHES, _commands(records)]
    for source, data in records:
        machine, name = data["machine"], f"{Path(source).stem}.png"
        searches_report.draw(folder / name, data)
        load = machine["load_1min"]
        parts.append(
            f"## {machine['processor']}, {data['threads']} thread(s), {data['at'][:10]}\n\n"
            f"The machine's load was {load} on {machine['cpus']} CPUs before the run. Mean and standard deviation over {data['seeds']} seeds."
        )
        parts += map(markdown, searches_report.tables(data))
        parts.append(f"![Trials to 98% of the oracle's best]({name})")
    return "\n\n".join(parts) + "\n"


def few_trials_page(records: Sequence[tuple[str, Record]], folder: Path) -> str:
    """The page of the suite `few-trials`: a section for every record."""
    parts = ["# Few trials against a thousand", _FEW_TRIALS, _commands(records)]
    for _, data in records:
        machine = data["machine"]
        parts.append(
            f"## {machine['processor']}, {data['threads']} thread(s), {data['at'][:10]}\n\n"
            f"The machine's load was {machine['load_1min']} on {machine['cpus']} CPUs before the run."
        )
        parts += map(markdown, few_trials_report.tables(data))
    return "\n\n".join(parts) + "\n"


_COST_MODELS = (
    "The score is the best time of a pool of measured programs over the best among the one, five or sixteen that a model ranks "
    "first, its mean over operators; [what the pools are, and what follows](../search-results.md) stands elsewhere."
)
_REPLAYED = (
    "Trials until one of an operator's measured programs has 95% or 98% of the best speed: geometric means over operators. "
    "`drafted` searches choose among what Roller's model likes best; what `knows others` learned from other operators first."
)
_SEARCHES = (
    "A sample of each space was measured whole; a search chooses of it, and what counts is how many trials it needs. "
    "[How to read this](../search-results.md)."
)

_FEW_TRIALS = (
    "Random search measures schedules of each convolution of ResNet-18 on this CPU; then strategies that know nothing of that measure a "
    "few of their own. The constructed schedule, the fastest random ones and what the strategies chose take turns at the end. Seconds are "
    "of a whole search, with compiling, learning and the race of its finalists; those of random search are less where it went on from records. "
    "[What is asked](../search-results.md#how-it-is-judged)."
)


def _commands(records: Sequence[tuple[str, Record]]) -> str:
    lines = []
    for name, data in records:
        if data["suite"] == "cost-models":
            models = ",".join(dict.fromkeys(row["model"] for row in data["ranked"]))
            asked = f"--measured FOLDER --target {','.join(data['devices'])} --models {models}"
        else:
            cases = ",".join(row["case"] for row in data["cases"])
            asked = f"--cases {cases} --threads {data['threads']}"
        lines.append(f"tilewright bench --suite {data['suite']} {asked} -o bench/results/{name}")
    return "```sh\n" + "\n".join([*lines, "python -m tilewright.bench.search_results"]) + "\n```"


def _curve_points(data: Record, model: str) -> list[tuple[int, Mapping[str, Any]]]:
    """So many programs of each operator and the scores, in ascending order; the ranking itself is one of them."""
    rows = [row for row in data["curves"] if row["model"] == model]
    devices = {row["device"] for row in rows}
    found = {row["learned"]: row["scores"] for row in rows}
    for row in data["ranked"]:
        if row["model"] == model and row["device"] in devices:
            found[data["learned_per_operator"]] = row["scores"]
    return sorted(found.items())


def _curve_table(data: Record) -> str:
    lines = ["| model | programs of each | debiased top-1 | debiased top-5 |", "| --- | ---: | ---: | ---: |"]
    for model in dict.fromkeys(row["model"] for row in data["curves"]):
        for count, scores in _curve_points(data, model):
            shown = " | ".join(figure(scores[name]) for name in ("debiased top-1", "debiased top-5"))
            lines.append(f"| {model} | {count} | {shown} |")
    return "\n".join(lines)


def _importance_table(data: Record) -> str:
    lines = ["| model | without | rank correlation lost |", "| --- | --- | ---: |"]
    for model in dict.fromkeys(row["model"] for row in data["importance"]):
        own = [row for row in data["importance"] if row["model"] == model]
        shown = [row for row in own if not row["column"]] + [row for row in own if row["column"]][:_MOST]
        for row in shown:
            what = f"{row['column']} ({row['set']})" if row["column"] else f"all of {row['set']}"
            lines.append(f"| {model} | {what} | {figure(row['lost'])} |")
    return "\n".join(lines)


def _draw_ranked(path: Path, data: Record) -> None:
    pyplot = cost_models_report.plots()
    devices = list(data["devices"])
    models = list(dict.fromkeys(row["model"] for row in data["ranked"]))
    figure_, axes = pyplot.subplots(
        1,
        len(devices),
        figsize=(2 + 3.2 * len(devices), 0.32 * len(models) + 1.3),
        sharey=True,
        squeeze=False,
    )
    for place, device in zip(axes[0], devices):
        for number, (name, marker) in enumerate(_POOLS.items()):
            rows = [row for row in data["ranked"] if row["device"] == device and name in row["scores"]]
            at = [len(models) - 1 - models.index(row["model"]) + 0.2 * (1 - number) for row in rows]
            means, deviations = ([row["scores"][name][what] for row in rows] for what in ("mean", "std"))
            place.errorbar(means, at, xerr=deviations, fmt=marker, markersize=4, linewidth=1, label=name)
        place.set_title(device, fontsize=10)
        place.set_yticks(range(len(models)), models[::-1])
        place.grid(axis="x", alpha=0.3)
    axes[0][0].legend(frameon=False, fontsize=8)
    _keep(pyplot, figure_, path)


def _draw_curves(path: Path, data: Record) -> None:
    pyplot = cost_models_report.plots()
    figure_, axes = pyplot.subplots(figsize=(5.5, 3.4))
    for model in dict.fromkeys(row["model"] for row in data["curves"]):
        points = _curve_points(data, model)
        spreads = [scores["debiased top-1"] for _, scores in points]
        axes.errorbar(
            [count for count, _ in points],
            [spread["mean"] for spread in spreads],
            [spread["std"] for spread in spreads],
            marker="o", markersize=4, capsize=2, label=model,
        )  # fmt: skip
    axes.set(xscale="log", xlabel="programs of each operator", ylabel="debiased top-1")
    axes.legend(frameon=False, fontsize=8)
    axes.grid(alpha=0.3)
    _keep(pyplot, figure_, path)


def _draw_importance(path: Path, data: Record) -> None:
    pyplot = cost_models_report.plots()
    models = list(dict.fromkeys(row["model"] for row in data["importance"]))
    figure_, axes = pyplot.subplots(1, len(models), figsize=(5.2 * len(models), 3.8), squeeze=False)
    for place, model in zip(axes[0], models):
        rows = [row for row in data["importance"] if row["model"] == model and row["column"]][:_MOST][::-1]
        names = [f"{row['column']} ({row['set']})" for row in rows]
        means, deviations = ([row["lost"][what] for row in rows] for what in ("mean", "std"))
        place.barh(names, means, xerr=deviations, color="#4f7cac")
        place.tick_params(axis="y", labelsize=8)
        place.set_title(model, fontsize=10)
        place.set_xlabel("rank correlation lost", fontsize=9)
    _keep(pyplot, figure_, path)


def _keep(pyplot: Any, figure_: Any, path: Path) -> None:
    figure_.tight_layout()
    figure_.savefig(path, dpi=110)
    pyplot.close(figure_)


if __name__ == "__main__":
    main()
