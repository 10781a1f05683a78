"""Device records as pages: a table per part with limits and ratios, and a plot of each, under `docs/results/`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path

import click

from tilewright.bench.device.device_limits import bound_us

ROOT = Path(__file__).parent.parent
OURS = "ours"

_TITLES = {
    "check": "Correctness",
    "gemm": "Matrix products",
    "memory": "What memory bounds",
    "attention": "Attention",
    "models": "Models",
    "operators": "Roller's operators",
    "compile": "Compile time",
}
_COLOURS = {
    "eager": "#7d8794",
    "inductor": "#4f7cac",
    "inductor-graphs": "#4f7cac",
    "inductor-autotuned": "#6aa57a",
}
_OURS_COLOUR = "#c8452c"


@click.command()
@click.argument("records", nargs=-1, type=click.Path(path_type=Path, exists=True))
@click.option(
    "--folder", type=click.Path(path_type=Path), default=ROOT / "docs" / "results", show_default=True
)
def main(records: tuple[Path, ...], folder: Path) -> None:
    """Write a page and its plots for each of RECORDS, by default for all device records in bench/results."""
    found = records or tuple(sorted((ROOT / "bench" / "results").glob("device-*.json")))
    if not found:
        raise click.ClickException("no device record in bench/results; `python -m bench.device` makes one")
    folder.mkdir(parents=True, exist_ok=True)
    for path in found:
        data = json.loads(path.read_text())
        plots = {}
        for part in _TITLES:
            plot = folder / f"{path.stem}-{part}.png"
            if _plot(plot, data, part):
                plots[part] = plot.name
        page = folder / f"{path.stem}.md"
        page.write_text(render(data, path.name, plots))
        click.echo(f"{page}: {len(data['cases'])} cases, {len(plots)} plots")


def render(data: dict, source: str, plots: dict[str, str]) -> str:
    """The page of one record, in markdown."""
    device = data["device"]
    lines = [f"# {device.get('name', device['target'])}", ""]
    if data["rehearsal"]:
        lines += ["**A rehearsal on the CPU, by emulation: its times say nothing about a GPU.**", ""]
    lines += [
        f"Recorded {data['date']} by `{data['command']}`, from `bench/results/{source}`.",
        f"PyTorch {data['versions'].get('torch', '?')}, driver {device.get('driver', 'none')}; copies run at "
        f"{device.get('copy_gbps', device['dram_gbps']):.0f} GB/s. Times are medians, in us. *Limit* is the least time "
        "that the work can take: the larger of arithmetic at the published peak and of bytes at that copy bandwidth. "
        "Ratios are how many times longer the other takes.",
        "",
    ]
    for part, title in _TITLES.items():
        rows = [r for r in data["cases"].values() if r["key"].startswith(f"{part}/")]
        if rows:
            lines += [f"## {title}", ""]
            if part in plots:
                lines += [f"![{title}]({plots[part]})", ""]
            lines += [*_table(part, rows, device), ""]
    if data["missed"]:
        lines += [f"Not reached in the time given: {len(data['missed'])} cases.", ""]
    return "\n".join(lines)


def _table(part: str, rows: list[dict], device: dict) -> list[str]:
    done = [row for row in rows if "failed" not in row]
    others = list(dict.fromkeys(name for row in done for name in row["outcomes"] if name != OURS))
    if part in ("check", "compile"):
        lines = ["| case | dtype | result | error | compile s |", "| --- | --- | --- | ---: | ---: |"]
        for row in done:
            for name, outcome in row["outcomes"].items():
                lines.append(
                    f"| {row['name']}{'' if name == OURS else f' ({name})'} | {row['dtype']} | {outcome['status']} | "
                    f"{outcome.get('error', math.nan):.1e} | {outcome.get('compile_s', math.nan):.2f} |"
                )
    else:
        heads = " | ".join(f"x {name}" for name in others)
        lines = [
            f"| case | dtype | ours us | rate | limit us | of limit | {heads} |",
            "| --- | --- | ---: | ---: | ---: | ---: |" + " ---: |" * len(others),
        ]
        lines += [_row(row, others, device) for row in done]
        for dtype in dict.fromkeys(row["dtype"] for row in done):
            same = [row for row in done if row["dtype"] == dtype]
            means = [_number(geometric_mean(speeds(same, name))) for name in others]
            lines.append(f"| **geometric mean** | {dtype} | | | | | {' | '.join(means)} |")
    lines += [
        f"| {row['key']} | failed: {row['failed'].splitlines()[0][:120]} |" for row in rows if "failed" in row
    ]
    return lines


def _row(row: dict, others: list[str], device: dict) -> str:
    ours = row["outcomes"][OURS]
    limit, by = bound_us(row, device)
    us = ours.get("median_us")
    cells = [
        row["name"],
        row["dtype"],
        ours["status"] if us is None or ours["status"] != "ok" else f"{us:.1f}",
    ]
    if us is None:
        cells += ["", f"{limit:.1f}", ""]
    else:
        rate = (
            f"{row['bytes'] / us / 1e3:.0f} GB/s"
            if by == "DRAM"
            else f"{row['flops'] / us / 1e6:.1f} TFLOP/s"
        )
        cells += [rate, f"{limit:.1f}", f"{limit / us:.0%} {by}"]
    cells += [_number(_speed(row, name)) for name in others]
    return f"| {' | '.join(cells)} |"


def _speed(row: dict, name: str) -> float | None:
    ours, other = (row["outcomes"].get(who, {}) for who in (OURS, name))
    usable = all(o.get("status") == "ok" and o.get("median_us") for o in (ours, other))
    return other["median_us"] / ours["median_us"] if usable else None


def speeds(rows: Iterable[dict], name: str) -> list[float]:
    """How many times longer `name` takes than ours, for the cases that both did right."""
    return [speed for row in rows if (speed := _speed(row, name)) is not None]


def geometric_mean(values: list[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _plot(path: Path, data: dict, part: str) -> bool:
    """Bars of speed relative to eager PyTorch; False when the part has nothing timed."""
    rows = [
        row
        for row in data["cases"].values()
        if row.get("part") == part and row["outcomes"].get("eager", {}).get("median_us")
    ]
    if not rows:
        return False
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(name for row in rows for name in row["outcomes"] if name != "eager"))
    height = 0.8 / len(names)
    figure, axes = plt.subplots(
        figsize=(9, 1.5 + 0.18 * len(rows) * max(2, len(names))), layout="constrained"
    )
    for index, name in enumerate(names):
        relative = []
        for row in rows:
            outcome = row["outcomes"].get(name, {})
            usable = outcome.get("status") == "ok" and outcome.get("median_us")
            relative.append(row["outcomes"]["eager"]["median_us"] / outcome["median_us"] if usable else 0)
        places = [place + (index - (len(names) - 1) / 2) * height for place in range(len(rows))]
        colour = _OURS_COLOUR if name == OURS else _COLOURS.get(name, "#b59bd1")
        bars = axes.barh(places, relative, height * 0.92, label=name, color=colour)
        axes.bar_label(
            bars, [f"{value:.2f}" if value else "n/a" for value in relative], padding=2, fontsize=7
        )
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [f"{row['name']} {row['dtype']}" for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.set_xlabel("speed relative to eager PyTorch (higher is faster)")
    rehearsal = " (rehearsal by emulation)" if data["rehearsal"] else ""
    axes.set_title(f"{_TITLES[part]}, {data['device'].get('name', data['device']['target'])}{rehearsal}")
    figure.legend(loc="outside lower center", fontsize=8, ncols=4)
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return True


if __name__ == "__main__":
    main()
