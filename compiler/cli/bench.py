"""`tilewright bench`: a suite timed beside other compilers, checked, written as JSON and drawn."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tilewright.bench.adapters import COMPETITORS, OURS, PRECISIONS, expand
from tilewright.bench.suites import SUITES, Case, suite
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.options import check_options
from tilewright.compiler.terminal import console as new_console

if TYPE_CHECKING:
    from tilewright.bench.limits import Limits
    from tilewright.bench.measure import Budget


_COLUMN_WIDTH = 18
"""Characters that a column of the table may take where no terminal sets the width."""


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


@click.command("bench", short_help="Time a suite beside other compilers and check results.")
@click.option(
    "--suite",
    "suite_names",
    default="models",
    show_default=True,
    help=f"Comma-separated, of {', '.join(SUITES)}; each gets a table and a file of its own. Or model-accuracy: how well "
    "the micro-performance model ranks schedules; or cost-models: how well all models rank --measured programs; "
    "or searches: trials of searches on this CPU; or few-trials: 16 trials against 1,000 random ones.",
)
@click.option(
    "--against",
    default="eager",
    show_default=True,
    help=f"Competitors, comma-separated, of {', '.join(COMPETITORS)}; `inductor` is run frozen too.",
)
@click.option("--models", "--cases", "only", help="Only these cases, comma-separated; module:function too.")
@click.option("--quick", is_flag=True, help="A few representative cases and short rounds.")
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1), help="For every contender.")
@click.option("--rounds", type=click.IntRange(1), help="Interleaved rounds.  [default: 7, quick: 3]")
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="f32",
    show_default=True,
    help="What products of f32 models may be computed in, by all contenders that can.",
)
@click.option("--batch", default=1, show_default=True, type=click.IntRange(1), help="Batch size of a case.")
@click.option("--opt", type=click.Choice(["O0", "O1", "O2", "O3"]), default="O0", show_default=True)
@click.option("--budget", metavar="TIME", help="Of --opt O2: how long each case is searched, 90s or 10m.")
@click.option("--trials", type=click.IntRange(min=1), help="Of --opt O2: how many candidates at most.")
@click.option("--strategy", metavar="NAME", help="Of --opt O2: how spaces are gone through.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The JSON file; the plot lies beside it.  [default: bench/results/SUITE-DATE.json]",
)
@click.option(
    "--compile-limit",
    default=600.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds after which a competitor that is not ready is left out; 0 for none.",
)
@click.option(
    "--limits/--no-limits",
    "with_limits",
    default=True,
    help="Say how much of the machine's limits is reached; measures them (10 s) unless `targets --measure` did.",
)
@click.option("--ours/--no-ours", default=True, help="Time tilewright too.")
@click.option(
    "--construct-only", is_flag=True, help="Of roller119: predict constructed programs, run nothing."
)
@click.option(
    "--target",
    help="The device: with --construct-only  [default: v100], those of cost-models  [default: all that --measured has].",
)
@click.option(
    "--measured",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A folder of measured programs, DEVICE.jsonl.xz: with --construct-only to compare the model with, of cost-models "
    "to learn from and to rank.",
)
@click.option(
    "--records",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Of model-accuracy, searches and few-trials: the file that measurements are kept in, and not taken again from.  [default: beside -o]",
)
def command(
    suite_names: str,
    against: str,
    only: str | None,
    quick: bool,
    threads: int,
    rounds: int | None,
    precision: str,
    batch: int,
    opt: str,
    budget: str | None,
    trials: int | None,
    strategy: str | None,
    output: Path | None,
    compile_limit: float,
    with_limits: bool,
    ours: bool,
    construct_only: bool,
    target: str | None,
    measured: Path | None,
    records: Path | None,
) -> None:
    """Time suites beside other compilers in one process, in interleaved rounds, and check every result.

    Numbers in the table: ms per call, and how many times longer than tilewright a competitor takes; what share of the
    machine's limit tilewright reaches. Results beyond 1e-3 of eager's by norm (2e-2 from bf16) are marked wrong and left
    out of the means. Exit code 1 when any of ours failed or was wrong.
    """
    names = _names(suite_names)
    if construct_only:
        if names != ["roller119"]:
            raise click.UsageError("--construct-only is for --suite roller119")
        from tilewright.bench.roller_report import run_construct_only

        run_construct_only(target or "v100", _names(only), measured, output)
        return
    if names == ["cost-models"]:
        if measured is None:
            raise click.UsageError("--suite cost-models needs --measured, a folder of measured programs")
        from tilewright.bench.cost_models import Sizes
        from tilewright.bench.cost_models_report import run as run_cost_models

        run_cost_models(measured, _names(only), _names(target), Sizes(2, 2, 64) if quick else Sizes(), output)
        return
    if measured:
        raise click.UsageError("--measured needs --construct-only or --suite cost-models")
    if names == ["model-accuracy"]:
        from tilewright.bench.harness import pin_threads
        from tilewright.bench.model_accuracy import run

        pin_threads(threads)
        run(_names(only), quick, threads, records, output)
        return
    if names in (["searches"], ["few-trials"]):
        from tilewright.bench.harness import pin_threads

        pin_threads(threads)
        from tilewright.bench import few_trials_report, searches_report

        report = searches_report if names == ["searches"] else few_trials_report
        report.run(_names(only), quick, threads, records, output)
        return
    if records:
        raise click.UsageError("--records is for --suite model-accuracy, searches and few-trials")
    if output and len(names) > 1:
        raise click.UsageError("-o names one file; leave it out for several suites")
    if only and len(names) > 1:
        raise click.UsageError("--cases belong to one suite; name that one only")
    try:
        contenders = expand(_names(against))
        suites = {name: suite(name, _names(only), quick, batch) for name in names}
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not ours:
        contenders.remove(OURS)
        if not contenders:
            raise click.UsageError("nothing is left to time: name competitors with --against")
    given = {"budget": budget, "trials": trials, "strategy": strategy}
    search = {name: value for name, value in given.items() if value is not None}
    check_options({"opt": opt, **search})
    # Torch and numpy read their thread variables when they are imported, so these come first.
    from tilewright.bench.harness import pin_threads

    try:
        pin_threads(threads)
    except ModuleNotFoundError as missing:
        raise TilewrightError(
            f"results are checked against PyTorch, and `{missing.name}` is not installed: "
            "pip install 'tilewright[bench]'"
        ) from None
    from tilewright.bench.limits import find_or_measure
    from tilewright.bench.measure import Budget

    progress, limits = new_console(stderr=True), None
    if with_limits:
        with progress.status("the machine's limits") as status:
            limits = find_or_measure(threads, lambda text: status.update(f"the machine's limits: {text}"))
    timing = Budget(rounds or 3, 0.1, 2, 0.03) if quick else Budget(rounds or 7)
    settings = {
        "threads": threads, "rounds": timing.rounds, "round_s": timing.round_s, "batch": batch, "opt": opt,
        "precision": precision, "quick": quick,
        "search": search,
    }  # fmt: skip
    run = _Run(contenders, timing, settings, limits, compile_limit)
    bad = [case for name, cases in suites.items() for case in run.suite(name, cases, output)]
    if ours and bad:
        raise TilewrightError(f"tilewright failed or was wrong on: {', '.join(bad)}")


@dataclass(frozen=True)
class _Run:
    """What all suites of one command have in common."""

    contenders: list[str]
    budget: Budget
    settings: dict
    limits: Limits | None
    compile_limit: float

    def suite(self, suite_name: str, cases: list[Case], output: Path | None) -> list[str]:
        """Times one suite, writes and shows it; returns the cases that ours failed or got wrong."""
        from tilewright.bench import report
        from tilewright.bench.harness import cold_cache, run_case
        from tilewright.bench.machine import machine

        started, where, contenders = datetime.now(UTC), machine(), self.contenders
        path = output or Path("bench/results") / f"{suite_name}-{started:%Y%m%d-%H%M%S}.json"
        console, progress = new_console(), new_console(stderr=True)
        if not console.is_terminal:
            console.width = max(console.width, _COLUMN_WIDTH * (8 + len(contenders)))
        results, data = [], {}
        threads, opt, precision, search = (
            self.settings[name] for name in ("threads", "opt", "precision", "search")
        )
        with cold_cache():
            for number, case in enumerate(cases, 1):
                prefix = f"[{number}/{len(cases)}] {case.name}: "
                with progress.status(case.name) as status:

                    def say(text: str, prefix: str = prefix, status=status) -> None:
                        status.update(prefix + text)

                    results.append(
                        run_case(
                            case, contenders, threads, self.budget, opt, self.compile_limit, say, precision,
                            self.limits, search,
                        )
                    )  # fmt: skip
                # Written after every case: a contender that takes the process down loses one case, not all.
                data = report.document(
                    suite_name, results, contenders, self.settings, started, where, self.limits
                )
                report.write_json(path, data)
                progress.print(prefix + _line(results[-1], contenders), markup=False)
        console.print(report.table(suite_name, results, contenders, threads))
        for note in report.notes(results):
            console.print(f"  {note}", style="dim", highlight=False)
        plot = path.with_suffix(".png")
        try:
            report.plot(plot, data)
        except ModuleNotFoundError as missing:
            console.print(f"no plot: {missing}; pip install 'tilewright[bench]'")
        console.print(f"{path}" + (f", {plot}" if plot.exists() else ""))
        return [r.name for r in results if OURS in contenders and r.outcomes[OURS].status != "ok"]


def _line(result, contenders: list[str]) -> str:
    """One case in one line: every contender's time or what became of it."""
    from tilewright.bench.report import milliseconds

    parts = []
    for name in contenders:
        outcome = result.outcomes[name]
        text = milliseconds(outcome.median_us) + " ms" if outcome.median_us else outcome.status
        parts.append(f"{name} {text}")
    return ", ".join(parts)
