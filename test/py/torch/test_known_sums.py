"""Sums at places that tracing knows: read instead of scattered, the same as in eager PyTorch, whatever else is infinite."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx.experimental.proxy_tensor import make_fx
from torch_harness import check_gradient

import tilewright
from tilewright.compiler.importers.torch import known_sums
from tilewright.compiler.importers.torch.decompositions import decomposition_table

aten = torch.ops.aten


@st.composite
def sums(draw):
    """A tensor, lists of numbers for neighbouring dimensions along axes in any order, and values for what they name."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1 << 20)))
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    first = draw(st.integers(0, len(shape) - 1))
    named = range(first, draw(st.integers(first, len(shape) - 1)) + 1)
    axes = draw(st.permutations(range(len(named))))
    indices: list[torch.Tensor | None] = [None] * len(shape)
    for d, axis in zip(named, axes):
        numbers = torch.randint(-shape[d], shape[d], [draw(st.integers(2, 9))], generator=generator)
        numbers = numbers if draw(st.booleans()) else torch.sort(numbers % shape[d])[0]
        indices[d] = numbers.reshape([-1, *[1] * (len(named) - 1 - axis)])
    x = torch.randn(shape, dtype=torch.float64, generator=generator)
    region = [draw(st.sampled_from([n, 1])) for n in aten.index(x, indices).shape]
    return x, indices, torch.randn(region, dtype=torch.float64, generator=generator)


@given(sums())
@settings(deadline=None, max_examples=300)
def test_lists_along_axes_of_their_own(case):
    x, indices, values = case
    found = known_sums.index_put(x, indices, values, True)
    expected = aten.index_put(x, indices, values, True)
    if found is NotImplemented:  # most of the values are meant for few places
        lists = [index.reshape(-1) % x.shape[d] for d, index in enumerate(indices) if index is not None]
        extents = [x.shape[d] for d, index in enumerate(indices) if index is not None]
        assert any(
            numbers.bincount().max() * extent > 4 * len(numbers) for numbers, extent in zip(lists, extents)
        )
    else:
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    "indices",
    [
        [torch.tensor([0, 1, 3]), torch.tensor([1, 1, 0])],  # pairs along one axis
        [torch.tensor([0, 4])],
        [torch.tensor([0, -5])],
        [torch.tensor([True, False, True, True])],
        [None, torch.zeros(40, dtype=torch.int64)],
    ],
)
def test_what_is_left_to_scatters(indices):
    x = torch.zeros(4, 3)
    assert known_sums.index_put(x, indices, torch.ones([]), True) is NotImplemented


def test_what_is_not_meant_for_a_place_is_not_read():
    values = torch.tensor([1.0, torch.inf, 2.0, torch.nan, 3.0])
    found = known_sums.sums_at(values, 0, [[0], [1], [2, 4], []])
    assert torch.equal(found, torch.tensor([1.0, torch.inf, 5.0, 0.0]))


GRADIENTS = {
    "twice as many": (lambda x: F.interpolate(x, scale_factor=2), (2, 3, 5, 4)),
    "odd sizes": (lambda x: F.interpolate(x, size=(7, 9)), (2, 3, 5, 4)),
    "fewer": (lambda x: F.interpolate(x, size=(2, 3)), (2, 3, 5, 4)),
    "volumes": (lambda x: F.interpolate(x, scale_factor=2), (1, 2, 3, 4, 2)),
    "bilinear": (lambda x: F.interpolate(x, size=(8, 7), mode="bilinear"), (2, 3, 5, 4)),
    "bilinear to fewer": (lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), (2, 3, 6, 8)),
    "bicubic": (lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), (1, 2, 5, 4)),
    "chosen columns": (lambda x: x[:, [1, 3, -1, 1]] * 2, (4, 6)),
    "averages of uneven windows": (lambda x: F.adaptive_avg_pool2d(x, (3, 5)), (2, 3, 7, 8)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_through_torch_compile(name):
    function, shape = GRADIENTS[name]
    check_gradient(function, shape)


@pytest.mark.parametrize("name", ["twice as many", "odd sizes", "chosen columns"])
def test_nothing_is_scattered(name):
    function, shape = GRADIENTS[name]

    def gradient(x):
        return torch.autograd.grad(function(x).sum(), x)

    traced = make_fx(gradient, decomposition_table=decomposition_table(), tracing_mode="fake")(
        torch.randn(shape, requires_grad=True)
    )
    called = {str(node.target) for node in traced.graph.nodes}
    assert not any("index_put" in target or "scatter" in target for target in called)


COMPILED = {
    "lists": lambda x: torch.zeros(4, 6).index_put(
        (torch.tensor([[0], [2], [2]]), torch.tensor([1, 5, 0])), x[:3, :3], accumulate=True
    ),
    "computed numbers": lambda x: x.index_add(1, torch.arange(12) // 2, torch.cat([x, x], 1)),
    "counts": lambda x: x[0, :4] + torch.bincount(torch.tensor([0, 3, 3]), minlength=4),
    "numbers that a call knows": lambda x: x.index_add(0, (x[:, 0] > 0).long(), x),
}


@pytest.mark.parametrize("name", COMPILED)
def test_sums_through_compile(name):
    x = torch.randn(4, 6)
    torch.testing.assert_close(tilewright.compile(COMPILED[name], (x,))(x), COMPILED[name](x))


POOLS = [((7, 9), (3, 4)), ((40, 50), (3, 7)), ((80, 5), (2, 3)), ((6, 9), (3, 4)), ((5, 4), (7, 6))]


@pytest.mark.parametrize(("inside", "outside"), POOLS)
def test_uneven_windows(inside, outside):
    """Means and maxima with their places; of equal elements the first is the maximum, of several NaN the last."""

    def pools(x):
        return F.adaptive_avg_pool2d(x, outside), *F.adaptive_max_pool2d(x, outside, return_indices=True)

    x = torch.randint(-3, 4, (2, 3, *inside)).float()
    x[0, 0, 1:3, 2:4] = torch.nan
    x[1, 1, 0, 0] = -torch.inf
    for found, expected in zip(tilewright.compile(pools, (x,))(x), pools(x)):
        torch.testing.assert_close(found, expected, equal_nan=True)
