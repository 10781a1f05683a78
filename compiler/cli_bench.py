"""`tilewright bench`: a suite timed beside other compilers, checked, written as JSON and drawn."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from tilewright.bench.adapters import COMPETITORS, OURS, expand
from tilewright.bench.suites import SUITES, suite
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.terminal import console as new_console


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


@click.command("bench", short_help="Time a suite beside other compilers and check results.")
@click.option("--suite", "suite_name", type=click.Choice(SUITES), default="models", show_default=True)
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
@click.option("--batch", default=1, show_default=True, type=click.IntRange(1), help="Batch size of a case.")
@click.option("--opt", type=click.Choice(["O0", "O1", "O2", "O3"]), default="O0", show_default=True)
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
@click.option("--ours/--no-ours", default=True, help="Time tilewright too.")
def command(
    suite_name: str,
    against: str,
    only: str | None,
    quick: bool,
    threads: int,
    rounds: int | None,
    batch: int,
    opt: str,
    output: Path | None,
    compile_limit: float,
    ours: bool,
) -> None:
    """Time a suite beside other compilers in one process, in interleaved rounds, and check every result.

    Numbers in the table: ms per call, and how many times longer than tilewright a competitor takes. Results
    beyond 1e-3 of eager's by norm are marked wrong and left out of the means. Exit code 1 when any of ours
    failed or was wrong.
    """
    try:
        contenders = expand(_names(against))
        cases = suite(suite_name, _names(only), quick, batch)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if not ours:
        contenders.remove(OURS)
        if not contenders:
            raise click.UsageError("nothing is left to time: name competitors with --against")
    # Torch and numpy read their thread variables when they are imported, so these come first.
    from tilewright.bench.harness import pin_threads

    try:
        pin_threads(threads)
    except ModuleNotFoundError as missing:
        raise TilewrightError(
            f"results are checked against PyTorch, and `{missing.name}` is not installed: "
            "pip install 'tilewright[bench]'"
        ) from None
    from tilewright.bench import report
    from tilewright.bench.harness import cold_cache, run_case
    from tilewright.bench.machine import machine
    from tilewright.bench.measure import Budget

    budget = Budget(rounds or 3, 0.1, 2, 0.03) if quick else Budget(rounds or 7)
    started, where = datetime.now(UTC), machine()
    path = output or Path("bench/results") / f"{suite_name}-{started:%Y%m%d-%H%M%S}.json"
    settings = {
        "threads": threads, "rounds": budget.rounds, "round_s": budget.round_s, "batch": batch, "opt": opt,
        "quick": quick,
    }  # fmt: skip
    console, progress = new_console(), new_console(stderr=True)
    results = []
    with cold_cache():
        for number, case in enumerate(cases, 1):
            prefix = f"[{number}/{len(cases)}] {case.name}: "
            with progress.status(case.name) as status:

                def say(text: str, prefix: str = prefix, status=status) -> None:
                    status.update(prefix + text)

                results.append(run_case(case, contenders, threads, budget, opt, compile_limit, say))
            # Written after every case: a contender that takes the process down loses one case, not all.
            data = report.document(suite_name, results, contenders, settings, started, where)
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
    ours_bad = [r.name for r in results if ours and r.outcomes[OURS].status != "ok"]
    if ours_bad:
        raise TilewrightError(f"tilewright failed or was wrong on: {', '.join(ours_bad)}")


def _line(result, contenders: list[str]) -> str:
    """One case in one line: every contender's time or what became of it."""
    from tilewright.bench.report import milliseconds

    parts = []
    for name in contenders:
        outcome = result.outcomes[name]
        text = milliseconds(outcome.median_us) + " ms" if outcome.median_us else outcome.status
        parts.append(f"{name} {text}")
    return ", ".join(parts)
