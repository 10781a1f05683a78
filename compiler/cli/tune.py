"""`tilewright tune`: a model's schedules searched on this machine, and written down for whoever compiles it next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.compiler.cli.compile import example_inputs
from tilewright.compiler.cli.models import Loaded, load_model
from tilewright.compiler.cli.output_path import OutputPath
from tilewright.compiler.cli.tuning_display import Display, choices_table, race_table, result_table
from tilewright.compiler.dialects.precision import PRECISIONS
from tilewright.compiler.explain.report import duration, quantity
from tilewright.compiler.terminal import console as new_console

if TYPE_CHECKING:
    from tilewright.compiler.driver import Tuned

INTERRUPTED = 130


@click.command("tune", short_help="Search a model's schedules on this machine; write a lock.")
@click.argument("model")
@click.option("--budget", metavar="TIME", help="How long: 90s, 10m, 1h; 10m unless --trials ends the search.")
@click.option(
    "--trials", type=click.IntRange(min=1), help="How many candidates at most, those on record included."
)
@click.option(
    "--patience",
    type=click.IntRange(min=1),
    help="End a kernel's search where so many candidates in a row brought nothing faster.",
)
@click.option("--strategy", metavar="NAME", help="How spaces are gone through; see docs/search.md.")
@click.option("--cost-model", metavar="NAME", help="Asked in place of the strategy's own.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--resume", is_flag=True, help="Learn from all that is on record of the model, and go on from there."
)
@click.option(
    "--bitwise", is_flag=True, help="Keep to schedules that compute the same bits as without tuning."
)
@click.option("--target", default="cpu", show_default=True, help="A target's name; see `tilewright targets`.")
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="f32",
    show_default=True,
    help="Of contractions of f32.",
)
@click.option("--inputs", type=click.Path(path_type=Path, exists=True), help="Example inputs, an .npz file.")
@click.option("--choices", metavar="FILE", help="What is to be chosen, as JSON; see `explain --space`.")
@click.option("--lock", type=OutputPath(), help="Where the lock goes; MODEL.tune.lock here unless given.")
@click.option("--html", type=OutputPath(), help="Write a page with the curves of the search.")
@click.option("-o", "--output", type=OutputPath(), help="Where the artifact goes.")
def command(
    model: str,
    budget: str | None,
    trials: int | None,
    patience: int | None,
    strategy: str | None,
    cost_model: str | None,
    seed: int,
    resume: bool,
    bitwise: bool,
    target: str,
    precision: str,
    inputs: Path | None,
    choices: str | None,
    lock: Path | None,
    html: Path | None,
    output: Path | None,
) -> None:
    """Search the schedules of MODEL's kernels on this machine, for as long as --budget or --trials say.

    Every measurement is kept, and none is made twice. The lock holds what was found: `tilewright compile MODEL --lock FILE`
    makes the same code of it, here and elsewhere, and measures nothing. Ctrl-C ends the search, and keeps what it has.
    """
    options: dict[str, Any] = {"seed": seed, "bitwise": bitwise, "resume": resume, "precision": precision}
    given = {
        "trials": trials,
        "patience": patience,
        "strategy": strategy,
        "cost_model": cost_model,
        "choices": choices,
    }
    options |= {name: value for name, value in given.items() if value is not None}
    if budget is not None or trials is None:
        options["budget"] = budget or "10m"
    loaded = load_model(model)
    tuned = _tuned(loaded, target, options, inputs)
    console = new_console(stderr=True)
    if tuned.choices.measured:
        console.print(choices_table(tuned.choices))
    console.print(result_table(tuned.result))
    if tuned.raced.tests:
        console.print(race_table(tuned.raced))
    console.print(tuned.raced.text())
    place = lock or Path(f"{Path(loaded.name.replace(':', '.')).name}.tune.lock")
    tuned.lock.write(place)
    moved = f", and {len(tuned.lock.choices)} choices" if tuned.lock.choices else ""
    console.print(f"{place}: the schedules of {len(tuned.lock.dispatches)} kinds of work{moved}")
    if html is not None:
        from tilewright.compiler.explain.tuning_page import page

        html.write_text(
            page(loaded.name, tuned.lock.target.name, tuned.result, tuned.choices, tuned.raced),
            encoding="utf-8",
        )
        console.print(f"{html}: the curves")
    if output is not None:
        tuned.model.save(str(output))
        console.print(f"{output}: {quantity(output.stat().st_size, 'B')}")
    if tuned.result.is_interrupted:
        console.print(
            f"interrupted after {duration(tuned.result.seconds * 1e6)}: {tuned.result.trials} measurements are kept, and the "
            f"best of them locked; go on with `tilewright tune {model} --resume`"
        )
        raise click.exceptions.Exit(INTERRUPTED)


def _tuned(loaded: Loaded, target: str, options: dict[str, Any], inputs: Path | None) -> Tuned:
    from tilewright.compiler import driver
    from tilewright.compiler.options import check_options
    from tilewright.compiler.workers.pool import prepare

    checked = check_options({"opt": "O2", **options})
    console = new_console(stderr=True)
    prepare()
    with console.status(f"importing {loaded.name}"):
        imported = driver.import_model(loaded.model, example_inputs(loaded, inputs))
    with Display(console, loaded.name, checked.get("budget"), checked.get("trials")) as display:
        return driver.tune_imported(
            imported,
            target,
            checked,
            display.reports(),
        )
