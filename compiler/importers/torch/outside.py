"""Tensors that a model finds outside of its arguments and modules: closures, globals, entries of dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from tilewright.compiler.errors import UnsupportedError, UnsupportedOperator

_functional: Any = torch  # functionalisation has no public names
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class OutsideTensors:
    """Puts such tensors under functionalisation where a function first takes them, as arguments are.

    What is made of them can be written then, as what is made of arguments can. They themselves cannot be: compiled
    code knows their values, not the memory that others may read. Those that containers of the model hold, by `id`, may
    become the model's own in another trace, once all that are written are known.
    """

    def __init__(self, place: Callable[[], str], held: Container[int]):
        self._place, self._held = place, held
        self._wrapped: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def wrap(self, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """The arguments of a call, lists and tuples of tensors among them, with wrappers of tensors from outside."""
        return tuple(map(self._of, args)), {name: self._of(value) for name, value in kwargs.items()}

    def _of(self, value: Any) -> Any:
        if type(value) in (list, tuple):
            return type(value)(map(self._of, value))
        if type(value) not in _PLAIN or _functional._is_functional_tensor(value) or _is_wrapped(value):
            return value
        if value.layout is not torch.strided:
            return value
        known = self._wrapped.get(id(value))
        if known is None:
            known = self._wrapped[id(value)] = value, _functional._to_functional_tensor(value)
        return known[1]

    def refuse_written(self, at_end: bool = False) -> None:
        """Raises WrittenOutsideError where the model wrote to some, or through views of them; to held ones at the end only."""
        written = []
        for value, wrapper in self._wrapped.values():
            _functional._sync(wrapper)
            if _functional._from_functional_tensor(wrapper) is not value and (
                at_end or id(value) not in self._held
            ):
                written.append(value)
        if written:
            raise WrittenOutsideError(written, self._place())


class WrittenOutsideError(UnsupportedError):
    """A model writes to `tensors` from outside of its arguments and modules."""

    def __init__(self, tensors: list[torch.Tensor], place: str):
        self.tensors = tensors
        reason = (
            "the model writes to it, and it is neither an argument nor part of a module; make it a buffer of "
            "the model, or clone it first"
        )
        names = [f"a tensor {list(tensor.shape)} from outside of the model" for tensor in tensors]
        super().__init__([UnsupportedOperator(name, reason, place) for name in names])


def refuse_without_data(value: torch.Tensor, what: str, place: str) -> None:
    """Raises UnsupportedError for a tensor that stands for data that nobody has: of `meta`, or of another trace."""
    if isinstance(value, FakeTensor) or value.device.type == "meta":
        kind = (
            "a tensor of another trace (FakeTensor)"
            if isinstance(value, FakeTensor)
            else "on the meta device"
        )
        reason = f"it is {kind} and has no values; give it memory and values first"
        raise UnsupportedError([UnsupportedOperator(what, reason, place)])
