"""All operators that Roller was published with compile for Hopper."""

from __future__ import annotations

import pytest
import torch
from gpu_compilation import ARCH, check, compile_for

import tilewright
from tilewright.bench import operators, suites

OPERATORS = suites.suite("roller119", batch=128)
GROUPS, ALWAYS = 15, 4
"""Each has operators of all kinds; a quarter of them and more is compiled always, the others where slow tests run."""
LATER = [pytest.param(group, marks=pytest.mark.slow) for group in range(ALWAYS, GROUPS)]


@pytest.mark.parametrize("group", [*range(ALWAYS), *LATER])
def test_every_published_operator_compiles_for_hopper(group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        operators, "normal", lambda *shape: torch.empty(shape)
    )  # nobody reads what is in them
    for case in OPERATORS[group::GROUPS]:
        check(*compile_for(f"cuda:{ARCH}", *case.build()))


@pytest.mark.parametrize("sizes", [(3, 4), (2, 5)])
def test_products_with_a_reduction_between_their_loops(sizes):
    """Such is the product of `affine_grid` that nothing is fused with."""

    def grids(x):
        return torch.nn.functional.affine_grid(x, (1, 1, *sizes), align_corners=True)

    def model(x):
        return grids(x), torch.diff(grids(x), n=2, dim=-1)

    x = torch.randn(1, 2, 3, generator=torch.Generator().manual_seed(0))
    found = tilewright.compile(model, (x,), target="emulate:sm_90a")(x)
    torch.testing.assert_close(found, model(x))
