"""Shows and draws what constructing the roller119 suite gave: a table, a JSON file and a plot of predicted times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from tilewright.bench import measured_programs, roller_construct
from tilewright.bench.roller_construct import Constructed
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.targets.target import Target, UnknownTargetError, resolve
from tilewright.compiler.terminal import console as new_console
from tilewright.compiler.tuning.roller import ConstructOptions

_COLOURS = {
    "avg_pool2d": "tab:purple", "conv2d": "tab:blue", "depthwise_conv2d": "tab:orange", "matmul": "tab:red",
    "reduce_mean": "tab:brown", "relu": "tab:green",
}  # fmt: skip


def run_construct_only(
    target_name: str, only: Sequence[str], measured: Path | None, output: Path | None
) -> None:
    """Constructs the suite for one target, prints and writes it; raises TilewrightError for what does not exist."""
    try:
        target = resolve(target_name)
    except UnknownTargetError as error:
        raise TilewrightError(str(error)) from None
    options = ConstructOptions()
    console, progress = new_console(), new_console(stderr=True)
    with progress.status("constructing") as status:
        try:
            results = roller_construct.construct_suite(target, options, only, status.update)
        except ValueError as error:
            raise TilewrightError(str(error)) from None
        extra: dict[str, Any] = {}
        if not only:
            status.update("each alignment rule in turn")
            extra["ablation"] = roller_construct.ablation(target, options.top_k)
        if measured is not None:
            extra["measured_programs"] = _measured(measured, options, status.update)
    command = f"tilewright bench --suite roller119 --construct-only --target {target.name}"
    command += " --measured DIR" if measured else ""
    data = roller_construct.document(target, results, options, command, extra)
    path = output or Path("bench/results") / f"roller119-construct-{target.name}.json"
    roller_construct.write(path, data)
    console.print(_operators(results))
    console.print(_agreement(data))
    for title, rows in _extra_tables(extra):
        console.print(title, style="bold")
        for row in rows:
            console.print(f"  {row}", highlight=False)
    plot = path.with_suffix(".png")
    try:
        draw(plot, results, target)
    except ModuleNotFoundError as missing:
        console.print(f"no plot: {missing}; pip install 'tilewright[bench]'")
    console.print(f"{path}" + (f", {plot}" if plot.exists() else ""))


def _measured(folder: Path, options: ConstructOptions, say) -> dict:
    """The model against the measured programs of every device that the folder has a file of."""
    found = {}
    for path in sorted(folder.glob("*.jsonl.xz")):
        name = path.name.removesuffix(".jsonl.xz")
        say(f"measured programs of {name}")
        try:
            compared = measured_programs.compare(path, resolve(name), options)
        except UnknownTargetError as error:
            raise TilewrightError(f"{path}: {error}") from None
        except (OSError, ValueError, KeyError) as error:
            raise TilewrightError(f"{path}: no file of measured programs: {error}") from None
        found[name] = {
            "summary": measured_programs.summarise(compared),
            "operators": [c.to_json() for c in compared],
        }
    if not found:
        raise TilewrightError(f"{folder}: expected files named DEVICE.jsonl.xz, found none")
    return found


def _operators(results: Sequence[Constructed]) -> Table:
    table = Table(title="roller119, constructed; milliseconds", title_justify="left")
    for name in ("operator", "predicted", "published", "ratio", "bound", "K", "ms to construct", "tiles"):
        table.add_column(name, justify="left" if name in ("operator", "bound", "tiles") else "right")
    for result in results:
        best = result.programs[0]
        tiles = "  ".join(f"{list(tile)}" for _, tile in best.canonical_levels)
        table.add_row(
            result.name, f"{result.predicted_ms:.4g}", f"{result.published_ms:.4g}",
            f"{result.predicted_ms / result.published_ms:.2f}", best.bound, str(len(result.programs)),
            f"{result.construct_ms:.0f}", tiles,
        )  # fmt: skip
    return table


def _agreement(data: Mapping[str, Any]) -> Table:
    times = data["construct_ms"]
    title = f"{data['target']}: {times['mean']:.0f} ms per operator, worst {times['worst']:.0f}; "
    table = Table(title=title + f"at least {data['fewest_programs']} programs each", title_justify="left")
    for name in ("kind", "operators", "Spearman", "within 20%", "predicted / published"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    rows = {**data["agreement"], "roofline, all": {"operators": "", **data["roofline"]}}
    for kind, row in rows.items():
        table.add_row(
            kind, str(row["operators"]), f"{row['spearman']:.3f}", f"{row['within_20_percent']:.0%}",
            f"{row['geometric_mean_ratio']:.3f}",
        )  # fmt: skip
    return table


def _extra_tables(extra: Mapping[str, Any]) -> list[tuple[str, list[str]]]:
    tables = []
    if "ablation" in extra:
        rows = [
            f"{(' + ' + row['rules'][-1]) if row['rules'] else 'no rule':22} {row['mean_speedup']:.2f}x on average"
            f" (published {row['published_mean_speedup']:.2f}x)"
            for row in extra["ablation"]
        ]
        tables.append(("alignment rules, each switched on in turn", rows))
    for device, data in extra.get("measured_programs", {}).items():
        rows = [
            f"{kind:18} {row['operators']:3} operators, {row['programs']:6} programs: median Spearman "
            f"{row['median_spearman']} (whole warps {row['median_aligned_spearman']}), best over nearest "
            f"{row['geometric_mean_best_over_nearest']}, over best of ten picked {row['geometric_mean_best_over_picked']}"
            for kind, row in data["summary"].items()
        ]
        tables.append((f"measured programs of {device}", rows))
    return tables


def draw(path: Path, results: Sequence[Constructed], target: Target) -> None:
    """Predicted against published times on logarithmic axes, with a band of 20%."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 6.5))
    times = [value for r in results for value in (r.predicted_ms, r.published_ms)]
    ends = [min(times) / 1.4, max(times) * 1.4]
    axes.plot(ends, ends, color="0.4", linewidth=0.8)
    axes.fill_between(ends, [e * 0.8 for e in ends], [e * 1.2 for e in ends], color="0.9", label="within 20%")
    for kind in sorted({r.kind for r in results}):
        chosen = [r for r in results if r.kind == kind]
        axes.scatter(
            [r.published_ms for r in chosen], [r.predicted_ms for r in chosen], s=18, color=_COLOURS.get(kind),
            label=kind,
        )  # fmt: skip
    axes.set(
        xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="published, best of ten on a V100 (ms)",
        ylabel=f"predicted for {target.name}, best constructed program (ms)",
    )  # fmt: skip
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
