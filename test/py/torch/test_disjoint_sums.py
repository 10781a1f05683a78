"""Gradients of parts of one tensor: laid beside each other, where they do not overlap, and added where they do."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright
from tilewright.compiler import driver


def _part(like: torch.Tensor, value: torch.Tensor, dim: int, start: int, end: int) -> torch.Tensor:
    return torch.slice_scatter(torch.zeros_like(like), value, dim, start, end)


def _rotated(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([-x[..., 3:], x[..., :3]], -1) * x


def _read_twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    first = _part(x, x[:1], 0, 0, 1)
    return first + _part(x, x[1:2].exp(), 0, 1, 2), first * 2


def _three_parts(x: torch.Tensor) -> torch.Tensor:
    last, first, middle = (_part(x, x[i : i + 1].exp(), 0, i, i + 1) for i in (2, 0, 1))
    return x + last + first + middle


GRADIENTS = {
    "parts that cover": (lambda x: (x[0] @ x[1].mT @ x[2]).square().sum(), 0),
    "parts with a gap": (lambda x: (x[0].exp() * x[2].sin()).sum(), 0),
    "parts along the last dimension": (lambda x: x[..., 2:].exp().sum() + x[..., :2].sin().sum(), 0),
    "beside the whole": (lambda x: _rotated(x).sum(), 1),
    "parts that overlap": (lambda x: x[:2].exp().sum() + x[1:].sin().sum(), 1),
    "parts along two dimensions": (lambda x: x[0].exp().sum() + x[:, 1].sin().sum(), 1),
}
"""Name -> a function of a tensor, and how many additions of whole tensors its gradient has."""

SUMS = {
    "read by others too": (_read_twice, 1),
    "three parts and the whole": (_three_parts, 1),
    "no part": (lambda x: _part(x, x[:0], 0, 1, 1) + _part(x, x[:1], 0, 0, 1), 1),
    "of every second row": (lambda x: torch.slice_scatter(torch.zeros_like(x), x[:2], 0, 0, 3, 2) + x, 1),
    "into ones": (lambda x: torch.slice_scatter(torch.ones_like(x), x[:1], 0, 0, 1) + _part(x, x[1:], 0, 1, 3), 1),
    "of half of what is written": (lambda x: torch.add(_part(x, x[:1], 0, 0, 1), _part(x, x[1:], 0, 1, 3), alpha=0.5), 1),
}  # fmt: skip
"""Name -> a sum of parts, and how many additions of whole tensors are left of it."""


def _additions(function, x: torch.Tensor) -> int:
    """The additions of tensors as large as `x` in what is imported of `function`."""
    text = str(driver.import_model(function, (x,)).module)
    bodies = text.split("linalg.generic")[1:]
    kind = "x".join(map(str, x.shape))
    return sum(f"-> tensor<{kind}xf32>" in body and "arith.addf" in body for body in bodies)


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    function, additions = GRADIENTS[name]
    x = torch.randn(3, 5, 6)
    gradient = torch.func.grad(function)
    expected, found = gradient(x), tilewright.compile(gradient, (x,))(x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert _additions(gradient, x) == additions


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_parts(name):
    function, additions = SUMS[name]
    x = torch.randn(3, 5, 6)
    torch.testing.assert_close(tilewright.compile(function, (x,))(x), function(x))
    assert _additions(function, x) == additions


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 5), st.integers(1, 3)), min_size=2, max_size=5),
    st.booleans(),
)
def test_sums_of_any_parts(parts, has_whole):
    """Terms are added in the order in which they stand: the sum has the same bits as in eager PyTorch."""

    def f(x):
        total = x * 3 if has_whole else None
        for dim, start, size in parts:
            end = min(start + size, 6)
            values = (x * (start + 1)).narrow(dim, start, end - start)
            term = _part(x, values, dim, start, end)
            total = term if total is None else total + term
        return total

    x = torch.rand(6, 6) + 0.5
    assert torch.equal(tilewright.compile(f, (x,))(x), f(x))
