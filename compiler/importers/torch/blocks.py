"""Images that are cut into blocks, as slices of them beside each other, and blocks that are added up where they overlap."""

from __future__ import annotations

import math
from typing import Any

import torch

from tilewright.compiler.importers.torch.gradients import MOST_WINDOWS, all_of

aten = torch.ops.aten


def unfold_backward(grad, input_size, dimension, size, step):
    """Windows [.., count, size] added up where they overlap: cut into pieces of one step, of which a window's next lies one on."""
    pieces = -(-size // step)
    if not input_size or pieces > MOST_WINDOWS:
        return NotImplemented
    dim = dimension % len(input_size)
    windows = grad.movedim(dim, -2)
    windows = aten.constant_pad_nd(windows, [0, pieces * step - size]).unflatten(-1, (pieces, step))
    count = windows.shape[-3]
    # In the order of the windows, as eager PyTorch adds them.
    found = sum(
        aten.constant_pad_nd(windows.select(-2, piece), [0, 0, piece, pieces - 1 - piece])
        for piece in reversed(range(pieces))
    )
    missing = input_size[dim] - (count + pieces - 1) * step
    return aten.constant_pad_nd(found.flatten(-2), [0, missing]).movedim(-1, dim).contiguous()


_MOST_TAPS = 64
"""Elements of a block of which each is a slice of the image, copied by itself."""


def im2col(x, kernel, dilation, padding, stride):
    """Blocks of an image, [N, C * kh * kw, L]: for every element of a block, a slice of the image with steps between.

    Blocks that do not overlap, and leave nothing out, are the image in another order.
    """
    kernel, dilation, padding, stride = (all_of(n, 2) for n in (kernel, dilation, padding, stride))
    if not x.numel():
        return NotImplemented
    wide = aten.constant_pad_nd(x, [n for p in reversed(padding) for n in (p, p)], 0) if any(padding) else x
    counts = [(n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(wide.shape[-2:], dilation, kernel, stride)]
    tiles = all(d == 1 for d in dilation) and kernel == stride
    if tiles and [count * k for count, k in zip(counts, kernel)] == list(wide.shape[-2:]):
        blocks = wide.unflatten(-1, (counts[1], kernel[1])).unflatten(-3, (counts[0], kernel[0]))
        order = [*range(x.dim() - 2), x.dim() - 1, x.dim() + 1, x.dim() - 2, x.dim()]
        return blocks.permute(order).reshape(*x.shape[:-3], -1, counts[0] * counts[1])
    if min(counts) < 1 or math.prod(kernel) > _MOST_TAPS:
        return NotImplemented
    taps = [
        wide[..., row : row + (counts[0] - 1) * stride[0] + 1 : stride[0], :][
            ..., column : column + (counts[1] - 1) * stride[1] + 1 : stride[1]
        ]
        for row in range(0, kernel[0] * dilation[0], dilation[0])
        for column in range(0, kernel[1] * dilation[1], dilation[1])
    ]
    blocks = torch.stack(taps, -3)
    return blocks.reshape(*x.shape[:-3], x.shape[-3] * len(taps), counts[0] * counts[1])


def col2im(x, output_size, kernel, dilation, padding, stride):
    """Blocks [N, C * kh * kw, L] of an image added up where they overlap: along rows, then along columns."""
    rank = len(output_size)
    kernel, dilation, padding, stride = (all_of(n, rank) for n in (kernel, dilation, padding, stride))
    if rank != 2 or any(d != 1 for d in dilation) or not x.numel():
        return NotImplemented
    sizes = [n + 2 * p for n, p in zip(output_size, padding)]
    counts = [(n - k) // s + 1 for n, k, s in zip(sizes, kernel, stride)]
    batch = x if x.dim() == 3 else x.unsqueeze(0)
    lead = [batch.shape[0], batch.shape[1] // (kernel[0] * kernel[1])]
    blocks = batch.reshape(*lead, *kernel, *counts).permute(0, 1, 2, 4, 5, 3)
    shape = [*lead, kernel[0], counts[0], sizes[1]]
    rows = unfold_backward(blocks, shape, 4, kernel[1], stride[1])
    if rows is NotImplemented:
        return NotImplemented
    found = unfold_backward(rows.permute(0, 1, 3, 4, 2), [*lead, *sizes], 2, kernel[0], stride[0])
    if found is NotImplemented:
        return NotImplemented
    for dim, (n, p) in enumerate(zip(output_size, padding), 2):
        found = found.narrow(dim, p, n)
    return (found if x.dim() == 3 else found.squeeze(0)).contiguous()


TABLE: dict[Any, Any] = {
    aten.unfold_backward.default: unfold_backward,
    aten.im2col.default: im2col,
    aten.col2im.default: col2im,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
