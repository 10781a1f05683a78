"""What an edit of the compiler did to a suite: two of its records, case by case, and the geometric mean of the ratios.

    python -m tilewright.bench.compare_records BEFORE.json AFTER.json [--by eager]

Both are written by `tilewright bench`, each in its own checkout, one after the other on one machine. A ratio above 1 means that
the second is faster. `--by` divides both by the time of another contender in the same run, which takes out how fast the machine
was then; that contender's own spread comes in.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import click

from tilewright.bench.ranking_scores import geometric_mean
from tilewright.bench.result_tables import OURS


@dataclass(frozen=True)
class Pair:
    """One case of both records: microseconds of ours before and after, and those of another contender, or 1."""

    case: str
    before_us: float
    after_us: float
    by_before_us: float = 1.0
    by_after_us: float = 1.0

    @property
    def ratio(self) -> float:
        """How many times as fast the case has become."""
        return self.before_us / self.by_before_us / (self.after_us / self.by_after_us)


def pairs(before: dict, after: dict, by: str | None = None) -> list[Pair]:
    """The cases that both records have with a right result, in the order of the second; raises ClickException where these
    are of different suites, threads, or processors, or where there is none."""
    for name, found in (
        ("suite", (before["suite"], after["suite"])),
        ("threads", (before["settings"]["threads"], after["settings"]["threads"])),
        ("processor", (before["machine"]["processor"], after["machine"]["processor"])),
    ):
        if found[0] != found[1]:
            raise click.ClickException(f"the records differ in {name}: {found[0]} and {found[1]}")
    known = {case["name"]: case for case in before["cases"]}
    found = []
    for case in after["cases"]:
        times = [_time(one, who) for who in (OURS, by) if who for one in (known.get(case["name"]), case)]
        if all(times):
            found.append(Pair(case["name"], *(time for time in times if time)))
    if not found:
        raise click.ClickException("the records have no case in common that both have a time of")
    return found


def _time(case: dict | None, contender: str) -> float | None:
    outcome = (case or {}).get("outcomes", {}).get(contender, {})
    return outcome.get("median_us") if outcome.get("status") == "ok" else None


@click.command()
@click.argument("before", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.argument("after", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--by", help="A contender of both records that times are divided by.")
def main(before: Path, after: Path, by: str | None) -> None:
    """Compare two records of one suite."""
    from rich.table import Table

    from tilewright.compiler.terminal import console

    found = pairs(json.loads(before.read_text()), json.loads(after.read_text()), by)
    drawn = Table(title="us per call" + (f"; ratios by {by}" if by else ""))
    for column in ("case", "before", "after", "times as fast"):
        drawn.add_column(column, justify="left" if column == "case" else "right")
    for pair in found:
        drawn.add_row(pair.case, f"{pair.before_us:.1f}", f"{pair.after_us:.1f}", f"{pair.ratio:.2f}")
    drawn.add_row(
        f"geometric mean of {len(found)}", "", "", f"{geometric_mean([pair.ratio for pair in found]):.3f}"
    )
    console().print(drawn)


if __name__ == "__main__":
    main()
