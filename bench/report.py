"""Results as a table for the terminal, as JSON with everything needed to repeat them, and as a plot."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table

from tilewright.bench.adapters import OURS
from tilewright.bench.harness import CaseResult, Outcome, geometric_means
from tilewright.bench.machine import versions

SCHEMA = 1

_OURS_COLOUR = "#c8452c"
_COLOURS = ("#4f7cac", "#8fb3d9", "#6aa57a", "#b59bd1", "#d9b14a", "#7d8794")


def milliseconds(us: float | None) -> str:
    """A time in us as text in ms with three digits that mean something."""
    if us is None:
        return "-"
    ms = us / 1e3
    return f"{ms:.3f}" if ms < 10 else f"{ms:.2f}" if ms < 100 else f"{ms:.0f}"


def table(suite: str, results: Sequence[CaseResult], contenders: Sequence[str], threads: int) -> Table:
    """Ours in ms, its error and compile time; each competitor in ms and how many times longer it takes."""
    view = Table(title=f"{suite}, {threads} thread(s): ms, and times ours")
    view.add_column("case")
    view.add_column("GFLOP", justify="right")
    for name in contenders:
        view.add_column(name, justify="right")
        if name == OURS:
            view.add_column("error", justify="right")
            view.add_column("compile s", justify="right")
    for result in results:
        row = [result.name, f"{result.flops / 1e9:.3g}" if result.flops else "-"]
        for name in contenders:
            outcome = result.outcomes[name]
            row.append(_cell(name, outcome))
            if name == OURS:
                row.append("-" if outcome.error is None else f"{outcome.error:.1e}")
                row.append("-" if outcome.compile_s is None else f"{outcome.compile_s:.1f}")
        view.add_row(*row)
    means = geometric_means(results)
    if means:
        view.add_section()
        row = ["geometric mean", ""]
        for name in contenders:
            row.append(f"{means[name]:.2f}x" if name in means else "")
            if name == OURS:
                row += ["", ""]
        view.add_row(*row, style="bold")
    return view


def _cell(name: str, outcome: Outcome) -> str:
    if outcome.status in ("unavailable", "failed"):
        return f"[dim]{outcome.status}[/dim]" if outcome.status == "unavailable" else "[red]failed[/red]"
    text = milliseconds(outcome.median_us)
    if name != OURS and outcome.speed is not None:
        colour = "green" if outcome.speed >= 1 else "yellow"
        text += f" [{colour}]{outcome.speed:.2f}x[/{colour}]"
    return f"[red]{text} wrong[/red]" if outcome.status == "wrong" else text


def notes(results: Sequence[CaseResult]) -> list[str]:
    """Why contenders did not take part or failed, each reason once with the cases it holds for."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for result in results:
        for name, outcome in result.outcomes.items():
            if outcome.note:
                reasons.setdefault((name, outcome.status, outcome.note), []).append(result.name)
            elif outcome.status == "wrong":
                note = f"relative error {outcome.error:.1e}"
                reasons.setdefault((name, "wrong", note), []).append(result.name)
    return [
        f"{name} ({'all cases' if len(cases) == len(results) else ', '.join(cases)}): {status}: {note}"
        for (name, status, note), cases in reasons.items()
    ]


def document(
    suite: str,
    results: Sequence[CaseResult],
    contenders: Sequence[str],
    settings: dict,
    started: datetime,
    where: dict,
) -> dict:
    """The JSON document of a run; `where` is `machine()` as it was before the run put load on it."""
    return {
        "schema": SCHEMA,
        "date": started.astimezone(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["tilewright", *sys.argv[1:]]),
        "machine": where,
        "versions": versions(),
        "suite": suite,
        "settings": settings,
        "contenders": list(contenders),
        "cases": [result.to_json() for result in results],
        "geometric_mean_times_ours": geometric_means(results),
    }


def write_json(path: Path, data: dict) -> None:
    """Writes `data` in full before the old file is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(data, indent=1, sort_keys=False) + "\n")
    partial.replace(path)


def plot(path: Path, data: dict) -> None:
    """Bars of speed relative to eager (or to the first competitor timed), one group per case, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    contenders = [name for name in data["contenders"] if name != "eager"]
    base = "eager" if "eager" in data["contenders"] else data["contenders"][-1]
    cases = [c for c in data["cases"] if c["outcomes"].get(base, {}).get("median_us")]
    if not cases or not contenders:
        return
    height = 0.8 / len(contenders)
    size = (9, 1.8 + 0.2 * len(cases) * max(2, len(contenders)))
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    for index, name in enumerate(contenders):
        speeds = []
        for case in cases:
            outcome = case["outcomes"].get(name, {})
            usable = outcome.get("status") == "ok" and outcome.get("median_us")
            speeds.append(case["outcomes"][base]["median_us"] / outcome["median_us"] if usable else 0)
        places = [row + (index - (len(contenders) - 1) / 2) * height for row in range(len(cases))]
        colour = _OURS_COLOUR if name == OURS else _COLOURS[index % len(_COLOURS)]
        bars = axes.barh(places, speeds, height * 0.92, label=name, color=colour)
        axes.bar_label(bars, [f"{s:.2f}" if s else "n/a" for s in speeds], padding=2, fontsize=7)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(cases)), [case["name"] for case in cases])
    axes.invert_yaxis()
    axes.set_xlabel(f"speed relative to {base} (higher is faster)")
    axes.set_title(
        f"{data['suite']}, {data['settings']['threads']} thread(s), {data['machine']['processor']}"
    )
    figure.legend(loc="outside lower center", fontsize=8, ncols=min(4, len(contenders)))
    axes.margins(x=0.08)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
