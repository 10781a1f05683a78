"""Operators of the import tables on the dtypes that eager PyTorch has: right, or refused as the table says."""

from __future__ import annotations

import pytest
from fuzz.table_walk import Entry, entries, known, quick, reason_of, walk

PARTS = 8


def check(wanted: list[Entry], special: bool = True) -> None:
    """Every outcome is the table's: a refusal that is new, or gone, is told."""
    listed = known()
    found = dict(walk(wanted, frozenset(listed), special))
    told = [
        f"{entry.operator} {entry.dtype}: {outcome.kind} ({reason_of(outcome)}), the table says {listed.get(entry, 'ok')}"
        for entry, outcome in found.items()
        if outcome.kind != listed.get(entry, ("ok",))[0]
    ]
    assert not told, "\n".join([*told, "if this is meant: python test/fuzz --tables all"])


@pytest.mark.parametrize("part", range(PARTS))
def test_every_operator_on_one_dtype(part: int) -> None:
    """On numbers as they come; special values are in what is slow."""
    check(quick()[part::PARTS], special=False)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_operator_on_special_values(part: int) -> None:
    check(quick()[part::PARTS])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_operator_on_the_other_dtypes(part: int) -> None:
    rest = sorted(set(entries()) - set(quick()), key=str)
    check(rest[part::PARTS])
