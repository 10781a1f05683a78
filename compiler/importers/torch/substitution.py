"""Other tensors in place of a model's own while it is called, and afterwards everything as it was before the call."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

_MAPPINGS = (dict, OrderedDict, defaultdict)
_SEQUENCES = (list, deque)


@contextlib.contextmanager
def substituted(model: Any, replacement: dict[int, torch.Tensor]) -> Iterator[None]:
    """Puts `replacement[id(tensor)]` in place of the model's tensors, wherever its modules hold them.

    Everything the modules hold is put back at the end: what `forward` assigned meanwhile, and what it wrote into
    dictionaries, lists and sets, where a traced tensor that it keeps for its next call would be of use to nobody.
    """
    if not isinstance(model, torch.nn.Module):
        yield
        return

    def swap(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return replacement.get(id(value), value)
        if type(value) in (list, tuple) and any(isinstance(v, torch.Tensor) for v in value):
            return type(value)(swap(v) for v in value)
        return value

    put_back = _contents([vars(module) for module in model.modules()])
    for module in model.modules():
        attributes = vars(module)
        for store in (module._parameters, module._buffers):
            for key, value in store.items():
                store[key] = swap(value)
        for key, value in list(attributes.items()):
            swapped = swap(value)
            if swapped is not value:
                attributes[key] = swapped
    try:
        yield
    finally:
        put_back()


def _contents(held: list[Any]) -> Callable[[], None]:
    """A function that gives all containers in `held`, and in each other, what they hold now."""
    saved: dict[int, tuple[Any, Any]] = {}
    while held:
        value = held.pop()
        kind = type(value)
        if id(value) in saved or kind not in (*_MAPPINGS, *_SEQUENCES, set, tuple):
            continue
        saved[id(value)] = value, list(value.items() if kind in _MAPPINGS else value)
        held.extend(value.values() if kind in _MAPPINGS else value)

    def put_back() -> None:
        for container, items in saved.values():
            if type(container) is not tuple:
                container.clear()
                (container.extend if type(container) in _SEQUENCES else container.update)(items)

    return put_back
