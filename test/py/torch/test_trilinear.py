"""Products of three tensors, against eager PyTorch: numbers, infinities, 16-bit floats and gradients."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import tilewright


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5, 3, 4, 2), (1, 1, 7, 1), (2, 6, 1, 3)])
def test_bilinear_forms(shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    rows, left, right, out = shape
    x, y = torch.randn(2, rows, left).to(dtype), torch.randn(2, rows, right).to(dtype)
    weight, bias = torch.randn(out, left, right).to(dtype), torch.randn(out).to(dtype)
    found = tilewright.compile(F.bilinear, (x, y, weight, bias))(x, y, weight, bias)
    torch.testing.assert_close(found, F.bilinear(x, y, weight, bias))


def test_infinities_meet_where_they_do_in_eager() -> None:
    """(x W) y, not the sum of x W y: with an infinite y the terms of x W may have both signs and their sum one."""
    x, weight = torch.tensor([[1.0, -3.0]]), torch.tensor([[[2.0, 1.0], [1.0, 1.0]]])
    for y in ([math.inf, 1.0], [1.0, -math.inf], [math.nan, 0.0], [0.0, math.inf]):
        given = x, torch.tensor([y]), weight
        found = tilewright.compile(F.bilinear, given)(*given)
        torch.testing.assert_close(found, F.bilinear(*given), equal_nan=True)


def test_gradients_of_a_bilinear_form() -> None:
    model = torch.nn.Bilinear(3, 4, 2)
    x, y = torch.randn(5, 3, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    leaves = (x, y, *model.parameters())
    wanted = torch.autograd.grad(model(x, y).square().sum(), leaves)
    before = tilewright.fallback_count()
    found = torch.autograd.grad(torch.compile(model, backend="tilewright")(x, y).square().sum(), leaves)
    assert tilewright.fallback_count() == before
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("unroll", [0, 1, 2])
def test_any_dimensions_are_summed(unroll: int) -> None:
    x, y, z = torch.randn(3, 4), torch.randn(4, 5), torch.randn(3, 5)

    def product(x, y, z):
        return [
            torch._trilinear(x, y, z, [2], [0], [1], dims, unroll)
            for dims in ([1], [2], [0, 1], [0, 1, 2], [])
        ]

    for found, wanted in zip(tilewright.compile(product, (x, y, z))(x, y, z), product(x, y, z), strict=True):
        torch.testing.assert_close(found, wanted)
