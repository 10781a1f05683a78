"""Operators on lists of tensors (`_foreach_add`), which optimizers are written with: one operator for each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten


def addcmul(x, first, second, value=1):
    """`x + value * first * second`."""
    if isinstance(value, torch.Tensor):
        return x + value * first * second
    return torch.addcmul(x, first, second, value=value)


def addcdiv(x, first, second, value=1):
    """`x + value * first / second`."""
    if isinstance(value, torch.Tensor):
        return x + value * first / second
    return torch.addcdiv(x, first, second, value=value)


def maximum(x, other):
    """The larger of a tensor and a tensor or a number."""
    return torch.maximum(x, other) if isinstance(other, torch.Tensor) else torch.clamp_min(x, other)


def minimum(x, other):
    """The smaller of a tensor and a tensor or a number."""
    return torch.minimum(x, other) if isinstance(other, torch.Tensor) else torch.clamp_max(x, other)


def copy(x, source, non_blocking=False):
    """`source` in the type and the shape of `x`."""
    return source.to(x.dtype).expand(x.shape).clone()


def norm(x, ord=2, dtype=None):
    """The norm of all elements."""
    return torch.linalg.vector_norm(x, ord, dtype=dtype)


_OWN: dict[str, Callable] = {
    "addcmul": addcmul,
    "addcdiv": addcdiv,
    "maximum": maximum,
    "minimum": minimum,
    "copy": copy,
    "norm": norm,
    "zero": torch.zeros_like,
}
"""Functions on one element where PyTorch has none of the list operator's name, or one that takes less."""

_SAME = """
abs acos add asin atan ceil clamp_max clamp_min clone cos cosh div erf erfc exp expm1 floor frac lerp lgamma log log10
log1p log2 max mul neg pow reciprocal round rsqrt sigmoid sign sin sinh sqrt sub tan tanh trunc
"""


def _for_each(function: Callable) -> Callable:
    """`function` of every element; arguments that are no lists are the same for all."""

    def decomposition(*args, **kwargs):
        count = next(len(part) for part in args if isinstance(part, (list, tuple)))
        each = [part if isinstance(part, (list, tuple)) else [part] * count for part in args]
        return [function(*parts, **kwargs) for parts in zip(*each, strict=True)]

    return decomposition


def _with_values(function: Callable) -> Callable:
    """`function` of every element with its own number out of a tensor, the last argument."""

    def decomposition(*args):
        return _for_each(function)(*args[:-1], list(args[-1].unbind()))

    return decomposition


def _table() -> dict[Any, Callable]:
    functions = {**{name: getattr(torch, name) for name in _SAME.split()}, **_OWN}
    table = {}
    for name, function in functions.items():
        packet = getattr(aten, f"_foreach_{name}")
        for overload in packet.overloads():
            if not overload.endswith("out"):
                has_values = overload == "Tensor" and function in (addcmul, addcdiv)
                table[getattr(packet, overload)] = (_with_values if has_values else _for_each)(function)
    return table


TABLE: dict[Any, Callable] = _table()
