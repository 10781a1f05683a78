"""Transfers measurements between devices by every model, and writes what that was worth: JSON and tables in Markdown.

    python -m tilewright.bench.transfer_report --measured FOLDER -o bench/results/transfer.json [--table docs/results/transfer.md]
                                               [--models pacm,..] [--seeds 5] [--from FILE]

The file is written after each model, and gone on with where it is there; the page is written after the last one. `--from`
writes the page of a file that is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from tilewright.bench.cost_models import Sizes, files_of, measured_operators
from tilewright.bench.cost_models_report import TRANSFERS, figure, write
from tilewright.bench.machine import machine
from tilewright.bench.transfer import COUNTS, METHODS, ROUND, SCORES, make_transferred, transfer
from tilewright.compiler.errors import TilewrightError

_ROUNDS = tuple(range(0, COUNTS[-1] + 1, ROUND))
PLAN: Mapping[str, tuple[Sequence[str], Sequence[int]]] = {
    "random": (("fine-tuned",), (0,)),
    "roller": (("fine-tuned",), (0,)),
    "tile-trees": (METHODS, COUNTS),
    "flow-trees-regression": (("none", "pooled"), COUNTS),
    "global-local": (("fine-tuned",), _ROUNDS),
    "pacm-momentum": (("fine-tuned",), _ROUNDS),
    "pacm-resumed": (("fine-tuned",), _ROUNDS),
    "pacm": (("none", "pooled"), COUNTS),
    "pacm-hasty": (("fine-tuned",), _ROUNDS),
    "mlp-momentum": (("fine-tuned",), _ROUNDS),
    "mlp-resumed": (("fine-tuned",), _ROUNDS),
    "mlp": (("none", "pooled"), COUNTS),
}
"""Models in the order in which they run, the ways in which each learns from two devices, and after how many programs of the
target it is judged."""
NAMES = {
    ("random", "fine-tuned"): "drawn",
    ("roller", "fine-tuned"): "Roller's prediction",
    ("tile-trees", "none"): "trees on tiles, the target alone",
    ("tile-trees", "pooled"): "trees on tiles, pooled",
    ("tile-trees", "fine-tuned"): "trees on tiles, more trees for the target",
    ("flow-trees-regression", "none"): "trees on PaCM's features, the target alone",
    ("flow-trees-regression", "pooled"): "trees on PaCM's features, pooled",
    ("global-local", "fine-tuned"): "trees, global + local",
    ("pacm", "none"): "PaCM, the target alone",
    ("pacm", "pooled"): "PaCM, pooled",
    ("pacm-resumed", "fine-tuned"): "PaCM, fine-tuned",
    ("pacm-momentum", "fine-tuned"): "PaCM, momentum",
    ("pacm-hasty", "fine-tuned"): "PaCM, momentum, long rounds",
    ("mlp", "none"): "MLP, the target alone",
    ("mlp", "pooled"): "MLP, pooled",
    ("mlp-resumed", "fine-tuned"): "MLP, fine-tuned",
    ("mlp-momentum", "fine-tuned"): "MLP, momentum",
}


def run(folder: Path, models: Sequence[str], seeds: int, output: Path) -> dict[str, Any]:
    """Every model on every pair of devices; what the file has already of as many seeds is not done again.

    Raises TilewrightError for a model that is not in `PLAN`.
    """
    if unknown := [name for name in models if name not in PLAN]:
        raise TilewrightError(f"no transfer of {', '.join(unknown)} is planned; there are {', '.join(PLAN)}")
    known = {o[0].target.name: o for o in map(measured_operators, files_of(folder, ()))}
    data: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "seeds": seeds,
        "round": ROUND,
        "operators": {device: len(found) for device, found in known.items()},
        "transferred": [],
    }
    if output.exists() and (before := json.loads(output.read_text(encoding="utf-8")))["seeds"] == seeds:
        data["transferred"] = before["transferred"]
    done = {(row["source"], row["target"], row["model"]) for row in data["transferred"]}
    for source, target in TRANSFERS:
        for name in models or PLAN:
            if (source, target, name) not in done:
                found = transfer(
                    known[source], known[target], name, make_transferred, Sizes(seeds=seeds), click.echo, *PLAN[name]
                )  # fmt: skip
                data["transferred"] += [one.to_json() for one in found]
                write(output, data)
    return data


def page(data: Mapping[str, Any], command: str) -> str:
    """The results as a document: a table for each pair of devices and number of programs, and the learning curves."""
    lines = [
        "# Transfer between devices",
        "",
        f"Printed by `{command}`.",
        "",
        f"Stored programs of {len(data['operators'])} GPUs. Whole operators are held out, on both devices, in 3 folds; of the",
        f"others the source's programs are known, and of the target's {COUNTS[1]} or {COUNTS[2]} in all, {ROUND} of an operator. Mean",
        f"and standard deviation over {data['seeds']} seeds of the best time of a pool over the best of those ranked first.",
        "",
    ]
    done = {(row["source"], row["target"], row["model"]) for row in data["transferred"]}
    for source, target in pairs(data):
        if left := [f"`{name}`" for name in PLAN if (source, target, name) not in done]:
            lines += [f"Not measured from {source} to {target}: {', '.join(left)}.", ""]
        for count in COUNTS:
            lines += [f"## From {source} to {target}, {count} programs of the target", "", *table(data, source, target, count), ""]  # fmt: skip
        lines += [f"## From {source} to {target}, by round", "", *curves(data, source, target), ""]
    return "\n".join(lines)


def pairs(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Sources and targets in the order in which they stand in the results."""
    return list(dict.fromkeys((row["source"], row["target"]) for row in data["transferred"]))


def table(data: Mapping[str, Any], source: str, target: str, count: int) -> Iterator[str]:
    """A row for each model and method."""
    yield "| | " + " | ".join(SCORES) + " |"
    yield "| --- |" + " ---: |" * len(SCORES)
    for label, by_count in _rows(data, source, target):
        if count in by_count:
            yield f"| {label} | " + " | ".join(figure(by_count[count][name]) for name in SCORES) + " |"


def curves(data: Mapping[str, Any], source: str, target: str) -> Iterator[str]:
    """Debiased Top-1 after each round, of what learns in rounds."""
    yield f"| {SCORES[0]} after | " + " | ".join(map(str, _ROUNDS)) + " |"
    yield "| --- |" + " ---: |" * len(_ROUNDS)
    for label, by_count in _rows(data, source, target):
        if set(by_count) == set(_ROUNDS):
            yield (
                f"| {label} | " + " | ".join(f"{by_count[c][SCORES[0]]['mean']:.3f}" for c in _ROUNDS) + " |"
            )


def _rows(data: Mapping[str, Any], source: str, target: str) -> Iterator[tuple[str, dict[int, Any]]]:
    for (model, method), label in NAMES.items():
        own = {
            row["programs"]: row["scores"]
            for row in data["transferred"]
            if (row["source"], row["target"], row["model"], row["method"]) == (source, target, model, method)
        }
        if own:
            yield label, own


@click.command()
@click.option("--measured", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("-o", "output", type=click.Path(path_type=Path), default=Path("bench/results/transfer.json"))
@click.option("--table", "document", type=click.Path(path_type=Path))
@click.option("--models", default="", help="Names in the plan, separated by commas.  [default: all]")
@click.option("--seeds", type=click.IntRange(2), default=5, show_default=True)
@click.option("--from", "stored", type=click.Path(exists=True, path_type=Path))
def main(
    measured: Path | None, output: Path, document: Path | None, models: str, seeds: int, stored: Path | None
) -> None:
    """Transfers between devices by every model."""
    if (measured is None) == (stored is None):
        raise click.UsageError(
            "give either --measured, a folder of measured programs, or --from, a file of results"
        )
    if stored is not None:
        data = json.loads(stored.read_text(encoding="utf-8"))
    else:
        assert measured is not None
        data = run(measured, [name for name in models.split(",") if name], seeds, output)
    made = "python -m tilewright.bench.transfer_report --measured FOLDER -o " + str(stored or output)
    if document is not None:
        document.write_text(page(data, made), encoding="utf-8")


if __name__ == "__main__":
    main()
