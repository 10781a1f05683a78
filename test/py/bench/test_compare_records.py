"""Two records of a suite compared: common cases with right results, by another contender too, and what cannot be compared."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tilewright.bench.compare_records import main, pairs


def record(times: dict[str, tuple[float, float]], **settings) -> dict:
    """A record of cases with the times of ours and of eager."""
    cases = [
        {
            "name": name,
            "outcomes": {
                who: {"status": "ok" if us else "wrong", "median_us": us}
                for who, us in zip(("tilewright", "eager"), both)
            },
        }
        for name, both in times.items()
    ]
    return {
        "suite": "gemm",
        "settings": {"threads": 2},
        "machine": {"processor": "P"},
        "cases": cases,
    } | settings


BEFORE = record({"a": (8.0, 10.0), "b": (9.0, 5.0), "gone": (1.0, 1.0), "wrong": (0.0, 1.0)})
AFTER = record({"new": (3.0, 1.0), "a": (4.0, 20.0), "b": (9.0, 10.0), "wrong": (2.0, 1.0)})


def test_cases_of_both_are_compared() -> None:
    assert [(pair.case, pair.ratio) for pair in pairs(BEFORE, AFTER)] == [("a", 2.0), ("b", 1.0)]
    assert [pair.ratio for pair in pairs(BEFORE, AFTER, "eager")] == [4.0, 2.0]


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"suite": "memory"}, "differ in suite: gemm and memory"),
        ({"settings": {"threads": 1}}, "differ in threads: 2 and 1"),
        ({"machine": {"processor": "Q"}}, "differ in processor: P and Q"),
        ({"cases": []}, "no case in common"),
    ],
)
def test_what_differs_otherwise_is_refused(other: dict, says: str) -> None:
    with pytest.raises(click.ClickException, match=says):
        pairs(BEFORE, AFTER | other)


def test_the_command_prints_cases_and_their_mean(tmp_path: Path) -> None:
    files = [tmp_path / "before.json", tmp_path / "after.json"]
    for file, data in zip(files, (BEFORE, AFTER)):
        file.write_text(json.dumps(data))
    result = CliRunner().invoke(main, [str(files[0]), str(files[1]), "--by", "eager"])
    assert result.exit_code == 0 and "2.828" in result.output and "4.00" in result.output
