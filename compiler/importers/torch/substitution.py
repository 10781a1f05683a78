"""Other tensors in place of a model's own while it is called, and afterwards everything as it was before the call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from tilewright.compiler.importers.torch.kept import Held, Root, roots_of


@contextlib.contextmanager
def substituted(model: Any, replacement: Mapping[int, torch.Tensor], others: list[Root]) -> Iterator[Held]:
    """Puts `replacement[id(tensor)]` in place of the model's tensors, wherever it holds them.

    Gives what the model and `others` hold then. Everything is put back at the end: what `forward` assigned meanwhile, and
    what it wrote into dictionaries, lists, sets and objects.
    """
    before = Held([*roots_of(model), *others])
    try:
        before.replace(replacement)
        yield Held([*roots_of(model), *others])
    finally:
        before.put_back()
