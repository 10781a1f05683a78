"""docs/roller.md: its Python runs and prints what it shows, its tables are those of the record beside it."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

from tilewright.compiler.tuning.roller.alignment import AXIS_RULES

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs/roller.md").read_text(encoding="utf-8")
RECORD = json.loads((ROOT / "bench/results/roller119-construct-v100.json").read_text(encoding="utf-8"))
KINDS = {
    "all": "all", "convolution": "conv2d", "depthwise convolution": "depthwise_conv2d", "relu": "relu",
    "average pooling": "avg_pool2d", "matmul": "matmul", "mean": "reduce_mean",
}  # fmt: skip


def rows(first: str) -> list[list[str]]:
    """Cells of the table rows that follow the header starting with `first`."""
    table = TEXT[TEXT.index(first) :].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_example_prints_what_is_shown() -> None:
    code, shown = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", TEXT, re.DOTALL).groups()  # type: ignore[union-attr]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "roller.md", "exec"), {})
    assert printed.getvalue() == shown


def test_the_agreement_is_the_record_s() -> None:
    for name, count, spearman, within, ratio in rows("| operators | n | Spearman"):
        if name in KINDS:
            found = RECORD["agreement"][KINDS[name]]
            assert int(count) == found["operators"]
        else:
            found = RECORD["roofline"]
        assert spearman == f"{found['spearman']:.3f}"
        assert within == f"{found['within_20_percent']:.0%}"
        assert ratio == f"{found['geometric_mean_ratio']:.2f}"


def test_construction_is_as_fast_as_stated() -> None:
    times = RECORD["construct_ms"]
    assert f"in {times['mean']:.0f} ms of processor time each and {times['worst']:.0f} ms at most" in TEXT
    assert times["mean"] <= 50
    assert times["worst"] < 500
    assert RECORD["fewest_programs"] == 10


def test_the_ablation_is_the_record_s() -> None:
    predicted, published = rows("| | none | + transaction")
    assert predicted[1:] == [f"{row['mean_speedup']:.2f}" for row in RECORD["ablation"]]
    assert published[1:] == [f"{row['published_mean_speedup']:.2f}" for row in RECORD["ablation"]]


def test_measured_programs_are_the_record_s() -> None:
    for device, operators, programs, spearman, warps, nearest, picked in rows(
        "| device | operators | programs"
    ):
        found = RECORD["measured_programs"][device.lower()]["summary"]["all"]
        assert (int(operators), int(programs.replace(",", ""))) == (found["operators"], found["programs"])
        assert spearman == f"{found['median_spearman']:.2f}"
        assert warps == f"{found['median_aligned_spearman']:.2f}"
        assert nearest == f"{found['geometric_mean_best_over_nearest']:.2f}"
        assert picked == f"{found['geometric_mean_best_over_picked']:.2f}"


def test_every_rule_is_described() -> None:
    described = {row[0].strip("`") for row in rows("| rule | a tile conforms when")}
    assert described == set(AXIS_RULES)
