"""The tensors of a model that its calls may write to: those of its modules, and of objects and containers that it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tilewright.compiler.errors import UnsupportedError, UnsupportedOperator
from tilewright.compiler.importers.torch.kept import Held, roots_of

Named = list[tuple[str, torch.Tensor]]


def own_tensors(model: Any, place: Callable[[], str]) -> Named:
    """Parameters, buffers and tensor attributes of `model` in a fixed order, tied ones once."""
    if not isinstance(model, torch.nn.Module):
        return []
    _refuse_scripted(model, place)
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for prefix, module in model.named_modules():
        own = {**module._parameters, **module._buffers}
        own.update({key: value for key, value in vars(module).items() if isinstance(value, torch.Tensor)})
        for key, value in own.items():
            if value is not None:
                found.setdefault(id(value), (f"{prefix}.{key}" if prefix else key, value))
    return list(found.values())


def held_tensors(model: Any) -> dict[int, tuple[str, torch.Tensor]]:
    """The tensors that lie in containers or objects of a model, or of a function's closure, by `id`."""
    return {id(value): (name, value) for name, value in Held(roots_of(model)).tensors()}


def _refuse_scripted(model: torch.nn.Module, place: Callable[[], str]) -> None:
    """Raises UnsupportedError where TorchScript holds tensors of the model, for which no others can be put in place."""
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            reason = (
                "TorchScript holds its tensors; compile the nn.Module that it was scripted or traced from"
            )
            what = f"the torch.jit.ScriptModule `{name}`" if name else "a torch.jit.ScriptModule"
            raise UnsupportedError([UnsupportedOperator(what, reason, place())])
