"""A program raced against itself and against that of a lock, as a command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilewright.bench.race_programs import line, main, summary
from tilewright.compiler import driver
from tilewright.compiler.tuning.search.program_race import Raced, Sitting

MODEL = """
import torch


def layer():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU()).eval(), torch.ones(32, 64)
"""


def test_lines_say_what_every_race_came_to() -> None:
    faster = Raced((Sitting((10.0, 20.0), (8.0, 16.0)),) * 8)
    slower = Raced((Sitting((8.0,), (10.0,)),) * 2)
    failed = Raced(error="died of signal 11")
    assert line(faster) == "1.250x, taken: " + " ".join(["1.250"] * 8)
    assert line(slower) == "0.800x, left: 0.800 0.800"
    assert line(failed) == "died of signal 11"
    assert summary([faster, slower, failed]) == (
        "1.000x in the geometric mean, taken in 1 of 3 races; single sittings from 0.800 to 1.250"
    )
    assert summary([failed]) == "none of 1 races came to its end"


@pytest.mark.parametrize("is_locked", [False, True])
def test_the_command_races_and_keeps_a_record(
    is_locked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "race_models.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    arguments = ["race_models:layer", "--races", "1", "--threads", "1", "-o", "race.json"]
    if is_locked:
        import race_models  # type: ignore[import-not-found]

        module, x = race_models.layer()
        imported = driver.import_model(module, (x,))
        driver.tune_imported(imported, options={"trials": 4, "strategy": "random"}).lock.write(
            tmp_path / "layer.lock"
        )
        arguments += ["--lock", "layer.lock"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert result.output.startswith("1: ") and "in the geometric mean" in result.output
    data = json.loads((tmp_path / "race.json").read_text())
    (race,) = data["races"]
    assert 2 <= len(race["sittings"]) <= 8 and race["gain"] > 0 and not race["error"]
    assert data["lock"] == ("layer.lock" if is_locked else None)
