"""Judging cost models by stored programs: the reader, pools and scores, tasks to be replayed, the command."""

from __future__ import annotations

import json
import lzma
import math
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tilewright.bench import (
    cost_models_report,
    program_features,
    ranking_scores,
    replay,
    search_results,
    transfer,
)
from tilewright.bench.baseline_models import RandomOrder, make_model, side_by_side
from tilewright.bench.cost_models import Sizes, rank
from tilewright.bench.cost_models_report import markdown, ranking_tables
from tilewright.bench.feature_importance import importance
from tilewright.bench.ranking_scores import pool, top, trials_to
from tilewright.bench.replay import Search
from tilewright.bench.roller_construct import spearman
from tilewright.bench.stored_programs import (
    SETS,
    ReplayDevice,
    StoredOperator,
    StoredTask,
    read_operators,
    tile_columns,
)
from tilewright.bench.warp_features import warp_columns
from tilewright.compiler.cli.main import main
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.cost_models.cost_model import Prediction
from tilewright.compiler.tuning.features.feature_set import Steps, Table
from tilewright.compiler.tuning.operators import matmul

SIZES = ((128, 2048, 1000), (128, 4032, 1000), (65536, 1024, 4096), (65536, 2, 1024))
CONVS = ((128, 168, 42, 42, 168, 1, 1), (128, 84, 83, 83, 84, 5, 2))


def program(rng: np.random.Generator, workload: list, extents: list[int], depths: list[int]) -> dict:
    """A random program whose time is known: its blocks times what one takes, so tile sizes tell all."""
    spatial = [[extent, [1, *(int(2**p) for p in rng.integers(0, 4, 3))]] for extent in extents]
    reduce = [[depth, [int(2 ** rng.integers(0, 4)), 1]] for depth in depths]
    threads = math.prod(tiles[1] for _, tiles in spatial)
    block = math.prod(math.prod(tiles) for _, tiles in spatial)
    steps = math.prod(reduced[0] for _, reduced in reduce)
    ms = (1 / block + 1 / threads) / steps
    return {
        "workload": workload, "spatial": spatial, "reduce": reduce, "fetch": [[block, 1], [block * steps, 1]],
        "unroll": 16, "ms": None if rng.random() < 0.1 else ms,
    }  # fmt: skip


def write(folder: Path, device: str, count: int) -> Path:
    rng, path = np.random.default_rng(0), folder / f"{device}.jsonl.xz"
    with lzma.open(path, "wt") as file:
        for m, k, n in SIZES:
            for _ in range(count):
                file.write(json.dumps(program(rng, ["matmul_layer", m, k, n], [m, n], [k])) + "\n")
        file.write(json.dumps(program(rng, ["relu_layer", 4, 4], [], [])) + "\n")
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("measured")
    write(made, "v100", 150)
    write(made, "k80", 40)
    return made


@pytest.fixture(scope="module")
def operators(folder: Path) -> list[StoredOperator]:
    return read_operators(folder / "v100.jsonl.xz")


def test_failures_are_left_out_but_counted(operators: list[StoredOperator]) -> None:
    for operator in operators:
        assert len(operator) == len(operator.programs) < 150
        assert operator.order.max() >= len(operator)
        assert (np.diff(operator.order) > 0).all() and (operator.us > 0).all()


def test_pools(operators: list[StoredOperator]) -> None:
    operator = operators[0]
    assert len(pool(operator, "whole", 0)) == len(operator)
    assert (operator.order[pool(operator, "first128", 0)] < 128).all()
    debiased = pool(operator, "debiased", 3)
    slowdown = operator.us[debiased] / operator.us.min()
    counts = np.bincount(np.digitize(slowdown, ranking_scores.BINS))
    assert slowdown.min() == 1 and counts.max() <= ranking_scores.PER_BIN + 1
    assert (debiased == pool(operator, "debiased", 3)).all()
    with pytest.raises(ValueError, match="there are whole, debiased, first128"):
        pool(operator, "first", 0)


@given(st.lists(st.floats(1, 1e3), min_size=1, max_size=40), st.integers(1, 50))
def test_a_perfect_ranking_scores_one(times: list[float], count: int) -> None:
    us = np.asarray(times)
    assert top(us, -us, count) == 1
    assert top(us, us, count) == us.min() / np.sort(us)[-count:].min()
    assert trials_to(np.sort(us), 0.98) == 1
    assert trials_to(np.sort(us)[::-1], 1.0) == 1 + int((us > us.min()).sum())


def test_replay_gives_what_was_measured(operators: list[StoredOperator]) -> None:
    task, device = StoredTask(operators[1], np.arange(5, 40)), ReplayDevice()
    assert task.space.size == 35
    points = task.space.sample(7, np.random.default_rng(1))
    device.submit(task, list(points))
    outcomes = list(device.outcomes())
    assert [o.point for o in outcomes] == [tuple(p) for p in points.tolist()]
    assert [o.us for o in outcomes] == operators[1].us[5 + points[:, 0]].tolist()
    assert not list(device.outcomes())
    assert task.limit_us > 0
    sets = frozenset({"knobs", "micro-performance"})
    assert (task.features(points, sets)["knobs"].rows(np.asarray([2])).matrix[0]
            == operators[1].features(sets)["knobs"].matrix[5 + points[2, 0]]).all()  # fmt: skip
    with pytest.raises(TilewrightError, match="have no features `colours`"):
        task.features(points, frozenset({"colours"}))


def test_trees_learn_what_tile_sizes_say_of_operators_not_seen(operators: list[StoredOperator]) -> None:
    pytest.importorskip("xgboost")
    sizes = Sizes(seeds=2, folds=2, learned=100)
    found = {name: rank(operators, name, make_model, sizes).scores for name in ("random", "tile-trees")}
    assert found["tile-trees"]["whole top-5"].mean > found["random"]["whole top-5"].mean
    assert found["tile-trees"]["first128 top-1"].mean > found["random"]["first128 top-1"].mean + 0.2
    again = rank(operators, "tile-trees", make_model, sizes).scores
    assert again == found["tile-trees"]


def test_trees_on_the_data_flow_read_every_step(operators: list[StoredOperator]) -> None:
    pytest.importorskip("xgboost")
    for name in ("flow-trees", "flow-trees-regression", "flow-trees-graded"):
        model, learned = make_model(name, 1), operators[:3]
        features = operators[3].features(model.reads)
        assert np.ptp(model.predict(features).mean) == 0
        model.fit([o.samples(np.arange(len(o)), model.reads) for o in learned])
        before = model.predict(features).mean
        assert spearman(before, -operators[3].us) > 0.3
        model.update([operators[3].samples(np.arange(len(operators[3])), model.reads)])
        after = model.predict(features).mean
        assert (after != before).any() and spearman(after, -operators[3].us) > 0.8
    flow = features["data-flow"]
    assert isinstance(flow, Steps)
    table = side_by_side(features)
    assert (
        table.matrix.shape == (len(operators[3]), 33 + 12 + 6 * 18)
        and table.names[-1] == "last wave of step 5"
    )
    assert (table.matrix[:, -18:] == flow.values[:, 5]).all()


def test_what_a_model_reads_is_what_it_loses(operators: list[StoredOperator]) -> None:
    class ReadsThreads(RandomOrder):
        reads = frozenset({"knobs", "micro-performance"})

        def predict(self, features):
            knobs = features["knobs"]
            return Prediction(knobs.matrix[:, knobs.names.index("threads")], np.zeros(len(knobs)))  # type: ignore[union-attr]

    found = importance(operators, "threads", lambda _, seed: ReadsThreads(seed), Sizes(seeds=2, folds=2))
    lost = {(f.set, f.column): f.lost for f in found}
    assert len(lost) == 18 + 1 + 2
    assert lost["knobs", "threads"] == lost["knobs", ""] and any(lost["knobs", ""].seeds)
    others = {key: value for key, value in lost.items() if key[0] != "knobs" or key[1] not in ("", "threads")}
    assert all(value.seeds == (0, 0) for value in others.values())


def test_a_held_out_operator_is_not_learned_from(operators: list[StoredOperator]) -> None:
    learned: list[set[str]] = []
    tables = {id(o.features(RandomOrder.reads)["knobs"]): o.name for o in operators}

    class Spy(RandomOrder):
        def fit(self, samples) -> None:
            learned.append({s.task for s in samples})

        def predict(self, features):
            assert tables[id(features["knobs"])] not in learned[-1]
            return super().predict(features)

    rank(operators, "spy", lambda _, seed: Spy(seed), Sizes(seeds=1, folds=4, learned=10))
    assert [len(names) for names in learned] == [3, 3, 3, 3]


def test_the_command_writes_a_spread_for_every_figure(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_models_report, "CURVES", ("tile-trees",))
    monkeypatch.setattr(cost_models_report, "SHUFFLED", ("tile-trees",))
    output = tmp_path / "out.json"
    pytest.importorskip("xgboost")
    models = "random,roller,tile-trees"
    arguments = ["bench", "--suite", "cost-models", "--measured", str(folder), "--models", models, "--quick"]
    result = CliRunner().invoke(main, [*arguments, "-o", str(output)])
    assert result.exit_code == 0, result.output
    data = json.loads(output.read_text())
    assert data["devices"]["v100"]["operators"] == len(SIZES)
    assert [row["model"] for row in data["ranked"]] == [*models.split(",")] * 2
    assert all(len(s["seeds"]) == data["seeds"] for row in data["ranked"] for s in row["scores"].values())
    assert {row["programs"]: row["scores"].keys() >= {"debiased top-1"} for row in data["transferred"]} == {
        0: True,
        16: True,
        64: True,
    }
    assert {row["search"] for row in data["replayed"]} >= {"random", "roller", "tile-trees"}
    assert {row["pool"] for row in data["replayed"]} == {"whole", "first128"}
    assert [row["learned"] for row in data["curves"]] == list(cost_models_report.COUNTS)
    assert all(len(row["lost"]["seeds"]) == data["seeds"] for row in data["importance"])
    assert "v100: 4 operators held out in 2 folds, 2 seeds" in result.output
    assert output.with_suffix(".png").stat().st_size > 10_000
    table = ranking_tables(data)[0]
    assert markdown(table).splitlines()[2].startswith("| model | debiased top-1 |")
    assert len(markdown(table).splitlines()) == 4 + len(table.rows)

    pages = tmp_path / "pages"
    result = CliRunner().invoke(search_results.main, [str(output), "--folder", str(pages)])
    assert result.exit_code == 0, result.output
    text = (pages / "cost-models.md").read_text()
    for plot in ("ranked", "curves", "importance"):
        assert f"](cost-models-{plot}.png)" in text
        assert (pages / f"cost-models-{plot}.png").stat().st_size > 5_000
    curve = [line for line in text.splitlines() if re.match(r"\| tile-trees \| \d+ \|", line)]
    assert [int(line.split(" | ")[1]) for line in curve] == [16, 64, 1000]
    assert "--target k80,v100 --models random,roller,tile-trees -o bench/results/out.json" in text
    shorter = tmp_path / "shorter.json"
    shorter.write_text(json.dumps({**data, "seeds": 1}))
    result = CliRunner().invoke(search_results.main, [str(output), str(shorter), "--folder", str(pages)])
    assert result.exit_code == 1 and "the same `seeds`; found 2, {1}" in result.output


def test_program_features_follow_the_tiles() -> None:
    """A product [64, 96] x 32 by blocks of 16 x 8, threads of 4 x 2 results, 8 of the reduction at once in steps of 2."""
    tiles = {
        "spatial": [[64, [2, 4, 1, 2]], [96, [1, 4, 2, 1]]], "reduce": [[32, [4, 2]]],
        "fetch": [[64, 2], [128, 4]], "unroll": 16,
    }  # fmt: skip
    tiling = program_features.Tiling([tiles], matmul(64, 96, 32), resolve("v100"))
    assert tiling.block.tolist() == [[16, 8, 8]] and tiling.thread.tolist() == [[4, 2, 2]]
    assert tiling.counts.tolist() == [[4 * 12, 4, 4]] and tiling.threads.tolist() == [16]
    assert tiling.lanes_used.tolist() == [0.5]
    assert tiling.shared_bytes.tolist() == [4 * (16 * 8 + 8 * 8)]
    assert tiling.registers.tolist() == [4 * 2 + 2 * 2 + 4 * 2]
    flow = program_features.data_flow(tiling)
    assert flow.values.shape == (1, 2 * 2 + 2, len(flow.names))
    step = {name: flow.values[0, :, n] for n, name in enumerate(flow.names)}
    assert (2 ** step["bytes of a block"][:2]).round().tolist() == [4 * 16 * 8 * 4, 4 * 8 * 8 * 4]
    assert step["vector"][:2].tolist() == [4, 2]
    assert (2 ** step["run"][:2]).round().tolist() == [4 * 8, 4 * 8]
    assert step["into shared memory"].tolist() == [1, 1, 0, 0, 0, 0] and step["arithmetic"].tolist() == [
        0,
        0,
        0,
        0,
        1,
        0,
    ]
    assert step["into global memory"].tolist() == [0] * 5 + [1]
    table = program_features.statement(tiling, tile_columns([tiles], resolve("v100")))
    row = dict(zip(table.names, table.matrix[0]))
    assert 2 ** row["registers"] == pytest.approx(20) and 2 ** row["padded"] == pytest.approx(1)
    assert 2 ** row["flops of a thread"] == pytest.approx(2 * 16 * 8 * 8 / 16)


def test_warp_features_follow_lanes() -> None:
    """The same by 2 x 16 threads, three virtual, of 2 x 2 results: two rows of the left input, every second word of the right."""
    tiles = {
        "spatial": [[64, [1, 2, 1, 2]], [96, [3, 16, 2, 1]]], "reduce": [[32, [4, 2]]],
        "fetch": [[64, 2], [128, 4]], "unroll": 4096,
    }  # fmt: skip
    table = warp_columns([tiles], matmul(64, 96, 32), resolve("v100"))
    row = dict(zip(table.names, table.matrix[0].tolist()))
    assert [2 ** row[f"words of input {n}"] for n in range(2)] == [2, 16]
    assert [2 ** row[f"wavefronts of input {n}"] for n in range(2)] == [1, 1]
    assert [row[f"vector of input {n}"] for n in range(2)] == [4, 2]
    assert 2 ** row["results side by side"] == 2 and 2 ** row["virtual threads of the last axis"] == 3
    assert 2 ** row["body"] == pytest.approx(2 * 6 * 2) and row["unrolled whole"] == 1
    apart = {**tiles, "spatial": [[64, [1, 2, 1, 2]], [96, [1, 16, 6, 1]]]}
    wide = warp_columns([apart], matmul(64, 96, 32), resolve("v100"))
    found = dict(zip(wide.names, wide.matrix[0].tolist()))
    assert 2 ** found["sectors of a store"] > 2 ** row["sectors of a store"]


def test_program_features_are_finite_on_every_target(operators: list[StoredOperator]) -> None:
    for operator in operators:
        found = operator.features(frozenset(SETS))
        for table in found.values():
            values = table.matrix if isinstance(table, Table) else table.values
            assert len(values) == len(operator) and np.isfinite(values).all()


def test_transfer_holds_operators_out_on_both_devices(
    folder: Path, operators: list[StoredOperator], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = read_operators(folder / "k80.jsonl.xz")
    learned: list[tuple[str, list[tuple[str, str, int]]]] = []
    judged = []
    asked = StoredOperator.features

    def features(self: StoredOperator, sets: frozenset[str]):
        judged.append(self.name)
        return asked(self, sets)

    class Spy(RandomOrder):
        def __init__(self, seed: int):
            super().__init__(seed)
            self.known: set[str] = set()

        def fit(self, samples) -> None:
            self.known = set()
            self._learn("fit", samples)

        def update(self, samples) -> None:
            self._learn("update", samples)

        def _learn(self, what: str, samples) -> None:
            learned.append((what, [(s.device, s.task, len(s)) for s in samples]))
            self.known |= {s.task for s in samples}

        def predict(self, features):
            assert judged[-1] not in self.known and len(self.known) > 0
            return super().predict(features)

    monkeypatch.setattr(StoredOperator, "features", features)
    sizes = Sizes(seeds=1, learned=12)
    found = transfer.transfer(source, operators, "spy", lambda _, seed: Spy(seed), sizes, lambda _: None)
    assert [(f.method, f.count) for f in found] == [
        *((method, count) for method in ("none", "pooled") for count in (16, 64)),
        *(("fine-tuned", count) for count in (0, 16, 64)),
    ]
    assert all(set(f.scores) == set(transfer.SCORES) for f in found)
    updates = [samples for what, samples in learned if what == "update"]
    assert [[size for *_, size in samples] for samples in updates] == [[8]] * 8 * 3
    assert all({d for d, *_ in samples} == {"v100"} for samples in updates)
    sums = [sum(size for d, _, size in samples if d == "v100") for what, samples in learned if what == "fit"]
    assert sums == [16, 64] * 6 + [0] * 3
    with pytest.raises(ValueError, match="there are none, pooled, fine-tuned"):
        transfer.learn(RandomOrder(), "magic", [], [], None, 16)


def test_more_programs_of_the_target_begin_with_those_that_fewer_are(operators: list[StoredOperator]) -> None:
    few, many = (transfer.rounds(operators, count, np.random.default_rng(5)) for count in (20, 64))
    assert [len(places) for _, places in few] == [8, 8, 4] and [len(places) for _, places in many] == [8] * 8
    for (one, places), (other, others) in zip(few[:2], many):
        assert one is other and places.tolist() == others.tolist()
    first = many[: len(operators)]
    assert len({operator.name for operator, _ in first}) == len(first)


def test_networks_that_are_resumed_have_no_momentum() -> None:
    pytest.importorskip("torch")
    assert vars(transfer.make_transferred("pacm-resumed", 3))["momentum"] == 0
    assert vars(transfer.make_transferred("pacm-momentum", 3))["momentum"] == 0.99
    with pytest.raises(TilewrightError, match=r"no cost model `forest-resumed`"):
        transfer.make_transferred("forest-resumed", 0)


def test_a_search_by_an_oracle_needs_one_trial(operators: list[StoredOperator]) -> None:
    task = StoredTask(operators[0], np.arange(len(operators[0])))

    class Oracle(RandomOrder):
        def predict(self, features):
            matrix = features["knobs"].matrix  # type: ignore[union-attr]
            known = operators[0].features(self.reads)["knobs"].matrix  # type: ignore[union-attr]
            at = [int(np.flatnonzero((known == row).all(axis=1))[0]) for row in matrix]
            return Prediction(-operators[0].us[at], np.zeros(len(at)))

    search = Search("oracle", "oracle", explored=0.0)
    assert replay.replay(task, search, Oracle(), 0)[0] == task.us.min()
    us = replay.replay(task, Search("random"), None, 3, budget=40)
    assert len(us) == 40 or us.min() == task.us.min()
    assert (us == replay.replay(task, Search("random"), None, 3, budget=40)).all()
    everything = replay.replay(task, Search("random"), None, 3, budget=10_000, goal=1.0)
    assert everything.min() == task.us.min() and len(set(everything)) <= len(task.places)
    assert replay.trials_to(np.asarray([4.0, 2.0, 1.0]), 1.0, 0.5, 9) == 2
    assert replay.trials_to(np.asarray([4.0, 2.0]), 1.0, 0.9, 9) == 9


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--measured", "{folder}", "--models", "oracle"], "there is no cost model `oracle`"),
        (["--measured", "{folder}", "--target", "mi50"], "expected files named mi50.jsonl.xz"),
        ([], "needs --measured"),
    ],
)
def test_what_does_not_exist_is_refused(folder: Path, extra: list[str], message: str) -> None:
    arguments = [word.format(folder=folder) for word in extra]
    result = CliRunner().invoke(main, ["bench", "--suite", "cost-models", *arguments])
    assert result.exit_code != 0
    assert message in result.output + str(result.exception)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "v100", 2)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(TilewrightError, match="no file of measured programs"):
        read_operators(path)
