"""Cold compiles of several checkouts: each in turn, with a cache of its own, and what fails says where."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilewright.bench import cold_compile

TOOL = """#!/bin/sh
[ "$2" = refused ] && {{ echo "no such operator" >&2; exit 1; }}
[ -e "$TILEWRIGHT_CACHE_DIR" ] && {{ echo "the cache is not empty" >&2; exit 1; }}
mkdir -p "$TILEWRIGHT_CACHE_DIR" && echo "$2 $OMP_NUM_THREADS" >> calls
echo "$2: 3 dispatches of {kernels} kernels"
"""


def checkout(folder: Path, kernels: int) -> Path:
    """A repository whose tool only writes down that it was called."""
    tool = folder / ".venv/bin/tilewright"
    tool.parent.mkdir(parents=True)
    tool.write_text(TOOL.format(kernels=kernels))
    tool.chmod(0o755)
    (folder / "name").write_text(str(kernels))
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "name"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], check=True)
    return folder


@pytest.fixture
def checkouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    before, here = checkout(tmp_path / "before", 9), checkout(tmp_path / "here", 7)
    monkeypatch.setattr(cold_compile, "HERE", here)
    return before, here


def run(*arguments: str):
    return CliRunner().invoke(cold_compile.main, arguments)


def test_checkouts_take_turns(checkouts: tuple[Path, Path], tmp_path: Path) -> None:
    before, here = checkouts
    output = tmp_path / "record.json"
    found = run("a", "b", "--beside", str(before), "--rounds", "2", "-o", str(output))
    assert found.exit_code == 0, found.output
    for folder in checkouts:
        assert (folder / "calls").read_text().splitlines() == ["a 1", "a 1", "b 1", "b 1"]
    record = json.loads(output.read_text())
    names = [cold_compile.revision(folder) for folder in (before, here)]
    assert record["checkouts"] == names and len({*names}) == 2
    assert str(tmp_path) not in output.read_text()
    for case, model in zip(record["cases"], "ab", strict=True):
        assert (case["model"], case["kernels"]) == (model, 7)
        assert list(case["rounds_s"]) == names and all(len(own) == 2 for own in case["rounds_s"].values())
    assert found.output.count("\n") == 4


def test_what_does_not_compile_is_named(checkouts: tuple[Path, Path], tmp_path: Path) -> None:
    found = run("refused")
    assert found.exit_code == 1 and "refused does not compile: no such operator" in found.output
    (checkouts[1] / ".venv/bin/tilewright").unlink()
    assert "run `make setup`" in run("a").output
    (tmp_path / "empty").mkdir()
    assert run("a", "--beside", str(tmp_path / "empty")).exit_code == 1


def test_checkouts_of_one_revision_are_refused(checkouts: tuple[Path, Path]) -> None:
    found = run("a", "--beside", str(checkouts[1]))
    assert found.exit_code == 2 and "two checkouts are of one revision" in found.output


def test_the_ratio_is_of_the_last_to_the_first() -> None:
    case = cold_compile.Compiled("m", 5, {"one": [8.0, 12.0], "two": [4.0, 6.0]})
    assert cold_compile.row(case) == "| m | 5 | 10.0 | 5.0 | 0.50 |"
