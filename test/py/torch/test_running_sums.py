"""Running sums and products are eager PyTorch's, to the bit: f32 is carried in f64, 16-bit floats in f32, along any dimension."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import tilewright


class Running(nn.Module):
    """Sums and products of all elements up to each, along one dimension."""

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.cumsum(x, self.dim), torch.cumprod(x, self.dim)


def check(x: torch.Tensor, dim: int) -> None:
    module = Running(dim)
    for found, expected in zip(tilewright.compile(module, (x,))(x), module(x)):
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@settings(max_examples=12, deadline=None)
@given(
    shape=st.lists(st.integers(1, 37), min_size=1, max_size=3),
    dim=st.integers(0, 2),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.int64, torch.int32]),
)
def test_every_shape(shape, dim, dtype):
    torch.manual_seed(0)
    x = torch.randn(shape) if dtype.is_floating_point else torch.randint(-3, 4, shape)
    check(x.to(dtype), dim % len(shape))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_short_floats(dtype):
    torch.manual_seed(0)
    check(torch.randn(5, 70).to(dtype), 1)


@pytest.mark.parametrize("dim", [0, 1])
def test_long_lines_are_not_wrong_by_as_many_roundings(dim):
    torch.manual_seed(0)
    x = torch.rand(50_000, 3) + 0.5
    check(x if dim == 0 else x.t().contiguous(), dim)


def test_infinities_and_what_is_no_number():
    x = torch.tensor([[1.0, float("inf"), 2.0, -float("inf"), 3.0], [float("nan"), 1.0, 0.0, -0.0, 1e38]])
    check(x, 1)
    check(x, 0)


def test_strided_arguments():
    torch.manual_seed(0)
    x = torch.randn(20, 33)[:, ::2]
    module = Running(1)
    with torch.inference_mode():
        found = tilewright.compile(module, (x,))(x)
    for got, expected in zip(found, module(x)):
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


@pytest.mark.parametrize("target", ["cpu", "emulate:sm_90a"])
def test_sums_of_constants(target):
    """The constant and what sums start from are as large, and were one buffer on GPUs."""

    class OfOnes(nn.Module):
        def forward(self, x):
            return x + torch.ones_like(x).cumsum(0)

    x = torch.randn(40)
    with torch.inference_mode():
        found = tilewright.compile(OfOnes(), (x,), target=target)(x)
    torch.testing.assert_close(found, OfOnes()(x))
