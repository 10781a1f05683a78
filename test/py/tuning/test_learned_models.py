"""Cost models on made-up measurements whose right order is known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from tilewright.compiler.errors import CostModelError
from tilewright.compiler.tuning.cost_models.cost_model import Samples
from tilewright.compiler.tuning.cost_models.registry import COST_MODELS, make_cost_model
from tilewright.compiler.tuning.features.feature_set import Features, Steps, Table
from tilewright.compiler.tuning.features.loop_context import STATEMENT
from tilewright.compiler.tuning.features.static_analysis import COLUMNS

pytest.importorskip("xgboost")
pytest.importorskip("torch")

UNTRAINED = ("micro-performance", "static-analyser")
TRAINED = [name for name in COST_MODELS if name not in UNTRAINED]
# Seconds for each test: what it is made of has all of them for its own.
ALONE = [pytest.param(name, marks=pytest.mark.slow if name == "pacm-bootstrap" else ()) for name in TRAINED]
FLOW = 3


def table(matrix: np.ndarray, *names: str) -> Table:
    return Table(names, ("",) * len(names), matrix)


def candidates(count: int, seed: int) -> tuple[Features, np.ndarray]:
    """Features of candidates, and the microseconds that they take: most where both columns of `statement` are far off."""
    rng = np.random.default_rng(seed)
    statement, model = rng.normal(size=(count, 4)), rng.uniform(1, 9, size=(count, 1))
    flow = rng.normal(size=(count, 5, FLOW))
    us = 10 + 5 * np.abs(statement[:, 0] - 0.3) + 3 * np.maximum(statement[:, 1], 0) * (statement[:, 2] > 0)
    loops = np.concatenate([statement[:, None], rng.normal(size=(count, 3, 4))], axis=1)
    begins = np.tile([[0.0], [1.0], [0.0], [1.0]], (count, 1, 1))
    features = {
        "context-relation": table(statement, "a", "b", "c", "d"),
        "loop-context": Steps(
            ("a", "b", "c", "d", STATEMENT),
            ("",) * 5,
            np.concatenate([loops, begins], axis=2),
            np.full(count, 4),
        ),
        "statement": table(statement, "a", "b", "c", "d"),
        "micro-performance": table(model, "us"),
        "data-flow": Steps(("x", "y", "z"), ("",) * 3, flow, np.full(count, 5)),
        "static-analysis": Steps(
            tuple(COLUMNS), tuple(COLUMNS.values()), np.ones((count, 2, len(COLUMNS))), np.full(count, 2)
        ),
    }
    return features, us


def samples(count: int, seed: int, task: str = "task", scale: float = 1.0) -> Samples:
    features, us = candidates(count, seed)
    return Samples(task, features, us * scale)


def agreement(model, seed: int = 99) -> float:
    """The rank correlation of scores and speeds of candidates that the model has not seen."""
    features, us = candidates(300, seed)
    return float(spearmanr(model.predict(features).mean, -us).statistic)


@pytest.mark.parametrize("name", TRAINED)
def test_order_is_learned_from_tasks_of_any_scale(name: str) -> None:
    model = make_cost_model(name, seed=1)
    assert np.ptp(model.predict(candidates(8, 0)[0]).mean) == 0
    model.fit([samples(150, 1), samples(150, 2, "another", scale=100.0)])
    assert agreement(model) > 0.8


@pytest.mark.parametrize("name", ALONE)
def test_more_measurements_make_a_better_model(name: str) -> None:
    model = make_cost_model(name, seed=1)
    model.fit([samples(12, 3)])
    before = agreement(model)
    model.update([samples(300, 4)])
    # Rounds of momentum transfer are short, so as not to forget the source.
    floor = 0.5 if name.endswith("momentum") else 0.7
    assert agreement(model) > max(before, floor)


@pytest.mark.parametrize("name", ALONE)
def test_the_same_samples_make_the_same_model(name: str) -> None:
    models = [make_cost_model(name, seed=3) for _ in range(2)]
    for model in models:
        model.fit([samples(60, 5)])
    features, _ = candidates(50, 6)
    first, second = (model.predict(features) for model in models)
    assert np.array_equal(first.mean, second.mean) and np.array_equal(first.std, second.std)


@pytest.mark.parametrize("name", COST_MODELS)
def test_a_saved_model_predicts_the_same_and_learns_on(name: str, tmp_path: Path) -> None:
    model = make_cost_model(name, seed=2)
    model.fit([samples(80, 7)])
    model.save(tmp_path / "model")
    again = type(model).load(tmp_path / "model")
    features, _ = candidates(50, 8)
    assert np.allclose(again.predict(features).mean, model.predict(features).mean, atol=1e-6)
    again.update([samples(200, 9)])
    if name in TRAINED:
        assert agreement(again) > 0.6


@pytest.mark.parametrize("name", COST_MODELS)
def test_files_of_other_kinds_and_versions_are_refused(name: str, tmp_path: Path) -> None:
    model = make_cost_model(name)
    path = tmp_path / "model"
    for content in (b"", b"\x80\x04\x95pickle", b"[1, 2]", json.dumps({"kind": "other"}).encode()):
        path.write_bytes(content)
        with pytest.raises(CostModelError, match=r"model"):
            type(model).load(path)
    model.save(path)
    whole = path.read_bytes()
    path.write_bytes(
        whole.replace(b'"version": 1', b'"version": 9').replace(b'\\"version\\": 1', b'\\"version\\": 9')
    )
    with pytest.raises(CostModelError, match=r"version 9"):
        type(model).load(path)


@pytest.mark.parametrize("name", TRAINED)
def test_failures_are_slow(name: str) -> None:
    model = make_cost_model(name)
    given = samples(120, 10)
    features = given.features["statement"]
    assert isinstance(features, Table)
    failed = features.matrix[:, 3] > 0
    model.fit([Samples("task", given.features, np.where(failed, np.inf, 10.0))])
    tested, _ = candidates(100, 11)
    matrix = tested["statement"].matrix  # type: ignore[union-attr]
    scores = model.predict(tested).mean
    assert scores[matrix[:, 3] < -0.3].mean() > scores[matrix[:, 3] > 0.3].mean()


def test_nothing_is_learned_where_all_failed() -> None:
    for name in TRAINED:
        model = make_cost_model(name)
        model.fit([Samples("task", candidates(20, 1)[0], np.full(20, np.inf))])
        assert np.isfinite(model.predict(candidates(5, 2)[0]).mean).all()


def test_pacm_reads_the_order_of_steps() -> None:
    rng = np.random.default_rng(0)

    def of_steps(count: int) -> tuple[Features, np.ndarray]:
        flow = rng.normal(size=(count, 4, FLOW))
        us = 10 + 4 * flow[:, 0, 0] - 4 * flow[:, 3, 0]
        constant = table(np.ones((count, 2)), "a", "b")
        return {
            "statement": constant,
            "data-flow": Steps(("x", "y", "z"), ("",) * 3, flow, np.full(count, 4)),
        }, us

    model = make_cost_model("pacm")
    features, us = of_steps(400)
    model.fit([Samples("task", features, us - us.min() + 5)])
    features, us = of_steps(200)
    assert spearmanr(model.predict(features).mean, -us).statistic > 0.7


def test_uncertainty_is_larger_where_nothing_was_measured() -> None:
    model = make_cost_model("trees-bootstrap")
    model.fit([samples(100, 1)])
    assert (model.predict(candidates(50, 2)[0]).std > 0).any()


def test_what_a_model_lacks_is_named() -> None:
    with pytest.raises(
        CostModelError,
        match=r"no cost model is named `forest`; there are micro-performance, static-analyser, trees",
    ):
        make_cost_model("forest")
    with pytest.raises(CostModelError, match=r"reads the table `micro-performance`"):
        make_cost_model("trees").predict({"statement": table(np.ones((2, 1)), "a")})
    model = make_cost_model("trees")
    model.fit([samples(30, 1)])
    features, _ = candidates(4, 1)
    renamed = table(np.ones((4, 4)), "a", "b", "c", "e")
    with pytest.raises(CostModelError, match=r"other columns"):
        model.predict({**features, "statement": renamed})


def test_the_micro_performance_model_takes_the_shortest_time() -> None:
    features, _ = candidates(30, 1)
    found = make_cost_model("micro-performance").predict(features)
    us = features["micro-performance"].matrix[:, 0]  # type: ignore[union-attr]
    assert np.argmax(found.mean) == np.argmin(us)
