"""Unsigned bytes that are constant and become other constants, which torch-mlir would fold into signed ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import tilewright

FORMS: dict[str, Callable] = {
    "split": lambda x: torch.full_like(x, 200).split([1, x.shape[0] - 1])[1],
    "slice": lambda x: torch.full_like(x, 200)[1:, :1],
    "select": lambda x: torch.full_like(x, 3)[0],
    "multiplied": lambda x: (torch.zeros_like(x) * 2).split(3, 0)[0],
    "wrapped": lambda x: (torch.full_like(x, 200) + torch.full_like(x, 100))[:2],
    "joined": lambda x: torch.cat([torch.full_like(x, 1), torch.full_like(x, 1)])[2:5],
    "joined of two": lambda x: torch.cat([torch.full_like(x, 1), torch.full_like(x, 250)])[2:5],
    "compared": lambda x: (torch.full_like(x, 200) > 100)[1:],
    "widened": lambda x: torch.full_like(x, 200)[1:].to(torch.int32) * 2,
    "transposed": lambda x: torch.full_like(x, 200).t()[1:],
    "written over": lambda x: x.zero_().mul(2).chunk(2)[1],
    "of nothing": lambda x: torch.full_like(x, 200)[:0],
    "with an argument": lambda x: torch.full_like(x, 200)[1:] + x[1:],
}


@pytest.mark.parametrize("name", FORMS)
def test_constants_of_constants(name: str) -> None:
    x = torch.tensor([[1, 2, 255], [3, 4, 0], [9, 8, 7]], dtype=torch.uint8)
    function = FORMS[name]
    found, wanted = tilewright.compile(function, (x.clone(),))(x.clone()), function(x.clone())
    assert found.dtype == wanted.dtype and torch.equal(found, wanted)
