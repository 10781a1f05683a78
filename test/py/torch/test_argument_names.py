"""Functions that have forms of our own, called with all arguments by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional

import tilewright

functional: Any = torch.nn.functional
_narrow: Any = torch.narrow

CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "interpolate": lambda x: functional.interpolate(
        input=x[None, None], scale_factor=2.0, mode="bilinear", align_corners=False
    ),
    "dropout": lambda x: functional.dropout(input=x, p=0.5, training=False) + 1,
    "one_hot": lambda x: functional.one_hot(input=x.argmax(1), num_classes=6),
    "softshrink": lambda x: functional.softshrink(input=x, lambd=0.3),
    "ndtr": lambda x: torch.special.ndtr(input=x),
    "pdist": lambda x: torch.pdist(input=x, p=1.0),
    "narrow": lambda x: torch.narrow(input=x, dim=1, start=1, length=2) + 1,
    "narrow along an axis": lambda x: _narrow(x, axis=1, start=1, length=2) + 1,
    "select": lambda x: torch.select(input=x, dim=1, index=-1) + 1,
    "broadcast_to": lambda x: torch.broadcast_to(input=x, size=(2, *x.shape)) + 1,
    "cov": lambda x: torch.cov(input=x, correction=0),
    "corrcoef": lambda x: torch.corrcoef(input=x),
    "combinations": lambda x: torch.combinations(input=x[0], r=2),
    "fill_diagonal_": lambda x: (x + 1).fill_diagonal_(fill_value=7.0, wrap=True),
    "affine_grid": lambda x: functional.affine_grid(
        theta=x[None, :2, :3], size=[1, 1, 3, 4], align_corners=True
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_arguments_may_be_named(name: str) -> None:
    called = CALLS[name]
    x = torch.randn(5, 4)
    torch._dynamo.reset()
    before = tilewright.fallback_count()
    for compiled in (
        tilewright.compile(called, (x,)),
        torch.compile(called, backend="tilewright"),
    ):
        torch.testing.assert_close(compiled(x), called(x), rtol=1e-5, atol=1e-6)
    assert tilewright.fallback_count() == before
