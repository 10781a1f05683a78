"""Proposers of GPU schedules side by side: what a row holds, how rows are summed up, and the record that is kept."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from tilewright.bench.gpu_proposers import (
    FAMILIES,
    PROPOSERS,
    TARGETS,
    Row,
    cases_of,
    compare,
    ratios,
    summary,
)

RECORD = Path(__file__).parents[3] / "bench/results/gpu-proposers.json"


def row(case: str, aligned: float | None, roller: float, same: bool = False) -> Row:
    us = {"aligned": aligned, "default": 12.0, "roller": roller, "modelled": roller, "random": 99.0}
    first = {"aligned": "a", "roller": "a" if same else "r"}
    return Row("cuda:sm_80", "rows", case, "dispatch", us, us, first, {})


def test_ratios_are_over_what_is_used_without_a_proposer() -> None:
    rows = [row("one", 8.0, 4.0), row("two", None, 6.0), row("three", 5.0, 5.0, same=True)]
    assert ratios(rows, "roller") == pytest.approx([(2 * 2 * 1) ** (1 / 3)] * 2)
    (found,) = summary(rows)
    assert (found["cases"], found["same_first"], found["worst"]) == (3, 1, ["three", 1.0])


@pytest.mark.parametrize(("family", "number"), [("element-wise", 0), ("lines", 2), ("attention", 0)])
def test_every_proposer_is_asked_of_the_heaviest_dispatch(family: str, number: int) -> None:
    case = list(cases_of(family))[number]
    found = compare(family, case, "cuda:sm_80")
    assert (found.family, found.case, found.target) == (family, case.name, "cuda:sm_80")
    assert set(found.first_us) == set(found.best_us) == set(PROPOSERS)
    for proposer, us in found.first_us.items():
        best = found.best_us[proposer]
        # What has no axes to cut is not enumerated.
        assert (us is None) == (best is None) == (family == "lines" and proposer == "aligned")
        assert us is None or best is None or 0 < best <= us
        assert us is None or found.first[proposer]


def test_the_record_is_of_these_cases() -> None:
    record = json.loads(RECORD.read_text())
    named = {field.name for field in fields(Row)} - {"propose_ms"}
    assert all(set(own) == named for own in record["rows"])
    own = [Row(**each, propose_ms={}) for each in record["rows"]]
    assert {(r.target, r.family) for r in own} == {(t, f) for t in TARGETS for f in FAMILIES}
    for family in FAMILIES:
        names = [case.name for case in cases_of(family)]
        assert [r.case for r in own if r.family == family and r.target == TARGETS[0]] == names
    assert summary(own) == record["families"]
