"""Pruner's static analyser: penalties of programs that are known by hand, and the order that they give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright.compiler.errors import CostModelError, ScheduleError
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning import operators
from tilewright.compiler.tuning.cost_models.registry import make_cost_model
from tilewright.compiler.tuning.cost_models.static_analyser import PENALTIES, StaticAnalyser
from tilewright.compiler.tuning.features.feature_set import Steps
from tilewright.compiler.tuning.features.program_sets import program_features
from tilewright.compiler.tuning.features.tiled_programs import TiledPrograms

V100 = resolve("v100")
PRODUCT = operators.matmul(1024, 1024, 512)


def programs(*tiles: tuple[list, list, list]) -> TiledPrograms:
    """Programs of the product of 1024 x 512 by 512 x 1024, by their tiles of rows, columns and sums."""
    records = [{"spatial": [[1024, m], [1024, n]], "reduce": [[512, k]]} for m, n, k in tiles]
    return TiledPrograms.of(PRODUCT, records)


GOOD = ([1, 16, 4, 1], [1, 16, 4, 1], [16, 1])
"""256 threads of 4 x 4 results: 256 blocks of 64 x 64, which fetch 16 of the sum at once."""


def steps(found: TiledPrograms) -> Steps:
    analysed = program_features(found, V100, frozenset({"static-analysis"}))["static-analysis"]
    assert isinstance(analysed, Steps)
    return analysed


def column(found: Steps, statement: int, name: str) -> float:
    return float(found.values[0, statement, found.names.index(name)])


def test_penalties_are_those_of_the_paper() -> None:
    found = steps(programs(GOOD))
    arithmetic = found.values.shape[1] - 2
    assert column(found, arithmetic, "warp") == 1.0
    assert column(found, arithmetic, "registers") == 1.0
    # 4 + 4 elements for 16 results of two operations each.
    assert column(found, arithmetic, "accesses") == 1 + 8 / 32
    # 256 blocks are fewer than 640 at once: 2,048 warps of 80 x 64 that are resident.
    assert column(found, arithmetic, "kernel") == pytest.approx(2048 / 5120)
    flops = 2 * 1024 * 1024 * 512
    assert column(found, arithmetic, "compute") == pytest.approx(flops / 12480e3)
    # Lanes of a store are four elements apart.
    assert column(found, found.values.shape[1] - 1, "transactions") == pytest.approx(1 / 4)


def test_padding_counts_as_work() -> None:
    ragged = ([1, 24, 4, 1], [1, 16, 4, 1], [16, 1])
    whole, padded = steps(programs(GOOD)), steps(programs(ragged))
    assert column(padded, 2, "compute") == pytest.approx(column(whole, 2, "compute") * 1056 / 1024)


@pytest.mark.parametrize(
    "penalty, worse",
    [
        # 16 x 64 results of a thread take more registers than there are.
        ("thread", ([1, 4, 16, 1], [1, 8, 64, 1], [16, 1])),
        # 17 threads of a warp's 32.
        ("warp", ([1, 1, 4, 1], [1, 17, 4, 1], [16, 1])),
        # One block of one warp on 80 cores.
        ("kernel", ([8, 4, 8, 4], [8, 8, 4, 4], [16, 1])),
        # One element of the sum at a time, of rows that lie along it.
        ("memory", ([1, 16, 4, 1], [1, 16, 4, 1], [1, 1])),
        # A block of one warp that takes most of the shared memory.
        ("residency", ([1, 4, 8, 8], [1, 8, 4, 4], [32, 1])),
    ],
)
def test_each_penalty_makes_slower_what_it_is_for(penalty: str, worse: tuple[list, list, list]) -> None:
    found = steps(programs(worse))
    others = [name for name in PENALTIES if name != penalty]
    with_it, without = StaticAnalyser().latency_us(found), StaticAnalyser(others).latency_us(found)
    assert with_it[0] > 1.02 * without[0]


def test_the_faster_program_scores_higher() -> None:
    worse = ([1, 1, 4, 1], [1, 17, 4, 1], [1, 1])
    found = program_features(programs(worse, GOOD), V100, frozenset({"static-analysis"}))
    scores = make_cost_model("static-analyser").predict(found)
    assert scores.mean[1] > scores.mean[0] + 0.5
    assert (scores.std == 0).all()


def test_statements_past_a_candidates_length_count_nothing() -> None:
    found = steps(programs(GOOD))
    longer = Steps(found.names, found.units, np.pad(found.values, ((0, 0), (0, 3), (0, 0))), found.lengths)
    assert StaticAnalyser().latency_us(longer) == pytest.approx(StaticAnalyser().latency_us(found))


def test_files_keep_the_penalties(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    StaticAnalyser(["memory", "warp"]).save(path)
    assert StaticAnalyser.load(path).penalties == ("warp", "memory")
    path.write_text('{"kind": "static-analyser", "version": 1, "penalties": ["heat"]}')
    with pytest.raises(CostModelError, match=r"no penalty is named `heat`; there are thread, warp"):
        StaticAnalyser.load(path)


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(
        ScheduleError, match=r"extents \[7, 1024, 512\], the workload has \[1024, 1024, 512\]"
    ):
        TiledPrograms.of(PRODUCT, [{"spatial": [[7, [1] * 4], [1024, [1] * 4]], "reduce": [[512, [1, 1]]]}])
    with pytest.raises(ScheduleError, match="tile sizes"):
        programs(GOOD, ([1, 16, 4], [1, 16, 4, 1], [16, 1]))
    with pytest.raises(ScheduleError, match="below 1"):
        programs(([0, 16, 4, 1], [1, 16, 4, 1], [16, 1]))
    with pytest.raises(ValueError, match="found colour"):
        program_features(programs(GOOD), V100, frozenset({"colour"}))
    with pytest.raises(CostModelError, match="reads the steps `static-analysis`"):
        make_cost_model("static-analyser").predict({})
