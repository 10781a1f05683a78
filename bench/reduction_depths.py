"""What blocks of a reduction and the order of register tiles are worth on this CPU: one dispatch, with and without.

    python -m tilewright.bench.reduction_depths [--cases 128x3072x768,conv] [--threads 2] [-o FILE]

Each operator is compiled to dispatches, of which the heaviest counts. The schedule that is constructed first is measured, the same
without blocks, with blocks of 64, 128 and 256 steps, which are channels of Winograd's products, and with its register tiles in the other orders, checked against each other in
interleaved rounds as the kernel profiler does it. A figure is the time of one call of that dispatch, in us; one that is missing is
no schedule of the dispatch.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.compiler.ir import ir
    from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate

# (m, k, n), with a packed weight: squares, BERT-base at 128 tokens, ViT-B/16, GPT-2's LM head, few rows, and a long reduction.
PRODUCTS = (
    (512, 512, 512), (2048, 2048, 2048), (4096, 4096, 4096), (128, 768, 768), (128, 768, 3072), (128, 3072, 768),
    (197, 768, 3072), (197, 3072, 768), (128, 768, 50257), (64, 3072, 768), (256, 8192, 512),
)  # fmt: skip
# (size, in, out, kernel, stride) of ResNet-50's last stages.
CONVOLUTIONS = (
    (7, 512, 2048, 1, 1), (7, 2048, 512, 1, 1), (14, 512, 512, 3, 2),
    # By Winograd's algorithm, of ResNet-18.
    (28, 128, 128, 3, 1), (14, 256, 256, 3, 1), (7, 512, 512, 3, 1),
)  # fmt: skip

FORMS: dict[str, dict[str, int | str]] = {
    "whole": {"depth": 0},
    "constructed": {},
    "depth 64": {"depth": 64},
    "depth 128": {"depth": 128},
    "depth 256": {"depth": 256},
    "columns first": {"order": "columns"},
    "panels first": {"order": "panels"},
}
COLUMNS = tuple(FORMS)


@dataclass(frozen=True)
class Row:
    """One operator: the constructed schedule of its heaviest dispatch, and times in us by COLUMNS; None for no schedule."""

    case: str
    schedule: str
    times_us: dict[str, float | None]


def variants(function: ir.Operation) -> list[Candidate]:
    """The constructed schedule of a dispatch in the forms of COLUMNS; that without blocks where it has no such form."""
    from tilewright.compiler.families.cpu.proposals import read_dispatch
    from tilewright.compiler.phases import candidates
    from tilewright.compiler.targets.target import resolve

    target = resolve("cpu")
    first, *_ = candidates(function, target) or [None]
    if first is None:
        return []
    space = read_dispatch(function, target).space
    (entry, *others), found = first.schedule.reductions or (None,), []
    if entry is None or entry.loops not in ("products", "winograd"):
        return []
    for form in FORMS.values():
        schedule = replace(first.schedule, reductions=(replace(entry, **form), *others))
        found.append(replace(first, schedule=schedule) if schedule in space else None)
    return [candidate or found[0] for candidate in found]


def measured(case, threads: int) -> Row:
    """One case; raises TilewrightError for a model that does not compile."""
    from tilewright.bench.heaviest_dispatch import measure

    constructions = [partial(_one, number) for number in range(len(COLUMNS))]
    dispatch = measure(case, constructions, threads)
    chosen = [found[0].schedule for found in dispatch.lists]
    times: dict[str, float | None] = {}
    for name, schedule in zip(COLUMNS, chosen):
        own = dispatch.measured.get(schedule)
        missing = name not in COLUMNS[:2] and schedule == chosen[0]
        times[name] = None if missing or own is None else own.time_us
    return Row(case.name, chosen[1].text(), times)


def _one(number: int, function: ir.Operation) -> list[Candidate]:
    return variants(function)[number : number + 1]


def cases() -> list:
    """All operators, by name."""
    from tilewright.bench.suites import Case, operator

    found = [Case(f"{m}x{k}x{n}", partial(operator, "matmul", m, k, n, True, "f32")) for m, k, n in PRODUCTS]
    for size, inputs, filters, kernel, stride in CONVOLUTIONS:
        make = partial(operator, "conv2d", (1, inputs, size, size), filters, kernel, stride, kernel // 2)
        found.append(Case(f"conv-{size}x{inputs}x{filters}k{kernel}s{stride}", make))
    return found


def table(rows: Sequence[Row]):
    """Microseconds without blocks, and the others over that."""
    from rich.table import Table

    drawn = Table(title="us per call without blocks, and the times of others over it")
    for column in ("operator", *COLUMNS, "constructed schedule"):
        drawn.add_column(
            column, justify="left" if column.startswith(("operator", "constructed s")) else "right"
        )
    for row in rows:
        whole = row.times_us[COLUMNS[0]]
        ratios = (row.times_us[name] for name in COLUMNS[1:])
        shown = (f"{us / whole:.2f}" if us and whole else "-" for us in ratios)
        drawn.add_row(row.case, f"{whole:.0f}" if whole else "-", *shown, row.schedule)
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="", help="beginnings of names, comma-separated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=Path("bench/results/reduction_depths.json"))
    options = parser.parse_args()
    from tilewright.bench.harness import cold_cache, pin_threads
    from tilewright.bench.machine import machine, versions

    pin_threads(options.threads)
    from tilewright.compiler.terminal import console

    wanted = tuple(name for name in options.cases.split(",") if name)
    rows = []
    with cold_cache():
        for case in cases():
            if not wanted or case.name.startswith(wanted):
                rows.append(measured(case, options.threads))
                print(rows[-1].case, rows[-1].times_us, file=sys.stderr, flush=True)
    document = {
        "command": " ".join(["python -m tilewright.bench.reduction_depths", *sys.argv[1:]]),
        "taken": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "threads": options.threads,
        "rows": [asdict(row) for row in rows],
        "machine": machine(),
        "versions": versions(),
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(document, indent=1) + "\n")
    console().print(table(rows))
    console().print(str(options.output))


if __name__ == "__main__":
    main()
