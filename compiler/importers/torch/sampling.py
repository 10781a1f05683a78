"""Images sampled at places between their elements, in the steps in which eager PyTorch rounds them."""

from __future__ import annotations

import itertools
import math
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
    sizes = (x.shape[3], x.shape[2])
    places, located = _places(grid, sizes, padding_mode, align_corners)
    taps = {_NEAREST: 1, _BILINEAR: 4, _BICUBIC: 16}[interpolation_mode]
    samples = Samples(x, taps * math.prod(grid.shape[1:3]))
    value, each = samples.value, samples.for_every_channel

    if interpolation_mode == _NEAREST:
        return samples.channels_first(value([_whole(torch.round(place)) for place in located[::-1]]))
    if interpolation_mode == _BILINEAR:
        first = [torch.floor(place) for place in located]
        right, below = (each(place - floor) for place, floor in zip(located, first))
        left, above = 1 - right, 1 - below
        column, row = (_whole(floor) for floor in first)
        total = value([row, column]) * (left * above)
        total = total + value([row, column + 1]) * (right * above)
        total = total + value([row + 1, column]) * (left * below)
        return samples.channels_first(total + value([row + 1, column + 1]) * (right * below))
    first = [torch.floor(place) for place in places]
    across, down = (_cubic(each(place - floor)) for place, floor in zip(places, first))
    columns, rows = (
        [_whole(_located(floor + tap, size, padding_mode, align_corners)) for tap in range(-1, 3)]
        for floor, size in zip(first, sizes)
    )
    lines = [_weighted([value([row, column]) for column in columns], across) for row in rows]
    return samples.channels_first(_weighted(lines, down))


_FEW_CHANNELS = 4
"""As many channels are read from their own planes: rows of them would be shorter than what finding a row takes."""
_READ_ONCE = 16
"""Images are laid out with their channels last unless they have more elements than so many times what is read of them."""


class Samples:
    """Elements of `x` [N, C, *extents] by whole coordinates, `number` of them an image.

    Elements of all channels at one place are one row of `x` with its channels last, which is read in vectors; planes are
    gathered element by element. Measured on Zen 4, one thread, beside other load, 4 x 16 x 64 x 64 at 64 x 64 places between elements: 747 us
    from planes, 244 from rows.
    """

    def __init__(self, x: torch.Tensor, number: int):
        batch, channels, *self._extents = x.shape
        size = math.prod(self._extents)
        self._in_rows = channels > _FEW_CHANNELS and size <= _READ_ONCE * number
        self._channel_dim = -1 if self._in_rows else 1
        image = torch.arange(batch, dtype=torch.int32 if x.numel() < 2**31 else torch.int64)
        if self._in_rows:
            self._from = x.flatten(2).transpose(1, 2).reshape(batch * size, channels)
            self._image = (image * size).reshape(-1, *(1 for _ in self._extents))
        else:
            ones = [1 for _ in self._extents]
            self._from = x.flatten(2)
            self._image = image.reshape(-1, 1, *ones)
            self._channel = torch.arange(channels, dtype=image.dtype).reshape(1, -1, *ones)

    def locate(self, at: list[torch.Tensor]) -> tuple[Any, Any]:
        """Whether coordinates by dimension [N, *shape] are inside, and the number of the element or of one that is."""
        inside: Any = True
        number: Any = 0
        for coordinate, extent in zip(at, self._extents):
            inside = (coordinate >= 0) & (coordinate < extent) & inside
            # Brought inside, which needs no check.
            number = number * extent + torch.clamp(coordinate, 0, extent - 1).to(self._image.dtype)
        return self.for_every_channel(inside), number

    def read(self, number: torch.Tensor) -> torch.Tensor:
        """The elements of those numbers."""
        if self._in_rows:
            return aten.index(self._from, [self._image + number])
        return aten.index(self._from, [self._image, self._channel, number.unsqueeze(1)])

    def value(self, at: list[torch.Tensor]) -> torch.Tensor:
        """What lies at coordinates by dimension [N, *shape]; 0 outside."""
        inside, number = self.locate(at)
        return torch.where(inside, self.read(number), 0)

    def for_every_channel(self, of_places: torch.Tensor) -> torch.Tensor:
        """Something of places [N, *shape] as it meets what is read."""
        return of_places.unsqueeze(self._channel_dim)

    def as_read(self, of_channels: torch.Tensor) -> torch.Tensor:
        """[N, C, *shape] with its channels where they are in what is read."""
        return of_channels.movedim(1, self._channel_dim)

    def channels_first(self, sampled: torch.Tensor) -> torch.Tensor:
        """What is read as [N, C, *shape]."""
        return sampled.movedim(self._channel_dim, 1)

    def sum_of_channels(self, sampled: torch.Tensor) -> torch.Tensor:
        """[N, *shape]."""
        return torch.sum(sampled, self._channel_dim)

    def zeros(self) -> torch.Tensor:
        """Zeros for `add`."""
        return torch.zeros_like(self._from)

    def add(self, to: torch.Tensor, number: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        """`to` with parts, laid out as what is read, added to elements of those numbers."""
        if self._in_rows:
            return torch.index_add(to, 0, (self._image + number).flatten(), part.flatten(0, -2))
        part = part.flatten(2)
        return torch.scatter_add(
            to, 2, number.to(torch.int64).flatten(1).unsqueeze(1).expand(part.shape), part
        )

    def image(self, of_numbers: torch.Tensor) -> torch.Tensor:
        """What `add` gives as an image [N, C, *extents]."""
        if self._in_rows:
            of_numbers = of_numbers.unflatten(0, (self._image.shape[0], -1)).transpose(1, 2)
        return of_numbers.unflatten(2, self._extents)


def grid_sampler_2d_backward(grad, x, grid, interpolation_mode, padding_mode, align_corners, output_mask):
    """Each gradient added to the elements that its place was sampled from, and the slopes of the image there."""
    if x.dtype not in (torch.float32, torch.float64) or not x.numel() or not grad.numel():
        return NotImplemented
    sizes = (x.shape[3], x.shape[2])
    places, located = _places(grid, sizes, padding_mode, align_corners)
    nearest, cubic = interpolation_mode == _NEAREST, interpolation_mode == _BICUBIC
    weights: list[Any]
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
    samples = Samples(x, len(taps[0]) * len(taps[1]) * math.prod(grid.shape[1:3]))
    each, grad = samples.for_every_channel, samples.as_read(grad)
    to_image = samples.zeros()
    found: list[Any] = [0.0, 0.0]
    for (down, row), (across, column) in itertools.product(enumerate(taps[1]), enumerate(taps[0])):
        inside, number = samples.locate([row, column])
        part = grad if nearest else grad * each(weights[0][across] * weights[1][down])
        to_image = samples.add(to_image, number, torch.where(inside, part, 0))
        if not nearest:
            slope = samples.sum_of_channels(torch.where(inside, samples.read(number) * grad, 0))
            found[0] = found[0] + slope * (slopes[0][across] * weights[1][down])
            found[1] = found[1] + slope * (weights[0][across] * slopes[1][down])
    to_image = samples.image(to_image)
    if nearest:
        return to_image, torch.zeros_like(grid)
    padded = _ZEROS if cubic else padding_mode  # cubic convolution pads each of its taps, not the place
    to_grid = [
        slope
        * ((size - 1) / 2 if align_corners else size / 2)
        * direction(place, size, padded, align_corners)
        for slope, place, size in zip(found, places, sizes)
    ]
    return to_image, torch.stack(to_grid, -1)


def _places(grid, sizes: tuple[int, int], padding_mode: int, align_corners: bool):
    """The columns and the rows of a grid in elements, as they are and as they are sampled."""
    places = [_in_elements(grid[..., i], size, align_corners) for i, size in enumerate(sizes)]
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


def whole(place):
    """A rounded coordinate as an index: outside of every image where it is not finite."""
    return torch.where(torch.abs(place) < 2.0**30, place, -2).to(torch.int32)


def _whole(place):
    """`whole`, as eager PyTorch has it of images.

    16-bit floats become 16-bit integers there, of which the lowest bits are kept: 0 for what is not finite.
    """
    if place.dtype in (torch.float16, torch.bfloat16):
        place = torch.where(torch.abs(place) < 2.0**31, place, 0)
        return place.to(torch.int32).to(torch.int16).to(torch.int32)
    return whole(place)


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
