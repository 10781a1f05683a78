"""Samples of volumes at given places."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from tilewright.compiler.importers.torch.sampling import Samples, direction, whole

aten = torch.ops.aten


def _unnormalised(place, size: int, aligned: bool):
    """Places between -1 and 1 as places in elements."""
    if aligned:
        return (place + 1) / 2 * (size - 1)
    return ((place + 1) * size - 1) / 2


def _reflected(place, twice_low: int, twice_high: int):
    """Places outside mirrored at the bounds, which are given doubled."""
    if twice_low == twice_high:
        return torch.zeros_like(place)
    low, span = twice_low / 2, (twice_high - twice_low) / 2
    place = torch.abs(place - low)
    extra, flips = torch.fmod(place, span), torch.floor(place / span)
    is_even = torch.fmod(flips, 2) == 0
    return torch.where(is_even, extra + low, span - extra + low)


def _source(place, size: int, padding: int, aligned: bool):
    """Where to read along one dimension; paddings are zeros (0), border (1) and reflection (2)."""
    place = _unnormalised(place, size, aligned)
    if padding == 2:
        place = _reflected(place, *((0, 2 * (size - 1)) if aligned else (-1, 2 * size - 1)))
    if padding:
        # NaN is read at the last border, as in eager PyTorch.
        place = torch.where(place < size - 1, torch.where(place > 0, place, 0), size - 1)
    return place


def grid_sampler_3d(x, grid, mode, padding, aligned):
    """`x` [N, C, D, H, W] at `grid` [N, d, h, w, (W, H, D)]: the sum of eight corners (mode 0), or the nearest (1).

    16-bit floats are rounded at every step, as in eager PyTorch.
    """
    if mode > 1 or not x.numel():
        return NotImplemented
    size = x.shape[2:]
    places = [_source(grid.select(-1, 2 - d), extent, padding, aligned) for d, extent in enumerate(size)]
    corners = list(itertools.product((0, 1), repeat=3)) if mode == 0 else [(0, 0, 0)]
    samples = Samples(x, len(corners) * math.prod(grid.shape[1:4]))
    first = [torch.floor(place) if mode == 0 else torch.round(place) for place in places]
    total = None
    for corner in corners:
        weight: Any = 1.0
        if mode == 0:
            for side, place, low in zip(corner, places, first):
                weight = (place - low if side else low + 1 - place) * weight
        inside, number = samples.locate([whole(low + side) for side, low in zip(corner, first)])
        found = samples.read(number)
        if mode == 0:
            found = found * samples.for_every_channel(weight)
        found = torch.where(inside, found, 0.0)
        total = found if total is None else total + found
    return samples.channels_first(total)


def grid_sampler_3d_backward(grad, x, grid, mode, padding, aligned, output_mask):
    """Each gradient added to the elements that its place was sampled from, and the slopes of the volume there."""
    if mode > 1 or x.dtype not in (torch.float32, torch.float64) or not x.numel() or not grad.numel():
        return NotImplemented
    size = x.shape[2:]
    # By depth, height and width, which a grid has the other way round.
    given = [grid.select(-1, 2 - d) for d in range(3)]
    places = [_source(place, extent, padding, aligned) for place, extent in zip(given, size)]
    first = [torch.floor(place) if mode == 0 else torch.round(place) for place in places]
    shares = [[low + 1 - place, place - low] for low, place in zip(first, places)]
    corners = list(itertools.product((0, 1), repeat=3)) if mode == 0 else [(0, 0, 0)]
    samples = Samples(x, len(corners) * math.prod(grid.shape[1:4]))
    grad = samples.as_read(grad)
    to_volume: Any = samples.zeros()
    slopes: list[Any] = [0.0, 0.0, 0.0]
    for corner in corners:
        inside, number = samples.locate([whole(low + side) for side, low in zip(corner, first)])
        own = [share[side] for share, side in zip(shares, corner)]
        part = grad * samples.for_every_channel(own[0] * own[1] * own[2]) if mode == 0 else grad
        to_volume = samples.add(to_volume, number, torch.where(inside, part, 0.0))
        if mode == 0:
            value = samples.sum_of_channels(torch.where(inside, samples.read(number) * grad, 0.0))
            for d, side in enumerate(corner):
                across = own[(d + 1) % 3] * own[(d + 2) % 3]
                slopes[d] = slopes[d] + value * (across if side else -across)
    to_volume = samples.image(to_volume)
    if mode == 1:
        return to_volume, torch.zeros_like(grid)
    found = []
    for slope, place, extent in zip(slopes, given, size):
        moved = direction(_unnormalised(place, extent, aligned), extent, padding, aligned)
        found.append(slope * moved * ((extent - 1) / 2 if aligned else extent / 2))
    return to_volume, torch.stack(found[::-1], -1)


TABLE: dict[Any, Any] = {
    aten.grid_sampler_3d.default: grid_sampler_3d,
    aten.grid_sampler_3d_backward.default: grid_sampler_3d_backward,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
