"""Decompositions of operators that round to a grid of quantised values and back, and of their gradients."""

from __future__ import annotations

import math
import struct
from typing import Any

import torch

aten = torch.ops.aten


def _single(value: float) -> float:
    """A number as single precision has it: eager PyTorch's kernels keep scales and their reciprocals so."""
    return struct.unpack("f", struct.pack("f", value))[0]


def _places(x, inverse, zero_point):
    """The place of every element on the grid, before it is cut to its ends: a whole number as a float."""
    return torch.round(x * inverse) + zero_point


def _cut(places, scale, zero_point, low: int, high: int, dtype, computed=torch.float32):
    """The values of places that are cut to the grid, in `dtype`, and which of them lay on it."""
    inside = (places >= low) & (places <= high)
    cut = torch.where(places.isnan(), low, torch.clamp(places, low, high))
    return ((cut - zero_point).to(computed) * scale).to(dtype), inside


def per_tensor(x, scale, zero_point, quant_min, quant_max):
    """Values on the grid of one scale, and the mask of those that were not cut."""
    scale = _single(scale)
    places = _places(x, _single(1 / scale) if scale else math.inf, zero_point)
    return _cut(places, scale, zero_point, quant_min, quant_max, x.dtype)


def with_tensors(x, scale, zero_point, enabled, quant_min, quant_max):
    """`per_tensor` with a scale and a zero point that are tensors of one element; `x` itself where it is not enabled."""
    scale, zero_point = scale.reshape([]).to(torch.float32), zero_point.reshape([]).to(torch.float32)
    found, inside = _cut(_places(x, 1 / scale, zero_point), scale, zero_point, quant_min, quant_max, x.dtype)
    is_on = enabled.reshape([]) != 0
    return torch.where(is_on, found, x), inside | ~is_on


def _along(parameter, x, axis: int):
    """A parameter per channel, beside `x`."""
    return parameter.to(torch.float32).reshape([-1 if d == axis else 1 for d in range(x.dim())])


def per_channel(x, scale, zero_point, axis, quant_min, quant_max):
    """`per_tensor` with a scale and a zero point for each channel; fractional zero points are added before rounding."""
    is_whole = not zero_point.dtype.is_floating_point
    scale, zero_point = _along(scale, x, axis), _along(zero_point, x, axis)
    places = _places(x, 1 / scale, zero_point) if is_whole else torch.round(x * (1 / scale) + zero_point)
    return _cut(places, scale, zero_point, quant_min, quant_max, x.dtype, places.dtype)


def _rounded(zero_point, quant_min, quant_max):
    """A learnt zero point on the grid."""
    return torch.clamp(torch.round(zero_point), quant_min, quant_max)


def learnable_per_tensor(x, scale, zero_point, quant_min, quant_max, grad_factor=1.0):
    """`per_tensor` with a learnt scale and zero point."""
    enabled = torch.ones([], dtype=torch.int32)
    zero_point = _rounded(zero_point, quant_min, quant_max)
    return with_tensors(x, scale, zero_point, enabled, quant_min, quant_max)[0]


def learnable_per_channel(x, scale, zero_point, axis, quant_min, quant_max, grad_factor=1.0):
    """`per_channel` with learnt scales and zero points."""
    zero_point = _rounded(zero_point, quant_min, quant_max).to(torch.int32)
    return per_channel(x, scale, zero_point, axis, quant_min, quant_max)[0]


def _learnt(grad, x, scale, zero_point, quant_min, quant_max, grad_factor):
    """Gradients of every element: of itself, of its scale and of its zero point.

    Source: Jain et al., "Trained Quantization Thresholds", MLSys 2020, as eager PyTorch has it.
    """
    inverse = 1 / scale
    places = torch.round(x * inverse + zero_point)
    inside = (places >= quant_min) & (places <= quant_max)
    value = (torch.clamp(places, quant_min, quant_max) - zero_point) * scale
    at_the_end = torch.where(places < quant_min, quant_min - zero_point, quant_max - zero_point)
    of_scale = torch.where(inside, (value - x) * inverse, at_the_end) * grad * grad_factor
    of_zero_point = torch.where(inside, 0, -grad * scale * grad_factor)
    return torch.where(inside, grad, 0), of_scale, of_zero_point


def learnable_per_tensor_backward(grad, x, scale, zero_point, quant_min, quant_max, grad_factor=1.0):
    """Gradients of `learnable_per_tensor`."""
    if not x.numel():
        return NotImplemented
    rounded = _rounded(zero_point, quant_min, quant_max).reshape([])
    mine, of_scale, of_zero_point = _learnt(
        grad, x, scale.reshape([]), rounded, quant_min, quant_max, grad_factor
    )
    return mine, torch.sum(of_scale).reshape([1]), torch.sum(of_zero_point).reshape([1])


def learnable_per_channel_backward(grad, x, scale, zero_point, axis, quant_min, quant_max, grad_factor=1.0):
    """Gradients of `learnable_per_channel`."""
    if not x.numel():
        return NotImplemented
    rounded = _along(_rounded(zero_point, quant_min, quant_max), x, axis)
    found = _learnt(grad, x, _along(scale, x, axis), rounded, quant_min, quant_max, grad_factor)
    others = [d for d in range(x.dim()) if d != axis]
    return found[0], *(torch.sum(part, others) if others else part for part in found[1:])


TABLE: dict[Any, Any] = {
    aten.fake_quantize_per_tensor_affine_cachemask.default: per_tensor,
    aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: with_tensors,
    aten.fake_quantize_per_channel_affine_cachemask.default: per_channel,
    aten._fake_quantize_learnable_per_tensor_affine.default: learnable_per_tensor,
    aten._fake_quantize_learnable_per_tensor_affine_backward.default: learnable_per_tensor_backward,
    aten._fake_quantize_learnable_per_channel_affine.default: learnable_per_channel,
    aten._fake_quantize_learnable_per_channel_affine_backward.default: learnable_per_channel_backward,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
