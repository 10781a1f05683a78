"""Numbers that a model reads out of its tensors (`x.item()`) and computes with: they stay tensors of one element."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils import _pytree as pytree

from tilewright.compiler.importers.torch.checks import checked
from tilewright.compiler.importers.torch.known_values import without_own

_KINDS = {torch.bool: True, torch.int64: 1, torch.float64: 1.0}
"""What a number is kept in -> a Python number of its kind."""


class Number:
    """A number of a tensor in the precision of Python's; arithmetic gives others, and tensors beside tensors.

    What wants its value while the model is traced (a size, `math.sqrt`, a branch with two ways) is refused.
    """

    def __init__(self, value: torch.Tensor):
        kind = torch.float64 if value.dtype.is_floating_point else torch.int64
        self.value = value.reshape([]).to(torch.bool if value.dtype == torch.bool else kind)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs or {}))
        dtypes = [leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor)]
        beside = functools.reduce(torch.promote_types, dtypes) if dtypes else None

        def tensor(leaf: Any) -> Any:
            return leaf.beside(beside) if isinstance(leaf, Number) else leaf

        args, kwargs = pytree.tree_unflatten([tensor(leaf) for leaf in leaves], spec)
        return func(*args, **kwargs)

    def beside(self, dtype: torch.dtype | None) -> torch.Tensor:
        """A tensor of rank 0 that has the effect on types of a Python number beside tensors of `dtype`."""
        if dtype is None:
            return self.value
        own = self.value.dtype
        if own.is_floating_point and not (dtype.is_floating_point or dtype.is_complex):
            dtype = torch.get_default_dtype()
        return self.value.to(own if dtype == torch.bool else dtype)

    @property
    def own_dtype(self) -> torch.dtype:
        """The type that PyTorch gives a tensor of this number alone."""
        return torch.get_default_dtype() if self.value.dtype.is_floating_point else self.value.dtype

    def refuse(self, *_: Any) -> Any:
        """Raises DataDependentOutputException: the value is wanted before there is one."""
        raise DataDependentOutputException(torch.ops.aten._local_scalar_dense.default)

    def known(self) -> Any:
        """Its value, where it follows from constants and the model's own numbers; raises DataDependentOutputException."""
        with torch._C.DisableTorchFunction():
            return self.value.item()

    def __int__(self) -> int:
        return int(self.known())

    def __float__(self) -> float:
        return float(self.known())

    def __index__(self) -> int:
        return operator.index(self.known())

    __complex__ = __round__ = refuse
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return bool(self.value)

    def __repr__(self) -> str:
        return "a number of the call"

    def __neg__(self) -> Number:
        return Number(-self.value)

    def __abs__(self) -> Number:
        return Number(abs(self.value))


def _power(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Of integers it is an integer or a fraction, by the sign of the exponent."""
    if not x.dtype.is_floating_point:
        raise DataDependentOutputException(torch.ops.aten._local_scalar_dense.default)
    return torch.pow(x, y)


def _dividing(function: Callable[..., Any]) -> Callable:
    """`function`, which fails the call where a number is divided by zero, as Python does."""

    def divided(x: Any, y: Any) -> Any:
        return function(x, checked(y, y != 0, "division of a number by zero"))

    return divided


def _arithmetic(
    function: Callable, beside_tensors: Callable, is_float: bool, is_reflected: bool = False
) -> Callable:
    """A method that computes in doubles where either operand is one, or the result always is."""

    def method(self: Number, other: Any) -> Any:
        left, right = (other, self) if is_reflected else (self, other)
        if isinstance(other, torch.Tensor):
            return beside_tensors(left, right)
        if not isinstance(other, (Number, bool, int, float)):
            return NotImplemented
        kinds = [
            x.value.dtype.is_floating_point if isinstance(x, Number) else type(x) is float
            for x in (left, right)
        ]
        dtype = torch.float64 if is_float or any(kinds) else torch.int64
        values = [
            x.value.to(dtype) if isinstance(x, Number) else torch.full([], x, dtype=dtype)
            for x in (left, right)
        ]
        return Number(function(*values))

    return method


for _name, _operator, _function, _is_float in (
    ("add", torch.add, torch.add, False),
    ("sub", torch.sub, torch.sub, False),
    ("mul", torch.mul, torch.mul, False),
    ("truediv", torch.true_divide, _dividing(torch.true_divide), True),
    ("floordiv", torch.floor_divide, _dividing(torch.floor_divide), False),
    ("mod", torch.remainder, _dividing(torch.remainder), False),
    ("pow", torch.pow, _power, False),
):
    setattr(Number, f"__{_name}__", _arithmetic(_function, _operator, _is_float))
    setattr(Number, f"__r{_name}__", _arithmetic(_function, _operator, _is_float, is_reflected=True))

for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Number, f"__{_name}__", _arithmetic(getattr(torch, _name), getattr(torch, _name), False))


def item(x: torch.Tensor) -> Any:
    """The number of a tensor: its value where that is known while the model is traced."""
    try:
        with without_own():
            return x.item()
    except DataDependentOutputException:
        if x.dtype.is_complex:
            raise
        return Number(x)


def sym_ite(chosen: Any, one: Any, other: Any) -> Any:
    """One of two numbers, as exported programs write a truth that is a number."""
    if not isinstance(chosen, Number):
        return torch.sym_ite(chosen, one, other)
    is_float = any(isinstance(x, float) for x in (one, other))
    options = [
        x.value if isinstance(x, Number) else torch.full([], x, dtype=torch.float64 if is_float else None)
        for x in (one, other)
    ]
    return Number(torch.where(chosen.value, *options))


def sym_not(x: Any) -> Any:
    """Whether a truth is none."""
    return Number(torch.logical_not(x.value)) if isinstance(x, Number) else torch.sym_not(x)


def _filling(function: Callable[..., torch.Tensor], empty: Callable[..., torch.Tensor]) -> Callable:
    """`function`, which fills a tensor like `empty` with a value, of a number of the call too."""

    def filled(*args: Any, **kwargs: Any) -> torch.Tensor:
        *like, value = (*args, kwargs["fill_value"]) if "fill_value" in kwargs else args
        if not isinstance(value, Number):
            return function(*args, **kwargs)
        kwargs = {name: given for name, given in kwargs.items() if name != "fill_value"}
        if empty is torch.empty:
            kwargs["dtype"] = kwargs.get("dtype") or value.own_dtype
        return empty(*like, **kwargs).fill_(value.value)

    return filled


def _new_full(x: torch.Tensor, size: Any, fill_value: Any, **kwargs: Any) -> torch.Tensor:
    """A tensor of the type of `x` filled with a number of the call too."""
    if not isinstance(fill_value, Number):
        return x.new_full(size, fill_value, **kwargs)
    return x.new_empty(size, **kwargs).fill_(fill_value.value)


def _made(function: Callable[..., torch.Tensor]) -> Callable:
    """`function`, which makes a tensor of numbers in lists, of those of the call too."""

    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        leaves, spec = pytree.tree_flatten(args[0] if args else None)
        if not any(isinstance(leaf, Number) for leaf in leaves):
            return function(*args, **kwargs)
        zeros = [type(_KINDS[leaf.value.dtype])(0) if isinstance(leaf, Number) else leaf for leaf in leaves]
        like = function(pytree.tree_unflatten(zeros, spec), *args[1:], **kwargs)
        elements = [
            leaf.value.to(like.dtype) if isinstance(leaf, Number) else torch.full([], leaf, dtype=like.dtype)
            for leaf in leaves
        ]
        return torch.stack(elements).reshape(like.shape)

    return made


FUNCTIONS: dict[Any, Any] = {
    torch.Tensor.item: item,
    torch.full: _filling(torch.full, torch.empty),
    torch.full_like: _filling(torch.full_like, torch.empty_like),
    torch.Tensor.new_full: _new_full,
    **{function: _made(function) for function in (torch.tensor, torch.as_tensor, torch.scalar_tensor)},
    torch.ops.aten.full.default: _filling(torch.ops.aten.full.default, torch.empty),
    torch.ops.aten.full_like.default: _filling(torch.ops.aten.full_like.default, torch.empty_like),
    torch.ops.aten.scalar_tensor.default: _made(torch.ops.aten.scalar_tensor.default),
    torch.ops.aten.item.default: item,
    torch.ops.aten._local_scalar_dense.default: item,
    torch.sym_ite: sym_ite,
    torch.sym_not: sym_not,
}
"""Functions of PyTorch's interface -> our forms of them, called instead while a model is traced."""
