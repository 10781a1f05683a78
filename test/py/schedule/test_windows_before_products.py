"""Depthwise convolutions and poolings in the dispatch of the product that reads them agree with PyTorch, in any shape."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from space_cases import Dispatch

BETWEEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nothing": lambda y: y,
    "relu6": F.relu6,
    "gelu": F.gelu,
    "twice": lambda y: y * torch.sigmoid(y) + y,
}


def check(function: Callable, arguments: tuple[torch.Tensor, ...], tolerance: float) -> None:
    """Compares what one dispatch of both reductions computes with PyTorch in double precision."""
    dispatch = Dispatch.of(function, "cpu", arguments, 2, joins=True)
    found, _ = dispatch.run(dispatch.space.default())
    expected = function(*(a.double() for a in arguments))
    torch.testing.assert_close(
        torch.from_numpy(found).double(), expected, rtol=tolerance, atol=tolerance, check_dtype=False
    )


def draws(*shapes: tuple[int, ...]) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return tuple(torch.randn(shape) for shape in shapes)


@settings(max_examples=15, deadline=None)
@given(
    batch=st.integers(1, 2),
    channels=st.integers(3, 70),
    filters=st.integers(2, 70),
    height=st.integers(6, 17),
    width=st.integers(6, 17),
    taps=st.tuples(st.integers(1, 5), st.integers(2, 5)),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    between=st.sampled_from(sorted(BETWEEN)),
)
def test_depthwise(batch, channels, filters, height, width, taps, stride, padding, between):
    def function(x, w, b, v):
        return F.conv2d(BETWEEN[between](F.conv2d(x, w, b, stride, padding, groups=channels)), v) + 1

    shapes = ((batch, channels, height, width), (channels, 1, *taps), (channels,), (filters, channels, 1, 1))
    check(function, draws(*shapes), 1e-4)


@pytest.mark.parametrize("pool", ["max", "average"])
def test_pooling(pool):
    def function(x, v):
        return F.conv2d(F.max_pool2d(x, 3, 2, 1) if pool == "max" else F.avg_pool2d(x, (2, 3)), v)

    check(function, draws((2, 20, 15, 21), (36, 20, 1, 1)), 1e-4)


def test_in_double_precision():
    def function(x, w, v):
        return F.conv2d(F.conv2d(x, w, padding=1, groups=20).relu(), v)

    arguments = tuple(a.double() for a in draws((1, 20, 9, 11), (20, 1, 3, 3), (33, 20, 1, 1)))
    dispatch = Dispatch.of(function, "cpu", arguments, 2, joins=True)
    # `run` gives f32.
    torch.testing.assert_close(
        torch.from_numpy(dispatch.run(dispatch.space.default())[0]), function(*arguments).float()
    )


def test_what_is_added_to_it_joins_too():
    def function(x, w, v, u):
        y = F.conv2d(x, w, padding=1, groups=24)
        return F.conv2d((y + x).relu(), v) + F.conv2d(x, u)

    dispatch = Dispatch.of(
        function,
        "cpu",
        draws((1, 24, 10, 10), (24, 1, 3, 3), (40, 24, 1, 1), (40, 24, 1, 1)),
        2,
        joins=True,
    )
    expected = function(*draws((1, 24, 10, 10), (24, 1, 3, 3), (40, 24, 1, 1), (40, 24, 1, 1)))
    torch.testing.assert_close(
        torch.from_numpy(dispatch.run(dispatch.space.default())[0]), expected, rtol=1e-4, atol=1e-4
    )
