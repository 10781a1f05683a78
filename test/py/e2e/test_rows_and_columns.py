"""A vector that the rows and the columns of a matrix are scaled by, in the dispatch that reduces the rows."""

from __future__ import annotations

import pytest
import torch

import tilewright


def correlations(x: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(torch.corrcoef(x), 1)


def by_roots(x: torch.Tensor) -> torch.Tensor:
    roots = torch.diagonal(x).sqrt()
    scaled = x / roots[:, None] / roots
    return torch.softmax(scaled, 1) + scaled.amax(1, keepdim=True)


def by_columns(x: torch.Tensor) -> torch.Tensor:
    roots = torch.diagonal(x).sqrt()
    return (x * roots).sum(1) + (x * roots[:, None]).sum(0)


@pytest.mark.parametrize("function", [correlations, by_roots, by_columns])
@pytest.mark.parametrize("size", [2, 5, 16, 33, 70])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_agrees_with_pytorch(function, size, dtype):
    torch.manual_seed(size)
    x = torch.rand(size, size, dtype=dtype) + 0.5
    torch.testing.assert_close(
        tilewright.compile(function, (x,))(x).double(), function(x.double()), rtol=1e-5, atol=1e-5
    )
