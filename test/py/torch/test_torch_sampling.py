"""Samples of volumes, pairs of rows, and layouts that are refused by name."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import tilewright
from tilewright.compiler.errors import UnsupportedError


def agree(function, *args):
    found = tilewright.compile(function, args)(*args)
    torch.testing.assert_close(found, function(*args), equal_nan=True)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_volumes(mode, dtype):
    x, grid = torch.randn(2, 3, 1, 4, 5).to(dtype), 1.5 * torch.randn(2, 3, 2, 4, 3).to(dtype)
    special = grid.clone()
    special[0, 0, 0, :3, 1] = torch.tensor([torch.nan, torch.inf, -1e30])

    def sampled(x, grid, special):
        found = []
        for padding, aligned in itertools.product(("zeros", "border", "reflection"), (False, True)):
            found.append(F.grid_sample(x, grid, mode, padding, aligned))
            if padding != "reflection" and mode == "bilinear":
                found.append(F.grid_sample(x, special, mode, padding, aligned))
        return found

    agree(sampled, x, grid, special)


def test_pairs_of_rows():
    agree(lambda x: [F.pdist(x, p) for p in (0.0, 1.0, 2.0, 3.0, torch.inf)], torch.randn(5, 3))
    agree(lambda x: [F.pdist(x, p) for p in (0.0, 2.0, torch.inf)], torch.zeros(4, 0))
    agree(lambda x: F.pdist(x[:2]) * 2, torch.randn(5, 3, dtype=torch.float64))


def test_numbers_of_differences_have_a_gradient_of_zeros():
    x = torch.randn(4, 3, requires_grad=True)
    distances = torch.compile(lambda x: F.pdist(x, 0), backend="tilewright")(x)
    (slope,) = torch.autograd.grad(distances.sum(), x, allow_unused=True)
    assert slope is not None and torch.equal(slope, torch.zeros(4, 3))


def test_elements_chosen_for_a_larger_mask():
    source = torch.arange(12.0)
    agree(
        lambda x, m, s: (x.masked_scatter(m, s), x[0].masked_scatter(m, s)),
        torch.randn(4),
        torch.rand(3, 4) > 0.5,
        source,
    )


def test_memory_of_one_element():
    def viewed(x):
        return x.as_strided((2, 2), (0, 0)) + 1, x.as_strided((), ()) * 1, x.clone().resize_(1, 1)

    agree(viewed, torch.tensor(2.0))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64], ids=str)
def test_numbers_first(dtype):
    x = torch.arange(5).to(dtype)
    agree(lambda x: (1 << x, torch.bitwise_right_shift(100, x), torch.scalar_tensor(-5, dtype=x.dtype)), x)


REFUSED = {
    "a sparse argument": (lambda x: x * 2, torch.eye(2).to_sparse(), "layout torch.sparse_coo"),
    "a result in half precision": (lambda x: x.to(torch.complex32), torch.zeros(2), "torch.complex32"),
    "an argument resized": (lambda x: x.resize_(2, 2), torch.zeros(3, 4), "is resized"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REFUSED)
def test_what_compiled_code_has_not_is_refused_by_name(name):
    function, argument, reason = REFUSED[name]
    with pytest.raises(UnsupportedError, match=reason):
        tilewright.compile(function, (argument,))
