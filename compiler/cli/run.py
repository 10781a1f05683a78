"""`tilewright run`: an artifact or a model on given or seeded inputs."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.table import Table

from tilewright.compiler.cli.models import load_model, named_outputs, read_inputs, seeded_inputs, write_arrays
from tilewright.compiler.cli.options import given_options, refuse_for_artifacts
from tilewright.compiler.cli.output_path import OutputPath
from tilewright.compiler.dialects.precision import PRECISIONS
from tilewright.compiler.explain.report import duration
from tilewright.compiler.terminal import console as new_console


@click.command("run", short_help="Run an artifact or a model.")
@click.argument("model", metavar="ARTIFACT|MODEL")
@click.argument("inputs", type=click.Path(path_type=Path, exists=True), required=False)
@click.option("-o", "--output", type=OutputPath(), help="Write the outputs to this .npz file.")
@click.option("--repeat", default=1, show_default=True, type=click.IntRange(1), help="Calls to time.")
@click.option("--target", default="cpu", show_default=True, help="What a MODEL is compiled for.")
@click.option("--opt", type=click.Choice(["O0", "O1", "O2", "O3"]), default="O0", show_default=True)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="f32",
    show_default=True,
    help="Of contractions of f32.",
)
@click.option(
    "--check", is_flag=True, help="Check every access of an emulated GPU, and results against PyTorch."
)
@click.option(
    "--seeds", default=1, show_default=True, type=click.IntRange(1), help="Orders of threads to check."
)
def command(
    model: str,
    inputs: Path | None,
    output: Path | None,
    repeat: int,
    target: str,
    opt: str,
    precision: str,
    check: bool,
    seeds: int,
) -> None:
    """Run an artifact (.twm), or compile MODEL and run it.

    INPUTS is an .npz file: arr_0, arr_1, ... by position, other names as keyword arguments. Without it a MODEL
    runs on its example inputs, an artifact on seeded normal numbers (zeros where it takes integers).
    """
    console = new_console()
    if not check and (given := given_options("seeds")):
        raise click.UsageError(f"{given} goes with --check")
    if model.endswith(".twm"):
        import tilewright

        refuse_for_artifacts("target", "opt", "precision")
        if not Path(model).is_file():
            raise click.UsageError(f"`{model}`: there is no such file")
        compiled, arguments, keywords, source = tilewright.load(model), (), {}, None
    else:
        from tilewright.compiler import driver
        from tilewright.compiler.cli.compile import example_inputs

        loaded = load_model(model)
        arguments, keywords, source = loaded.inputs or (), loaded.keywords or {}, loaded.model
        with new_console(stderr=True).status(f"compiling {loaded.name}"):
            examples = example_inputs(loaded, inputs)
            compiled = driver.compile(loaded.model, examples, target=target, opt=opt, precision=precision)
    if inputs:
        arrays = read_inputs(inputs)
        arguments, keywords = arrays.positional, arrays.keywords
        try:
            compiled.signature.bind(arguments, keywords)
        except TypeError as error:
            raise click.UsageError(f"{inputs}: {error}") from None
    elif not arguments and not keywords:
        specs = compiled.executable.inputs
        if compiled.signature.state or not compiled.signature.is_flat:
            raise click.UsageError(f"`{model}` takes nested or stateful arguments; give INPUTS")
        arguments = tuple(seeded_inputs(specs))
        console.print("inputs: seeded", ", ".join(f"{s.name} {s.dtype}{list(s.shape)}" for s in specs))
    if check:
        _check(compiled, source, arguments, keywords, seeds, precision)
        return
    times = []
    outputs = None
    for _ in range(repeat):
        start = time.perf_counter_ns()
        outputs = compiled(*arguments, **keywords)
        times.append((time.perf_counter_ns() - start) / 1e3)
    named = named_outputs(outputs, compiled.signature.output_names)
    console.print(output_table(named))
    line = f"{duration(statistics.median(times))}"
    console.print(f"median of {repeat} calls: {line}, least {duration(min(times))}" if repeat > 1 else line)
    if output:
        write_arrays(output, named)
        console.print(f"{output}: {len(named)} arrays")


def _check(compiled: Any, source: Any, arguments: Any, keywords: Any, seeds: int, precision: str) -> None:
    """Prints what each seed showed; exits with 1 when anything was found."""
    from tilewright.compiler.cli import check as cli_check
    from tilewright.runtime.emulated import EmulatedExecutable

    if not isinstance(compiled.executable, EmulatedExecutable):
        raise click.UsageError(
            "--check watches an emulated GPU; add --target emulate:sm_90a, or another architecture"
        )
    console = new_console()
    given = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
    expected = None
    if source is not None:
        run = cli_check.reference(source)
        if type(run).__module__.startswith("torch") or hasattr(run, "parameters"):
            import torch

            given = [torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in given]
            with torch.no_grad():
                expected = run(*given, **keywords)
        else:
            expected = run(*given, **keywords)
    factor = 1.0 if precision == "f32" else 30.0
    rows = cli_check.check(compiled, expected, arguments, keywords, seeds, factor)
    for row in rows:
        if row.problem:
            console.print(f"seed {row.seed}: {row.problem}", markup=False, highlight=False)
        else:
            console.print(f"seed {row.seed}: nothing found, error {row.error:.2g}")
    if any(row.problem for row in rows):
        raise SystemExit(1)


def output_table(named: dict[str, np.ndarray]) -> Table:
    """Name, dtype, shape, least, mean and largest value of every output."""
    table = Table("output", "dtype", "shape")
    for column in ("min", "mean", "max"):
        table.add_column(column, justify="right")
    for name, array in named.items():
        if array.size and array.dtype.kind in "fiub":
            numbers = array.astype(np.float64)
            values = [f"{value:.5g}" for value in (numbers.min(), numbers.mean(), numbers.max())]
        else:
            values = ["-"] * 3
        table.add_row(name, str(array.dtype), "x".join(map(str, array.shape)) or "scalar", *values)
    return table
