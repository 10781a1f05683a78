"""The tensors of a model that its calls may write to: those of its modules, and of objects and containers that it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from tilewright.compiler.errors import ModelImportError, UnsupportedError, UnsupportedOperator
from tilewright.compiler.importers.torch.kept import Held, inner_tensors, roots_of
from tilewright.runtime.argument_memory import Place

Named = list[tuple[str, torch.Tensor]]


def own_tensors(model: Any, place: Callable[[], str]) -> Named:
    """Parameters, buffers and tensor attributes of `model` in a fixed order, tied ones once.

    Of a tensor of a class that wraps others, as quantised weights are, these.
    """
    if not isinstance(model, torch.nn.Module):
        return []
    _refuse_scripted(model, place)
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for prefix, module in model.named_modules():
        own = {**module._parameters, **module._buffers}
        own.update({key: value for key, value in vars(module).items() if isinstance(value, torch.Tensor)})
        for key, value in own.items():
            for name, tensor in inner_tensors(f"{prefix}.{key}" if prefix else key, value):
                found.setdefault(id(tensor), (name, tensor))
    return list(found.values())


def held_tensors(model: Any) -> dict[int, tuple[str, torch.Tensor]]:
    """The tensors that lie in containers or objects of a model, or of a function's closure, by `id`."""
    return {id(value): (name, value) for name, value in Held(roots_of(model)).tensors()}


def unwrapped(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """The program on what tensors of classes that wrap others are made of, and with what these classes make of its operators."""
    if not any(map(is_traceable_wrapper_subclass, program.state_dict.values())):
        return program
    return program.run_decompositions({})


def _places(tensors: Named) -> list[Place]:
    return [Place.of(name, tensor) for name, tensor in tensors]


def _over_same_memory(places: list[Place], number: int) -> Place | None:
    """Another of the places that shares memory with the one of that number; None where there is none."""
    others = (place for other, place in enumerate(places) if other != number)
    return next((place for place in others if places[number].shares(place)), None)


def is_alone_in_memory(tensors: Named, number: int) -> bool:
    """Whether none of the other tensors lies over the memory of the one of that number."""
    return _over_same_memory(_places(tensors), number) is None


def refuse_shared_state(tensors: Named, mutated: set[int]) -> None:
    """Raises ModelImportError where what the model updates is memory of another of its tensors too."""
    places = _places(tensors) if mutated else []
    for number in sorted(mutated):
        other = _over_same_memory(places, number)
        if other is not None:
            raise ModelImportError(
                f"the model updates `{tensors[number][0]}` in place and holds `{other.name}` over the same memory, "
                "which compiled code keeps apart; make the one from the other in forward"
            )


def _refuse_scripted(model: torch.nn.Module, place: Callable[[], str]) -> None:
    """Raises UnsupportedError where TorchScript holds tensors of the model, for which no others can be put in place."""
    for name, module in model.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            reason = (
                "TorchScript holds its tensors; compile the nn.Module that it was scripted or traced from"
            )
            what = f"the torch.jit.ScriptModule `{name}`" if name else "a torch.jit.ScriptModule"
            raise UnsupportedError([UnsupportedOperator(what, reason, place())])
