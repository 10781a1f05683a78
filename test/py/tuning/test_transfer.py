"""Transfer of cost models on made-up devices: what the target does is what the source does, and a known distortion."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from tilewright.compiler.errors import CostModelError
from tilewright.compiler.tuning.cost_models.cost_model import CostModel, Samples
from tilewright.compiler.tuning.cost_models.global_local import GlobalLocal
from tilewright.compiler.tuning.cost_models.momentum import MomentumStatementNetwork
from tilewright.compiler.tuning.cost_models.registry import COST_MODELS, make_cost_model
from tilewright.compiler.tuning.cost_models.trees import Trees
from tilewright.compiler.tuning.features.feature_set import Features, Steps, Table

pytest.importorskip("xgboost")
pytest.importorskip("torch")

MOMENTUM = ("mlp-momentum", "pacm-momentum")
SOURCES = 4


def features(count: int, seed: int) -> Features:
    rng = np.random.default_rng(seed)
    names = ("a", "b", "c", "d", *(f"of no effect {number}" for number in range(8)))
    return {
        "statement": Table(names, ("",) * 12, rng.normal(size=(count, 12))),
        "micro-performance": Table(("us",), ("us",), np.ones((count, 1))),
        "data-flow": Steps(("x",), ("",), rng.normal(size=(count, 3, 1)), np.full(count, 3)),
    }


def measured(count: int, seed: int, device: str, task: str = "task") -> Samples:
    """The source is slow where a, b and c are far from nothing; the target besides where d is large."""
    found = features(count, seed)
    table = found["statement"]
    assert isinstance(table, Table)
    a, b, c, d = table.matrix[:, :4].T
    log_us = 0.6 * np.abs(a) + 0.5 * np.abs(b - 0.5) + 0.4 * np.abs(c)
    if device == "target":
        log_us = log_us + 0.9 * np.maximum(d, 0)
    return Samples(task, found, 10 * np.exp(log_us), device)


def source() -> list[Samples]:
    return [measured(150, seed, "source", f"task {seed}") for seed in range(SOURCES)]


def agreement(model: CostModel, device: str = "target") -> float:
    """The rank correlation of scores and speeds of candidates that the model has not seen."""
    judged = measured(400, 99, device)
    return float(spearmanr(model.predict(judged.features).mean, -judged.us).statistic)


def fitted(name: str, seed: int = 0) -> CostModel:
    model = make_cost_model(name, seed=seed)
    model.fit(source())
    return model


@pytest.mark.parametrize("of_local", ["trees", "trees-regression", "mlp"])
def test_the_sum_beats_its_global_and_its_local_model_alone(of_local: str) -> None:
    target = measured(48, 50, "target")
    wide, near, both = fitted("trees"), make_cost_model(of_local), GlobalLocal("trees", of_local)
    near.fit([target])
    both.fit(source())
    assert agreement(both) == pytest.approx(agreement(wide))
    both.update([target])
    assert agreement(both) > max(agreement(wide), agreement(near)) + 0.01


def test_a_local_model_learns_alone_where_there_is_no_other_task() -> None:
    both, target = make_cost_model("global-local"), measured(200, 51, "target")
    assert np.ptp(both.predict(target.features).mean) == 0
    both.update([target])
    assert agreement(both) > 0.7


def test_a_local_model_that_learned_from_noise_is_not_believed() -> None:
    both = fitted("global-local")
    before = agreement(both, "source")
    target = measured(40, 52, "source")
    noise = np.random.default_rng(0).lognormal(sigma=0.2, size=40)
    both.update([Samples("task", target.features, target.us * noise)])
    assert agreement(both, "source") > before - 0.05


def test_the_local_model_may_read_what_only_one_task_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Knobs have other columns on every task; on the target they alone say what is slow besides."""
    monkeypatch.setitem(COST_MODELS, "knob-trees", lambda seed: Trees("rank", frozenset({"knobs"}), seed))

    def with_knobs(samples: Samples) -> Samples:
        table = samples.features["statement"]
        assert isinstance(table, Table)
        hidden = np.where(np.arange(12) == 3, 0.0, table.matrix)
        knobs = Table((f"knob of {samples.task}",), ("",), table.matrix[:, 3:4])
        found = {"statement": Table(table.names, table.units, hidden), "knobs": knobs}
        return Samples(samples.task, {**samples.features, **found}, samples.us, samples.device)

    both = GlobalLocal("trees", "knob-trees")
    assert both.reads == {"statement", "micro-performance", "knobs"}
    both.fit([with_knobs(s) for s in source()])
    judged = with_knobs(measured(300, 99, "target"))

    def found() -> float:
        return float(spearmanr(both.predict(judged.features).mean, -judged.us).statistic)

    before = found()
    both.update([with_knobs(measured(150, 53, "target"))])
    assert found() > before + 0.1


def test_failures_of_the_target_are_slow() -> None:
    both, target = fitted("global-local"), measured(120, 54, "source")
    d = target.features["statement"].matrix[:, 3]  # type: ignore[union-attr]
    both.update([Samples("task", target.features, np.where(d > 0, np.inf, target.us))])
    judged = features(300, 55)
    scores, d = both.predict(judged).mean, judged["statement"].matrix[:, 3]  # type: ignore[union-attr]
    assert np.isfinite(scores).all()
    assert scores[d < -0.2].mean() > scores[d > 0.2].mean()


def test_the_sum_of_a_saved_pair_is_the_same_and_learns_on(tmp_path: Path) -> None:
    both = fitted("global-local", seed=3)
    both.update([measured(48, 56, "target")])
    both.save(tmp_path / "model")
    again = GlobalLocal.load(tmp_path / "model")
    judged = features(60, 57)
    assert np.allclose(again.predict(judged).mean, both.predict(judged).mean, atol=1e-6)
    before = agreement(again)
    again.update([measured(300, 58, "target")])
    assert agreement(again) > before


def test_weights_of_a_damaged_pair_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model"
    fitted("global-local").save(path)
    record = json.loads(path.read_text())
    for scales in ([1.0], [1.0, -1.0], [1.0, "1"], [1.0, float("nan")]):
        path.write_text(json.dumps({**record, "scales": scales}))
        with pytest.raises(CostModelError, match=r"`scales` are to be two finite numbers"):
            GlobalLocal.load(path)


@pytest.mark.parametrize("name", MOMENTUM)
def test_rounds_on_the_target_adapt_a_model_of_the_source(name: str) -> None:
    model, alone = fitted(name), make_cost_model(name)
    before = agreement(model)
    for number in range(3):
        model.update([measured(16, 60 + number, "target")])
        alone.update([measured(16, 60 + number, "target")])
    assert agreement(model) > max(before, agreement(alone)) + 0.02


@pytest.mark.parametrize("name", MOMENTUM)
def test_the_siamese_network_moves_by_a_hundredth_a_round(name: str) -> None:
    model = fitted(name)
    siamese, target = dict(model._siamese), model._weights()  # type: ignore[attr-defined]
    assert all(np.array_equal(target[key], siamese[key]) for key in siamese)
    for number in range(2):
        model.update([measured(12, 70 + number, "target")])
        target = model._weights()  # type: ignore[attr-defined]
        siamese = {key: 0.99 * siamese[key] + 0.01 * target[key] for key in siamese}
        found = model._siamese  # type: ignore[attr-defined]
        assert all(np.allclose(found[key], siamese[key], atol=1e-6) for key in siamese)
    assert any(not np.allclose(target[key], siamese[key], atol=1e-3) for key in siamese)


@pytest.mark.parametrize("name", MOMENTUM)
def test_each_round_starts_from_the_siamese_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted(name)
    model.update([measured(12, 72, "target")])
    trained, siamese = model._weights(), dict(model._siamese)  # type: ignore[attr-defined]
    monkeypatch.setattr(type(model), "_train", lambda self, groups: None)
    model.update([measured(12, 73, "target")])
    found = model._weights()  # type: ignore[attr-defined]
    assert all(np.array_equal(found[key], siamese[key]) for key in siamese)
    assert any(not np.allclose(found[key], trained[key], atol=1e-3) for key in siamese)


def test_rounds_learn_from_the_samples_of_the_rounds_before_but_not_from_the_source() -> None:
    model = fitted("mlp-momentum")
    learned = []
    for number in range(3):
        model.update([measured(5, 74 + number, "target")])
        learned.append([(s.device, len(s)) for s in model._samples])  # type: ignore[attr-defined]
    assert learned == [[("target", 5)] * count for count in (1, 2, 3)]
    before = agreement(model)
    model.update([])
    assert agreement(model) == before


@pytest.mark.parametrize("name", MOMENTUM)
def test_a_saved_siamese_network_goes_on_the_same(name: str, tmp_path: Path) -> None:
    model = fitted(name, seed=4)
    model.update([measured(12, 80, "target")])
    model.save(tmp_path / "model")
    again = type(model).load(tmp_path / "model")
    judged = features(40, 81)
    assert np.array_equal(again.predict(judged).mean, model.predict(judged).mean)
    for one in (model, again):
        one._samples = []  # type: ignore[attr-defined]
        one.update([measured(12, 82, "target")])
    assert np.array_equal(again.predict(judged).mean, model.predict(judged).mean)


def test_without_momentum_a_round_starts_where_the_last_one_ended(tmp_path: Path) -> None:
    model = MomentumStatementNetwork(seed=1, momentum=0.0)
    model.fit(source())
    model.update([measured(12, 90, "target")])
    weights, siamese = model._weights(), model._siamese
    assert all(np.array_equal(weights[key], siamese[key]) for key in weights)
    model.save(tmp_path / "model")
    assert MomentumStatementNetwork.load(tmp_path / "model").momentum == 0
    whole = (tmp_path / "model").read_bytes()
    (tmp_path / "model").write_bytes(whole.replace(b'\\"momentum\\": 0.0', b'\\"momentum\\": 2.0'))
    with pytest.raises(CostModelError, match=r"from 0 to 1, found 2\.0"):
        MomentumStatementNetwork.load(tmp_path / "model")
