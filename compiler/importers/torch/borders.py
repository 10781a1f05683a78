"""Images that are continued beyond their borders, by their own rows and columns beside each other, and the gradients of that.

    reflection_pad1d(x, [2, 1])   =>   cat([flip(x[1:3]), x, x[-2:-1]])

What is inside is copied as it lies, where looking elements up by number computes a place for each.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

aten = torch.ops.aten


def _reflected(x, dim: int, before: int, after: int):
    """`x` mirrored at its first and its last element, which are not repeated."""
    last = x.shape[dim] - 1
    parts = (x.narrow(dim, 1, before).flip(dim), x, x.narrow(dim, last - after, after).flip(dim))
    return torch.cat([part for part in parts if part.shape[dim]], dim)


def _repeated(x, dim: int, before: int, after: int):
    """`x` with its first and its last element repeated."""
    shape = list(x.shape)

    def repeat(place: int, times: int):
        shape[dim] = times
        return x.narrow(dim, place, 1).expand(shape)

    parts = (repeat(0, before), x, repeat(x.shape[dim] - 1, after))
    return torch.cat([part for part in parts if part.shape[dim]], dim)


def _wrapped(x, dim: int, before: int, after: int):
    """`x` between its last and its first elements."""
    parts = (x.narrow(dim, x.shape[dim] - before, before), x, x.narrow(dim, 0, after))
    return torch.cat([part for part in parts if part.shape[dim]], dim)


def _padded(rank: int, continued: Any, room: int):
    """A padding of `rank` dimensions: one after the other, the smallest first; `room` elements are never mirrored."""

    def decomposition(x, padding):
        pads = [(padding[2 * i], padding[2 * i + 1], x.dim() - 1 - i) for i in range(rank)]
        if (
            not x.numel()
            or min(padding) < 0
            or any(max(pad[:2]) > x.shape[pad[2]] - room for pad in pads if room)
        ):
            return NotImplemented
        for before, after, dim in pads:
            if before or after:
                x = continued(x, dim, before, after)
        return x if any(padding) else x.clone()

    return decomposition


def replication_backward(grad, x, padding):
    """What was copied from an edge is added to it; what negative padding left out has no gradient."""
    missing = [max(-width, 0) for width in padding]
    for i in range(len(padding) // 2):
        d, left, right = grad.dim() - 1 - i, max(padding[2 * i], 0), max(padding[2 * i + 1], 0)
        size = x.shape[d] - missing[2 * i] - missing[2 * i + 1]
        if size < 1:
            return NotImplemented
        first = torch.sum(grad.narrow(d, 0, left + 1), d, keepdim=True)
        last = torch.sum(grad.narrow(d, left + size - 1, right + 1), d, keepdim=True)
        if size == 1:
            grad = torch.sum(grad, d, keepdim=True)
        else:
            grad = torch.cat([first, grad.narrow(d, left + 1, size - 2), last], d)
    return aten.constant_pad_nd(grad, missing, 0) if any(missing) else grad


def reflection_backward(grad, x, padding):
    """What was mirrored is added to what it is the image of."""
    if min(padding) < 0:
        return NotImplemented
    for i in range(len(padding) // 2):
        d, left, right = grad.dim() - 1 - i, padding[2 * i], padding[2 * i + 1]
        size = x.shape[d]
        inside = grad.narrow(d, left, size)
        from_left = grad.narrow(d, 0, left).flip(d)
        from_right = grad.narrow(d, left + size, right).flip(d)
        start = size - 1 - right
        if left < start:
            parts = [
                inside.narrow(d, 0, 1),
                inside.narrow(d, 1, left) + from_left,
                inside.narrow(d, 1 + left, start - 1 - left),
                inside.narrow(d, start, right) + from_right,
                inside.narrow(d, size - 1, 1),
            ]
            grad = torch.cat([part for part in parts if part.shape[d]], d)
        else:
            before = [0, 0] * i
            grad = inside + aten.constant_pad_nd(from_left, [*before, 1, size - 1 - left], 0)
            grad = grad + aten.constant_pad_nd(from_right, [*before, start, 1], 0)
    return grad


def pad(input, pad, mode="constant", value=None):
    """Circular padding as parts beside each other, of which PyTorch writes each into the whole; others are PyTorch's own."""
    rank = len(pad) // 2
    fits = mode == "circular" and 2 * rank == len(pad) and rank and input.dim() in (rank + 1, rank + 2)
    fits = fits and input.numel() and min(pad) >= 0
    extents = [input.shape[input.dim() - 1 - i] for i in range(rank)] if fits else []
    if not fits or any(max(pad[2 * i : 2 * i + 2]) > extent for i, extent in enumerate(extents)):
        return functional.pad(input, pad, mode, value)
    return _padded(rank, _wrapped, 0)(input, pad)


TABLE: dict[Any, Any] = {
    aten.reflection_pad1d.default: _padded(1, _reflected, 1),
    aten.reflection_pad2d.default: _padded(2, _reflected, 1),
    aten.reflection_pad3d.default: _padded(3, _reflected, 1),
    aten.replication_pad1d.default: _padded(1, _repeated, 0),
    aten.replication_pad2d.default: _padded(2, _repeated, 0),
    aten.replication_pad3d.default: _padded(3, _repeated, 0),
    aten.reflection_pad1d_backward.default: reflection_backward,
    aten.reflection_pad2d_backward.default: reflection_backward,
    aten.reflection_pad3d_backward.default: reflection_backward,
    aten.replication_pad1d_backward.default: replication_backward,
    aten.replication_pad2d_backward.default: replication_backward,
    aten.replication_pad3d_backward.default: replication_backward,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""

FUNCTIONS: dict[Any, Any] = dict.fromkeys((functional.pad, torch._C._nn.pad), pad)
"""Functions of PyTorch's interface -> our forms of them, called instead while a model is traced."""
