"""Other tensors in place of a model's own while it is called, and afterwards everything as it was before the call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from tilewright.compiler.importers.torch.kept import Held, Root, roots_of


@contextlib.contextmanager
def substituted(model: Any, replacement: Mapping[int, torch.Tensor], others: list[Root]) -> Iterator[Held]:
    """Puts `replacement[id(tensor)]` in place of the model's tensors, wherever its modules hold them.

    Gives what the model and `others` hold then. Everything is put back at the end: what `forward` assigned meanwhile, and
    what it wrote into dictionaries, lists, sets and objects.
    """

    def swap(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return replacement.get(id(value), value)
        if type(value) in (list, tuple) and any(isinstance(v, torch.Tensor) for v in value):
            return type(value)(swap(v) for v in value)
        return value

    before = Held([*roots_of(model), *others])
    for module in model.modules() if isinstance(model, torch.nn.Module) else ():
        attributes = vars(module)
        for store in (module._parameters, module._buffers):
            for key, value in store.items():
                store[key] = swap(value)
        for key, value in list(attributes.items()):
            swapped = swap(value)
            if swapped is not value:
                attributes[key] = swapped
    try:
        yield Held([*roots_of(model), *others])
    finally:
        before.put_back()
