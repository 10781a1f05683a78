"""Judging cost models by stored programs: the reader, pools and scores, tasks to be replayed, the command."""

from __future__ import annotations

import json
import lzma
import math
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tilewright.bench import ranking_scores
from tilewright.bench.baseline_models import RandomOrder, make_model
from tilewright.bench.cost_models import Sizes, rank
from tilewright.bench.ranking_scores import pool, top, trials_to
from tilewright.bench.stored_programs import ReplayDevice, StoredOperator, StoredTask, read_operators
from tilewright.compiler.cli.main import main
from tilewright.compiler.errors import TilewrightError

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


def test_the_command_writes_a_spread_for_every_figure(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.json"
    arguments = [
        "bench",
        "--suite",
        "cost-models",
        "--measured",
        str(folder),
        "--models",
        "random,roller",
        "--quick",
    ]
    result = CliRunner().invoke(main, [*arguments, "-o", str(output)])
    assert result.exit_code == 0, result.output
    data = json.loads(output.read_text())
    assert data["devices"]["v100"]["operators"] == len(SIZES)
    assert [row["model"] for row in data["ranked"]] == ["random", "roller"]
    assert all(len(s["seeds"]) == data["seeds"] for row in data["ranked"] for s in row["scores"].values())
    assert "v100: 4 operators held out in 2 folds, 2 seeds" in result.output


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--measured", "{folder}", "--models", "oracle"], "there is no cost model `oracle`"),
        (["--measured", "{folder}", "--target", "k80"], "expected files named k80.jsonl.xz"),
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
