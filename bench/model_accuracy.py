"""How well the micro-performance model ranks schedules on this CPU: sampled from every family's space, and measured.

    tilewright bench --suite model-accuracy [--cases rows,C3] [--quick] [--records FILE] [-o FILE]
    python -m tilewright.bench.model_accuracy FILE        # the table of docs/model.md

Of each workload schedules are drawn from the space of its heaviest dispatch, the constructed one among them, compiled, checked
against each other and measured in turns by the kernel profiler. Two figures come out: the rank correlation (Spearman) of
predicted and measured times, and the best measured time over that of the best of the model's first 1, 5 and 10. Measurements
are kept in a file of records, workload by workload, so that a run which was interrupted goes on where it was.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from tilewright.bench.suites import Case, operator, suite
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.terminal import console as new_console

SCHEDULES, QUICK_SCHEDULES = 200, 40
"""Sampled schedules of one workload, beside the constructed one; spaces that have fewer are measured whole."""
FIRST = (1, 5, 10)
_ROUNDS, _SEED = 3, 0
_KEPT = ((1, 10.0), (2, 3.0))
"""After so many rounds, schedules slower than the best by more than the factor are not timed further: one round may be luck."""

CASES: tuple[tuple[str, str], ...] = (
    *(("product", f"gemm/{name}") for name in ("512x512x512", "128x768x3072")),
    ("dots", "dots-512"),
    *(("convolution", f"resnet18-conv/{name}") for name in ("C3", "C4")),
    ("winograd", "resnet18-conv/C6"),
    ("groups", "groups-128x28"),
    *(("depthwise", f"memory/depthwise-{name}") for name in ("144x56s1", "576x14s2")),
    ("pooling", "memory/maxpool-64x112k3s2"),
    *(("rows", f"memory/{name}") for name in ("softmax-12x128x128", "mean-channels-32x256x28x28")),
    ("layer norm", "memory/layernorm-128x768"),
    ("attention", "attention-bert"),
    *(("element-wise", f"memory/{name}") for name in ("relu-1x64x112x112", "gelu-128x3072")),
    *(("transposition", name) for name in ("transpose-1024", "transpose-64x3136")),
)
"""(family, a case of a suite, or of those below)."""

_OPERATORS: dict[str, tuple] = {
    "dots-512": ("matmul", 512, 512, 512, True, "bf16"),
    "groups-128x28": ("conv2d", (1, 128, 28, 28), 128, 3, 1, 1, 32),
    "attention-bert": ("attention", 12, 128, 64),
    "transpose-1024": ("transpose", (1024, 1024)),
    "transpose-64x3136": ("transpose", (64, 3136)),
}
_QUICK = ("512x512x512", "softmax-12x128x128", "transpose-1024")


@dataclass(frozen=True)
class Accuracy:
    """One workload: schedules of its space that were measured, of how many objects, and what the model makes of them.

    `best_of_first` are best measured time over the best of the model's first `FIRST`; `default` is the same of the
    constructed schedule. `measured_us` and `predicted_us` are by schedule; failures have neither.
    """

    family: str
    case: str
    dispatch: str
    workload: str
    space_size: int
    objects: int
    failures: dict[str, int]
    rank_correlation: float
    best_of_first: tuple[float, ...]
    default: float
    best_us: float
    best_schedule: str
    model_schedule: str
    measured_us: tuple[float, ...]
    predicted_us: tuple[float, ...]
    seconds: float


def ranks(values: Sequence[float]) -> np.ndarray:
    """Places in rising order, the mean of them where values are equal."""
    array = np.asarray(values, dtype=float)
    _, inverse, counts = np.unique(array, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return ((ends - counts + ends - 1) / 2)[inverse.reshape(-1)]


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's: 1 where both rise together; 0 where one does not vary."""
    a, b = ranks(left), ranks(right)
    if len(a) < 2 or not a.std() or not b.std():
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def best_of_first(measured: Sequence[float], predicted: Sequence[float], count: int) -> float:
    """The best measured time over the best of the `count` that are predicted fastest; the earlier ones where equal."""
    us = np.asarray(measured, dtype=float)
    first = np.argsort(np.asarray(predicted), kind="stable")[:count]
    return float(us.min() / us[first].min())


def cases(only: Sequence[str], quick: bool) -> list[tuple[str, Case]]:
    """(family, case) of those named by family or case, all where none is; raises ValueError for one that is not there."""
    listed = [(family, _case(name)) for family, name in CASES]
    known = {name for family, case in listed for name in (family, case.name)}
    if missing := [name for name in only if name not in known]:
        raise ValueError(
            f"model-accuracy has no case {', '.join(missing)}; it has: {', '.join(sorted(known))}"
        )
    wanted = only or (_QUICK if quick else ())
    return [(family, case) for family, case in listed if not wanted or {family, case.name} & set(wanted)]


def _case(name: str) -> Case:
    group, _, member = name.rpartition("/")
    if group:
        return suite(group, [member])[0]
    return Case(name, partial(operator, *_OPERATORS[name]))


def measure(family: str, case: Case, schedules: int, threads: int, records: Path, say: Callable) -> Accuracy:
    """Samples, measures and predicts one case; raises TilewrightError for one that does not compile."""
    from tilewright.compiler import driver, phases
    from tilewright.compiler.analysis.workload_of import workload_of
    from tilewright.compiler.dialects import schedule_attribute
    from tilewright.compiler.families.cpu.dispatch_space import dispatch_space
    from tilewright.compiler.ir import functions, ir
    from tilewright.compiler.package.residence import calls_of_main, name_of
    from tilewright.compiler.profiler.selection import ProfilerOptions, profile
    from tilewright.compiler.targets.host import processor
    from tilewright.compiler.targets.target import resolve
    from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
    from tilewright.compiler.tuning.model.micro_performance import predict
    from tilewright.compiler.tuning.record_store import RecordStore

    started, target = time.perf_counter(), resolve("cpu")
    module = driver.import_model(*case.build()).module
    phases.run_phases(module, target, "graph", "schedule")
    with module.context, ir.Location.unknown(module.context):
        called = calls_of_main(module)
        found = [f for f in functions(module) if name_of(f) in called]
        work = {name_of(f): workload_of(f) for f in found}
        heaviest = max(found, key=lambda f: (work[name_of(f)].flops, work[name_of(f)].nbytes))
        name, constructed = name_of(heaviest), schedule_attribute.read(heaviest)
        assert constructed is not None
        space = dispatch_space(heaviest, target, constructed)
        points = space.sample(schedules, np.random.default_rng(_SEED))
        sampled = [constructed, *(space.schedule(point) for point in points)]
        options = ProfilerOptions(
            threads=threads,
            seconds=math.inf,
            rounds=_ROUNDS,
            kept=_KEPT,
            compile_timeout_s=30,
            device=processor(),
        )
        with RecordStore(records) as store:
            offered = [Candidate(schedule, 0.0, "") for schedule in sampled]
            decision = profile(
                module, target, lambda f: offered if name_of(f) == name else [], options, say, store
            )[name]
    measured = [(c.schedule, c.time_us) for c in decision.candidates if c.time_us is not None]
    failures: dict[str, int] = {}
    for candidate in decision.candidates:
        if candidate.time_us is None:
            reason = candidate.error[:80]
            failures[reason] = failures.get(reason, 0) + 1
    us = [time_us for _, time_us in measured]
    predicted = predict(work[name], [s for s, _ in measured], target).us.tolist()
    best = int(np.argmin(us))
    return Accuracy(
        family=family,
        case=case.name,
        dispatch=name,
        workload=work[name].key,
        space_size=space.size,
        objects=len(set(us)),
        failures=failures,
        rank_correlation=round(rank_correlation(us, predicted), 3),
        best_of_first=tuple(round(best_of_first(us, predicted, count), 3) for count in FIRST),
        default=round(min(us) / us[0], 3),
        best_us=us[best],
        best_schedule=measured[best][0].text(),
        model_schedule=measured[int(np.argmin(predicted))][0].text(),
        measured_us=tuple(round(v, 2) for v in us),
        predicted_us=tuple(round(v, 2) for v in predicted),
        seconds=round(time.perf_counter() - started, 1),
    )


def by_family(rows: Sequence[Accuracy]) -> dict[str, dict[str, Any]]:
    """Per family, and of all: the mean rank correlation, and geometric means of the other figures."""
    groups: dict[str, list[Accuracy]] = {}
    for row in rows:
        groups.setdefault(row.family, []).append(row)
    return {name: _means(group) for name, group in (*groups.items(), ("all", list(rows)))}


def _means(rows: Sequence[Accuracy]) -> dict[str, Any]:
    def geometric(values: Iterator[float]) -> float:
        return round(float(np.exp(np.mean(np.log(list(values))))), 3)

    return {
        "workloads": len(rows),
        "rank_correlation": round(float(np.mean([row.rank_correlation for row in rows])), 3),
        "best_of_first": [geometric(row.best_of_first[place] for row in rows) for place in range(len(FIRST))],
        "default": geometric(row.default for row in rows),
    }


def document(rows: Sequence[Accuracy], settings: dict, started: datetime, shared: bool) -> dict:
    """The result as plain data; `shared` says that other work ran on the machine."""
    from tilewright.bench.machine import machine, versions
    from tilewright.compiler.targets.target import resolve

    return {
        "command": settings["command"],
        "taken": f"{started:%Y-%m-%d %H:%M} UTC",
        "settings": settings,
        "machine": machine(),
        "machine_was_shared": shared,
        "target_measured": resolve("cpu").measured,
        "versions": versions(),
        "first": list(FIRST),
        "families": by_family(rows) if rows else {},
        "rows": [asdict(row) for row in rows],
    }


def table(rows: Sequence[Accuracy]) -> Table:
    """One line for each workload, and the means."""
    drawn = Table(title="schedules as the model ranks them against as they were measured")
    for name in (
        "family",
        "workload",
        "schedules",
        "rank correlation",
        *(f"best of {n}" for n in FIRST),
        "default",
    ):
        drawn.add_column(name, justify="left" if name in ("family", "workload") else "right")
    for row in rows:
        figures = [row.rank_correlation, *row.best_of_first, row.default]
        drawn.add_row(row.family, row.case, str(len(row.measured_us)), *(f"{v:.2f}" for v in figures))
    if rows:
        drawn.add_section()
        means = by_family(rows)["all"]
        figures = [means["rank_correlation"], *means["best_of_first"], means["default"]]
        drawn.add_row("all", "", "", *(f"{v:.2f}" for v in figures))
    return drawn


def markdown(data: dict) -> str:
    """The table of a document for docs/model.md, and what it was taken on."""
    shared = "; other work ran on it" if data["machine_was_shared"] else ""
    machine, settings = data["machine"], data["settings"]
    heads = (
        "family",
        "workload",
        "schedules",
        "rank correlation",
        *(f"best of first {n}" for n in data["first"]),
    )
    lines = [
        f"{settings['threads']} thread(s) of {machine['processor']} ({machine['cpus']} CPUs){shared}; {data['taken']}; `{data['command']}`.",
        "",
        f"| {' | '.join((*heads, 'constructed'))} |",
        f"| --- | --- |{' ---: |' * (len(heads) - 1)}",
    ]
    for row in data["rows"]:
        figures = (row["rank_correlation"], *row["best_of_first"], row["default"])
        cells = (row["family"], row["case"], str(len(row["measured_us"])), *(f"{v:.2f}" for v in figures))
        lines.append(f"| {' | '.join(cells)} |")
    means = data["families"]["all"]
    figures = (means["rank_correlation"], *means["best_of_first"], means["default"])
    lines.append(f"| all | {len(data['rows'])} workloads | | {' | '.join(f'{v:.2f}' for v in figures)} |")
    return "\n".join(lines)


def run(only: Sequence[str], quick: bool, threads: int, records: Path | None, output: Path | None) -> None:
    """Measures the suite, prints and writes it; raises TilewrightError for a case that is not there."""
    from tilewright.bench.machine import machine

    path = output or Path("bench/results/model-accuracy.json")
    store = records or path.with_suffix(".sqlite")
    try:
        listed = cases(only, quick)
    except ValueError as error:
        raise TilewrightError(str(error)) from None
    schedules = QUICK_SCHEDULES if quick else SCHEDULES
    started, shared = datetime.now(UTC), machine()["load_1min"] > 0.5
    named = "".join((f" --cases {','.join(only)}" if only else "", " --quick" if quick else ""))
    command = f"tilewright bench --suite model-accuracy{named} --threads {threads}"
    settings = {
        "command": command,
        "threads": threads,
        "schedules": schedules,
        "rounds": _ROUNDS,
        "kept": _KEPT,
        "seed": _SEED,
    }
    console, progress = new_console(), new_console(stderr=True)
    rows: list[Accuracy] = []
    for number, (family, case) in enumerate(listed, 1):
        prefix = f"[{number}/{len(listed)}] {case.name}: "
        with progress.status(prefix) as status:

            def say(done: int, total: int, text: str, prefix: str = prefix, status=status) -> None:
                status.update(f"{prefix}{text} {done}/{total}")

            rows.append(measure(family, case, schedules, threads, store, say))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document(rows, settings, started, shared)) + "\n")
        row = rows[-1]
        line = f"{row.rank_correlation:.2f}, best of {FIRST} {row.best_of_first}, {row.seconds:.0f} s"
        progress.print(f"{prefix}{len(row.measured_us)} schedules, rank correlation {line}", markup=False)
    console.print(table(rows))
    console.print(f"{path}, records in {store}")


def main() -> None:
    for name in sys.argv[1:]:
        console = new_console()
        console.print(
            markdown(json.loads(Path(name).read_text())), markup=False, highlight=False, soft_wrap=True
        )


if __name__ == "__main__":
    main()
