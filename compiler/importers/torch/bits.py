"""Whole numbers by Euclid's steps, and the bits that numbers are made of."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

_LIBRARY = torch.library.Library("tilewright", "FRAGMENT")
_LIBRARY.define("gcd(Tensor x, Tensor y) -> Tensor")
_LIBRARY.impl("gcd", lambda x, y: torch.abs(torch.gcd(x, y)), "CompositeExplicitAutograd")
torch.library.register_fake("tilewright::gcd", lambda x, y: torch.empty_like(x))

_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Bytes -> an integer type of as many."""
_FIELDS = {torch.float32: (8, 23), torch.float64: (11, 52)}
"""Bits of the exponent and of the mantissa."""


def gcd(x, y):
    """The greatest common divisor of numbers of one type; `gcd` of ours takes them without their signs."""
    dtype = torch.result_type(x, y)
    if dtype == torch.bool or dtype.is_floating_point or dtype.is_complex:
        return NotImplemented
    x, y = torch.broadcast_tensors(torch.abs(x.to(dtype)), torch.abs(y.to(dtype)))
    return torch.ops.tilewright.gcd(x, y)


def lcm(x, y):
    """The least common multiple, 0 beside a zero; of types below 32 bits it wraps around after its sign is gone."""
    dtype = torch.result_type(x, y)
    if dtype == torch.bool or dtype.is_floating_point or dtype.is_complex:
        return NotImplemented
    wide = torch.int32 if dtype.itemsize < 4 else dtype
    divisor = torch.gcd(x.to(dtype), y.to(dtype)).to(wide)
    part = torch.div(x.to(wide), torch.where(divisor == 0, 1, divisor), rounding_mode="trunc")
    return torch.abs(part * y.to(wide)).to(dtype)


def frexp(x):
    """A mantissa from one half to one, and the power of two that it is multiplied by."""
    wide = x if x.dtype == torch.float64 else x.to(torch.float32)
    width, shift = _FIELDS[wide.dtype]
    bias, mask = (1 << width - 1) - 1, (1 << width) - 1
    smallest = torch.finfo(wide.dtype).smallest_normal
    is_short = (torch.abs(wide) < smallest) & (wide != 0)
    normal = torch.where(is_short, wide * 2.0**shift * 2, wide)
    bits = normal.view(_INTEGER[wide.dtype.itemsize])
    exponent = (bits >> shift) & mask
    kept = (bits & ~(mask << shift)) | (bias - 1 << shift)
    is_number = (exponent != mask) & (wide != 0)
    mantissa = torch.where(is_number, kept.view(wide.dtype), wide)
    power = exponent.to(torch.int32) - (bias - 1) - torch.where(is_short, shift + 1, 0).to(torch.int32)
    return mantissa.to(x.dtype), torch.where(is_number, power, 0).to(torch.int32)


def nextafter(x, y):
    """The number beside `x` towards `y`: its bits, which count magnitudes, one up or one down."""
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point:
        return NotImplemented
    x, y = torch.broadcast_tensors(x.to(dtype), y.to(dtype))
    whole = _INTEGER[dtype.itemsize]
    bits = x.view(whole)
    beside = (bits + torch.where((x < y) == (x > 0), 1, -1).to(whole)).view(dtype)
    smallest = torch.copysign(torch.ones_like(bits).view(dtype), y)
    found = torch.where(x == y, y, torch.where(x == 0, smallest, beside))
    return torch.where(x.isnan() | y.isnan(), float("nan"), found)


def view_dtype(x, dtype):
    """Bits read as more, or fewer, elements of another size; booleans as bytes."""
    if dtype == x.dtype or dtype.is_complex or x.dtype.is_complex:
        return NotImplemented
    if dtype == torch.bool:
        return x.view(torch.uint8) != 0
    if x.dtype == torch.bool:
        return x.to(torch.uint8).view(dtype)
    before, after = x.dtype.itemsize, dtype.itemsize
    if before == after or not x.dim() or x.shape[-1] * before % after:
        return NotImplemented
    bits = x.view(_INTEGER[before])
    if before > after:
        parts = [(bits >> (8 * after * n)).to(_INTEGER[after]) for n in range(before // after)]
        return torch.stack(parts, -1).flatten(-2).view(dtype)
    mask = (1 << 8 * before) - 1
    bits = bits.reshape(*x.shape[:-1], x.shape[-1] * before // after, after // before)
    found = torch.zeros(bits.shape[:-1], dtype=_INTEGER[after])
    for n in range(after // before):
        found = found | ((bits.select(-1, n).to(_INTEGER[after]) & mask) << (8 * before * n))
    return found.view(dtype)


TABLE: dict[Any, Any] = {
    aten.gcd.default: gcd,
    aten.lcm.default: lcm,
    aten.frexp.Tensor: frexp,
    aten.nextafter.default: nextafter,
    aten.view.dtype: view_dtype,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
