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

MOST_WINDOWS = 25
"""Windows that one element may lie in where each is looked at, rather than one element of each written to."""


def all_of(values: Sequence[int], rank: int) -> list[int]:
    """One number for each of `rank` dimensions, of which PyTorch takes one for all."""
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
    stride, padding, dilation = all_of(stride, rank), all_of(padding, rank), all_of(dilation, rank)
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
    kernel, padding = all_of(kernel, rank), all_of(padding, rank)
    stride = all_of(stride, rank) if stride else kernel
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
    kernel, padding, dilation = (all_of(sizes, rank) for sizes in (kernel, padding, dilation))
    stride = all_of(stride, rank) if stride else kernel
    windows = [d * (k - 1) // s + 1 for k, s, d in zip(kernel, stride, dilation)]
    if math.prod(windows) > MOST_WINDOWS or not grad.numel():
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


TABLE: dict[Any, Any] = {
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
