"""The demo: two models through `torch.compile`, checked against eager PyTorch, and where their time went.

Run it with `make demo`, or with `python -m examples.demo` where tilewright is installed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

import tilewright
from tilewright.bench import models
from tilewright.bench.adapters import flat_tensors
from tilewright.bench.harness import relative_error
from tilewright.bench.measure import Budget, interleave, ratio
from tilewright.compiler import driver
from tilewright.compiler.cli.explain import report_of
from tilewright.compiler.explain.page import page
from tilewright.compiler.explain.report import Report, duration
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.terminal import console
from tilewright.runtime.model import CompiledModel
from tilewright.runtime.settings import num_threads

MODELS = ("resnet18", "bert_tiny")
FOLDER = Path(".demo")
TOLERANCE = 1e-3
STEPS = 4


@dataclass
class Shown:
    """What the demo shows of one model; times in us."""

    name: str
    about: str
    compile_s: float
    error: float
    eager_us: float
    ours_us: float
    speed: float
    report: Report


@contextmanager
def compiled_models() -> Iterator[list[CompiledModel]]:
    """Collects the models that torch.compile has tilewright make meanwhile, which it keeps to itself."""
    made: list[CompiledModel] = []
    compile_imported = driver.compile_imported

    def record(*arguments, **keywords) -> CompiledModel:
        made.append(compile_imported(*arguments, **keywords))
        return made[-1]

    driver.compile_imported = record
    try:
        yield made
    finally:
        driver.compile_imported = compile_imported


def show(name: str, progress: Progress) -> Shown:
    """Compiles one model through torch.compile, checks and times it, and measures its dispatches."""
    about = models.REGISTRY[name].about
    task = progress.add_task(name, total=STEPS)

    def step(text: str) -> None:
        progress.update(task, advance=1, description=f"{name}: {text}")

    progress.update(task, description=f"{name}: building {about}")
    module, inputs = models.build(name)
    compiled = torch.compile(module, backend="tilewright")
    step("compiling")
    with torch.no_grad(), compiled_models() as made:
        expected = flat_tensors(module(*inputs))
        start = time.perf_counter()
        found = flat_tensors(compiled(*inputs))
        compile_s = time.perf_counter() - start
        error = relative_error(found, expected)
        step("timing beside eager")
        contenders = {"eager": lambda: module(*inputs), "tilewright": lambda: compiled(*inputs)}
        times = interleave(contenders, Budget(rounds=5, round_s=0.3))
    step("measuring every dispatch")
    if not made:
        raise SystemExit(f"{name}: nothing was compiled, all of it was left to eager PyTorch")
    largest = max(made, key=lambda model: len(model.executable.package.main.steps))
    report = report_of(name, largest, resolve("cpu"), inputs, repeats=10)
    phases_s = {"capture and import": compile_s - sum(report.phases_s.values()), **report.phases_s}
    report = replace(report, phases_s=phases_s)
    step("done")
    return Shown(
        name,
        about,
        compile_s,
        error,
        statistics.median(times["eager"]),
        statistics.median(times["tilewright"]),
        ratio(times["eager"], times["tilewright"]),
        report,
    )


def latency_table(shown: list[Shown]) -> Table:
    """Latency beside eager, worst error and compile time of every model."""
    table = Table(title=f"torch.compile(backend='tilewright'), {num_threads()} thread(s)")
    for column in ("model", "what it is"):
        table.add_column(column)
    for column in ("eager", "tilewright", "speed", "worst error", "compile time"):
        table.add_column(column, justify="right")
    for entry in shown:
        table.add_row(
            entry.name,
            entry.about,
            duration(entry.eager_us),
            duration(entry.ours_us),
            f"{entry.speed:.2f}x",
            f"{entry.error:.1e}",
            duration(entry.compile_s * 1e6),
        )
    return table


def time_table(shown: list[Shown], most: int = 5) -> Table:
    """Where a call's time and the compile time went: the costliest operators and all phases."""
    table = Table(title="where the time went")
    for column in ("model", "of a call, by operator", "of compiling, by phase"):
        table.add_column(column)
    for entry in shown:
        by_operator: Counter[str] = Counter()
        for dispatch in entry.report.dispatches:
            by_operator[dispatch.operator] += dispatch.measured_us  # type: ignore[assignment]
        total = entry.report.total_us or 1.0
        operators = [f"{us / total:5.1%}  {name}" for name, us in by_operator.most_common(most)]
        phases = [f"{duration(s * 1e6):>9}  {name}" for name, s in entry.report.phases_s.items()]
        table.add_row(entry.name, "\n".join(operators), "\n".join(phases), end_section=True)
    return table


def main() -> int:
    """Runs the demo; returns 1 when a result is wrong or an operator fell back to eager."""
    screen = console()
    torch.set_num_threads(num_threads())
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=screen) as progress:
        shown = [show(name, progress) for name in MODELS]
    screen.print(latency_table(shown))
    screen.print(time_table(shown))
    FOLDER.mkdir(exist_ok=True)
    for entry in shown:
        path = FOLDER / f"{entry.name}.html"
        path.write_text(page(entry.report))
        screen.print(f"{path}: the dispatch graph of {entry.name}, with the time of every dispatch")
    fallbacks = tilewright.fallback_count()
    wrong = [entry.name for entry in shown if not entry.error <= TOLERANCE]
    screen.print(f"operators left to eager PyTorch: {fallbacks}")
    if wrong:
        screen.print(f"[red]beyond {TOLERANCE:g} of eager: {', '.join(wrong)}[/red]")
    return 1 if wrong or fallbacks else 0


if __name__ == "__main__":
    sys.exit(main())
