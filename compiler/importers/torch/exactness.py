"""Decompositions of operators whose lowering by torch-mlir exists but does not do what eager PyTorch does.

Comparisons lose NaN, rounding loses the sign of zero, sums of 16-bit floats are rounded at every step, and
some operators on 8-bit integers end the process.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional as F

from tilewright.compiler.importers.torch.promotion import converted
from tilewright.compiler.importers.torch.types import compute_dtype

aten = torch.ops.aten

_BYTES = (torch.int8, torch.uint8)
_HALVES = (torch.float16, torch.bfloat16)
_INTEGERS = (*_BYTES, torch.int16, torch.int32, torch.int64)


def maximum(x, y):
    """The larger of two, NaN when either is."""
    return _extremum(x, y, torch.gt)


def minimum(x, y):
    """The smaller of two, NaN when either is."""
    return _extremum(x, y, torch.lt)


def _extremum(x, y, wins: Callable):
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point:
        return NotImplemented
    x, y = x.to(dtype), y.to(dtype)
    return torch.where(x != x, x, torch.where(wins(x, y), x, y))


def clamp(x, min=None, max=None):
    """`x` between two numbers; NaN stays NaN. Truths are numbers, for which torch-mlir does not take them."""
    if not x.dtype.is_floating_point:
        if not any(isinstance(bound, bool) for bound in (min, max)):
            return NotImplemented
        return torch.clamp(x, *(int(bound) if isinstance(bound, bool) else bound for bound in (min, max)))
    if min is not None:
        x = torch.where(x < min, x.new_full((), min), x)
    if max is not None:
        x = torch.where(x > max, x.new_full((), max), x)
    return x


def leaky_relu(x, negative_slope=0.01):
    """What is above zero, all else scaled: torch-mlir's sum of both parts makes 0 of -0."""
    return torch.where(x > 0, x, x * negative_slope) if x.dtype.is_floating_point else NotImplemented


def clamp_tensor(x, min=None, max=None):
    """`x` between two tensors; NaN in any of them wins."""
    bounds = [bound for bound in (min, max) if bound is not None]
    if not all(tensor.dtype.is_floating_point for tensor in (x, *bounds)):
        return NotImplemented
    if min is not None:
        x = torch.maximum(x, min)
    return x if max is None else torch.minimum(x, max)


def hardtanh(x, min_val=-1, max_val=1):
    """`clamp` by its other name."""
    return torch.clamp(x, min_val, max_val) if x.dtype.is_floating_point else NotImplemented


def trunc(x):
    """Rounds towards zero and keeps the sign of a zero."""
    return torch.where(x < 0, torch.ceil(x), torch.floor(x)) if x.dtype.is_floating_point else NotImplemented


def equal(x, y):
    """`x == y`, which torch-mlir takes for true where both are one tensor; NaN differs from itself."""
    if not torch.result_type(x, y).is_floating_point:
        return NotImplemented
    return torch.logical_not(x != y)


def _with_float(operator: Any) -> Callable:
    """A comparison of floats with a number given as one: with integers, constants in f64 are folded wrongly."""

    def decomposition(x, y):
        if not x.dtype.is_floating_point or isinstance(y, (bool, float)) or not isinstance(y, int):
            return NotImplemented
        return operator(x, float(y))

    return decomposition


def fmod(x, y):
    """What division leaves, with the sign of `x`: that of magnitudes, which torch-mlir computes exactly."""
    dtype = torch.result_type(x, y)
    if not isinstance(x, torch.Tensor):
        return NotImplemented
    if not dtype.is_floating_point:
        return _by_whole_numbers(torch.fmod, x, y)
    x, y = _floats(x, y, dtype)
    return torch.copysign(torch.remainder(x.abs(), y.abs()), x).to(dtype)


def remainder(x, y):
    """What division leaves, with the sign of `y`."""
    dtype = torch.result_type(x, y)
    if not isinstance(x, torch.Tensor):
        return NotImplemented
    if not dtype.is_floating_point:
        return _by_whole_numbers(torch.remainder, x, y)
    if isinstance(y, torch.Tensor) and x.dtype == y.dtype and dtype not in _HALVES:
        return NotImplemented
    return torch.remainder(*_floats(x, y, dtype)).to(dtype)


def subtracted_from_number(x, y, alpha=1):
    """A number less a tensor of doubles, from which torch-mlir takes the number in single precision."""
    if x.dtype != torch.float64 or isinstance(y, torch.Tensor):
        return NotImplemented
    return torch.sub(x.new_full((), y), x, alpha=alpha)


def linspace(start, end, steps, *, dtype=None, **kwargs):
    """Even steps from both ends in double precision; torch-mlir takes them in single, and floats for integers."""
    dtype = dtype or torch.get_default_dtype()
    if (dtype != torch.float64 and dtype not in _INTEGERS) or steps < 2:
        return NotImplemented
    if dtype in _INTEGERS:
        start, end = int(start), int(end)
    step, place = (end - start) / (steps - 1), torch.arange(steps, dtype=torch.float64)
    return torch.where(place < steps // 2, place * step + start, end - (steps - 1 - place) * step).to(dtype)


def remainder_of_number(x, y):
    """`remainder` of a number."""
    return torch.remainder(torch.scalar_tensor(x, dtype=torch.result_type(x, y)), y)


def _floats(x, y, dtype: torch.dtype, wide: torch.dtype | None = None):
    """Two operands of one type that holds `dtype`, to which they are rounded first as in PyTorch."""
    wide = wide or (torch.float32 if dtype in _HALVES else dtype)
    if isinstance(y, torch.Tensor):
        return x.to(dtype).to(wide), y.to(dtype).to(wide)
    return x.to(dtype).to(wide), x.new_full((), converted(y, dtype), dtype=wide)


def divide(x, y, *, rounding_mode=None):
    """A quotient rounded to a whole number as eager PyTorch rounds it.

    Towards zero after it was rounded to its type, and downwards exactly. 16-bit floats by one number are divided in
    single precision.
    """
    dtype = torch.result_type(x, y)
    if not isinstance(x, torch.Tensor):
        if not isinstance(y, torch.Tensor):  # of two numbers, the result is folded
            return NotImplemented
        x = y.new_full((), x, dtype=dtype)
    if dtype in _INTEGERS:
        return _whole_quotient(x, y, rounding_mode)
    if not dtype.is_floating_point:
        return NotImplemented
    short = dtype in _HALVES and isinstance(y, torch.Tensor) and y.numel() != 1
    x, y = _floats(
        x, y, dtype if isinstance(y, torch.Tensor) else _single(dtype), dtype if short else _single(dtype)
    )
    if rounding_mode == "trunc":
        return torch.trunc(x / y).to(dtype)
    return (_floor_by_steps if x.dtype != torch.float32 else _floor_of_single)(x, y).to(dtype)


def true_quotient(x, y, *, rounding_mode=None):
    """A quotient that is not rounded to a whole number, which a division with a mode may be too."""
    is_true = rounding_mode is None and isinstance(x, torch.Tensor)
    return torch.true_divide(x, y) if is_true else NotImplemented


def _single(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in _HALVES else dtype


def _floor_of_single(x, y):
    """The quotient rounded down, by way of double precision: in its own it may round up to a whole number."""
    quotient = torch.floor(x.to(torch.float64) / y.to(torch.float64)).to(x.dtype)
    past = (torch.abs(y) == math.inf) & (x != 0) & ((x < 0) != (y < 0))
    quotient = torch.where(past & (torch.abs(x) < math.inf), -1.0, quotient)
    return torch.where((torch.abs(x) == math.inf) & (y != 0), math.nan, quotient)


def _floor_by_steps(x, y):
    """What divides less what division leaves, each step rounded, as eager PyTorch and Python do."""
    left = torch.fmod(x, y)
    quotient = (x - left) / y
    quotient = torch.where((left != 0) & ((y < 0) != (left < 0)), quotient - 1, quotient)
    whole = torch.floor(quotient)
    whole = torch.where(quotient - whole > 0.5, whole + 1, whole)
    whole = torch.where(quotient == 0, torch.copysign(torch.zeros_like(x), x / y), whole)
    return torch.where(y == 0, x / y, whole)


def _whole_quotient(x, y, rounding_mode):
    """A quotient of integers: torch-mlir divides them in f64 where it rounds down, which loses bits and zeros."""
    if rounding_mode == "trunc":
        return _by_whole_numbers(partial(torch.div, rounding_mode="trunc"), x, y)
    x = x.to(torch.result_type(x, y))  # a truth by a number
    y = _integer(y, x)
    quotient = torch.div(x, y, rounding_mode="trunc")
    rest = x - quotient * y
    return torch.where((rest != 0) & ((rest < 0) != (y < 0)), quotient - 1, quotient)


def _by_whole_numbers(operator: Callable, x, y):
    """`operator` of tensors of one type; a divisor that is a number torch-mlir drops where it is zero."""
    dtype = torch.result_type(x, y)
    if isinstance(y, torch.Tensor):
        return NotImplemented if x.dtype == y.dtype else operator(x.to(dtype), y.to(dtype))
    return operator(x, _integer(y, x)) if x.dtype in _INTEGERS else NotImplemented


def _integer(y, x):
    """`y` as a tensor; a number of another range wraps around to that of `x`."""
    if isinstance(y, torch.Tensor):
        return y
    least, bits = torch.iinfo(x.dtype).min, torch.iinfo(x.dtype).bits
    return x.new_full((), (y - least) % (1 << bits) + least)


def floor_divide(x, y):
    """`divide` towards minus infinity."""
    return divide(x, y, rounding_mode="floor")


def _in_single(operator: Any) -> Callable:
    """`operator` on 16-bit floats, computed in single precision and rounded once."""

    def decomposition(x, *args, dtype=None, **kwargs):
        result = x.dtype if dtype is None else dtype
        if x.dtype not in _HALVES or result not in (*_HALVES, torch.float32):
            return NotImplemented
        return operator(x.to(torch.float32), *args, **kwargs).to(result)

    return decomposition


def _in_words(operator: Any) -> Callable:
    """`operator` on 8-bit integers, computed in 32 bits; what it keeps are the same low 8 bits."""

    def decomposition(*args, **kwargs):
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        numbers = [a for a in args if not isinstance(a, torch.Tensor)]
        if not tensors:  # two numbers, whose result is folded
            return NotImplemented
        result = torch.result_type(*tensors) if len(tensors) == 2 else tensors[0].dtype
        if result not in _BYTES or not all(isinstance(n, int) for n in numbers):
            return NotImplemented
        # What is out of the type's range wraps before, not after.
        wide = [
            a.to(result).to(torch.int32) if isinstance(a, torch.Tensor) else converted(a, result)
            for a in args
        ]
        return operator(*wide, **kwargs).to(result)

    return decomposition


def _signed(operator: Any) -> Callable:
    """`operator` on unsigned bytes that it must not take for signed ones: computed on 32-bit integers."""

    def decomposition(*args, **kwargs):
        if not any(isinstance(a, torch.Tensor) and a.dtype == torch.uint8 for a in args):
            return NotImplemented
        wide = [a.to(torch.int32) if isinstance(a, torch.Tensor) else a for a in args]
        return operator(*wide, **kwargs)

    return decomposition


def _either(*decompositions: Callable) -> Callable:
    """The first of several decompositions that applies."""

    def decomposition(*args, **kwargs):
        for each in decompositions:
            result = each(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return NotImplemented

    return decomposition


def vector_norm(x, ord=2, dim=None, keepdim=False, *, dtype=None):
    """The norm with dimensions counted from the front, or of all there is where there are none; of one element, that.

    PyTorch's decomposition takes other dimensions for empty ones, and raises single elements to powers that overflow.
    """
    front = [d % x.dim() for d in dim] if dim and x.dim() else None
    over = front or range(x.dim())
    if all(x.shape[d] == 1 for d in over):
        single = torch.abs(x if dtype is None else x.to(dtype))
        single = single if ord else (single != 0).to(single.dtype)
        return single if keepdim else single.reshape([n for d, n in enumerate(x.shape) if d not in over])
    if not dim or (x.dim() and min(dim) >= 0):
        return NotImplemented
    return aten.linalg_vector_norm(x, ord, front, keepdim, dtype=dtype)


def all_along(x, dim, keepdim=False):
    """Whether bytes are true, as a byte, or the one element of what has no dimensions."""
    if not x.dim():
        return aten.all.default(x)
    return aten.all.dim(x != 0, dim, keepdim).to(x.dtype) if x.dtype == torch.uint8 else NotImplemented


def any_along(x, dim=None, keepdim=False):
    """Whether one of several is true: of bytes as a byte, and of each by itself where `dim` names no dimension."""
    to = torch.uint8 if x.dtype == torch.uint8 else torch.bool
    if dim is not None and not dim:
        return (x != 0).to(to)
    return aten.any.dims(x != 0, dim, keepdim).to(to) if to == torch.uint8 else NotImplemented


def norm(x, p=None, dim=(), keepdim=False, *, dtype=None):
    """The norm of vectors, whose powers are summed in single precision for 16-bit floats."""
    return torch.linalg.vector_norm(x, 2 if p is None else p, tuple(dim) or None, keepdim, dtype=dtype)


def left_shift(x, y):
    """`x << y`."""
    return aten.bitwise_left_shift(x, y)


def right_shift(x, y):
    """`x >> y`."""
    return aten.bitwise_right_shift(x, y)


def sort_stable(x, *, stable, dim=-1, descending=False):
    """Every sort of ours is stable."""
    return aten.sort(x, dim, descending)


def convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    """A convolution of volumes, depthwise or of integers, as a sum of convolutions of planes, one per tap in depth."""
    is_depthwise = groups > 1 and groups == x.shape[1]
    if x.dim() != 5 or transposed or (x.dtype.is_floating_point and not is_depthwise):
        return NotImplemented
    wide = F.pad(x.to(compute_dtype(x)), (0, 0, 0, 0, padding[0], padding[0]))
    weight_wide = weight.to(wide.dtype)
    taps, step = weight.shape[2], dilation[0]
    batch, channels, depth, *plane = wide.shape
    outside = (depth - step * (taps - 1) - 1) // stride[0] + 1
    parts = []
    for tap in range(taps):
        first = tap * step
        slices = wide[:, :, first : first + (outside - 1) * stride[0] + 1 : stride[0]]
        planes = slices.permute(0, 2, 1, 3, 4).reshape(batch * outside, channels, *plane)
        tail = (stride[1:], padding[1:], dilation[1:], False, [0, 0], groups)
        parts.append(aten.convolution(planes, weight_wide[:, :, tap], None, *tail))
    total = sum(parts[1:], parts[0])
    y = total.reshape(batch, outside, *total.shape[1:]).permute(0, 2, 1, 3, 4)
    if bias is not None:
        y = y + bias.to(wide.dtype).reshape(1, -1, 1, 1, 1)
    return y.to(x.dtype)


_COMPARISONS = (
    *(aten.lt.Scalar, aten.le.Scalar, aten.gt.Scalar, aten.ge.Scalar, aten.eq.Scalar, aten.ne.Scalar),
)
_SUMS = (
    *(aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim, aten.cumsum.default),
    *(aten.prod.default, aten.prod.dim_int, aten.cumprod.default),
)
_AVERAGES = (
    *(aten.avg_pool1d.default, aten.avg_pool2d.default, aten.avg_pool3d.default),
    *(aten.adaptive_avg_pool1d.default, aten._adaptive_avg_pool2d.default),
    *(aten._adaptive_avg_pool3d.default, aten.adaptive_avg_pool2d.default, aten.adaptive_avg_pool3d.default),
)
_ON_BYTES = (
    *(aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default),
    *(aten.mul.Tensor, aten.mul.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Scalar),
    *(aten.div.Tensor_mode, aten.div.Scalar_mode, aten.floor_divide.default),
    *(aten.remainder.Tensor, aten.remainder.Scalar, aten.fmod.Tensor, aten.fmod.Scalar),
)
_ON_FLOATS: dict[Any, Callable] = {
    aten.floor_divide.default: floor_divide,
    aten.remainder.Tensor: remainder,
    aten.remainder.Scalar: remainder,
    aten.remainder.Scalar_Tensor: remainder_of_number,
    aten.fmod.Tensor: fmod,
    aten.fmod.Scalar: fmod,
    aten.rsub.Scalar: subtracted_from_number,
}

TABLE: dict[Any, Callable] = {
    aten.maximum.default: maximum,
    aten.minimum.default: minimum,
    aten.clamp.default: clamp,
    aten.clamp.Tensor: clamp_tensor,
    aten.hardtanh.default: hardtanh,
    aten.leaky_relu.default: leaky_relu,
    aten.trunc.default: trunc,
    aten.eq.Tensor: equal,
    **{operator: _with_float(operator) for operator in _COMPARISONS},
    **dict.fromkeys((aten.norm.Scalar, aten.norm.ScalarOpt_dim), norm),
    **dict.fromkeys((aten.norm.ScalarOpt_dtype, aten.norm.ScalarOpt_dim_dtype), norm),
    aten.__lshift__.Tensor: left_shift,
    aten.__rshift__.Tensor: right_shift,
    aten.linspace.default: linspace,
    aten.sort.stable: sort_stable,
    aten.convolution.default: convolution,
    **{operator: _either(_in_single(operator), _signed(operator)) for operator in _SUMS},
    aten._is_all_true.default: aten.all.default,
    aten._is_any_true.default: aten.any.default,
    aten.all.dim: all_along,
    aten.any.dims: any_along,
    aten.linalg_vector_norm.default: _either(
        vector_norm, _in_single(aten.linalg_vector_norm.default), _signed(aten.linalg_vector_norm.default)
    ),
    **{operator: _in_single(operator) for operator in _AVERAGES},
    **{operator: _signed(operator) for operator in (aten.div.Tensor, aten.div.Scalar)},
    **{operator: _in_words(operator) for operator in _ON_BYTES},
    **{operator: _either(_in_words(operator), how) for operator, how in _ON_FLOATS.items()},
    **{
        operator: _either(true_quotient, _in_words(operator), divide)
        for operator in (aten.div.Tensor_mode, aten.div.Scalar_mode)
    },
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what torch-mlir does right."""
