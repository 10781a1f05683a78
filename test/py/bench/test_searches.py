"""Searches judged by what an oracle measured: pools of this CPU's dispatches, transfer between them, the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tilewright.bench import searches, searches_report
from tilewright.bench.baseline_models import RandomOrder
from tilewright.bench.measured_dispatches import MeasuredDispatch, sampled
from tilewright.bench.replay import Search, replay
from tilewright.bench.searches import run_search
from tilewright.bench.stored_programs import ReplayDevice, StoredTask
from tilewright.compiler.cli.main import main
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.nouns.space import Knob, Space
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning import operators
from tilewright.compiler.tuning.cost_models.cost_model import Prediction
from tilewright.compiler.tuning.features.feature_set import Table


def dispatch(name: str, seed: int, count: int = 40) -> MeasuredDispatch:
    """Times that the only knob decides, a tenth of them failures."""
    rng = np.random.default_rng(seed)
    knob = rng.permutation(count).astype(float)
    us = 100 + 10 * knob
    us[knob > 0.9 * count] = np.inf
    sets = {
        "knobs": Table(("knob",), ("",), knob[:, None]),
        "micro-performance": Table(
            ("us",), ("us",), us.max(initial=1, where=np.isfinite(us)) - knob[:, None]
        ),
    }
    work = operators.matmul(64, 64, 64)
    return MeasuredDispatch(name, work, resolve("cpu"), us, (100.0, 100.0), ("",) * count, count, 0.0, sets)  # type: ignore[arg-type]


class ReadsKnob(RandomOrder):
    """Knows which way the knob goes once it was fitted."""

    def __init__(self, seed: int = 0):
        super().__init__(seed)
        self.sign = 0.0

    def fit(self, samples) -> None:
        self.sign = -1.0

    update = fit

    def predict(self, features) -> Prediction:
        return Prediction(self.sign * features["knobs"].matrix[:, 0], np.zeros(len(features["knobs"])))


def test_what_is_known_of_others_saves_trials() -> None:
    pools = [dispatch(f"C{n}", n) for n in range(1, 4)]
    found = {
        knows: run_search(
            pools[1:], Search("s", "m", knows=knows, learns=True, explored=0.0, batch=4),
            lambda _, seed: ReadsKnob(seed), 3, pools[:1],
        )
        for knows in (True, False)
    }  # fmt: skip
    assert found[True].trials["98%"].seeds == (1.0, 1.0, 1.0)
    assert 1 <= found[False].trials["98%"].mean <= 5
    assert found[True].quarter == 1 and found[True].best_at[4].mean == 1
    chance = run_search(pools[1:], Search("random", batch=4), lambda _, seed: ReadsKnob(seed), 3)
    assert chance.trials["98%"].mean > found[False].trials["98%"].mean
    assert chance.by_case.keys() == {"C2", "C3"}


@pytest.mark.parametrize(
    "search",
    [
        Search("diverse", "m", learns=True, diverse=True, batch=4),
        Search("improvement", "m", learns=True, worth="ei", batch=4),
        Search("bound", "m", learns=True, worth="ucb", batch=4),
    ],
    ids=lambda search: search.name,
)
def test_what_a_score_is_worth_is_better_than_chance_and_nothing_is_measured_twice(search: Search) -> None:
    pool = dispatch("C1", 1)
    task = StoredTask(pool, np.arange(len(pool)))

    def trials(asked: Search) -> float:
        found = []
        for seed in range(10):
            us = replay(task, asked, ReadsKnob(seed) if asked.model else None, seed)
            assert len(set(us[np.isfinite(us)])) == np.isfinite(us).sum()
            found.append(len(us))
        return float(np.mean(found))

    assert trials(search) < 0.8 * trials(Search("random", batch=4))


def test_children_of_the_fastest_are_faster_than_what_is_drawn() -> None:
    knobs = np.random.default_rng(5).integers(0, 8, size=(400, 4)).astype(float)
    us = 10 + 20 * knobs.sum(axis=1)
    sets = {"knobs": Table(("a", "b", "c", "d"), ("",) * 4, knobs)}
    sets["micro-performance"] = Table(("us",), ("us",), us[:, None])
    work = operators.matmul(64, 64, 64)
    pool = MeasuredDispatch("C1", work, resolve("cpu"), us, (1.0, 1.0), ("",) * 400, 400, 0.0, sets)  # type: ignore[arg-type]
    task = StoredTask(pool, np.arange(len(pool)))
    searches_ = (Search("genetic", genetic=True, batch=8), Search("random", batch=8))
    bred, drawn = (np.mean([len(replay(task, s, None, seed, 400)) for seed in range(10)]) for s in searches_)
    assert bred < 0.6 * drawn


def test_failures_are_trials() -> None:
    pool, device = dispatch("C1", 0), ReplayDevice()
    task = StoredTask(pool, np.arange(len(pool)))
    failed = int(np.flatnonzero(np.isinf(pool.us))[0])
    device.submit(task, [np.asarray([failed])])
    (outcome,) = device.outcomes()
    assert outcome.error and not outcome.rounds_us and outcome.is_final
    assert task.seeds(2).shape == (2, 1)
    with pytest.raises(TilewrightError, match="no features data-flow were kept"):
        pool.features(frozenset({"data-flow"}))


def test_a_sample_begins_with_the_default_and_has_no_point_twice() -> None:
    class Task:
        space = Space(
            (Knob("a", tuple(range(16))), Knob("b", tuple(range(16)))), (),
            lambda v: (v["a"], v["b"]), lambda s: {"a": s[0], "b": s[1]}, (3, 5),
        )  # fmt: skip

        def seeds(self, count: int) -> np.ndarray:
            return np.asarray([[3, 5], [1, 1]])[:count]

    points = sampled(Task(), 30, np.random.default_rng(0))  # type: ignore[arg-type]
    assert points.shape == (31, 2) and points[0].tolist() == [3, 5] and [1, 1] in points.tolist()
    assert len({tuple(p) for p in points.tolist()}) == 31
    assert (points == sampled(Task(), 30, np.random.default_rng(0))).all()  # type: ignore[arg-type]


def test_the_command_measures_and_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("xgboost")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(searches_report, "SEARCHES", searches.SEARCHES[:3])
    output = tmp_path / "out.json"
    arguments = [
        "bench",
        "--suite",
        "searches",
        "--cases",
        "C12",
        "--quick",
        "--threads",
        "1",
        "-o",
        str(output),
    ]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    data = json.loads(output.read_text())
    (case,) = data["cases"]
    assert case["case"] == "C12" and case["schedules"] == searches.QUICK_SCHEDULES
    assert 0 < case["best_us"] <= case["median_us"]
    assert case["raced_constructed_us"] > 0 and case["raced_best_us"] > 0
    assert [row["search"] for row in data["searches"]][:2] == ["random", "roller"]
    assert all(1 <= row["trials"]["98%"]["mean"] <= case["schedules"] for row in data["searches"])
    assert output.with_suffix(".png").exists() and output.with_suffix(".sqlite").exists()
    result = CliRunner().invoke(main, ["bench", "--suite", "searches", "--cases", "C13"])
    assert result.exit_code == 1 and "C13" in result.output + str(result.exception)
