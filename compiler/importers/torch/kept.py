"""What a model holds between its calls: its modules' attributes, and containers and objects in them."""

from __future__ import annotations

import operator
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass, transform_subclass

from tilewright.runtime.signature import Tree

_MAPPINGS = (dict, OrderedDict, defaultdict)
_SEQUENCES = (list, deque)
_CONTAINERS = (*_MAPPINGS, *_SEQUENCES, set, tuple)
_NUMBERS = (int, float, complex, str, bytes, bool, type(None), torch.Size, torch.dtype, torch.device)
_LIBRARIES = {*sys.stdlib_module_names, "torch", "numpy"}

Root = tuple[str, Any]
"""A name, and what it stands for."""


@dataclass(frozen=True)
class Change:
    """What a container holds now at `key` and held before; of a set, or a sequence of another length, there is no key."""

    name: str
    container: Any
    key: Any = None
    before: Any = None
    after: Any = None

    def adds(self) -> bool:
        """Whether there is a value that was not there, or a tensor in a sequence of another length, and not only less."""
        if self.key is None:
            return any(isinstance(value, torch.Tensor) for value in self.after)
        return self.after is not _NOTHING


class Held:
    """The contents of containers, and of the objects that are looked into, that are reached from `roots`, as they are now."""

    def __init__(self, roots: Iterable[Root], looks_into: Callable[[Any], bool] | None = None):
        looks_into = looks_into or is_object
        self._saved: dict[int, tuple[str, Any, list[Any]]] = {}
        pending = list(roots)
        while pending:
            name, value = pending.pop()
            if looks_into(value):
                value = vars(value)
            kind = type(value)
            if id(value) in self._saved or kind not in _CONTAINERS:
                continue
            items = list(value.items() if kind in _MAPPINGS else value)
            self._saved[id(value)] = name, value, items
            pending += [(_joined(name, key), inner) for key, inner in _keyed(value, items)]

    def put_back(self) -> None:
        """Gives everything its contents again."""
        for _, container, items in self._saved.values():
            kind = type(container)
            if kind is not tuple:
                container.clear()
                (container.extend if kind in _SEQUENCES else container.update)(items)

    def replace(self, new: Mapping[int, torch.Tensor]) -> None:
        """Puts `new[id(tensor)]` in place of tensors, in tuples too."""
        for _, container, items in self._saved.values():
            if type(container) in (*_MAPPINGS, *_SEQUENCES):
                for key, inner in _keyed(container, items):
                    if (other := _with(inner, new)) is not inner:
                        container[key] = other

    def tensors(self) -> Iterator[Root]:
        """The tensors, by name."""
        for name, container, items in self._saved.values():
            for key, inner in _keyed(container, items):
                if isinstance(inner, torch.Tensor):
                    yield _joined(name, key), inner

    def changes(self) -> Iterator[Change]:
        """What is no longer as it was, but for numbers and texts that are equal."""
        for name, container, items in self._saved.values():
            kind = type(container)
            if kind in _MAPPINGS:
                before = dict(items)
                for key in [*before, *(key for key in container if key not in before)]:
                    old, new = before.get(key, _NOTHING), container.get(key, _NOTHING)
                    if not _same(old, new):
                        yield Change(_joined(name, key), container, key, old, new)
            elif kind in _SEQUENCES and len(items) == len(container):
                for place, (old, new) in enumerate(zip(items, container)):
                    if not _same(old, new):
                        yield Change(_joined(name, place), container, place, old, new)
            elif len(items) != len(container) or (kind is set and container != set(items)):
                yield Change(name, container, after=list(container))

    def reaches(self, container: Any) -> bool:
        """Whether a container is one of these."""
        return id(container) in self._saved

    def holders(self, value: Any) -> int:
        """In how many places `value` stood."""
        return sum(
            inner is value
            for _, container, items in self._saved.values()
            for _, inner in _keyed(container, items)
        )


_NOTHING = object()


def is_object(value: Any) -> bool:
    """Whether a value is an object of a class that neither Python's library nor PyTorch defines, or a module."""
    kind = type(value)
    if isinstance(value, (torch.nn.Module, types.SimpleNamespace)):
        return True
    if isinstance(value, (type, torch.Tensor, types.FunctionType)) or not hasattr(value, "__dict__"):
        return False
    return kind.__module__.partition(".")[0] not in _LIBRARIES and not isinstance(value, _CONTAINERS)


def roots_of(model: Any) -> list[Root]:
    """What a module holds, or a function in its closure, a method in its object, a partial function in its arguments."""
    if isinstance(model, torch.nn.Module):
        return [(name, vars(module)) for name, module in model.named_modules()]
    if isinstance(model, partial):
        return [*roots_of(model.func), ("args", model.args), ("keywords", model.keywords)]
    if isinstance(model, types.MethodType):
        return [("self", model.__self__), *roots_of(model.__func__)]
    closure = getattr(model, "__closure__", None) or ()
    names = getattr(getattr(model, "__code__", None), "co_freevars", ())
    found = []
    for name, cell in zip(names, closure):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # a variable that has no value yet
            continue
    return found


def inner_tensors(name: str, value: Any) -> Iterator[Root]:
    """A tensor by itself, or those that one of a class that wraps others is made of; nothing of None."""
    if is_traceable_wrapper_subclass(value):
        for attribute in value.__tensor_flatten__()[0]:
            yield from inner_tensors(f"{name}.{attribute}", getattr(value, attribute))
    elif value is not None:
        yield name, value


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors that a value holds, in containers and objects too."""
    if isinstance(value, torch.Tensor):
        yield value
    yield from (inner for _, inner in Held([("", value)]).tensors())


def holds_tensors(value: Any) -> bool:
    """Whether a value is an object that tensors are reached from, and no module, nor itself."""
    if not is_object(value) or isinstance(value, torch.nn.Module):
        return False
    held = Held([("", inner) for inner in vars(value).values()])
    return not held.reaches(vars(value)) and any(True for _ in tensors_in(value))


def can_be_remade(value: Any) -> bool:
    """Whether a value is an object that holds tensors, and another of its class with the same attributes can be made."""
    if not holds_tensors(value) or any(getattr(kind, "__slots__", ()) for kind in type(value).__mro__):
        return False
    tensors: list[torch.Tensor] = []

    def number(inner: Any, _: str) -> int | None:
        if not isinstance(inner, torch.Tensor):
            return None
        tensors.append(inner)
        return len(tensors) - 1

    try:
        return type(Tree.of(value, number, is_object=holds_tensors).build(tensors)) is type(value)
    except Exception:  # whatever the classes of its members raise
        return False


def _keyed(container: Any, items: list[Any]) -> Iterable[tuple[Any, Any]]:
    return items if type(container) in _MAPPINGS else enumerate(items)


def _joined(name: str, key: Any) -> str:
    # A module's parameters, buffers and modules are attributes to a reader.
    if key in ("_parameters", "_buffers", "_modules"):
        return name
    return f"{name}.{key}" if name else str(key)


def _with(value: Any, new: Mapping[int, torch.Tensor]) -> Any:
    """A value in whose place, or inside of which, `new[id(tensor)]` stands for tensors; itself where none does."""
    if is_traceable_wrapper_subclass(value):
        if not any(id(inner) in new for _, inner in inner_tensors("", value)):
            return value
        return transform_subclass(value, lambda _, inner: _with(inner, new))
    if isinstance(value, torch.Tensor):
        return new.get(id(value), value)
    if type(value) is not tuple:
        return value
    members = [_with(inner, new) for inner in value]
    return value if all(map(operator.is_, members, value)) else tuple(members)


def _same(old: Any, new: Any) -> bool:
    if old is new:
        return True
    plain = type(old) is type(new) and isinstance(old, _NUMBERS)
    return plain and bool(old == new)
