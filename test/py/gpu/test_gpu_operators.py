"""All operators that Roller was published with compile for Hopper."""

from __future__ import annotations

import pytest
import torch
from gpu_compilation import ARCH, check, compile_for

from tilewright.bench import operators, suites

GROUP = 8
OPERATORS = suites.suite("roller119", batch=128)


@pytest.mark.parametrize("start", range(0, len(OPERATORS), GROUP))
def test_every_published_operator_compiles_for_hopper(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        operators, "normal", lambda *shape: torch.empty(shape)
    )  # nobody reads what is in them
    for case in OPERATORS[start : start + GROUP]:
        check(*compile_for(f"cuda:{ARCH}", *case.build()))
