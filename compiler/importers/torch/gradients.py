"""Gradients of convolutions and poolings as operators that torch-mlir lowers."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from tilewright.compiler.importers.torch.result_memory import like_image
from tilewright.compiler.importers.torch.windows import divided_by_windows, sums_of_windows

aten = torch.ops.aten


def _all(values: Sequence[int], rank: int) -> list[int]:
    values = list(values)
    return values * rank if len(values) == 1 else values


def convolution_backward(
    grad, x, weight, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask
):
    """Each gradient is a convolution again, of the output's gradient or with it as the kernel."""
    if 0 in grad.shape:  # convolutions of nothing lose extents of their kernels
        made = zip(mask, (torch.zeros_like(x), torch.zeros_like(weight), grad.new_zeros(grad.shape[1])))
        return tuple(zeros if wanted else None for wanted, zeros in made)
    rank = x.dim() - 2
    stride, padding, dilation = _all(stride, rank), _all(padding, rank), _all(dilation, rank)
    grad_x = grad_weight = grad_bias = None
    if mask[0]:
        grad_x = _input_gradient(grad, x, weight, stride, padding, dilation, transposed, groups)
    if mask[1]:
        big, small = (grad, x) if transposed else (x, grad)
        grad_weight = _kernel_gradient(big, small, weight.shape[2:], stride, padding, dilation, groups)
        # Autograd copies gradients that lie in another order than their parameters.
        grad_weight = like_image(grad_weight, weight)
    if mask[2]:
        grad_bias = torch.sum(grad, [d for d in range(grad.dim()) if d != 1])
    return grad_x, grad_weight, grad_bias


def zero_tangent(primal, tangent, *, self_num_batch_dims=0):
    """The tangent of what no input moves, in forward mode: batches are the tensor's own, all else is the other's."""
    if not self_num_batch_dims:
        return torch.zeros_like(tangent)
    return tangent.new_zeros([*primal.shape[:self_num_batch_dims], *tangent.shape])


def _input_gradient(grad, x, weight, stride, padding, dilation, transposed, groups):
    if transposed:
        zeros = [0] * len(stride)
        return aten.convolution(grad, weight, None, stride, padding, dilation, False, zeros, groups)
    missing = [
        n - ((m - 1) * s - 2 * p + d * (k - 1) + 1)
        for n, m, s, p, d, k in zip(x.shape[2:], grad.shape[2:], stride, padding, dilation, weight.shape[2:])
    ]
    return aten.convolution(grad, weight, None, stride, padding, dilation, True, missing, groups)


def _kernel_gradient(big, small, kernel, stride, padding, dilation, groups):
    """Correlates `big` [N, g * a, ...] with `small` [N, g * b, ...]; gives [g * b, a, ...]."""
    batch, channels = big.shape[0], big.shape[1]
    if groups == channels:
        return _depthwise_kernel_gradient(big, small, kernel, stride, padding, dilation)
    ends = []
    for i, (m, k, s, p, d) in enumerate(zip(small.shape[2:], kernel, stride, padding, dilation)):
        n = big.shape[2 + i]
        missing = (m - 1) * s + (k - 1) * d + 1 - p - n
        if missing < 0 and n > 1:  # what no window reads would be taps that no kernel has
            big = big.narrow(2 + i, 0, max(1, n + missing))
        ends.append(max(missing, 0))
    image = big.transpose(0, 1)
    if groups > 1:
        spatial = list(big.shape[2:])
        image = image.reshape([groups, channels // groups, batch, *spatial]).transpose(0, 1)
        image = image.reshape([channels // groups, groups * batch, *spatial])
    zeros = [0] * len(stride)
    if ends != list(padding):
        pads = [width for ends_of_one in zip(reversed(padding), reversed(ends)) for width in ends_of_one]
        image, padding = aten.constant_pad_nd(image, pads, 0), zeros
    found = aten.convolution(
        image, small.transpose(0, 1), None, dilation, padding, stride, False, zeros, groups
    ).transpose(0, 1)
    for i, extent in enumerate(kernel):
        found = found.narrow(2 + i, 0, extent)
    return found


def _depthwise_kernel_gradient(big, small, kernel, stride, padding, dilation):
    """One sum of products per tap of the kernel."""
    rank = len(kernel)
    pads = [width for p in reversed(padding) for width in (p, p)]
    wide = aten.constant_pad_nd(big, pads, 0) if any(pads) else big
    if small.shape[1] != big.shape[1]:
        wide = wide.repeat_interleave(small.shape[1] // big.shape[1], 1)
    taps = []
    for tap in itertools.product(*map(range, kernel)):
        part = wide
        for i in range(rank):
            start = tap[i] * dilation[i]
            end = start + (small.shape[2 + i] - 1) * stride[i] + 1
            part = aten.slice(part, 2 + i, start, end, stride[i])
        taps.append(torch.sum(part * small, [0, *range(2, 2 + rank)]))
    return torch.stack(taps, 1).reshape([small.shape[1], 1, *kernel])


def _spread(grad, size: Sequence[int], kernel, stride, padding):
    """Adds each element of `grad` to all of its window in a tensor of spatial `size`."""
    rank = len(size)
    batch = grad.shape[:-rank]
    flat = grad.reshape([math.prod(batch), 1, *grad.shape[-rank:]])
    ones, zeros = [1] * rank, [0] * rank
    weight = torch.ones([1, 1, *kernel], dtype=grad.dtype)
    full = aten.convolution(flat, weight, None, stride, zeros, ones, True, zeros, 1)
    for i in range(rank):
        d = 2 + i
        short = padding[i] + size[i] - full.shape[d]
        if short > 0:
            pads = [0, 0] * (rank - 1 - i) + [0, short]
            full = aten.constant_pad_nd(full, pads, 0)
        full = full.narrow(d, padding[i], size[i])
    return full.reshape([*batch, *size])


def _window_sizes(inside: int, outside: int, kernel: int, stride: int, padding: int, include_pad: bool):
    """How many elements each window of one dimension holds: a number, or a tensor where they differ."""
    sizes = []
    for i in range(outside):
        start = i * stride - padding
        end = min(start + kernel, inside + padding)
        sizes.append(end - start if include_pad else min(end, inside) - max(start, 0))
    if len(set(sizes)) == 1:
        return sizes[0]
    start = torch.arange(outside) * stride - padding
    end = torch.clamp_max(start + kernel, inside + padding)
    return end - start if include_pad else torch.clamp_max(end, inside) - torch.clamp_min(start, 0)


def avg_pool_backward(grad, x, kernel, stride, padding, ceil_mode, include_pad, divisor):
    """Spreads each gradient over its window, divided by the window's size."""
    rank = len(kernel) if len(kernel) > 1 else x.dim() - (1 if x.dim() < 4 else 2)
    kernel, padding = _all(kernel, rank), _all(padding, rank)
    stride = _all(stride, rank) if stride else kernel
    size = x.shape[-rank:]
    if divisor:
        scaled = grad / divisor
    else:
        scaled = grad
        for i in range(rank):
            windows = _window_sizes(
                size[i], grad.shape[i - rank], kernel[i], stride[i], padding[i], include_pad
            )
            if isinstance(windows, torch.Tensor):
                windows = windows.to(grad.dtype).reshape([-1] + [1] * (rank - 1 - i))
            scaled = scaled / windows
    return _spread(scaled, size, kernel, stride, padding)


def max_pool_backward(grad, x, indices, rank: int):
    """Adds each gradient where the maximum was found; `indices` count within one channel's `rank` dimensions."""
    batch, size = x.shape[:-rank], x.shape[-rank:]
    flat = torch.zeros([math.prod(batch), math.prod(size)], dtype=grad.dtype, device=grad.device)
    rows = [math.prod(batch), math.prod(grad.shape[-rank:])]
    return torch.scatter_add(flat, 1, indices.reshape(rows), grad.reshape(rows)).reshape(x.shape)


def window_pool_backward(grad, x, kernel, stride, padding, dilation, ceil_mode, indices):
    """Sums, per element, the gradients of those windows around it that found their maximum there.

    Element `s * q + a` of a padded row lies in windows `q - u` alone, for `u` up to `d * (k - 1) / s`. Where there are
    many, gradients are added where the maximum was found.
    """
    rank = 3 if len(kernel) == 3 else 2
    kernel, padding, dilation = (_all(sizes, rank) for sizes in (kernel, padding, dilation))
    stride = _all(stride, rank) if stride else kernel
    windows = [d * (k - 1) // s + 1 for k, s, d in zip(kernel, stride, dilation)]
    if math.prod(windows) > _MOST_WINDOWS or not grad.numel():
        return max_pool_backward(grad, x, indices, rank)
    size, lead = x.shape[-rank:], list(x.shape[:-rank])
    steps = [-(-(n + p) // s) for n, p, s in zip(size, padding, stride)]
    places = torch.zeros([], dtype=torch.int64, device=x.device)
    for i in range(rank):
        along = (torch.arange(steps[i] * stride[i], device=x.device) - padding[i]) * math.prod(size[i + 1 :])
        places = places + along.reshape([steps[i], stride[i]] + [1] * (2 * (rank - 1 - i)))
    pads = [n for i in reversed(range(rank)) for n in (windows[i] - 1, steps[i] - grad.shape[i - rank])]
    grad, indices = aten.constant_pad_nd(grad, pads, 0), aten.constant_pad_nd(indices, pads, -1)
    total = None
    for starts in itertools.product(*map(range, windows)):
        mine, found = grad, indices
        for i, start in enumerate(starts):
            mine, found = (t.narrow(len(lead) + i, start, steps[i]) for t in (mine, found))
        spread = [*lead, *(n for extent in steps for n in (extent, 1))]
        part = torch.where(found.reshape(spread) == places, mine.reshape(spread), 0)
        total = part if total is None else total + part
    assert total is not None
    result = total.reshape([*lead, *(n * s for n, s in zip(steps, stride))])
    for i in range(rank):
        result = result.narrow(len(lead) + i, padding[i], size[i])
    return result


def adaptive_avg_pool_backward(grad, x, rank: int):
    """Each gradient's share, added over the windows that an element is in: they too are of nearly even size."""
    if not grad.numel():
        return torch.zeros_like(x)
    inside, outside = x.shape[-rank:], grad.shape[-rank:]
    return sums_of_windows(divided_by_windows(grad, inside, outside), inside)


def zeros(size, *, dtype=None, **kwargs):
    """Zeros without memory of their own, which gradients of steps are, as zeros."""
    return torch.zeros(size, dtype=dtype)


_MOST_WINDOWS = 25
"""Windows that one element may lie in where each is looked at, rather than one element of each written to."""


def unfold_backward(grad, input_size, dimension, size, step):
    """Windows [.., count, size] added up where they overlap: cut into pieces of one step, of which a window's next lies one on."""
    pieces = -(-size // step)
    if not input_size or pieces > _MOST_WINDOWS:
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
    kernel, dilation, padding, stride = (_all(n, 2) for n in (kernel, dilation, padding, stride))
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
    kernel, dilation, padding, stride = (_all(n, rank) for n in (kernel, dilation, padding, stride))
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
    aten._efficientzerotensor.default: zeros,
    aten.convolution_backward.default: convolution_backward,
    aten._new_zeros_with_same_feature_meta.default: zero_tangent,
    aten.avg_pool2d_backward.default: avg_pool_backward,
    aten.avg_pool3d_backward.default: avg_pool_backward,
    aten.max_pool2d_with_indices_backward.default: window_pool_backward,
    aten.max_pool3d_with_indices_backward.default: window_pool_backward,
    aten.adaptive_max_pool2d_backward.default: functools.partial(max_pool_backward, rank=2),
    aten.adaptive_max_pool3d_backward.default: functools.partial(max_pool_backward, rank=3),
    aten._adaptive_avg_pool2d_backward.default: lambda grad, x: adaptive_avg_pool_backward(grad, x, 2),
    aten._adaptive_avg_pool3d_backward.default: lambda grad, x: adaptive_avg_pool_backward(grad, x, 3),
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
