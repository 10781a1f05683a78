"""`tilewright compile`: a model to an artifact, or to the IR after any phase."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from tilewright.compiler.cli.models import load_model, read_inputs
from tilewright.compiler.cli.options import given_options
from tilewright.compiler.cli.output_path import OutputPath, why_no_file
from tilewright.compiler.collector import rarely_collected
from tilewright.compiler.dialects.precision import PRECISIONS
from tilewright.compiler.explain.report import duration, quantity
from tilewright.compiler.terminal import console as new_console
from tilewright.compiler.workers.pool import prepare

if TYPE_CHECKING:
    from tilewright.runtime.model import CompiledModel
    from tilewright.runtime.program import Package

IMPORT = "import"


def phase_names() -> list[str]:
    """Phases that end in IR, in order, `import` first."""
    from tilewright.compiler.phases import PHASES

    return [IMPORT, *(phase.name for phase in PHASES)]


@click.command("compile", short_help="Compile a model to an artifact, or print its IR after a phase.")
@click.argument("model")
@click.option("-o", "--output", type=OutputPath(folders=True), help="Where the artifact or the IR goes.")
@click.option("--target", default="cpu", show_default=True, help="A target's name; see `tilewright targets`.")
@click.option("--opt", type=click.Choice(["O0", "O1", "O2", "O3"]), default="O0", show_default=True)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="f32",
    show_default=True,
    help="Of contractions of f32.",
)
@click.option(
    "--from", "first", help="First phase to run, on an .mlir file that the phase before it printed."
)
@click.option("--to", "last", help="Last phase to run; prints the IR instead of making an artifact.")
@click.option("--weights", metavar="MODEL", help="With --from: the model whose weights the artifact takes.")
@click.option("--inputs", type=click.Path(path_type=Path, exists=True), help="Example inputs, an .npz file.")
@click.option("--choices", metavar="FILE", help="What is to be chosen, as JSON; see `explain --space`.")
@click.option(
    "--lock",
    type=click.Path(path_type=Path),
    help="What `tilewright tune` found: the same schedules, for its target.",
)
@click.option("--timing", is_flag=True, help="Print the seconds that every phase took.")
@rarely_collected()
def command(
    model: str,
    output: Path | None,
    target: str,
    opt: str,
    precision: str,
    first: str | None,
    last: str | None,
    weights: str | None,
    inputs: Path | None,
    choices: str | None,
    lock: Path | None,
    timing: bool,
) -> None:
    """Compile MODEL; write an artifact that `tilewright run` and `tilewright.load` take.

    For `hip:` and one of AMD's architectures -o is a folder that gets the assembly of every kernel.
    Without -o nothing is kept but the compile cache. With --to the IR after that phase goes to -o or to
    standard output; edit it, and continue with --from, and --weights MODEL for an artifact.
    """
    console = new_console(stderr=True)
    reason = why_no_file(output) if output and not target.startswith("hip:") else None
    if reason:
        raise click.BadParameter(reason, param_hint="-o")
    if last or first not in (None, IMPORT):
        if given := given_options("lock", "opt"):
            raise click.UsageError(f"{given} is of a whole compilation; leave out --from and --to")
        _phases(model, output, target, precision, first, last, weights, inputs, choices, timing, console)
        return
    if weights:
        raise click.UsageError("--weights goes with --from; a whole compilation takes MODEL's own")
    from tilewright.compiler import driver

    prepare()
    loaded = load_model(model)
    examples = example_inputs(loaded, inputs)
    with console.status(f"importing {loaded.name}"):
        start = time.perf_counter()
        imported = driver.import_model(loaded.model, examples)
        import_s = time.perf_counter() - start
    if target.startswith("hip:"):
        from tilewright.compiler.cli.assembly import write_assembly
        from tilewright.compiler.dialects.choice_attribute import ask_choices
        from tilewright.compiler.nouns.choices import Choices

        if choices is not None:
            ask_choices(imported.module, Choices.of(choices).values)
        write_assembly(imported.module, loaded.name, target, output)
        return
    with console.status(f"compiling {loaded.name} for {target}"):
        start = time.perf_counter()
        options = {"opt": opt, "precision": precision, "choices": choices}
        options |= {} if lock is None else {"lock": lock}
        compiled = driver.compile_imported(imported, target, options)
        compile_s = time.perf_counter() - start
    package = compiled.executable.package
    kernels = sum(len(kernel.object) for kernel in package.kernels)
    console.print(
        f"{loaded.name}: {len(package.main.steps)} dispatches of {len(package.kernels)} kernels "
        f"({quantity(kernels, 'B')}), arena {quantity(package.main.arena_bytes, 'B')}, "
        f"packed weights {quantity(package.packed_bytes, 'B')}, in {import_s + compile_s:.2f} s"
    )
    if any(kernel.launch for kernel in package.kernels):
        console.print(kernel_table(package, target))
    if timing:
        console.print(
            timing_table({IMPORT: import_s, **package.notes.get("phases_s", {})}, import_s + compile_s)
        )
    if output:
        compiled.save(str(output))
        console.print(f"{output}: {quantity(output.stat().st_size, 'B')}")


def example_inputs(loaded, inputs: Path | None):
    """The example inputs to compile for: from the file when given, else those the model came with."""
    if inputs:
        arrays = read_inputs(inputs, as_torch=not isinstance(loaded.model, Path))
        if arrays.keywords and arrays.positional:
            raise click.UsageError(f"{inputs}: name all arrays or none, found both")
        return arrays.keywords or arrays.positional
    if loaded.keywords and not loaded.inputs:
        return loaded.keywords
    return loaded.inputs


def _phases(
    model: str,
    output: Path | None,
    target: str,
    precision: str,
    first: str | None,
    last: str | None,
    weights: str | None,
    inputs: Path | None,
    choices: str | None,
    timing: bool,
    console: Console,
) -> None:
    """Runs a stretch of the phases and prints the IR, or the kernels' sizes when it runs to the end."""
    from tilewright.compiler import driver, phases
    from tilewright.compiler.dialects.choice_attribute import ask_choices
    from tilewright.compiler.ir import parse
    from tilewright.compiler.nouns.choices import Choices
    from tilewright.compiler.passes.graph.lower_precision import ask_precision
    from tilewright.compiler.targets.target import resolve

    names = phase_names()
    for option, name in (("--from", first), ("--to", last)):
        if name is not None and name not in names:
            raise click.BadParameter(f"`{name}`; the phases are {', '.join(names)}", param_hint=option)
    if weights and (last is not None or first in (None, IMPORT)):
        raise click.UsageError(
            "--weights goes with --from, for an artifact; --to prints IR, which holds none"
        )
    if output and last is None and not weights:
        raise click.UsageError(
            "IR holds no weights: -o with --from needs --weights MODEL, or --to for the IR"
        )
    report = phases.Report()
    start = time.perf_counter()
    if first and first != IMPORT:
        if not model.endswith(".mlir"):
            raise click.UsageError(
                f"--from {first} continues from IR: expected an .mlir file, found `{model}`"
            )
        if not Path(model).is_file():
            raise click.UsageError(f"`{model}`: there is no such file")
        module = parse(Path(model).read_text(), model)
    else:
        loaded = load_model(model)
        module = driver.import_model(loaded.model, example_inputs(loaded, inputs)).module
        first = names[1]
    for option, phase in (("precision", "graph"), ("choices", "layout")):
        if (given := given_options(option)) and names.index(first) > names.index(phase):
            raise click.UsageError(f"{given} is obeyed by phase `{phase}`, and --from {first} comes after it")
    ask_precision(module, precision)
    if choices is not None:
        ask_choices(module, Choices.of(choices).values)
    report.add(IMPORT, time.perf_counter() - start)
    if last is None:
        package = phases.compile_module(module, resolve(target), report, first)
        steps, kernels = len(package.main.steps), len(package.kernels)
        console.print(f"{model}: {steps} dispatches of {kernels} kernels compile")
        if output:
            _bind(package, weights or "", inputs).save(str(output))
            console.print(f"{output}: {quantity(output.stat().st_size, 'B')}")
    else:
        if last != IMPORT:
            if names.index(last) < names.index(first):
                raise click.UsageError(f"--to {last} comes before --from {first}")
            phases.run_phases(module, resolve(target), first, last, report)
        text = module.operation.get_asm(enable_debug_info=True)
        if output:
            output.write_text(text)
            console.print(f"{output}: the IR after `{last}`, {quantity(len(text), 'B')}")
        else:
            click.echo(text, nl=False)
    if timing:
        console.print(timing_table(report.phases_s, time.perf_counter() - start))


def _bind(package: Package, weights: str, inputs: Path | None) -> CompiledModel:
    """A package compiled from IR with the weights and the signature of the model that the IR came from."""
    from tilewright.compiler import driver
    from tilewright.runtime.binding import bind
    from tilewright.runtime.model import CompiledModel

    loaded = load_model(weights)
    imported = driver.import_model(loaded.model, example_inputs(loaded, inputs))
    executable = bind(package, list(imported.weights))
    return CompiledModel(executable, imported.signature, imported.state, imported.weights)


def kernel_table(package: Package, target: str) -> Table:
    """What every kernel takes of a GPU; registers, spills and occupancy where an assembler ran."""
    from tilewright.compiler.codegen.kernel_report import kernel_reports
    from tilewright.compiler.targets.target import resolve

    table = Table("kernel", "family", title=f"kernels for {target}")
    for column in ("calls", "grid", "block", "registers", "shared", "spills", "occupancy"):
        table.add_column(column, justify="right")
    for row in kernel_reports(package, resolve(target)):
        blocks = str(row.grid) if row.cluster == 1 else f"{row.grid} / {row.cluster}"
        spills = f"[red]{row.spill_bytes} B[/red]" if row.spill_bytes else "0"
        assembled = row.occupancy is not None
        table.add_row(
            row.name,
            row.family,
            str(row.steps),
            blocks,
            str(row.block),
            str(row.registers) if assembled else "-",
            quantity(row.shared_bytes, "B") if row.shared_bytes else "0",
            spills if assembled else "-",
            f"{row.occupancy:.0%}" if row.occupancy is not None else "-",
        )
    return table


def timing_table(phases_s: dict[str, float], total_s: float) -> Table:
    """Seconds per phase and their share of `total_s`, with what the phases do not account for."""
    table = Table("phase", title="compile time")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    other = total_s - sum(phases_s.values())
    for name, seconds in (*phases_s.items(), ("load and bind", other)):
        if name != "load and bind" or seconds > 0:
            table.add_row(name, duration(seconds * 1e6), f"{seconds / total_s:.1%}" if total_s else "-")
    table.add_section()
    table.add_row("total", duration(total_s * 1e6), "100.0%")
    return table
