"""Long sums are added up in parts: every term once, and with errors as small as eager PyTorch's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

import tilewright


class Function(nn.Module):
    """A function of an input and of weights."""

    def __init__(self, function: Callable, *weights: torch.Tensor):
        super().__init__()
        self.function, self.weights = function, nn.ParameterList(nn.Parameter(w, False) for w in weights)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, *self.weights)


def compiled(function: Callable, *arguments: torch.Tensor) -> torch.Tensor:
    x, *weights = arguments
    with torch.inference_mode():
        return tilewright.compile(Function(function, *weights), (x,))(x)


def whole(*shape: int) -> torch.Tensor:
    """Small whole numbers, whose sums are exact in any order."""
    torch.manual_seed(0)
    return torch.randint(-3, 4, shape).float()


SUMS = {
    "columns": lambda x: x.sum(0),
    "rows": lambda x: x.t().contiguous().sum(1),
    "outer rows": lambda x: x.reshape(-1, 5, 4).sum((0, 2)),
    "all": lambda x: x.sum(),
}


@pytest.mark.parametrize("kind", SUMS)
@settings(max_examples=10, deadline=None)
@given(steps=st.integers(1, 3000))
@example(steps=256)
@example(steps=257)
@example(steps=600)
@example(steps=128 * 128 + 1)
def test_every_term_counts_once(kind, steps):
    x = whole(steps, 20)
    torch.testing.assert_close(compiled(SUMS[kind], x), SUMS[kind](x), rtol=0, atol=0)


@pytest.mark.parametrize("shape", [(8192, 20), (8193, 20), (20000, 33)])
def test_every_product_counts_once(shape):
    x, w = whole(3, shape[0]), whole(*shape)
    torch.testing.assert_close(compiled(torch.matmul, x, w), x @ w, rtol=0, atol=0)
    rows = w.t().contiguous()
    torch.testing.assert_close(compiled(F.linear, x, rows), F.linear(x, rows), rtol=0, atol=0)


def test_windows_of_images_count_every_pixel_once():
    x, w = whole(2, 16, 37, 41), whole(24, 16, 1, 1)

    def function(x, w):
        return F.conv2d(x, w).relu().sum((2, 3))

    torch.testing.assert_close(compiled(function, x, w), function(x, w), rtol=0, atol=0)


CASES = {
    "columns": (lambda x: x.sum(0), (100_000, 32)),
    "rows": (lambda x: x.sum(1), (4, 400_003)),
    "all": (lambda x: x.mean(), (3, 500, 700)),
    "pixels": (lambda x: (x.relu() + 1).mean((2, 3)), (2, 24, 112, 112)),
    "softmax of columns": (lambda x: torch.softmax(x, 0), (50_000, 16)),
    "product": (lambda x: x[:8] @ x[8:].t(), (24, 100_000)),
}


@pytest.mark.parametrize("case", CASES)
def test_errors_are_those_of_a_few_roundings(case):
    function, shape = CASES[case]
    torch.manual_seed(0)
    x = torch.rand(shape) + 0.5
    exact = function(x.double())
    error = (compiled(function, x).double() - exact).norm() / exact.norm()
    # One chain of additions is wrong by 2e-7 (all) to 6e-6 (columns, product).
    assert error < (1.5e-7 if case == "all" else 5e-7)
