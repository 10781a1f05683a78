"""Numbers that a model reads out of its tensors (`x.item()`) and computes with: they stay tensors of one element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.utils import _pytree as pytree

from tilewright.compiler.importers.torch.checks import checked

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
        number = _KINDS[self.value.dtype]
        return self.value.to(torch.result_type(torch.empty(1, dtype=dtype, device="meta"), number))

    def refuse(self, *_: Any) -> Any:
        """Raises DataDependentOutputException: the value is wanted before there is one."""
        raise DataDependentOutputException(torch.ops.aten._local_scalar_dense.default)

    __int__ = __float__ = __index__ = __complex__ = __round__ = refuse
    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return bool(self.value)

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
        return x.item()
    except DataDependentOutputException:
        if x.dtype.is_complex:
            raise
        return Number(x)


FUNCTIONS: dict[Any, Any] = {torch.Tensor.item: item}
"""Functions of PyTorch's interface -> our forms of them, called instead while a model is traced."""
