"""Images sampled at places between their elements, in the steps in which eager PyTorch rounds them."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch._decomp.decompositions import affine_grid_generator
from torch.nn import functional

aten = torch.ops.aten

_ZEROS, _BORDER, _REFLECTION = range(3)
_BILINEAR, _NEAREST, _BICUBIC = range(3)


def grid_sampler_2d(x, grid, interpolation_mode, padding_mode, align_corners):
    """`x` [N, C, H, W] at the places `grid` [N, h, w, 2], whose -1 and 1 are opposite borders; (x, y) in this order.

    As in eager PyTorch: what lies outside counts as 0, but its weight is that of its place, so that a place that is
    infinite or NaN makes NaN; coordinates that are brought inside start with NaN as 0.
    """
    sizes, (image, channel) = (x.shape[3], x.shape[2]), _planes(x)
    places, located = _places(grid, sizes, padding_mode, align_corners)

    def value(column, row):
        inside = (column >= 0) & (column < sizes[0]) & (row >= 0) & (row < sizes[1])
        # Brought inside, which needs no check; what is found there counts as 0.
        column, row = (torch.clamp(n, 0, size - 1) for n, size in zip((column, row), sizes))
        return torch.where(inside, aten.index(x, [image, channel, row, column]), 0)

    if interpolation_mode == _NEAREST:
        return value(*(_whole(torch.round(place)) for place in located))
    if interpolation_mode == _BILINEAR:
        first = [torch.floor(place) for place in located]
        right, below = (place - floor for place, floor in zip(located, first))
        left, above = 1 - right, 1 - below
        column, row = (_whole(floor) for floor in first)
        total = value(column, row) * (left * above)
        total = total + value(column + 1, row) * (right * above)
        total = total + value(column, row + 1) * (left * below)
        return total + value(column + 1, row + 1) * (right * below)
    first = [torch.floor(place) for place in places]
    across, down = (_cubic(place - floor) for place, floor in zip(places, first))
    columns, rows = (
        [_whole(_located(floor + tap, size, padding_mode, align_corners)) for tap in range(-1, 3)]
        for floor, size in zip(first, sizes)
    )
    lines = [_weighted([value(column, row) for column in columns], across) for row in rows]
    return _weighted(lines, down)


def grid_sampler_2d_backward(grad, x, grid, interpolation_mode, padding_mode, align_corners, output_mask):
    """Each gradient added to the elements that its place was sampled from, and the slopes of the image there."""
    if x.dtype not in (torch.float32, torch.float64) or not x.numel() or not grad.numel():
        return NotImplemented
    sizes, (image, channel) = (x.shape[3], x.shape[2]), _planes(x)
    places, located = _places(grid, sizes, padding_mode, align_corners)
    nearest, cubic = interpolation_mode == _NEAREST, interpolation_mode == _BICUBIC
    if cubic:
        first = [torch.floor(place) for place in places]
        steps = [place - floor for place, floor in zip(places, first)]
        weights, slopes = [_cubic(t) for t in steps], [_cubic_slopes(t) for t in steps]
        taps = [
            [_whole(_located(floor + tap, size, padding_mode, align_corners)) for tap in range(-1, 3)]
            for floor, size in zip(first, sizes)
        ]
    elif nearest:
        taps, weights = [[_whole(torch.round(place))] for place in located], [[1], [1]]
        slopes = [[0], [0]]
    else:
        first = [torch.floor(place) for place in located]
        taps = [[_whole(floor), _whole(floor) + 1] for floor in first]
        weights = [[floor + 1 - place, place - floor] for floor, place in zip(first, located)]
        slopes = [[-1, 1], [-1, 1]]
    to_image = torch.zeros_like(x).flatten(2)
    found: list[Any] = [0.0, 0.0]
    for (down, row), (across, column) in itertools.product(enumerate(taps[1]), enumerate(taps[0])):
        inside = (column >= 0) & (column < sizes[0]) & (row >= 0) & (row < sizes[1])
        column, row = (torch.clamp(n, 0, size - 1) for n, size in zip((column, row), sizes))
        part = torch.where(inside, grad * (weights[0][across] * weights[1][down]), 0).flatten(2)
        number = (row * sizes[0] + column).flatten(2).expand(part.shape)
        to_image = torch.scatter_add(to_image, 2, number, part)
        if not nearest:
            value = torch.where(inside, aten.index(x, [image, channel, row, column]) * grad, 0)
            found[0] = found[0] + value * (slopes[0][across] * weights[1][down])
            found[1] = found[1] + value * (weights[0][across] * slopes[1][down])
    to_image = to_image.reshape(x.shape)
    if nearest:
        return to_image, torch.zeros_like(grid)
    padded = _ZEROS if cubic else padding_mode  # cubic convolution pads each of its taps, not the place
    to_grid = [
        torch.sum(slope, 1)
        * ((size - 1) / 2 if align_corners else size / 2)
        * direction(place, size, padded, align_corners).squeeze(1)
        for slope, place, size in zip(found, places, sizes)
    ]
    return to_image, torch.stack(to_grid, -1)


def _planes(x):
    """Numbers of images and of channels, to index `x` beside rows and columns."""
    return torch.arange(x.shape[0]).reshape(-1, 1, 1, 1), torch.arange(x.shape[1]).reshape(1, -1, 1, 1)


def _places(grid, sizes: tuple[int, int], padding_mode: int, align_corners: bool):
    """The columns and the rows of a grid in elements, as they are and as they are sampled."""
    places = [_in_elements(grid[..., i].unsqueeze(1), size, align_corners) for i, size in enumerate(sizes)]
    return places, [_located(p, size, padding_mode, align_corners) for p, size in zip(places, sizes)]


def _in_elements(place, size: int, align_corners: bool):
    """From [-1, 1] to [0, size - 1], or to [-1/2, size - 1/2]."""
    return (place + 1) * ((size - 1) / 2) if align_corners else (place + 1) * (size / 2) - 0.5


def _located(place, size: int, padding_mode: int, align_corners: bool):
    """A coordinate brought into the image, unless what is outside counts as zeros."""
    if padding_mode == _ZEROS:
        return place
    if padding_mode == _REFLECTION:
        low, period = (0.0, 2 * (size - 1)) if align_corners else (-0.5, 2 * size)
        if not period:
            return torch.zeros_like(place)
        distance = torch.abs(place - low)
        rest = distance - torch.trunc(distance / period) * period
        place = torch.minimum(rest, period - rest) + low
    place = torch.where(place > 0, place, 0)
    return torch.where(place < size - 1, place, size - 1).to(place.dtype)


def direction(place, size: int, padding_mode: int, align_corners: bool):
    """How what is sampled moves with a place in elements: 1, -1 where that is mirrored, 0 where it stays at the border."""
    if padding_mode == _ZEROS:
        return torch.ones_like(place)
    sign: Any = 1.0
    if padding_mode == _REFLECTION:
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        if not span:
            return torch.zeros_like(place)
        is_even = torch.fmod(torch.floor(torch.abs(place - low) / span), 2) == 0
        sign = torch.where(is_even == (place >= low), 1.0, -1.0).to(place.dtype)
        place = _located(place, size, padding_mode, align_corners)
    return torch.where((place > 0) & (place < size - 1), sign, 0.0).to(place.dtype)


def _whole(place):
    """A rounded coordinate as an index: outside of every image where it is not finite.

    16-bit floats become 16-bit integers in eager PyTorch, of which the lowest bits are kept: 0 for what is not finite.
    """
    if place.dtype in (torch.float16, torch.bfloat16):
        place = torch.where(torch.abs(place) < 2.0**31, place, 0)
        return place.to(torch.int32).to(torch.int16).to(torch.int64)
    return torch.where(torch.abs(place) < 2.0**30, place, -2).to(torch.int64)


def _cubic(t) -> list[Any]:
    """The weights of four elements around a place `t` behind the second, with -3/4 as R. Keys' parameter a.

    Source: "Cubic convolution interpolation for digital image processing", IEEE Transactions ASSP 29, 1981.
    """

    def inner(t):
        return (1.25 * t - 2.25) * t * t + 1

    def outer(t):
        return ((-0.75 * t + 3.75) * t - 6) * t + 3

    return [outer(t + 1), inner(t), inner(1 - t), outer(2 - t)]


def _cubic_slopes(t) -> list[Any]:
    """How the weights of `_cubic` change with `t`."""

    def inner(t):
        return (3.75 * t - 4.5) * t

    def outer(t):
        return (-2.25 * t + 7.5) * t - 6

    return [outer(t + 1), inner(t), -inner(1 - t), -outer(2 - t)]


def _weighted(values: list[Any], weights: list[Any]):
    total = values[0] * weights[0]
    for value, weight in zip(values[1:], weights[1:]):
        total = total + value * weight
    return total


def affine_grid(theta, size, align_corners=None):
    """Places of maps `theta` [N, rank, rank + 1], [N, *extents, rank], as PyTorch's decomposition computes them.

    While AOTAutograd traces, the gradient of PyTorch's own operator asks for memory that there is none of.
    """
    rank = len(size) - 2
    fits = isinstance(theta, torch.Tensor) and theta.is_floating_point() and rank in (2, 3) and min(size) > 0
    if not fits or tuple(theta.shape) != (size[0], rank, rank + 1):
        return functional.affine_grid(theta, size, align_corners)
    return affine_grid_generator(theta, size, bool(align_corners))


TABLE: dict[Any, Any] = {
    aten.grid_sampler_2d.default: grid_sampler_2d,
    aten.grid_sampler_2d_backward.default: grid_sampler_2d_backward,
}
"""Operator -> decomposition."""

FUNCTIONS: dict[Any, Any] = {functional.affine_grid: affine_grid}
"""Functions of PyTorch's interface -> our forms of them, called instead while a model is traced."""
