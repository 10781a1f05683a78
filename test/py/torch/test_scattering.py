"""Scatters, by numbers of whole slices and of elements, against eager PyTorch."""

from __future__ import annotations

import pytest
import torch

import tilewright
from tilewright.compiler import driver

SHAPES = (((17, 40), 0, 30), ((40, 17), 1, 30), ((3, 5, 33), 1, 9), ((6, 1), 0, 4), ((2, 16), 0, 0))
REDUCTIONS = ("add", "sum", "mean", "amax", "amin", "prod")


def scattered(how: str, dim: int, include_self: bool, x, index, source):
    if how == "add":
        return x.scatter_add(dim, index, source)
    return x.scatter_reduce(dim, index, source, how, include_self=include_self)


@pytest.mark.parametrize("include_self", (True, False))
@pytest.mark.parametrize("expanded", (True, False))
@pytest.mark.parametrize("how", REDUCTIONS)
@pytest.mark.parametrize(("shape", "dim", "count"), SHAPES)
@pytest.mark.parametrize("dtype", (torch.float32, torch.int32))
def test_scatters(shape, dim, count, how, expanded, include_self, dtype):
    generator = torch.Generator().manual_seed(count)
    given = [count if d == dim else extent for d, extent in enumerate(shape)]
    x, source = ((torch.randn(s, generator=generator) * 4).to(dtype) for s in (shape, given))
    numbers = [count if d == dim else 1 for d in range(len(shape))] if expanded else given
    index = torch.randint(0, shape[dim], numbers, generator=generator).expand(given)

    def f(x, index, source):
        return scattered(how, dim, include_self, x, index, source)

    compiled = tilewright.compile(f, (x, index, source))
    torch.testing.assert_close(compiled(x, index, source), f(x, index, source), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("expanded", (True, False))
@pytest.mark.parametrize("number", (-1, 5))
def test_numbers_out_of_range_fail_the_call(number, expanded):
    x, source = torch.zeros(5, 4), torch.ones(3, 4)
    index = torch.zeros(3, 1 if expanded else 4, dtype=torch.int64)
    compiled = tilewright.compile(
        lambda x, index, source: x.scatter_add(0, index.expand(3, 4), source), (x, index, source)
    )
    index[1, 0] = number
    with pytest.raises(Exception, match="index out of range"):
        compiled(x, index, source)


@pytest.mark.parametrize("how", ("sum", "mean", "amax"))
@pytest.mark.parametrize(
    "spread", (lambda at, x: at.unsqueeze(-1).expand_as(x), lambda at, x: at[:, None].expand(-1, 64))
)
def test_numbers_that_are_spread_over_slices_are_not_written_for_every_element(how, spread):
    x, at = torch.randn(300, 64), torch.randint(0, 20, (300,))

    def f(x, at):
        return torch.zeros(25, 64).scatter_reduce(0, spread(at, x), x, how, include_self=False)

    assert "300x64xi64" not in str(driver.import_model(f, (x, at)).module)
    torch.testing.assert_close(tilewright.compile(f, (x, at))(x, at), f(x, at))


def test_numbers_spread_over_planes_under_torch_compile():
    def f(x):
        return x.index_reduce(0, torch.tensor([0, 0]), x[[0, 0]], "amax") + x.softmax(-1)

    x = torch.randn(2, 3, 1, 2)
    before = tilewright.fallback_count()
    torch.testing.assert_close(torch.compile(f, backend="tilewright")(x), f(x))
    assert tilewright.fallback_count() == before


def test_what_is_chosen_of_a_spread_tensor_is_that_of_the_tensor():
    def f(x):
        spread = x.reshape(4, 1, 3).expand(2, 4, 5, 3)
        return spread[1], spread[:, :, 4], spread[:, 2], spread[..., 1], spread.sum()

    x = torch.randn(12)
    for ours, theirs in zip(tilewright.compile(f, (x,))(x), f(x), strict=True):
        torch.testing.assert_close(ours, theirs)
