"""Which proposer wins where on GPUs, by the model of complete schedules: no device runs anything, and twice gives the same.

    python -m tilewright.bench.proposers --gpus [-o FILE]

Of every case the heaviest dispatch counts, of windows the one that has them: the predicted time of the first schedule that
each proposer proposes, and of the best among ten. The families and cases are those that `bench.proposers` measures on CPUs;
attention, windows whose channels lie side by side, and what goes along lines beside them. Products have a table of their own there.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

TARGETS = ("cuda:sm_70", "cuda:sm_80", "cuda:sm_90a")
PROPOSERS = ("aligned", "roller", "modelled", "default", "random")
COUNT = 10
ATTENTION = (
    # heads, queries, keys, elements of a head, type, causal
    (12, 128, 128, 64, "float16", False), (12, 1024, 1024, 64, "float16", True), (12, 197, 197, 64, "float16", False),
    (32, 4096, 4096, 128, "bfloat16", True), (8, 512, 512, 64, "float32", False), (16, 100, 850, 32, "float32", False),
)  # fmt: skip
WINDOWS = ("depthwise-3x3s1-56x56x144", "depthwise-5x5s2-28x28x96", "maxpool-3x3s1-8x8x16")
"""Channels last but of pooling, a window that is no larger than a warp or two."""
LINES = ("cumsum-64x4096", "cumsum-4096x64", "sort-256x1000", "index-add-1000x64")


@dataclass(frozen=True)
class Row:
    """One case on one target: by proposer, predicted us of the first and the best schedule, the first as text, ms to propose."""

    target: str
    family: str
    case: str
    dispatch: str
    first_us: dict[str, float | None]
    best_us: dict[str, float | None]
    first: dict[str, str]
    propose_ms: dict[str, float]


def cases_of(family: str) -> Iterator:
    """The cases of a family, built when their turn comes."""
    from tilewright.bench import proposers
    from tilewright.bench.suites import Case

    if family == "attention":
        for shape in ATTENTION:
            yield Case(
                "-".join(map(str, shape)).replace("True", "causal").replace("-False", ""),
                partial(_attention, *shape),
            )
    elif family == "lines":
        for name in LINES:
            yield Case(name, partial(_lines, name))
    else:
        yield from proposers.cases_of(family)
    if family == "windows":
        for name in WINDOWS:
            yield Case(name, partial(_windows, name))


FAMILIES = ("attention", "rows", "columns", "windows", "element-wise", "transposes", "lines")


def _module(function: Callable):
    import torch

    class Function(torch.nn.Module):
        def forward(self, *arguments: torch.Tensor):
            return function(*arguments)

    return Function()


def _attention(heads: int, queries: int, keys: int, inner: int, dtype: str, causal: bool) -> tuple:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    kind = getattr(torch, dtype)
    shapes = ((1, heads, queries, inner), (1, heads, keys, inner), (1, heads, keys, inner))
    found = _module(lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=causal))
    return found, tuple(torch.zeros(shape, dtype=kind) for shape in shapes)


def _windows(name: str) -> tuple:
    import torch
    from torch.nn.functional import conv2d, max_pool2d

    operator, window, shape = name.split("-")
    size, stride = int(window[0]), int(window[-1])
    height, width, channels = map(int, shape.split("x"))
    if operator == "maxpool":
        return _module(lambda x: max_pool2d(x, size, stride, size // 2)), (
            torch.zeros(2, channels, height, width),
        )

    def depthwise(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return conv2d(x.permute(0, 3, 1, 2), w, None, stride, groups=channels).permute(0, 2, 3, 1)

    image = torch.zeros(1, height + size - 1, width + size - 1, channels)
    return _module(depthwise), (image, torch.zeros(channels, 1, size, size))


def _lines(name: str) -> tuple:
    import torch

    operator, _, shape = name.rpartition("-")
    x = torch.zeros(tuple(map(int, shape.split("x"))))
    if operator == "cumsum":
        return _module(lambda x: x.cumsum(-1)), (x,)
    if operator == "sort":
        return _module(lambda x: x.sort(-1)), (x,)
    return _module(lambda x, i, s: x.index_add(0, i, s)), (
        x,
        torch.arange(100),
        torch.zeros(100, *x.shape[1:]),
    )


def compare(family: str, case, target_name: str) -> Row:
    """What each proposer proposes for a case; raises TilewrightError for a model that does not compile."""
    from tilewright.compiler import driver, phases
    from tilewright.compiler.analysis.workload_of import NoWorkload
    from tilewright.compiler.families.gpu.proposals import gpu_proposals, read_dispatch
    from tilewright.compiler.ir import functions, ir
    from tilewright.compiler.targets.target import resolve
    from tilewright.compiler.tuning.gpu.gpu_candidates import WINDOWS as WINDOW_OPERATORS
    from tilewright.compiler.tuning.roller.options import ConstructOptions

    target = resolve(target_name)
    module = driver.import_model(*case.build()).module
    phases.run_phases(module, target, "graph", "dispatch")
    found: list[tuple[float, Row]] = []
    with module.context, ir.Location.unknown(module.context):
        for function in functions(module):
            if "tilewright.operator" not in function.attributes:
                continue
            first: dict[str, float | None] = {}
            best: dict[str, float | None] = {}
            texts, took = {}, {}
            subject = read_dispatch(function, target)
            if family == "windows" and subject.workload.op not in WINDOW_OPERATORS:
                continue
            for proposer in PROPOSERS:
                start = time.process_time()
                try:
                    listed = gpu_proposals(function, target, COUNT, ConstructOptions(), proposer)
                except NoWorkload:
                    first[proposer] = best[proposer] = None
                    continue
                took[proposer] = round((time.process_time() - start) * 1e3, 1)
                us = subject.predictions([candidate.schedule for candidate in listed]).us
                first[proposer], best[proposer] = round(float(us[0]), 3), round(float(us.min()), 3)
                texts[proposer] = listed[0].schedule.text()
            name = ir.StringAttr(function.attributes["sym_name"]).value
            row = Row(target_name, family, case.name, name, first, best, texts, took)
            found.append((first["default"] or 0.0, row))
    return max(found, key=lambda pair: pair[0])[1]


def ratios(rows: Sequence[Row], proposer: str) -> tuple[float, float]:
    """Geometric means of (first, best) of `aligned`, or what families choose where it has none, over that of a proposer."""
    means = []
    for field in ("first_us", "best_us"):
        logs = []
        for row in rows:
            us = getattr(row, field)
            logs.append(math.log((us["aligned"] or us["default"]) / us[proposer]) if us[proposer] else 0.0)
        means.append(math.exp(sum(logs) / len(logs)) if logs else math.nan)
    return means[0], means[1]


def gains(rows: Sequence[Row], proposer: str) -> dict[str, float]:
    """By case, how many times shorter the first schedule's time is than that of `aligned`, or of the family's choice."""
    found = {}
    for row in rows:
        usual, own = row.first_us["aligned"] or row.first_us["default"], row.first_us[proposer]
        if usual and own:
            found[row.case] = round(usual / own, 3)
    return found


def summary(rows: Sequence[Row]) -> list[dict]:
    """Per target and family: how many times shorter than `aligned`'s the times of the others are, first and best."""
    found = []
    for target in dict.fromkeys(row.target for row in rows):
        for family in dict.fromkeys(row.family for row in rows):
            own = [row for row in rows if (row.target, row.family) == (target, family)]
            if own:
                of_roller = gains(own, "roller")
                least = min(of_roller, key=lambda case: of_roller[case])
                found.append(
                    {
                        "target": target,
                        "family": family,
                        "cases": len(own),
                        "same_first": sum(row.first.get("roller") == row.first.get("aligned") for row in own),
                        "over": {p: [round(v, 3) for v in ratios(own, p)] for p in PROPOSERS[1:]},
                        "worst": [least, of_roller[least]],
                    }
                )
    return found


def compared(targets: Sequence[str] = TARGETS, families: Sequence[str] = FAMILIES) -> list[Row]:
    """All cases on all targets."""
    return [
        compare(family, case, target)
        for target in targets
        for family in families
        for case in cases_of(family)
    ]


def report(output: Path) -> None:
    """Writes all rows and their summary, and prints that with the milliseconds that proposing took."""
    rows = compared()
    found = {
        "command": "python -m tilewright.bench.proposers --gpus",
        "proposed": COUNT,
        "families": summary(rows),
        "rows": [
            {name: value for name, value in asdict(row).items() if name != "propose_ms"} for row in rows
        ],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(found, indent=1) + "\n")
    for line in found["families"]:
        own = [row for row in rows if (row.target, row.family) == (line["target"], line["family"])]
        took = {p: sum(row.propose_ms.get(p, 0.0) for row in own) / len(own) for p in ("aligned", "roller")}
        over = " | ".join(f"{first:.2f}x | {best:.2f}x" for first, best in line["over"].values())
        case, ratio = line["worst"]
        print(
            f"| {line['target']} | {line['family']} | {line['cases']} | {over} | {line['same_first']} | {ratio} ({case}) | "
            f"{took['aligned']:.1f}, {took['roller']:.1f} ms"
        )
