"""Operand types made explicit: every operator reaches torch-mlir on one type, taken for what it is.

Left to itself it takes bytes and booleans for signed numbers, ends the process on some mixtures of types,
rounds 16-bit floats at every step of an operator, and compares single precision with numbers of double
precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Number
from typing import Any

import numpy
import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KIND
from torch._prims_common import elementwise_dtypes

aten = torch.ops.aten

WIDE = {torch.bool: torch.int32, torch.uint8: torch.int32, torch.int8: torch.int32}
"""Types that torch-mlir takes for others -> one that holds their values, and wraps as they do in its low bits."""
_HALVES = {torch.float16, torch.bfloat16}

_known: dict[Any, tuple[torch.dtype, torch.dtype]] = {}


def _types(kind: Any, operands: list[Any]) -> tuple[torch.dtype, torch.dtype]:
    """The types that PyTorch computes an element-wise operator in, and that it returns."""
    key: list[Any] = [kind]
    for operand in operands:
        is_tensor = isinstance(operand, torch.Tensor)
        key.append((operand.dtype, operand.dim() > 0) if is_tensor else type(operand))
    known = _known.get(tuple(key))
    if known is None:
        known = _known[tuple(key)] = elementwise_dtypes(*operands, type_promotion_kind=kind)
    return known


def converted(number: Any, dtype: torch.dtype) -> Any:
    """A Python number as PyTorch converts it to `dtype`: integers wrap, floats are rounded."""
    if dtype == torch.bool:
        return bool(number)
    if not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return (int(number) - limits.min) % (limits.max - limits.min + 1) + limits.min
    return _rounded(float(number), dtype)


def _rounded(number: float, dtype: torch.dtype) -> float:
    """A float as PyTorch rounds it to `dtype`, by way of single precision."""
    if dtype == torch.float64:
        return number
    with numpy.errstate(over="ignore"):
        single = numpy.float32(number)
        if dtype == torch.float16:
            return float(numpy.float16(single))
    if dtype == torch.bfloat16 and numpy.isfinite(single):
        bits = int(single.view(numpy.uint32))
        rounded = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
        return float(numpy.uint32(rounded).view(numpy.float32))
    return float(single)


def promoted(operator: Any, kind: Any = KIND.DEFAULT, *, numbers: int = 2, once: bool = False) -> Callable:
    """`operator` on operands of the type that PyTorch computes it in, its result in the type that it returns.

    Operands are the tensors, and numbers among the first `numbers` arguments. An operator that rounds `once`
    does so on 16-bit floats too, and takes them as they are.
    """

    def decomposition(*args, **kwargs):
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        given = [a for a in args[:numbers] if isinstance(a, Number)]
        dtypes = {tensor.dtype for tensor in tensors}
        if len(dtypes) == 1 and _needs_nothing(dtypes.pop(), kind, given, once):
            return NotImplemented
        compute, result = _types(kind, [*tensors, *given])
        wide = WIDE.get(compute, compute)
        if compute.is_complex or not (
            any(tensor.dtype != wide for tensor in tensors) or any(_changes(n, compute) for n in given)
        ):
            return NotImplemented
        found = operator(
            *(_as(a, wide, compute, number < numbers) for number, a in enumerate(args)),
            **{name: _as(a, wide, compute, False) for name, a in kwargs.items()},
        )
        return _returned(found, result)

    return decomposition


def added(operator: Any) -> Callable:
    """A sum or difference; beside 16-bit floats, numbers are rounded to their type first, as in PyTorch."""
    plain, scaled = promoted(operator, KIND.NO_OPMATH, once=True), promoted(operator)

    def decomposition(x, y, alpha=1):
        if alpha == 1:
            return plain(x, y)
        dtype = _types(KIND.NO_OPMATH, [x, y])[0]
        if dtype == torch.bool:
            return plain(x, y if alpha else False)
        if dtype not in _HALVES:
            return scaled(x, y, alpha=alpha)
        wide = [_as(a, torch.float32, dtype, True) for a in (x, y)]
        return operator(*wide, alpha=converted(alpha, dtype)).to(dtype)

    return decomposition


def _needs_nothing(dtype: torch.dtype, kind: Any, numbers: list[Any], once: bool) -> bool:
    """Whether an operator whose tensors are all of `dtype` is taken for what it is."""
    if dtype.is_floating_point:
        return dtype not in _HALVES or (once and not numbers)
    integers = all(isinstance(number, int) for number in numbers)
    return dtype not in WIDE and integers and kind is not KIND.INT_TO_FLOAT


def _as(value: Any, wide: torch.dtype, compute: torch.dtype, is_operand: bool) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(compute).to(wide)  # the first lets numbers of rank 0 wrap
    return converted(value, compute) if is_operand and isinstance(value, Number) else value


def _returned(found: Any, dtype: torch.dtype) -> Any:
    """The results of an operator in `dtype`, indices among them as they are."""
    if isinstance(found, torch.Tensor):
        return found if found.dtype == torch.int64 else found.to(dtype)
    return tuple(_returned(part, dtype) for part in found)


def _changes(number: Any, dtype: torch.dtype) -> bool:
    """Whether PyTorch makes another number of `number` when it converts it to `dtype`."""
    return number == number and converted(number, dtype) != number


def compared(operator: Any) -> Callable:
    """A comparison of operands of one type, to which a number is rounded first, as in PyTorch."""

    def decomposition(x, y):
        compute = _types(KIND.NO_OPMATH, [x, y])[0]
        wide = WIDE.get(compute, compute)
        if compute.is_complex:
            return NotImplemented
        if isinstance(y, torch.Tensor):
            changed = x.dtype != wide or y.dtype != wide
        else:
            changed = x.dtype != wide or _changes(y, compute)
        return (
            operator(_as(x, wide, compute, False), _as(y, wide, compute, True)) if changed else NotImplemented
        )

    return decomposition


def widened(operator: Any, *positions: int) -> Callable:
    """`operator` with the tensors in these places in 32 bits where they are bytes or booleans."""

    def decomposition(*args, **kwargs):
        dtype = args[0].dtype
        if dtype not in WIDE:
            return NotImplemented
        wide = [
            a.to(WIDE[dtype]) if i in positions and isinstance(a, torch.Tensor) else a
            for i, a in enumerate(args)
        ]
        return _returned(operator(*wide, **kwargs), dtype)

    return decomposition


def typed(operator: Any) -> Callable:
    """A reduction or scan that is asked for a type: of operands of that type, as in PyTorch.

    Bytes and booleans are taken together in 32 bits; a boolean says whether that is zero.
    """

    def decomposition(x, *args, dtype=None, **kwargs):
        if dtype is None or dtype.is_complex or (x.dtype == dtype and dtype not in WIDE):
            return NotImplemented
        wide = WIDE.get(dtype, dtype)
        return operator(x.to(dtype).to(wide), *args, dtype=wide, **kwargs).to(dtype)

    return decomposition


def pooled(operator: Any) -> Callable:
    """A maximum over windows of integers, in double precision, which holds those of up to 32 bits."""

    def decomposition(x, *args, **kwargs):
        if x.dtype not in WIDE and x.dtype not in (torch.int16, torch.int32):
            return NotImplemented
        return _returned(operator(x.to(torch.float64), *args, **kwargs), x.dtype)

    return decomposition


def mean_of_sources(x, dim, index, source, reduce, *, include_self=True):
    """The sum of what meets at a place divided by its count, rounded down for integers."""
    if reduce != "mean" or x.dtype.is_complex:
        return NotImplemented
    total = torch.scatter_reduce(x, dim, index, source, "sum", include_self=include_self)
    count = torch.scatter_add(torch.full_like(x, int(include_self)), dim, index, torch.ones_like(source))
    mode = None if x.dtype.is_floating_point else "floor"
    return torch.div(total, torch.where(count == 0, 1, count).to(x.dtype), rounding_mode=mode)


def accumulated(operator: Any) -> Callable:
    """An `index_put` that adds, in 32 bits where it adds bytes or booleans."""
    wide = widened(operator, 0, 2)

    def decomposition(x, indices, values, accumulate=False):
        return wide(x, indices, values, accumulate) if accumulate else NotImplemented

    return decomposition


def negative(x):
    """`-x` of integers without a detour through floats."""
    return NotImplemented if x.dtype.is_floating_point or x.dtype.is_complex else torch.rsub(x, 0)


def threshold(x, threshold, value):
    """`value` where `x` is not above the threshold, both converted to the type of integers."""
    if x.dtype.is_floating_point:
        return NotImplemented
    return torch.where(x <= converted(threshold, x.dtype), converted(value, x.dtype), x).to(x.dtype)


def where(condition, x, y):
    """A choice between operands of one type, spread out where alike: it is folded into either then."""
    dtype = torch.result_type(x, y)
    shape = torch.broadcast_shapes(condition.shape, x.shape, y.shape)
    if condition.dtype != torch.bool:
        return torch.where(condition != 0, x, y)
    if x.dtype == y.dtype and (x.shape != y.shape or x.shape == shape):
        return NotImplemented
    return torch.where(condition, x.to(dtype).expand(shape), y.to(dtype).expand(shape))


def of_one_type(operator: Any) -> Callable:
    """An operator on the bits of tensors of the type that PyTorch computes it in."""

    def decomposition(x, y):
        dtype = torch.result_type(x, y)
        return NotImplemented if x.dtype == y.dtype else operator(x.to(dtype), y.to(dtype))

    return decomposition


def with_number(operator: Any) -> Callable:
    """An operator on bits with a number as one with a tensor of rank 0."""

    def decomposition(x, y):
        if not isinstance(x, torch.Tensor):
            x, y = y, x
        dtype = torch.result_type(x, y)
        return operator(x.to(dtype), torch.full([], converted(y, dtype), dtype=dtype))

    return decomposition


def of_number(operator: Any) -> Callable:
    """An operator on a number and a tensor, in this order, as one on two tensors."""

    def decomposition(x, y):
        dtype = torch.result_type(x, y)
        return operator(torch.full([], converted(x, dtype), dtype=dtype), y.to(dtype))

    return decomposition


def addcmul(x, y, z, *, value=1):
    """`x + value * y * z` of integers, with a whole factor as in PyTorch."""
    dtype = _types(KIND.NO_OPMATH, [x, y, z])[0]
    if dtype.is_floating_point or dtype.is_complex:
        return NotImplemented
    x, y, z = x.to(dtype), y.to(dtype), z.to(dtype)
    return x + converted(value, dtype) * y * z


def power(x, y):
    """Integers to the power of integers, by squaring; a power below zero is 0 but of 1 and -1."""
    dtype = _types(KIND.NO_OPMATH, [x, y])[0]
    if dtype.is_floating_point or dtype.is_complex:
        return NotImplemented
    wide = WIDE.get(dtype, dtype)
    x, y = _as(x, wide, dtype, True), _as(y, wide, dtype, True)
    if not isinstance(y, torch.Tensor):
        return (_to_number(x, y) if y else torch.ones_like(x)).to(dtype)
    x = x if isinstance(x, torch.Tensor) else torch.full([], x, dtype=wide)
    bits = 1 if dtype == torch.bool else torch.iinfo(dtype).max.bit_length()
    found, square = torch.ones_like(x), x
    for bit in range(bits):
        found = torch.where((y >> bit & 1) != 0, found * square, found)
        square = square * square
    below = torch.where(x == 1, 1, torch.where(x == -1, 1 - 2 * (y & 1), 0))
    return torch.where(y < 0, below, found).to(dtype)


def _to_number(x, number: int):
    """The product of `number` times `x`, above 0."""
    half = _to_number(x, number // 2) if number > 1 else None
    square = x if half is None else half * half
    return square * x if number > 1 and number % 2 else square


def masked_fill(x, mask, value):
    """Booleans filled with a number, which is one of them first, and unsigned bytes by a choice.

    Where a mask is true everywhere, torch-mlir folds what it fills into a constant, and makes that of signed bytes.
    """
    if x.dtype == torch.uint8:
        return torch.where(mask, torch.full((), value, dtype=x.dtype), x)
    if x.dtype != torch.bool or isinstance(value, bool):
        return NotImplemented
    return aten.masked_fill.Scalar(x, mask, bool(value))


def masked_fill_tensor(x, mask, value):
    """`value` in the type of `x` where `mask` is set."""
    if value.dtype == x.dtype != torch.uint8:
        return NotImplemented
    return torch.where(mask, value.to(x.dtype), x)


def ldexp(x, exponent):
    """`x` times a power of two: of whole exponents of a float in three steps, none of which overflows on the way.

    Eager PyTorch computes the power itself in every other case: 0 times one that overflows is NaN there.
    """
    if exponent.dtype.is_floating_point or not x.dtype.is_floating_point:
        return x * torch.pow(2.0, exponent)
    whole = exponent.to(torch.int64).clamp(-2200, 2200)
    third = torch.div(whole, 3, rounding_mode="floor")
    step, last = (((n + 1023) << 52).view(torch.float64) for n in (third, whole - 2 * third))
    return (x.to(torch.float64) * step * step * last).to(x.dtype)


def arange(*bounds, dtype=None, **kwargs):
    """Bytes and whole numbers between fractions, counted in 64 bits."""
    fractions = any(isinstance(bound, float) for bound in bounds)
    if dtype is None or dtype.is_floating_point or not (dtype in WIDE or fractions):
        return NotImplemented
    start, end, step = (*((0, *bounds) if len(bounds) == 1 else bounds), 1)[:3]
    count = torch.arange(math.ceil((end - start) / step), dtype=torch.int64)
    return (count * int(step) + int(start)).to(dtype)


def full(size, number, *, dtype=None, **kwargs):
    """Booleans that are a number, which is one of them first."""
    if dtype != torch.bool or isinstance(number, bool):
        return NotImplemented
    return aten.full.default(size, bool(number), dtype=dtype)


def scalar_tensor(number, *, dtype=None, **kwargs):
    """`full` of rank 0."""
    return torch.full([], number, dtype=dtype or torch.get_default_dtype())


def dist(x, y, p=2):
    """The norm of a difference, whose powers are summed in single precision for 16-bit floats."""
    return torch.linalg.vector_norm(x - y, p)


def soft_margin_loss(x, target, reduction=1):
    """Rounded at every step, as in eager PyTorch: exponentials of 16-bit floats overflow in their own type."""
    loss = torch.log1p(torch.exp(-target * x))
    return loss if reduction == 0 else loss.mean() if reduction == 1 else loss.sum()


def elu(x, alpha=1, scale=1, input_scale=1):
    """`x` above zero, below it what `expm1` keeps: torch-mlir subtracts 1 from an exponential."""
    below = torch.expm1(x * input_scale) * (alpha * scale)
    return torch.where(x > 0, x if scale == 1 else x * scale, below)


def cat(tensors, dim=0):
    """Tensors of one type in a row."""
    if len({tensor.dtype for tensor in tensors}) == 1:
        return NotImplemented
    dtype = _types(KIND.NO_OPMATH, list(tensors))[0]
    return torch.cat([tensor.to(dtype) for tensor in tensors], dim)


def _overloads(names: str) -> list[Any]:
    """The overloads of these operators on tensors, those that write to an argument excepted."""
    found = []
    for name in names.split():
        packet = getattr(aten, name)
        for overload in (getattr(packet, overload) for overload in packet.overloads()):
            schema = overload._schema
            if not schema.is_mutable and any(str(a.type) == "Tensor" for a in schema.arguments):
                found.append(overload)
    return found


def either(first: Callable, second: Callable) -> Callable:
    """`second` for what `first` does not cover."""

    def decomposition(*args, **kwargs):
        found = first(*args, **kwargs)
        return second(*args, **kwargs) if found is NotImplemented else found

    return decomposition


_FLOAT_FUNCTIONS = """
acos acosh asin asinh atan atanh cos cosh digamma erf erfc erfinv exp exp2 expm1 i0 lgamma log log10 log1p log2
logit reciprocal rsqrt sigmoid sin sinc sinh special_erfcx special_i0 special_i0e special_i1 special_i1e
special_modified_bessel_i0 special_modified_bessel_i1 sqrt tan tanh
"""
_ACTIVATIONS = """
elu gelu hardsigmoid hardswish leaky_relu log_sigmoid_forward mish silu softplus softshrink hardshrink
elu_backward gelu_backward hardsigmoid_backward hardswish_backward leaky_relu_backward log_sigmoid_backward
logit_backward mish_backward sigmoid_backward silu_backward softplus_backward tanh_backward
"""

TABLE: dict[Any, Callable] = {
    **{o: promoted(o, KIND.INT_TO_FLOAT, numbers=0) for o in _overloads(_FLOAT_FUNCTIONS)},
    **{o: promoted(o, numbers=0) for o in _overloads(_ACTIVATIONS)},
    **{o: promoted(o, numbers=1, once=True) for o in _overloads("abs relu sgn sign square")},
    aten.round.decimals: promoted(aten.round.decimals, numbers=0),
    **{o: added(o) for o in _overloads("add rsub sub")},
    **{o: promoted(o, once=True) for o in _overloads("mul")},
    **{o: promoted(o, KIND.INT_TO_FLOAT, once=True) for o in (aten.div.Tensor, aten.div.Scalar)},
    **{o: promoted(o, KIND.INT_TO_FLOAT) for o in _overloads("atan2 hypot logaddexp logaddexp2 xlogy")},
    **{o: promoted(o, KIND.INT_TO_FLOAT, once=True) for o in _overloads("copysign")},
    **{o: promoted(o, KIND.NO_OPMATH, once=True) for o in _overloads("maximum minimum fmax fmin")},
    **{o: promoted(o, KIND.NO_OPMATH, numbers=3, once=True) for o in _overloads("clamp clamp_min clamp_max")},
    **{o: compared(o) for o in _overloads("eq ne lt le gt ge")},
    **{o: widened(o, 0) for o in _overloads("amax amin argmax argmin aminmax sort topk kthvalue mode")},
    **{o: widened(o, 0) for o in (aten.max.default, aten.min.default, aten.max.dim, aten.min.dim)},
    **{o: widened(o, 0) for o in _overloads("median nanmedian cummax cummin")},
    **{o: widened(o, 0, 3) for o in _overloads("index_add scatter_add")},
    aten.scatter_reduce.two: either(mean_of_sources, widened(aten.scatter_reduce.two, 0, 3)),
    **{o: widened(o, 0, 3) for o in (aten.scatter.reduce, aten.scatter.value_reduce)},
    aten.index_put.default: accumulated(aten.index_put.default),
    aten._unsafe_index_put.default: accumulated(aten._unsafe_index_put.default),
    **{
        o: either(power, promoted(o))
        for o in (aten.pow.Tensor_Tensor, aten.pow.Tensor_Scalar, aten.pow.Scalar)
    },
    **{
        overload: with_number(packet.Tensor)
        for packet in (aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor)
        for overload in (packet.Scalar, packet.Scalar_Tensor)
    },
    **{
        packet.Tensor: of_one_type(packet.Tensor)
        for packet in (aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor)
    },
    **{
        packet.Tensor_Scalar: with_number(packet.Tensor)
        for packet in (aten.bitwise_left_shift, aten.bitwise_right_shift)
    },
    **{
        packet.Tensor: of_one_type(packet.Tensor)
        for packet in (aten.bitwise_left_shift, aten.bitwise_right_shift, aten.__lshift__, aten.__rshift__)
    },
    **{o: typed(o) for o in (aten.sum.default, aten.sum.dim_IntList, aten.mean.default, aten.mean.dim)},
    **{o: typed(o) for o in (aten.prod.default, aten.prod.dim_int, aten.nansum.default)},
    aten.bitwise_left_shift.Scalar_Tensor: of_number(aten.bitwise_left_shift.Tensor),
    aten.bitwise_right_shift.Scalar_Tensor: of_number(aten.bitwise_right_shift.Tensor),
    **{o: pooled(o) for o in _overloads("max_pool1d max_pool2d max_pool3d")},
    **{o: pooled(o) for o in _overloads("max_pool2d_with_indices max_pool3d_with_indices")},
    **dict.fromkeys((aten.arange.default, aten.arange.start, aten.arange.start_step), arange),
    aten.masked_fill.Scalar: masked_fill,
    aten.masked_fill.Tensor: masked_fill_tensor,
    aten.ldexp.Tensor: ldexp,
    aten.full.default: full,
    aten.scalar_tensor.default: scalar_tensor,
    torch.ops.prims.scalar_tensor.default: scalar_tensor,
    aten.dist.default: dist,
    aten.soft_margin_loss.default: soft_margin_loss,
    aten.elu.default: either(promoted(aten.elu.default, numbers=0), elu),
    aten._log_softmax.default: promoted(aten._log_softmax.default, numbers=0),
    aten.addcmul.default: addcmul,
    aten.neg.default: negative,
    aten.threshold.default: threshold,
    aten.where.self: where,
    aten.cat.default: cat,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what torch-mlir takes as it is."""
