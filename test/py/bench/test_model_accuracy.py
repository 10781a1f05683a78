"""The figures of `tilewright bench --suite model-accuracy`, and what it takes of the command line."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np
import pytest
from click.testing import CliRunner

from tilewright.bench import model_accuracy
from tilewright.bench.model_accuracy import Accuracy, best_of_first, by_family, rank_correlation, ranks
from tilewright.compiler.cli.bench import command


def accuracy(family: str, case: str, measured: tuple[float, ...], predicted: tuple[float, ...]) -> Accuracy:
    first = tuple(best_of_first(measured, predicted, n) for n in model_accuracy.FIRST)
    correlation = rank_correlation(measured, predicted)
    best = min(measured)
    return Accuracy(
        family, case, "d", "", 9, len(measured), {}, correlation, first, best / measured[0], best, "", "", measured, predicted, 1.0
    )  # fmt: skip


def test_ranks_share_the_places_of_equal_values() -> None:
    assert ranks([30, 10, 20, 10]).tolist() == [3, 0.5, 2, 0.5]
    assert ranks([5, 5, 5]).tolist() == [1, 1, 1]


def test_rank_correlation_knows_order_only() -> None:
    us = np.asarray([3.0, 1.0, 2.0, 9.0])
    assert rank_correlation(us, us**3) == pytest.approx(1)
    assert rank_correlation(us, -us) == pytest.approx(-1)
    assert rank_correlation(us, np.ones(4)) == 0


def test_best_of_first_is_reached_where_the_best_is_among_them() -> None:
    measured, predicted = [4.0, 2.0, 1.0, 8.0], [1.0, 2.0, 3.0, 4.0]
    assert [best_of_first(measured, predicted, n) for n in (1, 2, 3, 9)] == [0.25, 0.5, 1, 1]


def test_families_are_means_of_their_workloads_and_the_table_says_all() -> None:
    rows = [
        accuracy("rows", "a", (1.0, 2.0, 3.0), (1.0, 2.0, 3.0)),
        accuracy("rows", "b", (4.0, 1.0, 2.0), (1.0, 2.0, 3.0)),
        accuracy("dots", "c", (1.0, 2.0), (1.0, 2.0)),
    ]
    means = by_family(rows)
    assert means["rows"]["workloads"] == 2 and means["all"]["workloads"] == 3
    assert means["rows"]["best_of_first"] == [0.5, 1.0, 1.0]
    settings = {"command": "tilewright bench", "threads": 2}
    data = json.loads(json.dumps(model_accuracy.document(rows, settings, datetime.now(UTC), True)))
    text = model_accuracy.markdown(data)
    assert "other work ran" in text and "| rows | b | 3 | -0.50 | 0.25 | 1.00 | 1.00 | 0.25 |" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "model-accuracy", "--cases", "C99"], "model-accuracy has no case C99"),
        (["--suite", "gemm", "--records", "x.sqlite"], "--records is for --suite model-accuracy"),
    ],
)
def test_what_it_does_not_have_is_refused(arguments: list[str], message: str) -> None:
    found = CliRunner().invoke(command, arguments)
    assert found.exit_code and message in (found.output + str(found.exception))


def test_every_case_is_there() -> None:
    listed = model_accuracy.cases((), quick=False)
    assert len(listed) == len(model_accuracy.CASES) == len({case.name for _, case in listed})
    named = model_accuracy.cases(("depthwise", "attention-bert"), quick=False)
    assert [family for family, _ in named] == ["depthwise", "depthwise", "attention"]
