"""Gradients of what samples images and volumes at any places, and of distances, through torch.compile: nothing runs in eager PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F

import tilewright

PADDINGS = ("zeros", "border", "reflection")


def check(function, *inputs: torch.Tensor) -> None:
    """Gradients with regard to all inputs, in double precision, against eager PyTorch's."""
    torch._dynamo.reset()
    inputs = tuple(x.requires_grad_() for x in inputs)
    before = tilewright.fallback_count()
    wanted, found = function(*inputs), torch.compile(function, backend="tilewright")(*inputs)
    torch.testing.assert_close(found, wanted)
    cotangent = torch.randn_like(wanted)
    pairs = zip(*(torch.autograd.grad(result, inputs, cotangent) for result in (found, wanted)), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs)
    assert tilewright.fallback_count() == before


def places(*shape: int) -> torch.Tensor:
    """Inside of an image and up to two and a half of it outside, on either side, and at its very borders."""
    found = torch.randn(*shape, dtype=torch.float64) * 1.5
    found.view(-1)[:4] = torch.tensor([-1.0, 1.0, 0.0, -5.0])
    return found


def with_options(mode: str, aligned_first: bool):
    """Samples by every padding, one above the other, aligned or not in turns: two such have every padding with both."""
    options = [(padding, (number % 2 == 0) == aligned_first) for number, padding in enumerate(PADDINGS)]

    def sampled(x, grid):
        return torch.stack([F.grid_sample(x, grid, mode, padding, aligned) for padding, aligned in options])

    return sampled


BOTH = [True, pytest.param(False, marks=pytest.mark.slow)]
"""The other half of the options at each size is for what is slow."""


@pytest.mark.parametrize("first", BOTH)
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_images(mode: str, first: bool) -> None:
    """Of three channels, which are read plane by plane, and of six, which are rows."""
    check(with_options(mode, first), torch.randn(2, 3, 5, 4, dtype=torch.float64), places(2, 3, 6, 2))
    check(with_options(mode, not first), torch.randn(2, 6, 1, 3, dtype=torch.float64), places(2, 2, 3, 2))


@pytest.mark.parametrize("first", BOTH)
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_volumes(mode: str, first: bool) -> None:
    check(with_options(mode, first), torch.randn(2, 3, 5, 4, 3, dtype=torch.float64), places(2, 2, 3, 2, 3))
    check(
        with_options(mode, not first), torch.randn(2, 6, 1, 3, 2, dtype=torch.float64), places(2, 2, 1, 2, 3)
    )


def test_single_precision() -> None:
    def sampled(x, grid):
        return F.grid_sample(x, grid.tanh(), align_corners=False)

    check(sampled, torch.randn(2, 3, 8, 8), torch.randn(2, 8, 8, 2))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf")])
def test_distances(p: float) -> None:
    """Rows that are equal have no slope; of some norms equal coordinates have none either."""
    x, y = torch.randn(2, 5, 3, dtype=torch.float64), torch.randn(2, 4, 3, dtype=torch.float64)
    y[:, 0], y[:, 1, 0] = x[:, 0], x[:, 1, 0]
    check(lambda a, b: torch.cdist(a, b, p), x, y)
    check(lambda a, b: torch.cdist(a, b, p, "donot_use_mm_for_euclid_dist"), x[:1].clone(), y)
