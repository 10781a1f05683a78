"""What each alignment rule is worth on this CPU: kernels measured with the rules switched on one after another.

    python -m tilewright.bench.alignment_ablation [--cases C2,C5] [--threads 2] [-o FILE]

The paper's Table 3 (Roller, OSDI'22, §6.5) does the same on a V100. Each operator is compiled to dispatches, of which the heaviest counts;
the schedule that the construction takes first under each set of rules is compiled, checked and measured as the kernel
profiler does it. A figure is the time of one call of that dispatch, in us; rules are
    none                 sizes from the workload and the machine's capacities alone, one vector in registers
    + memory transaction rows of whole vectors, blocks and cache lines
    + execution unit     register tiles with accumulators enough for the latency of multiply-adds
    + tensor shape       tiles that divide the tensor evenly
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

RULE_SETS: tuple[tuple[str, ...], ...] = (
    (),
    ("memory_transaction",),
    ("memory_transaction", "execution_unit"),
    ("memory_transaction", "execution_unit", "tensor_shape"),
)
"""Rules that are on, in the order in which the paper switches them on; a CPU's caches have no banks to pad for."""

CASES = (
    ("gemm", "512x512x512"), ("gemm", "128x768x3072"), ("gemm", "128x4032x1000"), ("resnet18-conv", "C1"),
    ("resnet18-conv", "C3"), ("resnet18-conv", "C5"), ("resnet18-conv", "C6"), ("resnet18-conv", "C12"),
    ("memory", "depthwise"), ("memory", "transpose"), ("memory", "relu"), ("memory", "softmax"),
)  # fmt: skip
"""(suite, beginning of a case's name)."""


@dataclass(frozen=True)
class Row:
    """One operator: the schedule and time in us of its heaviest dispatch under each of RULE_SETS; None where it failed."""

    case: str
    dispatch: str
    schedules: tuple[str, ...]
    times_us: tuple[float | None, ...]
    errors: tuple[str, ...]


def ablate(case, threads: int) -> Row:
    """Measures one case; raises TilewrightError for a model that does not compile."""
    from tilewright.bench.heaviest_dispatch import measure
    from tilewright.compiler.passes.schedule.construct_schedules import ConstructSchedules
    from tilewright.compiler.targets.target import resolve

    full = ConstructSchedules.for_target(resolve("cpu"))
    constructions = [
        replace(full, top_k=1, **{rule: rule in on for rule in RULE_SETS[-1]}) for on in reversed(RULE_SETS)
    ]
    dispatch = measure(case, [lambda f, c=c: c.candidates_or_none(f)[:1] for c in constructions], threads)
    # Rules that change nothing give one candidate for several sets.
    candidates = [found[0] for found in reversed(dispatch.lists)]
    chosen = [dispatch.measured.get(candidate.schedule) for candidate in candidates]
    return Row(
        case.name,
        dispatch.name,
        tuple(candidate.schedule.text() for candidate in candidates),
        tuple(c.time_us if c else None for c in chosen),
        tuple(c.error if c else "every set of rules chooses the same" for c in chosen),
    )


def speedups(rows: Sequence[Row]) -> list[float]:
    """Geometric mean, per set of rules, of the time without rules over the time with them."""
    complete = [row.times_us for row in rows if all(row.times_us)]
    return [
        math.exp(sum(math.log(times[0] / times[i]) for times in complete) / max(1, len(complete)))  # type: ignore[operator]
        for i in range(len(RULE_SETS))
    ]


def document(rows: Sequence[Row], threads: int) -> dict:
    """The result as plain data."""
    from tilewright.bench.machine import machine, versions

    return {
        "command": " ".join(["python -m tilewright.bench.alignment_ablation", *sys.argv[1:]]),
        "taken": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "threads": threads,
        "rule_sets": [list(rules) for rules in RULE_SETS],
        "rows": [asdict(row) for row in rows],
        "speedups": [round(value, 3) for value in speedups(rows)],
        "machine": machine(),
        "versions": versions(),
    }


def table(rows: Sequence[Row]):
    """Microseconds per operator and set of rules, and the geometric mean of what the rules gain."""
    from rich.table import Table

    drawn = Table(title="us per call, alignment rules switched on in turn")
    drawn.add_column("operator")
    labels = ["none", *(f"+ {rules[-1].replace('_', ' ')}" for rules in RULE_SETS[1:])]
    for label in labels:
        drawn.add_column(label, justify="right")
    drawn.add_column("schedule with all")
    for row in rows:
        times = (f"{us:.1f}" if us else "-" for us in row.times_us)
        drawn.add_row(row.case, *times, row.schedules[-1])
    drawn.add_section()
    drawn.add_row("geometric mean", *(f"{value:.2f}x" for value in speedups(rows)), "")
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="", help="beginnings of names, comma-separated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, default=Path("bench/results/alignment_ablation.json"))
    options = parser.parse_args()
    from tilewright.bench.harness import cold_cache, pin_threads

    pin_threads(options.threads)
    from tilewright.bench.suites import suite
    from tilewright.compiler.terminal import console

    wanted = [name for name in options.cases.split(",") if name]
    rows = []
    with cold_cache():
        for group, start in CASES:
            for case in suite(group):
                named = case.name == start or case.name.startswith(f"{start}-")
                if named and (not wanted or case.name.startswith(tuple(wanted))):
                    rows.append(ablate(case, options.threads))
                    print(rows[-1].case, rows[-1].times_us, file=sys.stderr, flush=True)
                    break
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(document(rows, options.threads), indent=1) + "\n")
    console().print(table(rows))
    console().print(str(options.output))


if __name__ == "__main__":
    main()
