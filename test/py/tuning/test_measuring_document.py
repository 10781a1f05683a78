"""The example of docs/measuring.md runs as it stands, and the limits that the page states are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilewright.compiler.profiler.candidate_bench import MeasureOptions

TEXT = (Path(__file__).parents[3] / "docs/measuring.md").read_text(encoding="utf-8")


def test_the_example_runs(capsys, monkeypatch, tmp_path):
    pytest.importorskip("torch")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(block, "docs/measuring.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 8
    assert all(re.fullmatch(r" *[\d.]+ us  (tile|whole).*", line.rstrip()) for line in printed)


def test_the_limits_are_those_of_the_code():
    options = MeasureOptions()
    (early, behind_early), (late, behind_late) = options.kept
    for stated in (
        f"longer than {options.compile_timeout_s} s",
        f"runs for more than {options.run_timeout_s:g} s",
        f"up to {options.rounds} rounds and {options.seconds:g} s",
        f"more than {options.stop:g} times the best",
        f"{behind_early:g} times behind after {early} rounds, or {behind_late:g} times after {late}",
    ):
        assert stated in re.sub(r"\s+", " ", TEXT), stated
