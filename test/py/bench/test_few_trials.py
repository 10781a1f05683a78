"""Few trials against many random ones: on a device that is simulated, as a page, and as a command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "tuning"))

from bowl_task import BowlTask, bowl_us

from tilewright.bench import few_trials, search_results
from tilewright.bench.few_trials import CaseResult, FewTrials, measure_case
from tilewright.bench.few_trials_report import tables
from tilewright.compiler.cli.main import main
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.tuning.search.simulated_device import SimulatedDevice


def measured(us=bowl_us, trials: int = 200, **given) -> tuple[CaseResult, list[Path | None]]:
    asked: list[Path | None] = []

    def make_device(records: Path | None) -> SimulatedDevice:
        asked.append(records)
        return SimulatedDevice(us, **given)

    kept = Path("kept.sqlite")
    strategies = ("genetic", "roller")
    return measure_case("bowl", BowlTask(), make_device, kept, trials, 16, strategies, seeds=2), asked


def test_what_few_trials_found_races_what_many_found() -> None:
    found, asked = measured()
    assert (found.trials, found.failures, len(found.searches)) == (200, 0, 4)
    assert [(one.strategy, one.seed) for one in found.searches] == [
        ("genetic", 0), ("genetic", 1), ("roller", 0), ("roller", 1),
    ]  # fmt: skip
    # Random search alone has records: what is known would cost the others no time.
    assert asked[0] == Path("kept.sqlite") and set(asked[1:]) == {None}
    for one in found.searches:
        assert one.gain == pytest.approx(found.random_us / one.us) and one.seconds > 0
        assert one.trials == (4 if one.strategy == "roller" else 16)
        assert one.us <= found.constructed_us
    points = BowlTask().space.sample(10**6, np.random.default_rng(0))
    assert found.random_us >= float(BowlTask().us(points).min())


def test_random_search_may_be_behind() -> None:
    """Ten candidates of hundreds; Roller's are on the way to the fastest."""
    found, _ = measured(trials=10)
    roller = [one for one in found.searches if one.strategy == "roller"]
    assert all(one.gain > 1.0 and one.is_reached for one in roller)


@pytest.mark.parametrize(
    ("trials", "seconds", "gain", "is_reached"),
    [
        (16, 59.0, 1.0, True),
        (16, 59.0, 0.995, True),
        (16, 59.0, 0.98, False),
        (17, 59.0, 1.0, False),
        (16, 61.0, 1.0, False),
    ],
)
def test_it_is_reached_by_what_is_level_in_few_trials_and_time(
    trials: int, seconds: float, gain: float, is_reached: bool
) -> None:
    assert FewTrials("pruner", 0, trials, seconds, 1.0, gain).is_reached is is_reached


def test_failures_are_counted_and_a_case_of_which_nothing_runs_is_told() -> None:
    found, _ = measured(crashes=0.2, seed=1)
    assert 0 < found.failures < found.trials
    with pytest.raises(TilewrightError, match="bowl: none of 20 random candidates runs"):
        measured(trials=20, crashes=1.0)


def test_tables_say_what_the_slowest_seed_came_to() -> None:
    found, _ = measured()
    data = {"cases": [found.to_json()], "few": 16, "limit_s": 60.0, "threads": 1}
    cases, strategies = tables(data)
    cells = [list(column.cells) for column in cases.columns]
    worst = min(one.gain for one in found.searches if one.strategy == "genetic")
    assert cells[0] == ["bowl"] and f"{worst:.3f}x" in [cell for (cell,) in cells]
    reached = [list(column.cells) for column in strategies.columns][1]
    for name, text in zip(("genetic", "roller"), reached, strict=True):
        own = [one for one in found.searches if one.strategy == name]
        assert text == f"{sum(one.is_reached for one in own)} of 2"


def test_the_command_measures_and_its_record_is_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("xgboost")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(few_trials, "ROUNDS", 3)
    output = tmp_path / "few-trials.json"
    arguments = [
        "bench",
        "--suite",
        "few-trials",
        "--cases",
        "C11",
        "--quick",
        "--threads",
        "1",
        "-o",
        str(output),
    ]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    (case,) = json.loads(output.read_text())["cases"]
    assert case["case"] == "C11" and case["random"]["trials"] == few_trials.QUICK_TRIALS
    assert next((one["strategy"], one["trials"]) for one in case["searches"]) == ("pruner", 16)
    assert all(one["us"] > 0 and one["seconds"] > 0 for one in case["searches"])
    assert output.with_suffix(".sqlite").exists()
    result = CliRunner().invoke(search_results.main, [str(output), "--folder", str(tmp_path)])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "few-trials.md").read_text()
    assert "--suite few-trials --cases C11 --threads 1 -o" in page and "| C11 |" in page
    result = CliRunner().invoke(main, ["bench", "--suite", "few-trials", "--cases", "C13"])
    assert result.exit_code == 1 and "C13" in result.output + str(result.exception)
