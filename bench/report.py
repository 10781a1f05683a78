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
from tilewright.bench.harness import CaseResult, Outcome, best_competitor, best_mean, geometric_means
from tilewright.bench.limits import Limits
from tilewright.bench.machine import versions

SCHEMA = 2

_OURS_COLOUR = "#c8452c"
_COLOURS = ("#4f7cac", "#8fb3d9", "#6aa57a", "#b59bd1", "#d9b14a", "#7d8794")


def milliseconds(us: float | None) -> str:
    """A time in us as text in ms with three digits that mean something."""
    if us is None:
        return "-"
    ms = us / 1e3
    return f"{ms:.3f}" if ms < 10 else f"{ms:.2f}" if ms < 100 else f"{ms:.0f}"


_FLOPS_PER_BYTE = 8
"""Cases of fewer operations per byte are told in bytes: depthwise convolutions, and all without products."""


def _in_bytes(result: CaseResult) -> int:
    """Bytes that the case is told in; 0 where it is told in operations."""
    total = result.read_bytes + result.written_bytes
    return 0 if result.flops and result.flops >= _FLOPS_PER_BYTE * total else total


def work(result: CaseResult) -> str:
    """What a call does: operations of its products, or bytes moved where those are few."""
    total = _in_bytes(result)
    return f"{total / 1e6:.3g} MB" if total else f"{(result.flops or 0) / 1e9:.3g} GFLOP"


def rate(result: CaseResult, us: float) -> str:
    """Work per second at `us` per call: GFLOP/s or GB/s, as `work` tells it."""
    total = _in_bytes(result)
    return f"{total / us / 1e3:.3g} GB/s" if total else f"{(result.flops or 0) / us / 1e3:.3g} GFLOP/s"


def table(suite: str, results: Sequence[CaseResult], contenders: Sequence[str], threads: int) -> Table:
    """Ours in ms, its rate, how much of the machine's limit that is, how many times longer the best competitor takes,
    error and compile time; then each competitor in ms and times ours."""
    view = Table(title=f"{suite}, {threads} thread(s): ms, and times ours")
    view.add_column("case", no_wrap=True)
    view.add_column("work", justify="right", no_wrap=True)
    own = OURS in contenders
    for name in contenders:
        view.add_column(name, justify="right", no_wrap=True)
        if name == OURS:
            for column in ("rate", "of limit", "best other", "error", "compile s"):
                view.add_column(column, justify="right", no_wrap=True)
    for result in results:
        row = [result.name, work(result)]
        for name in contenders:
            outcome = result.outcomes[name]
            row.append(_cell(name, outcome))
            if name == OURS:
                row += _own_cells(result, outcome)
        view.add_row(*row)
    means = geometric_means(results)
    if means:
        best = best_mean(results)
        view.add_section()
        row = ["geometric mean", ""]
        for name in contenders:
            row.append(f"{means[name]:.2f}x" if name in means else "")
            if name == OURS:
                row += ["", "", f"{best:.2f}x" if own and best else "", "", ""]
        view.add_row(*row, style="bold")
    return view


def _own_cells(result: CaseResult, outcome: Outcome) -> list[str]:
    """Rate, share of the limit, the best competitor's ratio and name, error, compile time."""
    cells = ["-", "-", "-"]
    if outcome.median_us:
        cells[0] = rate(result, outcome.median_us)
        if result.limit_us:
            cells[1] = f"{result.limit_us / outcome.median_us:.0%} {result.bound}"
        if best := best_competitor(result):
            ratio = result.outcomes[best].speed
            colour = "green" if ratio and ratio >= 1 else "yellow"
            cells[2] = f"[{colour}]{ratio:.2f}x[/{colour}] {best}"
    error = "-" if outcome.error is None else f"{outcome.error:.1e}"
    return [*cells, error, "-" if outcome.compile_s is None else f"{outcome.compile_s:.1f}"]


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
    limits: Limits | None = None,
) -> dict:
    """The JSON document of a run; `where` is `machine()` as it was before the run put load on it."""
    return {
        "schema": SCHEMA,
        "date": started.astimezone(UTC).isoformat(timespec="seconds"),
        "command": shlex.join(["tilewright", *sys.argv[1:]]),
        "machine": where,
        "versions": versions(),
        "limits": limits.to_json() if limits else None,
        "suite": suite,
        "settings": settings,
        "contenders": list(contenders),
        "cases": [result.to_json() for result in results],
        "geometric_mean_times_ours": geometric_means(results),
        "geometric_mean_best_times_ours": best_mean(results),
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


if __name__ == "__main__":
    from tilewright.bench.results_page import main

    main()
