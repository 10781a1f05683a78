"""Exported programs are compiled for inputs that they were exported for, and refuse others."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.export import Dim, export

import tilewright
from tilewright.compiler.errors import ModelImportError


class Halves(nn.Module):
    """Computes with extents that export takes for equal, or for twice each other."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y.reshape(-1, x.shape[1])], 0)[: x.shape[0] // 2]


class Keywords(nn.Module):
    def forward(self, x: torch.Tensor, more: dict[str, torch.Tensor], *, scale: float = 2.0) -> torch.Tensor:
        return x * more["a"] * scale


def halves():
    rows = Dim("rows", min=2, max=32)
    examples = torch.randn(4, 8), torch.randn(2, 16)
    return export(Halves(), examples, dynamic_shapes=({0: 2 * rows}, {0: rows}))


def keywords():
    return export(Keywords(), (torch.ones(4, 3), {"a": torch.ones(4, 3)}), {"scale": 3.0})


def test_without_inputs_those_of_the_export_are_meant():
    compiled = tilewright.compile(keywords())
    x = torch.randn(4, 3)
    torch.testing.assert_close(compiled(x, {"a": x}, scale=3.0), x * x * 3)


def test_other_extents_of_dynamic_dimensions():
    examples = torch.randn(6, 8), torch.randn(3, 16)
    torch.testing.assert_close(tilewright.compile(halves(), examples)(*examples), Halves()(*examples))


@pytest.mark.parametrize(("make", "examples", "message"), [
    (halves, (torch.ones(6, 8), torch.ones(4, 16)), r"input `x`: .* 8, as other inputs say, in dimension 0"),
    (halves, (torch.ones(128, 8), torch.ones(64, 16)), r"input `x`: .* 4 to 64 in dimension 0, found \[128, 8\]"),
    (halves, (torch.ones(4, 9), torch.ones(2, 16)), r"input `x`: .* 8, which dynamic_shapes did not name, in dimension 1"),
    (halves, (torch.ones(4, 8).double(), torch.ones(2, 16)), r"input `x`: .* torch.float32, found torch.float64"),
    (halves, (torch.ones(4), torch.ones(2, 16)), r"input `x`: .* 2 dimensions, found \[4\]"),
    (halves, (torch.ones(4, 8),), r"arguments \('x', 'y'\) and {}, found \('Tensor',\) and {}"),
    (keywords, {"x": torch.ones(4, 3), "more": {"b": torch.ones(4, 3)}, "scale": 3.0}, r"\('x', {'a': 'more_a'}\)"),
    (keywords, {"x": torch.ones(4, 3), "more": {"a": torch.ones(4, 3)}, "scale": 2.0}, "constant 3.0, found 2.0"),
])  # fmt: skip
def test_others_are_refused_by_name(make, examples, message):
    with pytest.raises(ModelImportError, match=message):
        tilewright.compile(make(), examples)
