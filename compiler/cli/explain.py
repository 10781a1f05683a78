"""`tilewright explain`: where a model's time goes, as a table and as one HTML page."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tilewright.compiler.cli.models import load_model
from tilewright.compiler.cli.options import refuse_for_artifacts
from tilewright.compiler.cli.output_path import OutputPath
from tilewright.compiler.dialects.precision import PRECISIONS
from tilewright.compiler.explain.report import (
    DispatchReport,
    Report,
    duration,
    explain,
    quantity,
    short_location,
)
from tilewright.compiler.explain.schedules import candidates_table, remarks, tiles_table
from tilewright.compiler.targets.target import Target, resolve
from tilewright.compiler.terminal import console as new_console


@click.command("explain", short_help="Show where a model's time goes, dispatch by dispatch.")
@click.argument("model", metavar="ARTIFACT|MODEL")
@click.option("--html", type=OutputPath(), help="Write one self-contained page to this file.")
@click.option("--json", "json_path", type=OutputPath(), help="Write the report as JSON.")
@click.option("--top", default=20, show_default=True, type=click.IntRange(1), help="Dispatches in the table.")
@click.option("--repeats", default=20, show_default=True, type=click.IntRange(1), help="Calls measured.")
@click.option(
    "--space",
    is_flag=True,
    help="Show what could be chosen, and the schedules that every dispatch could have; measure nothing.",
)
@click.option("--choices", metavar="FILE", help="What is to be chosen, as JSON; see --space.")
@click.option("--target", default="cpu", show_default=True)
@click.option("--opt", type=click.Choice(["O0", "O1", "O2", "O3"]), default="O0", show_default=True)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="f32",
    show_default=True,
    help="Of contractions of f32.",
)
def command(
    model: str,
    html: Path | None,
    json_path: Path | None,
    top: int,
    repeats: int,
    space: bool,
    choices: str | None,
    target: str,
    opt: str,
    precision: str,
) -> None:
    """Show per dispatch: operator, source line, schedule, time, roofline bound and share of the total."""
    console = new_console()
    if space:
        if html or choices or opt != "O0":
            raise click.UsageError(
                "--space prints tables of what could be chosen; leave out --html, --choices and --opt"
            )
        print_spaces(console, model, target, precision, json_path)
        return
    if model.endswith(".twm"):
        refuse_for_artifacts("choices", "opt", "precision")
    with new_console(stderr=True).status(f"compiling and measuring {model}"):
        report = measured_report(model, target, opt, repeats, precision, choices)
    console.print(report_table(report, top))
    slowest = report.slowest(top)
    rows = [(d.number, d.operator, d.plan) for d in slowest]
    for table in (
        tiles_table(rows, {d.number: duration(d.predicted_us) for d in slowest}),
        candidates_table([(d.number, d.operator, d.plan) for d in _by_kernel(slowest)]),
    ):
        if table is not None:
            console.print(table)
    console.print(summary(report))
    for remark in remarks([(d.number, d.operator, d.plan) for d in report.dispatches]):
        console.print(remark, style="dim", highlight=False, markup=False)
    if html:
        from tilewright.compiler.explain.page import page

        html.write_text(page(report))
        console.print(f"{html}: the dispatch graph and all {len(report.dispatches)} dispatches")
    if json_path:
        json_path.write_text(json.dumps(report.to_json(), indent=1))
        console.print(f"{json_path}: the report")


def print_spaces(console: Console, model: str, target: str, precision: str, json_path: Path | None) -> None:
    """The space of MODEL's choices, then those of its dispatches; the default choices go to `json_path`."""
    from tilewright.compiler import driver, phases
    from tilewright.compiler.choice_space import choice_space
    from tilewright.compiler.cli.compile import example_inputs
    from tilewright.compiler.explain.choices import choices_table
    from tilewright.compiler.explain.spaces import spaces, spaces_table
    from tilewright.compiler.passes.graph.lower_precision import ask_precision

    machine = resolve(target)
    if model.endswith(".twm"):
        raise click.UsageError("--space is of models: what an artifact holds is scheduled and compiled")
    if machine.kind != "cpu" and not machine.is_cuda:
        raise click.UsageError(
            f"--space is of CPUs and NVIDIA GPUs, found --target {target}: no kernels are generated for others"
        )
    loaded = load_model(model)
    imported = driver.import_model(loaded.model, example_inputs(loaded, None))
    ask_precision(imported.module, precision)
    chosen = choice_space(imported.module, machine)
    console.print(choices_table(f"choices of {loaded.name} on {machine.name}", chosen))
    if json_path:
        json_path.write_text(chosen.default().text())
        console.print(f"{json_path}: the choices by default, for `tilewright compile --choices`")
    phases.run_phases(imported.module, machine)
    title = f"schedules of {loaded.name} on {machine.name}"
    console.print(spaces_table(title, spaces(imported.module, machine)))


def _by_kernel(dispatches: list[DispatchReport]) -> list[DispatchReport]:
    """The first dispatch of every kernel: calls of one kernel share what was measured."""
    return list({d.kernel: d for d in reversed(dispatches)}.values())[::-1]


def measured_report(
    model: str, target: str, opt: str, repeats: int, precision: str = "f32", choices: str | None = None
) -> Report:
    """Compiles MODEL, or loads an artifact, and measures every step on its example inputs."""
    import tilewright

    inputs: tuple = ()
    if model.endswith(".twm"):
        compiled = tilewright.load(model)
    else:
        from tilewright.compiler.cli.compile import example_inputs

        loaded = load_model(model)
        examples = example_inputs(loaded, None)
        options = {"opt": opt, "precision": precision, "choices": choices}
        compiled = tilewright.compile(loaded.model, examples, target, **options)
        inputs = loaded.inputs or ()
    return report_of(model, compiled, resolve(target), inputs, repeats)


def report_of(name: str, compiled, target: Target, inputs: tuple = (), repeats: int = 20) -> Report:
    """Explains a compiled model; flat tensor `inputs` are measured on, zeros stand in for anything else."""
    executable = compiled.executable
    package = executable.package
    # A first call faults pages in and settles the clock.
    arrays = _arrays(compiled, inputs)
    executable.profile(*arrays, repeats=1)
    steps = executable.profile(*arrays, repeats=repeats)
    times = [step.time_us for step in steps]
    names = {spec.name for spec in package.inputs}
    return explain(name, package.notes, times, target, executable.num_threads, names, package.packed_bytes)


def _array(tensor):
    """A tensor's values as an array; those of bf16, which numpy lacks, as the 16 bits that they are."""
    if str(tensor.dtype) != "torch.bfloat16":
        return tensor.detach().numpy()
    import torch

    return tensor.detach().contiguous().view(torch.int16).numpy().view("uint16")


def _arrays(compiled, inputs: tuple) -> list:
    specs = compiled.executable.inputs
    arrays = [_array(tensor) for tensor in inputs if hasattr(tensor, "detach")]
    fits = [tuple(array.shape) for array in arrays] == [spec.shape for spec in specs]
    return arrays if fits else []


def report_table(report: Report, top: int) -> Table:
    """The `top` slowest dispatches."""
    table = Table(title=f"{report.model} on {report.target}, {report.threads} thread(s): slowest dispatches")
    for column in ("#", "operator", "source", "schedule"):
        table.add_column(column, justify="right" if column == "#" else "left", overflow="fold")
    for column in ("time", "share", "predicted", "bound", "of bound", "GFLOP/s"):
        table.add_column(column, justify="right", no_wrap=True)
    for d in report.slowest(top):
        table.add_row(
            str(d.number),
            d.operator,
            short_location(d.location),
            d.schedule,
            duration(d.measured_us),
            f"{d.share:.1%}",
            duration(d.predicted_us),
            f"{duration(d.bound.us)} {d.bound.by}",
            f"{d.of_bound:.0%}" if d.measured_us else "-",
            f"{d.gflops:.1f}" if d.flops else "-",
        )
    left = report.slowest()[top:]
    if left:
        rest = sum(d.measured_us for d in left)
        table.add_section()
        share = f"{rest / report.total_us:.1%}" if report.total_us else "-"
        table.add_row("", f"{len(left)} more", "", "", duration(rest), share, "", "", "", "")
    return table


def summary(report: Report) -> str:
    """One paragraph: totals, the bound, memory, and compile time by phase."""
    lines = [
        f"{len(report.dispatches)} dispatches in {duration(report.total_us)}; "
        f"the roofline bound is {duration(report.bound_us)}; {quantity(report.flops, 'FLOP')}; "
        f"intermediates {quantity(report.arena_bytes, 'B')}, packed weights {quantity(report.packed_bytes, 'B')}"
    ]
    if report.phases_s:
        phases = ", ".join(f"{name} {duration(s * 1e6)}" for name, s in report.phases_s.items())
        lines.append(f"compile time: {phases}")
    return "\n".join(lines)
