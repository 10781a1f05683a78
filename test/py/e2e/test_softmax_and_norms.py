"""Softmax and layer norm agree with PyTorch on rows of any length, in every type, and on rows that are not finite."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import tilewright

TOLERANCE = {torch.float64: 1e-13, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


class Rows(torch.nn.Module):
    """A softmax or layer norm over the last axis, and a softmax over the first."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.softmax(x, -1), F.layer_norm(x, x.shape[-1:]), torch.softmax(x, 0)


def compared(x: torch.Tensor) -> None:
    with torch.inference_mode():
        wanted, found = Rows()(x), tilewright.compile(Rows(), (x,))(x)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == theirs.dtype
        torch.testing.assert_close(
            ours, theirs, rtol=TOLERANCE[x.dtype], atol=TOLERANCE[x.dtype], equal_nan=True
        )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (3, 37, 130), (9, 1001)], ids=str)
def test_rows(dtype, shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 3
    compared(x.to(dtype))


@pytest.mark.parametrize("shape", [(8, 7), (13, 260)], ids=str)
def test_rows_that_are_not_finite(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    x[0], x[1, 2], x[2, 1], x[3, 0] = -math.inf, math.inf, -math.inf, math.nan
    compared(x)


def test_weights_that_underflow():
    x = torch.linspace(-120, 0, 64).repeat(4, 1)
    x[1], x[2], x[3, :2] = 3e38, -3e38, 3e38
    found = tilewright.compile(torch.nn.Softmax(-1), (x,))(x)
    torch.testing.assert_close(found, torch.softmax(x, -1), rtol=1e-6, atol=1e-44)
