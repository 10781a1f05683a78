"""The harness: errors by norm, interleaving, outcomes of every kind, means, documents and tables."""

from __future__ import annotations

import json
import math
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import torch

from tilewright.bench import adapters, harness, measure, report
from tilewright.bench.adapters import OURS, Prepared, Task, Unavailable
from tilewright.bench.harness import (
    CaseResult,
    Outcome,
    best_competitor,
    geometric_means,
    relative_error,
    run_case,
)
from tilewright.bench.machine import machine
from tilewright.bench.suites import Case

QUICK = measure.Budget(rounds=2, round_s=0.001, least_calls=2, warm_up_s=0.001)


class TestRelativeError:
    def test_is_by_norm_over_the_worst_output(self) -> None:
        expected = [np.array([3.0, 4.0]), np.array([1.0])]
        assert relative_error([np.array([3.0, 4.5]), np.array([1.0])], expected) == pytest.approx(0.1)

    @pytest.mark.parametrize(
        "found", [[], [np.ones((2, 1))], [np.array([1.0, np.nan])], [np.ones(2), np.ones(2)]]
    )
    def test_is_infinite_for_another_shape_count_or_nan(self, found: list) -> None:
        assert relative_error(found, [np.ones(2)]) == math.inf

    def test_zeros_are_compared_absolutely(self) -> None:
        assert relative_error([np.array([0.5])], [np.zeros(1)]) == 0.5

    def test_shared_infinities_are_no_error(self) -> None:
        assert relative_error([np.array([np.inf, 1.0])], [np.array([np.inf, 1.0])]) == 0


class TestInterleaving:
    def test_contenders_take_turns_in_every_round(self) -> None:
        order: list[str] = []
        times = measure.interleave({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, QUICK)
        turns = [name for index, name in enumerate(order) if index == 0 or order[index - 1] != name]
        # Once each to calibrate, then twice for the rounds.
        assert turns == ["a", "b"] * 3
        assert {name: len(rounds) for name, rounds in times.items()} == {"a": 2, "b": 2}

    def test_the_ratio_is_the_median_of_rounds(self) -> None:
        assert measure.ratio([2.0, 30.0, 4.0], [1.0, 1.0, 1.0]) == 4.0


def fake(monkeypatch: pytest.MonkeyPatch, **contenders) -> list[str]:
    """Replaces contenders' `prepare` functions; eager stays."""
    real = adapters.load
    monkeypatch.setattr(adapters, "load", lambda name: contenders[name] if name in contenders else real(name))
    return list(contenders)


def doubling(factor: float, note: str = ""):
    """A contender that computes `factor` times the right result."""

    def prepare(task: Task) -> Prepared:
        def outputs() -> list:
            with torch.no_grad():
                return [factor * task.module(*task.inputs).numpy()]

        return Prepared(outputs, outputs, note)

    return prepare


CASE = Case("linear", lambda: (torch.nn.Linear(4, 2).eval(), (torch.ones(3, 4),)))


class TestOutcomes:
    def test_of_every_kind_are_kept_apart(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(task: Task) -> Prepared:
            raise Unavailable("not installed (pip install b)")

        def broken(task: Task) -> Prepared:
            raise KeyError("operator")

        names = fake(monkeypatch, tilewright=doubling(1.0, "fine"), a=doubling(1.01), b=missing, c=broken)
        result = run_case(CASE, [*names, "eager"], 1, QUICK)
        assert {n: o.status for n, o in result.outcomes.items()} == {
            "tilewright": "ok", "a": "wrong", "b": "unavailable", "c": "failed", "eager": "ok",
        }  # fmt: skip
        assert result.outcomes["a"].error == pytest.approx(0.01, rel=1e-3)
        assert result.outcomes["c"].note == "KeyError: 'operator'"
        assert result.outcomes["b"].median_us is None
        assert result.outcomes["eager"].speed and result.outcomes["eager"].speed > 0
        assert result.flops == 2 * 3 * 4 * 2

    def test_one_that_takes_too_long_is_left_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def slow(task: Task) -> Prepared:
            time.sleep(30)
            raise AssertionError("nobody stopped it")

        names = fake(monkeypatch, tilewright=doubling(1.0), b=slow)
        outcomes = run_case(CASE, names, 1, QUICK, compile_limit_s=0.2).outcomes
        assert outcomes["b"].note == "not ready after 0.2 s (--compile-limit)"
        assert (outcomes["b"].status, outcomes[OURS].status) == ("unavailable", "ok")

    def test_the_limit_is_told_from_failures_that_it_causes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def wrapping(task: Task) -> Prepared:
            try:
                time.sleep(30)
            except Unavailable as stopped:
                raise RuntimeError("the compiler gave up") from stopped
            raise AssertionError("nobody stopped it")

        names = fake(monkeypatch, tilewright=doubling(1.0), b=wrapping)
        outcome = run_case(CASE, names, 1, QUICK, compile_limit_s=0.2).outcomes["b"]
        assert (outcome.status, outcome.note) == ("unavailable", "not ready after 0.2 s (--compile-limit)")

    def test_every_reason_is_given_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(task: Task) -> Prepared:
            raise Unavailable("not installed")

        names = fake(monkeypatch, tilewright=doubling(1.0), b=missing)
        results = [run_case(CASE, names, 1, QUICK) for _ in range(2)]
        assert report.notes(results) == ["b (all cases): unavailable: not installed"]


class _Scaled(torch.nn.Module):
    """Returns a product with a parameter that starts at two."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.full((3,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def test_steps_of_training_give_results_and_gradients_of_one_step(tmp_path: Path) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    found = {
        name: adapters.load(name)(Task(_Scaled(), (x,), 1, tmp_path, training=True)).outputs()
        for name in ("eager", OURS)
    }
    torch._dynamo.reset()
    result, gradient = found["eager"]
    assert np.array_equal(result, 2 * x) and gradient.shape == (3,) and np.abs(gradient).min() > 0
    assert relative_error(found[OURS], found["eager"]) < 1e-6


def test_who_computes_no_gradients_takes_no_part_in_training() -> None:
    case = Case("scaled", lambda: (_Scaled(), (torch.ones(2, 3),)), training=True)
    outcome = run_case(case, ["eager", "onnxruntime"], 1, QUICK).outcomes
    assert outcome["eager"].status == "ok"
    assert (outcome["onnxruntime"].status, outcome["onnxruntime"].note) == (
        "unavailable",
        "it computes no gradients",
    )


def result(name: str, ours: str, theirs: str, speed: float) -> CaseResult:
    return CaseResult(
        name, 10, {}, {OURS: Outcome(ours, median_us=1.0), "eager": Outcome(theirs, median_us=1, speed=speed)}
    )


def test_means_are_geometric_and_leave_out_what_was_wrong() -> None:
    rows = [
        result("a", "ok", "ok", 2.0),
        result("b", "ok", "ok", 8.0),
        result("c", "wrong", "ok", 100.0),
        result("d", "ok", "wrong", 100.0),
    ]
    assert geometric_means(rows) == {"eager": 4.0}
    assert geometric_means([rows[2]]) == {}


class TestDocument:
    def test_goes_to_disk_whole_and_is_drawn(self, tmp_path: Path) -> None:
        rows = [result("a", "ok", "ok", 2.0), result("b", "failed", "ok", 1.0)]
        settings = {"threads": 1}
        data = report.document("gemm", rows, [OURS, "eager"], settings, datetime.now(UTC), machine())
        path = tmp_path / "deep" / "r.json"
        report.write_json(path, data)
        read = json.loads(path.read_text())
        assert read["geometric_mean_times_ours"] == {"eager": 2.0}
        assert read["machine"]["processor"] and read["versions"]["torch"] == torch.__version__
        assert read["command"].startswith("tilewright")
        assert list(path.parent.iterdir()) == [path]
        report.plot(tmp_path / "r.png", read)
        assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")

    def test_a_table_has_a_row_per_case_and_the_mean(self) -> None:
        rows = [result("a", "ok", "ok", 2.0)]
        assert report.table("gemm", rows, [OURS, "eager"], 1).row_count == 2


@pytest.mark.parametrize(
    ("us", "text"), [(None, "-"), (812.4, "0.812"), (12_345.0, "12.35"), (123_456.0, "123")]
)
def test_times_keep_three_digits(us: float | None, text: str) -> None:
    assert report.milliseconds(us) == text


def test_ours_comes_first_and_inductor_runs_twice() -> None:
    assert adapters.expand(["inductor", "eager", "inductor"]) == [
        OURS, "inductor", "inductor-frozen", "eager",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="unknown competitor `xla`; there are: eager, inductor"):
        adapters.expand(["xla"])


def test_a_missing_package_says_how_to_get_it() -> None:
    with pytest.raises(Unavailable, match=r"not installed \(pip install 'nothing-like-it'\)"):
        adapters.require("nothing_like_it", "nothing-like-it")


@pytest.mark.parametrize(("name", "package"), [("onnxruntime", "onnxscript"), ("openvino", "openvino")])
def test_competitors_agree_with_eager(name: str, package: str) -> None:
    pytest.importorskip(package)
    pytest.importorskip("onnxscript")
    outcome = run_case(CASE, [name], 1, QUICK).outcomes[name]
    assert outcome.status == "ok", outcome.note


def test_a_run_s_cache_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.compiler.settings import settings

    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", "before")
    with harness.cold_cache() as folder:
        assert folder in settings().cache_dir.parents
    assert str(settings().cache_dir) == "before"


def test_the_tool_writes_results_and_fails_when_ours_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from click.testing import CliRunner

    from tilewright.compiler.cli.main import main

    monkeypatch.setattr(harness, "pin_threads", lambda threads: None)
    fake(monkeypatch, tilewright=doubling(1.0))
    arguments = [
        "bench",
        "--suite",
        "gemm",
        "--cases",
        "1x256x1024",
        "--rounds",
        "1",
        "--quick",
        "--no-limits",
        "-o",
    ]
    right = CliRunner().invoke(main, [*arguments, str(tmp_path / "r.json")])
    assert right.exit_code == 0, right.output
    assert json.loads((tmp_path / "r.json").read_text())["cases"][0]["outcomes"][OURS]["status"] == "ok"
    assert (tmp_path / "r.png").exists()
    fake(monkeypatch, tilewright=doubling(2.0))
    wrong = CliRunner().invoke(main, [*arguments, str(tmp_path / "w.json")])
    assert wrong.exit_code == 1
    assert "failed or was wrong on: 1x256x1024" in wrong.output


def test_other_levels_of_ours_are_timed_and_are_no_competitors() -> None:
    outcomes = {
        name: Outcome("ok", median_us=us, speed=us / 10.0)
        for name, us in ((OURS, 10.0), ("tilewright-O0", 4.0), ("eager", 30.0))
    }
    assert best_competitor(CaseResult("case", 1, {}, outcomes, "f32")) == "eager"


def test_a_search_is_asked_for_as_it_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import tilewright

    asked: list[dict] = []

    def compile(module, inputs, **options):
        asked.append(options)
        return module

    monkeypatch.setattr(tilewright, "compile", compile)
    task = adapters.Task(torch.nn.ReLU(), (torch.ones(2),), 1, tmp_path, "O2", search={"trials": 5})
    for name in adapters.OWN:
        adapters.load(name)(task)
    assert asked == [
        {"target": "cpu", "opt": "O2", "trials": 5},
        {"target": "cpu", "opt": "O0"},
        {"target": "cpu", "opt": "O1"},
    ]
