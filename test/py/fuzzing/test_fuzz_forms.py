"""The fuzzer's tables of forms: what each says of its rounding."""

from __future__ import annotations

import re

import pytest
from fuzz import operators_rearranged

_ADDS = re.compile(r"\b(sum|mean|prod|matmul|cumsum)\(")


@pytest.mark.parametrize("form", operators_rearranged._INDICES["exact"])
def test_moves_add_nothing_up(form: str) -> None:
    """A sum has the bits of its order: its form is one of sums."""
    assert not _ADDS.search(form)
