"""Functions of PyTorch as the oracle's runs compute them: in float64, and by formulas that are as right as eager's."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

_MEDIANS = (torch.median, torch.nanmedian, torch.Tensor.median, torch.Tensor.nanmedian)
_SHORT = (torch.float16, torch.bfloat16, torch.float32)
_EXACTLY: dict[Any, Any] = {F.hardsigmoid: lambda x, inplace=False: F.relu6(x + 3) / 6}
"""Functions by their definition, where eager PyTorch has a number of it in single precision for all types."""
_WIDENED = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}


def _weighted_after(norm: Any) -> Any:
    """A norm whose weight and bias come after it: eager's formula, `x * w - mean * w`, has NaN for infinite weights."""
    parameters = inspect.signature(norm).parameters

    def weighted(*args: Any, **kwargs: Any) -> torch.Tensor:
        given = dict(zip(parameters, args)) | kwargs
        weight, bias = given.pop("weight", None), given.pop("bias", None)
        found = norm(**given)
        each = [1, -1] + [1] * (found.dim() - 2)
        found = found if weight is None else found * weight.reshape(each)
        return found if bias is None else found + bias.reshape(each)

    return weighted


def _with_poles(function: Any) -> Any:
    """`polygamma`, infinite at its poles: there eager's trigamma divides by a sine that is only rounding."""

    def derivative(*args: Any) -> torch.Tensor:
        n, x = args[::-1] if isinstance(args[0], torch.Tensor) else args
        found = function(*args)
        return torch.where(_is_pole(x), torch.inf, found) if n == 1 else found

    return derivative


def _infinite_at_poles(function: Any) -> Any:
    """`lgamma`, of which no run in float64 would be at a pole that a rounded operand lies on."""
    return lambda x: torch.where(_is_pole(x), torch.inf, function(x))


def _is_pole(x: torch.Tensor) -> torch.Tensor:
    """Where numbers are as near to a whole one up to 0 as roundings are made at random."""
    whole = torch.round(x)
    return (whole <= 0) & ((x - whole).abs() <= 4 * torch.finfo(torch.float32).eps * x.abs())


def _attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Attention by its formula: eager's fused one has 0 for some queries that are NaN, whose results are NaN."""
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(query, key, value, *args, **kwargs)


def _dense_attention(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Attention by eager's fused kernel where it has one: by the formula, which it takes for some strides, a masked
    infinite score is NaN."""
    operands = (operand.contiguous() for operand in (query, key, value))
    return F.scaled_dot_product_attention(*operands, *args, **kwargs)


_OTHERWISE = {
    **{norm: _weighted_after(norm) for norm in (F.batch_norm, F.instance_norm)},
    **{f: _with_poles(f) for f in (torch.polygamma, torch.special.polygamma, torch.Tensor.polygamma)},
    **{f: _infinite_at_poles(f) for f in (torch.lgamma, torch.special.gammaln, torch.Tensor.lgamma)},
    F.scaled_dot_product_attention: _attention,
}
"""Functions with another formula that is as right where numbers are not finite, for every other run."""
_FUSED: dict[Any, Any] = {F.scaled_dot_product_attention: _dense_attention}
"""What the runs between those have in their place, where eager takes either by the strides of its operands."""

_ROWS: dict[Any, Callable[..., tuple[int, ...]]] = {
    F.layer_norm: lambda x, given: (*x.shape[: x.dim() - len(given["normalized_shape"])], -1),
    F.group_norm: lambda x, given: (len(x), given["num_groups"], -1),
    F.instance_norm: lambda x, given: (*x.shape[:2], -1),
}
"""Norms that take the mean of each row, by what makes the rows the last dimension of the input."""


def _off_mean(
    norm: Any, rows_of: Callable[..., tuple[int, ...]], noise: torch.Generator, error: float
) -> Any:
    """A norm by its definition that subtracts a mean which is off: elements that are nearly equal cancel in it."""
    parameters = inspect.signature(norm).parameters

    def normalised(*args: Any, **kwargs: Any) -> torch.Tensor:
        given = dict(zip(parameters, args)) | kwargs
        x = given["input"]
        if given.get("running_mean") is not None or not x.is_floating_point() or not x.numel():
            return norm(*args, **kwargs)
        rows = x.reshape(rows_of(x, given))
        draw = torch.rand((*rows.shape[:-1], 1), generator=noise, dtype=torch.float64) * 2 - 1
        off = draw * error * rows.detach().abs().amax(-1, keepdim=True).nan_to_num(0, 0, 0)
        variance = rows.var(-1, unbiased=False, keepdim=True) + off * off
        found = (rows - rows.mean(-1, keepdim=True) - off) * torch.rsqrt(variance + given.get("eps", 1e-5))
        found = found.reshape(x.shape)
        each = x.shape[x.dim() - len(given["normalized_shape"]) :] if norm is F.layer_norm else None
        each = each or [1, -1] + [1] * (x.dim() - 2)
        for name, apply in (("weight", torch.mul), ("bias", torch.add)):
            if given.get(name) is not None:
                found = apply(found, given[name].reshape(each))
        return found

    return normalised


class Wide(TorchFunctionMode):
    """Floating-point types named in calls become float64; functions may be computed otherwise.

    With `noise`, norms subtract means that are off by up to `error` of the largest element in them.
    """

    def __init__(self, otherwise: bool, noise: torch.Generator | None = None, error: float = 0.0):
        super().__init__()
        self.functions = _EXACTLY | (_OTHERWISE if otherwise else _FUSED)
        if noise is not None:
            self.functions |= {norm: _off_mean(norm, rows, noise, error) for norm, rows in _ROWS.items()}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def widened(value: Any) -> Any:
            return torch.float64 if isinstance(value, torch.dtype) and value in _SHORT else value

        if func in _WIDENED:
            func = torch.Tensor.double
        elif func is torch.Tensor.type_as:
            args = (args[0], args[1])
        args, kwargs = pytree.tree_map(widened, (args, kwargs or {}))
        return self.functions.get(func, func)(*args, **kwargs)


class Dense(TorchFunctionMode):
    """Medians of tensors that repeat elements are taken of copies: eager PyTorch reads outside of their memory."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _MEDIANS and isinstance(args[0], torch.Tensor) and repeats(args[0]):
            args = (args[0].contiguous(), *args[1:])
        return func(*args, **(kwargs or {}))


def repeats(value: torch.Tensor) -> bool:
    """Whether several elements lie at one address."""
    return any(step == 0 and n > 1 for n, step in zip(value.shape, value.stride()))
