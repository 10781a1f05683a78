"""Methods and functions of PyTorch that read a value out of a tensor, in forms that can be traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException
from torch.distributions import constraints
from torch.nn.modules.batchnorm import _BatchNorm

from tilewright.compiler.importers.torch.decompositions import batch_norm_training
from tilewright.compiler.importers.torch.numbers import Number

_batch_norm = _BatchNorm.forward
_check_with = torch._check_with
_functional: Any = torch  # assertions have no public names


def _forward(self: _BatchNorm, input: torch.Tensor) -> torch.Tensor:
    """A batch norm that averages over all batches so far, in training: the weight of the next is a tensor."""
    mean, variance, count = self.running_mean, self.running_var, self.num_batches_tracked
    if self.momentum is not None or not self.training or mean is None or count is None:
        return _batch_norm(self, input)
    self._check_input_dim(input)
    count.add_(1)
    newest = count.to(torch.float64).reciprocal()
    # What PyTorch refuses is refused, and written nowhere.
    torch.nn.functional.batch_norm(input, None, None, self.weight, self.bias, True, 0.0, self.eps)
    found = batch_norm_training(input, self.weight, self.bias, mean, variance, True, newest, self.eps)
    mean.copy_(found[3])
    variance.copy_(found[4])  # type: ignore[union-attr]
    return found[0]


def _is_positive_definite(self: Any, value: torch.Tensor) -> torch.Tensor:
    """Whether matrices are symmetric and have a Cholesky factor, which PyTorch looks for in symmetric ones alone."""
    symmetric = constraints.symmetric.check(value)
    return symmetric & torch.linalg.cholesky_ex(value).info.eq(0)


def _check(error_type: type[Exception], cond: Any, message: Any = None) -> None:
    """What `torch._check` and its kind are made of: of a number that a call alone knows, an assertion with what would be raised."""
    if not isinstance(cond, Number):
        _check_with(error_type, cond, message)
        return
    text = "a check of the model does not hold"
    if message is not None:
        with contextlib.suppress(DataDependentOutputException):
            text = str(message())
    _functional._assert_async(cond.value, f"{error_type.__name__}: {text}")


_METHODS: tuple[tuple[Any, str, Any], ...] = (
    (_BatchNorm, "forward", _forward),
    (type(constraints.positive_definite), "check", _is_positive_definite),
    (torch, "_check_with", _check),
)
"""Class or module, method, and our form of it."""


@contextlib.contextmanager
def own_methods() -> Iterator[None]:
    """Calls our forms meanwhile."""
    made = [(cls, name, cls.__dict__[name]) for cls, name, _ in _METHODS]
    try:
        for cls, name, method in _METHODS:
            setattr(cls, name, method)
        yield
    finally:
        for cls, name, method in made:
            setattr(cls, name, method)
