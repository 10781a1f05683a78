"""Diagonals that are written in place, and writes that AOTAutograd cannot trace."""

from __future__ import annotations

import warnings

import pytest
import torch

import tilewright
from tilewright.compiler.torch.fallback import FallbackWarning

SHAPES = [(3, 3), (2, 5), (5, 2), (9, 2), (7, 1), (1, 1), (1, 4), (3, 3, 3), (2, 2, 2, 2)]


def both_ways(function, *args):
    """The results of `tilewright.compile` and of `torch.compile`, and the arguments after each call."""
    torch._dynamo.reset()
    for make in (
        lambda: tilewright.compile(function, args),
        lambda: torch.compile(function, backend="tilewright"),
    ):
        given = [arg.clone() for arg in args]
        yield make()(*given), given


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_diagonals_are_filled(shape: tuple[int, ...], wrap: bool) -> None:
    def filled(x):
        y = x + 1
        x.fill_diagonal_(7, wrap)
        return y.fill_diagonal_(-2.5, wrap=wrap), x * 2

    x = torch.randn(shape)
    before = tilewright.fallback_count()
    expected = x.clone()
    wanted = filled(expected)
    for found, (given,) in both_ways(filled, x):
        for ours, theirs in zip((*found, given), (*wanted, expected), strict=True):
            assert torch.equal(ours, theirs)
    assert tilewright.fallback_count() == before


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16], ids=str
)
def test_values_become_of_the_type_of_their_tensor(dtype: torch.dtype) -> None:
    def filled(x):
        return x.clone().fill_diagonal_(3), x.clone().fill_diagonal_(0)

    x = torch.randint(0, 2, (4, 3)).to(dtype)
    for found, _ in both_ways(filled, x):
        for ours, theirs in zip(found, filled(x), strict=True):
            assert ours.dtype == dtype
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("strides", [((1, 1), (3, 2), 1), ((2, 3), (1, 2), 0), ((3, 2), (4, 2), 3)], ids=str)
def test_diagonals_of_what_is_not_dense(strides) -> None:
    def filled(x):
        y = x * 2
        x.fill_diagonal_(1)
        return y

    given, expected = (torch.zeros(20).as_strided(*strides) for _ in range(2))
    torch._dynamo.reset()
    found = torch.compile(filled, backend="tilewright")(given)
    assert torch.equal(found, filled(expected))
    assert torch.equal(given, expected)


@pytest.mark.parametrize("shape", [(3,), (2, 3, 2)])
def test_what_has_no_diagonal_is_refused_as_in_eager(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    with pytest.raises(RuntimeError, match="dimension"):
        x.clone().fill_diagonal_(1)
    with pytest.raises(Exception, match="dimension"):
        tilewright.compile(lambda x: x.clone().fill_diagonal_(1), (x,))


def window_of(x):
    y = x.sin()
    x[1:].as_strided((2, 3), (3, 1)).fill_(5)
    return y


def test_what_aot_autograd_cannot_trace_runs_in_eager_pytorch_and_is_counted() -> None:
    x, expected = torch.randn(12), torch.empty(12)
    expected.copy_(x)
    wanted = window_of(expected)
    torch._dynamo.reset()
    before = tilewright.fallback_count()
    with pytest.warns(FallbackWarning, match="AOTAutograd cannot trace its graph"):
        found = torch.compile(window_of, backend="tilewright")(x)
    assert torch.equal(found, wanted)
    assert torch.equal(x, expected)
    assert tilewright.fallback_count() == before + 3


def test_gradients_flow_through_what_aot_autograd_cannot_trace() -> None:
    def function(x):
        y = x * 2
        y[1:].as_strided((2, 3), (3, 1)).mul_(5)
        return y.sin()

    grads = []
    torch._dynamo.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FallbackWarning)
        for run in (function, torch.compile(function, backend="tilewright")):
            x = torch.arange(12.0, requires_grad=True)
            run(x).sum().backward()
            grads.append(x.grad)
    torch.testing.assert_close(grads[1], grads[0])


def test_strict_mode_raises_what_aot_autograd_cannot_trace() -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match="as_strided"):
        torch.compile(window_of, backend="tilewright", options={"strict": True})(torch.randn(12))


def test_what_depends_on_data_breaks_the_graph_and_leaves_the_rest_compiled() -> None:
    def function(x, n):
        y = x * 2
        return (y + x[int(n) :].sum()).cos()

    x, n = torch.randn(12), torch.tensor(3)
    torch._dynamo.reset()
    before = tilewright.fallback_count()
    found = torch.compile(function, backend="tilewright")(x, n)
    torch.testing.assert_close(found, function(x, n))
    assert tilewright.fallback_count() == before


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
@pytest.mark.parametrize("shape", [(2, 1, 2), (3, 4, 2), (1, 3, 3)])
def test_a_scattered_diagonal_leaves_the_order_of_dimensions_in_memory(shape, order):
    """What is read of the result's memory is what eager reads there."""
    x = torch.arange(float(torch.Size(shape).numel())).reshape(shape).permute(order)

    def read(x):
        scattered = torch.diagonal_scatter(x, -torch.ones_like(torch.diagonal(x)))
        return scattered.as_strided((3,), (1,)), scattered

    found, wanted = tilewright.compile(read, (x,))(x), read(x)
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("shape, offset", [((0, 3), -1), ((3, 3), -5), ((3, 3), 5), ((2, 0), 0)])
def test_an_empty_diagonal_is_written_into_without_effect(shape, offset):
    def write(x):
        x = x + 1
        torch.diagonal(x, offset).fill_(7)
        return x

    x = torch.zeros(shape)
    assert torch.equal(tilewright.compile(write, (x,))(x), write(x))
