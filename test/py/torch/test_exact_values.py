"""Single values that eager PyTorch keeps as they are: signs of zero, one element's norm, what lies behind a narrow store."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch
from torch.nn import functional as F

import tilewright

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "form", [torch.relu, F.relu6, lambda x: torch.relu(-x.abs()), lambda x: x.clamp(min=0)]
)
def test_a_negative_zero_stays_one(form, dtype):
    x = torch.tensor([-0.0, 0.0, -1.0, 2.0, float("nan"), float("-inf")] * 6, dtype=dtype)
    found, wanted = tilewright.compile(form, (x,))(x), form(x)
    assert torch.equal(torch.signbit(found)[wanted == 0], torch.signbit(wanted)[wanted == 0])
    torch.testing.assert_close(found, wanted, equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("order", [3, 2, 1, 0, 0.5, -1, float("inf"), -float("inf")])
@pytest.mark.parametrize(
    "shape, dim", [((), None), ((1,), None), ((5, 1), 1), ((5, 1, 1), (1, -1)), ((1, 4), 0)]
)
def test_the_norm_of_one_element_is_its_size(shape, dim, order):
    """Its power may leave the range, the element does not."""
    x = torch.tensor([1e-30, -1e30, 3.0, 0.0, -1e-39])[: max(torch.Size(shape).numel(), 1)].reshape(shape)

    def norms(x):
        return torch.linalg.vector_norm(x, order, dim=dim), torch.linalg.vector_norm(
            x, order, dim=dim, keepdim=True
        )

    found, wanted = tilewright.compile(norms, (x,))(x), norms(x)
    for ours, eager in zip(found, wanted):
        assert torch.equal(ours, eager)


@pytest.mark.parametrize("columns", [3, 5, 9, 17])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8, torch.int16])
def test_the_last_of_a_rows_short_elements_leaves_the_next_row(columns, dtype):
    """One element behind whole vectors is stored by itself, in the type that it is computed in or not."""
    draw = torch.Generator().manual_seed(columns)
    x, y = ((torch.randn(2, 2, columns, generator=draw) * 20).to(dtype) for _ in range(2))

    def reduced(x):
        return torch.argmax(x, 1), torch.amax(x, 1), (x * 3).amin(1)

    compiled = tilewright.compile(reduced, (x,))
    for given in (x, y):
        assert all(map(torch.equal, compiled(given), reduced(given)))


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 2.0, 3.0, inf])
def test_distances_of_what_is_no_number(p: float) -> None:
    x = torch.tensor([[nan, 1.0], [nan, nan], [inf, 2.0], [0.0, 3.0]])
    y = torch.tensor([[inf, 0.5], [1.0, nan], [-1.0, 4.0]])
    found = tilewright.compile(lambda x, y: torch.cdist(x, y, p=p), (x, y))(x, y)
    torch.testing.assert_close(found, torch.cdist(x, y, p=p), equal_nan=True)
