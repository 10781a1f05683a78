"""Which proposer wins where: the first schedule and the best of the first ten of each, measured beside each other.

    python -m tilewright.bench.proposers [--cases C2,softmax] [--threads 2] [--resume] [-o FILE]
    python -m tilewright.bench.proposers --gpus      # what is no product on GPUs, by the model: nothing is measured

Of every case the heaviest dispatch counts. All that the proposers list for it is compiled, checked against the first and
timed by the kernel profiler in interleaved rounds; a figure is the middle of them, in us. The file is written after
every case: with `--resume` cases that it has are not measured again. On GPUs the thirty products of `gemm_shapes` are
compared by what the model predicts: how much longer the first of the recursion takes than the first of all tiles.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

FIRST = {"aligned": 10, "roller": 10, "modelled": 10, "random": 3}
"""Proposers, and the schedules of each that are measured."""
PROPOSERS = tuple(FIRST)

CASES = {
    "products": (
        ("gemm", "512x512x512-inputs"), ("gemm", "512x512x512"), ("gemm", "1024x1024x1024"), ("gemm", "128x4032x1000"),
        ("gemm", "128x768x3072"), ("gemm", "1x768x3072"), ("gemm", "attention-bert-scores"),
        ("gemm", "attention-vit-values"), ("gemm", "1024x1024x1024-bf16"),
    ),
    "convolutions": (
        ("resnet18-conv", "C1"), ("resnet18-conv", "C3"), ("resnet18-conv", "C4"), ("resnet18-conv", "C6"),
        ("resnet18-conv", "C10"), ("resnet18-conv", "C12"),
    ),
    "windows": (
        ("memory", "depthwise-32x112s1"), ("memory", "depthwise-144x56s2"), ("memory", "depthwise-576x14s1"),
        ("memory", "maxpool-64x112k3s2"), ("memory", "avgpool-64x56k3s1"),
    ),
    "rows": (
        ("memory", "softmax-12x128x128"), ("memory", "softmax-4096x4096"), ("memory", "layernorm-128x768"),
        ("memory", "layernorm-8192x768"), ("memory", "mean-rows-4096x4096"), ("memory", "globalpool-2048x7"),
    ),
    "columns": (("memory", "mean-columns-4096x4096"), ("memory", "mean-channels-32x256x28x28")),
    "element-wise": (
        ("memory", "relu-1x64x112x112"), ("memory", "add-32x256x28x28"), ("memory", "gelu-128x3072"),
    ),
    "transposes": (
        ("turned", "1024x1024"), ("turned", "12x197x64"), ("turned", "64x56x56"),
        ("turned", "4032x1000"), ("turned", "2048x2048"), ("turned", "512x3x3x512"),
    ),
}  # fmt: skip
"""By family: (suite, case)."""


@dataclass(frozen=True)
class Row:
    """One case: by proposer, the time of its first schedule, that of its best, the first as text, and ms to propose."""

    family: str
    case: str
    dispatch: str
    first_us: dict[str, float | None]
    best_us: dict[str, float | None]
    first: dict[str, str]
    proposed: dict[str, int]
    propose_ms: dict[str, float]


def compare(family: str, case, threads: int, seconds: float) -> Row:
    """Measures one case; raises TilewrightError for a model that does not compile."""
    from tilewright.bench.heaviest_dispatch import measure
    from tilewright.compiler.passes.schedule.construct_schedules import ConstructSchedules
    from tilewright.compiler.targets.target import resolve

    plain = ConstructSchedules.for_target(resolve("cpu"))
    took: dict[str, dict[str, float]] = {}

    def listing(proposer: str):
        named = replace(plain, proposer=proposer, top_k=FIRST[proposer])

        def listed(function):
            start = time.process_time()
            found = named.candidates_or_none(function)
            ms = (time.process_time() - start) * 1e3
            took.setdefault(str(function.attributes["sym_name"]).strip('"'), {})[proposer] = round(ms, 1)
            return found

        return listed

    dispatch = measure(case, [listing(proposer) for proposer in PROPOSERS], threads, seconds)
    first: dict[str, float | None] = {}
    best: dict[str, float | None] = {}
    for proposer, listed in zip(PROPOSERS, dispatch.lists):
        measured = [dispatch.measured.get(candidate.schedule) for candidate in listed]
        times = [m.median_us if m is not None else None for m in measured]
        first[proposer] = times[0]
        best[proposer] = min((us for us in times if us is not None), default=None)
    return Row(
        family,
        case.name,
        dispatch.name,
        first,
        best,
        {p: listed[0].schedule.text() for p, listed in zip(PROPOSERS, dispatch.lists)},
        {p: len(listed) for p, listed in zip(PROPOSERS, dispatch.lists)},
        took[dispatch.name],
    )


def cases_of(family: str):
    """The cases of a family, built when their turn comes."""
    from tilewright.bench.suites import Case, suite

    for group, name in CASES[family]:
        if group == "turned":
            yield Case(f"turn-{name}", partial(_turned, tuple(map(int, name.split("x")))))
        else:
            yield from suite(group, [name])


def _turned(shape: tuple[int, ...]) -> tuple:
    """A copy whose innermost loop is the source's outermost."""
    import torch

    class Turned(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.movedim(0, -1).contiguous()

    return Turned(), (torch.randn(shape),)


def gpu_rows() -> list[dict]:
    """Per target and type, over the thirty products: the predicted time of `roller`'s first over that of `aligned`'s."""
    from tilewright.bench.gemm_shapes import GEMM_SHAPES
    from tilewright.compiler.targets.target import resolve
    from tilewright.compiler.tuning.gpu.gemm_candidates import gemm_choices
    from tilewright.compiler.tuning.model.gemm_shape import plain_gemm

    found = []
    for name in ("cuda:sm_70", "cuda:sm_80", "cuda:sm_90a"):
        for dtype, precision in (("f32", "f32"), ("f32", "tf32"), ("f16", "f32")):
            if (name, precision) == ("cuda:sm_70", "tf32"):
                continue
            target, compared, took = resolve(name), {}, {"aligned": 0.0, "roller": 0.0}
            for shape in GEMM_SHAPES:
                gemm = plain_gemm(shape.batch, shape.m, shape.n, shape.k, dtype)
                first = {}
                for proposer in took:
                    start = time.process_time()
                    first[proposer] = gemm_choices(gemm, target, precision=precision, proposer=proposer)[0].us
                    took[proposer] += (time.process_time() - start) * 1e3
                compared[shape.name] = first["roller"] / first["aligned"]
            mean = math.exp(sum(map(math.log, compared.values())) / len(compared))
            worst = max(compared, key=lambda shape: compared[shape])
            found.append(
                {
                    "target": name,
                    "dtype": precision if precision == "tf32" else dtype,
                    "roller_over_aligned": round(mean, 4),
                    "equal_to_a_percent": sum(abs(ratio - 1) < 0.01 for ratio in compared.values()),
                    "worst": [worst, round(compared[worst], 3)],
                    "propose_ms": {p: round(ms / len(compared), 1) for p, ms in took.items()},
                }
            )
    return found


def ratios(rows: Sequence[Row], family: str, proposer: str) -> tuple[float, float]:
    """Geometric means over a family of (first, best of ten) of `aligned` over that of a proposer: above 1 it is faster."""
    found = []
    for times in ("first_us", "best_us"):
        logs = [
            math.log(getattr(row, times)["aligned"] / getattr(row, times)[proposer])
            for row in rows
            if row.family == family and getattr(row, times)["aligned"] and getattr(row, times)[proposer]
        ]
        found.append(math.exp(sum(logs) / len(logs)) if logs else math.nan)
    return found[0], found[1]


def document(rows: Sequence[Row], threads: int, gpus: Sequence[dict]) -> dict:
    """The result as plain data."""
    from tilewright.bench.machine import machine, versions

    families = [family for family in CASES if any(row.family == family for row in rows)]
    return {
        "command": " ".join(["python -m tilewright.bench.proposers", *sys.argv[1:]]),
        "taken": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "threads": threads,
        "proposed": FIRST,
        "rows": [asdict(row) for row in rows],
        "gpus": list(gpus),
        "aligned_over": {
            family: {p: [round(v, 3) for v in ratios(rows, family, p)] for p in PROPOSERS[1:]}
            for family in families
        },
        "machine": machine(),
        "versions": versions(),
    }


def table(rows: Sequence[Row]):
    """Per case what each proposer's first and best schedules take, and per family how they compare."""
    from rich.table import Table

    drawn = Table(title="us per call: the first schedule / the best of all that are proposed")
    drawn.add_column("case")
    for proposer in PROPOSERS:
        drawn.add_column(proposer, justify="right")
    drawn.add_column("first of roller")
    for family in CASES:
        own = [row for row in rows if row.family == family]
        for row in own:
            times = (f"{_shown(row.first_us[p])} / {_shown(row.best_us[p])}" for p in PROPOSERS)
            drawn.add_row(row.case, *times, row.first["roller"])
        if own:
            gains = (f"{a:.2f}x / {b:.2f}x" for a, b in (ratios(rows, family, p) for p in PROPOSERS))
            drawn.add_row(f"[b]{family}", *gains, "")
            drawn.add_section()
    return drawn


def _shown(us: float | None) -> str:
    return "-" if us is None else f"{us:.4g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="", help="beginnings of names or families, comma-separated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.8, help="of timing per dispatch")
    parser.add_argument("--resume", action="store_true", help="keep the cases that the file has")
    parser.add_argument("--gpus", action="store_true", help="families of GPU kernels only, by the model")
    parser.add_argument(
        "-o", "--output", type=Path, help="bench/results/proposers.json, or gpu-proposers.json"
    )
    options = parser.parse_args()
    if options.gpus:
        from tilewright.bench.gpu_proposers import report

        report(options.output or Path("bench/results/gpu-proposers.json"))
        return
    options.output = options.output or Path("bench/results/proposers.json")
    from tilewright.bench.harness import cold_cache, pin_threads

    pin_threads(options.threads)
    from tilewright.compiler.errors import TilewrightError
    from tilewright.compiler.terminal import console

    wanted = tuple(name for name in options.cases.split(",") if name)
    rows = []
    if options.resume and options.output.exists():
        rows = [Row(**row) for row in json.loads(options.output.read_text())["rows"]]
    known = {row.case for row in rows}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    gpus = gpu_rows()
    for row in gpus:
        print(row, file=sys.stderr, flush=True)
    with cold_cache():
        for family in CASES:
            for case in cases_of(family):
                named = not wanted or family in wanted or case.name.startswith(wanted)
                if case.name in known or not named:
                    continue
                try:
                    rows.append(compare(family, case, options.threads, options.seconds))
                except (TilewrightError, ValueError) as reason:
                    print(f"{case.name}: {reason}", file=sys.stderr, flush=True)
                    continue
                print(rows[-1].case, rows[-1].first_us, rows[-1].best_us, file=sys.stderr, flush=True)
                options.output.write_text(json.dumps(document(rows, options.threads, gpus), indent=1) + "\n")
    console().print(table(rows))
    console().print(str(options.output))


if __name__ == "__main__":
    main()
