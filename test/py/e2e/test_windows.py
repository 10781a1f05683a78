"""Depthwise convolutions and poolings of every shape agree with PyTorch, padded, strided, dilated, ragged, in both precisions."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import tilewright


class Depthwise(nn.Module):
    """A depthwise convolution between element-wise operations."""

    def __init__(self, channels: int, taps: tuple[int, int], stride: int, padding: int, dilation: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, taps, stride, padding, dilation, groups=channels)
        self.last = nn.Conv2d(channels, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.conv(x * 2)))


def check(module: nn.Module, x: torch.Tensor, tolerance: float) -> None:
    with torch.inference_mode():
        expected = copy.deepcopy(module).double()(x.double())
        found = tilewright.compile(module, (x,))(x)
    assert found.shape == expected.shape
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


@settings(max_examples=12, deadline=None)
@given(
    channels=st.integers(3, 70),
    height=st.integers(5, 17),
    width=st.integers(5, 17),
    taps=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    dilation=st.integers(1, 2),
)
def test_depthwise(channels, height, width, taps, stride, padding, dilation):
    if min(height, width) + 2 * padding <= dilation * (max(taps) - 1):
        return
    torch.manual_seed(0)
    check(Depthwise(channels, taps, stride, padding, dilation), torch.randn(2, channels, height, width), 1e-4)


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool1d(4, 4),
        nn.AvgPool1d(4, 4),
        nn.Sequential(nn.AvgPool1d(4, 4), nn.MaxPool1d(2, 2)),
        nn.AvgPool1d(4, 3),  # windows overlap
        nn.MaxPool1d(2, 2),  # too few taps for a vector
    ],
)
def test_of_what_is_the_same_everywhere(pool):
    """Windows that lie apart become a loop along which nothing is read: a mask of ones, as models without padding have."""
    x = torch.rand(2, 3, 16)
    check(_OfOnes(pool), x, 1e-6)


class _OfOnes(nn.Module):
    def __init__(self, pool: nn.Module):
        super().__init__()
        self.pool = pool

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = self.pool(torch.ones_like(x))
        return pooled * x[..., : pooled.shape[-1]]


def test_in_double_precision():
    torch.manual_seed(0)
    check(Depthwise(20, (3, 3), 1, 1, 1).double(), torch.randn(1, 20, 9, 11, dtype=torch.float64), 1e-12)


@pytest.mark.parametrize(
    "pool",
    [
        nn.MaxPool2d(3, 2, 1),
        nn.MaxPool2d(2),
        nn.AvgPool2d(3, 1, 1),
        nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        nn.MaxPool2d((5, 2), (1, 2)),
        nn.MaxPool2d(9, 1, 4),
    ],
    ids=str,
)
def test_pooling(pool):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 21, 1), pool, nn.Conv2d(21, 5, 1))
    check(module, torch.randn(2, 3, 19, 22), 1e-4)


SLID_OVER = {
    "depthwise": (nn.Conv2d(24, 24, 3, 1, 1, groups=24), (2, 24, 9, 13)),
    "strided": (nn.Conv2d(40, 40, 3, 2, 1, groups=40, bias=False), (1, 40, 14, 15)),
    "dilated": (nn.Conv2d(17, 17, (3, 2), 1, (2, 1), 2, groups=17), (1, 17, 11, 7)),
    "wide": (nn.Conv2d(8, 8, (1, 5), 1, (0, 2), groups=8), (1, 8, 6, 20)),
    "rows alone": (nn.Conv1d(12, 12, 5, 1, 2, groups=12), (2, 12, 33)),
    "one pixel": (nn.Conv2d(20, 20, 3, 1, 1, groups=20), (1, 20, 1, 1)),
    "many rows": (nn.Conv2d(16, 16, 3, 1, 1, groups=16), (1, 16, 80, 40)),
    "maxima": (nn.MaxPool2d(3, 2, 1), (2, 9, 23, 31)),
    "maxima of few channels": (nn.MaxPool2d(3, 1, 1), (1, 2, 90, 40)),
    "means": (nn.AvgPool2d(3, 1, 1, count_include_pad=False), (1, 21, 8, 19)),
    "maxima of volumes": (nn.MaxPool3d(3, 2, 1), (1, 6, 7, 8, 9)),
    "maxima of rows": (nn.MaxPool1d(4, 3, 2), (3, 10, 50)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", SLID_OVER)
def test_inputs_are_padded_where_windows_slide_over_them(name, dtype):
    torch.manual_seed(0)
    module, shape = SLID_OVER[name]
    module, x = copy.deepcopy(module).to(dtype), torch.randn(shape, dtype=dtype)
    run = tilewright.compile(module, (x,))
    found = run(x)
    with torch.inference_mode():
        expected = copy.deepcopy(module).double()(x.double())
    tolerance = {torch.float32: 1e-4, torch.float64: 1e-12}.get(dtype, 3e-2)
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)
    names = [note["name"] for note in run.executable.package.notes["dispatches"]]
    assert not [name for name in names if name.startswith("copy")], names


def test_not_a_number_and_infinite_inputs_stay_inside_of_their_windows():
    x = torch.ones(1, 16, 6, 6)
    x[0, 3, 0, 0], x[0, 5, 5, 2] = float("nan"), float("-inf")
    for module in (nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(3, 1, 1)):
        torch.testing.assert_close(tilewright.compile(module, (x,))(x), module(x), equal_nan=True)


class Branches(nn.Module):
    """One tensor padded by several amounts, pooled, added to itself and concatenated, a part of it twice."""

    def __init__(self, channels: int = 16):
        super().__init__()
        self.first = nn.Conv2d(3, channels, 1)
        self.small = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.large = nn.Conv2d(channels, channels, 5, padding=2, groups=channels)
        self.dense = nn.Conv2d(channels, 7, 3, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = self.first(x)
        r = torch.relu(h)
        a, b = self.small(r) + h, self.large(r)
        pooled = nn.functional.avg_pool2d(h, 3, 1, 1, count_include_pad=False)
        joined = torch.cat([h, a, b, pooled, r, r, x, torch.zeros_like(x)], 1)
        upper = torch.cat([joined, self.dense(a)], 1)
        return joined, upper.mean((2, 3)), torch.cat([b, b], 3).amax(1), r


@pytest.mark.parametrize("size", [(8, 8), (13, 7)])
@pytest.mark.parametrize("channels", [16, 6])
def test_tensors_that_lie_in_each_other(size, channels):
    torch.manual_seed(0)
    module, x = Branches(channels), torch.randn(2, 3, *size)
    run = tilewright.compile(module, (x,))
    with torch.inference_mode():
        for scale in (1.0, -3.0):
            # Twice: borders are written once, when weights are bound, and must still be there.
            expected = module(x * scale)
            for found, wanted in zip(run(x * scale), expected, strict=True):
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


class Slices(nn.Module):
    """Slices that loops read, that a reshape makes dense, that are sliced again, sorted, scanned, joined and returned."""

    def forward(self, x: torch.Tensor, image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        part = x[:, 1:, 4:20]
        left, right = image.chunk(2, 1)
        gated = left * torch.sigmoid(right)
        return (
            part.reshape(part.shape[0], -1).sum(1),
            part.unflatten(2, (4, 4)) * 2,
            torch.sort(x[:, 2:5, :8])[0],
            nn.functional.channel_shuffle(torch.cat([right, gated], 1), 2),
            x[:, :, 3:9].cumsum(1),
            x[:, 1:3, 1:9][:, :, 2:5][0],
            torch.roll(x, 5, 1),
            image[:, :, ::2],
            image[:, 3],
            x[..., 5],
        )


def test_slices_are_read_where_they_lie():
    torch.manual_seed(0)
    module, inputs = Slices(), (torch.randn(2, 7, 32), torch.randn(2, 8, 10, 12))
    for found, wanted in zip(tilewright.compile(module, inputs)(*inputs), module(*inputs), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
