"""Where a captured graph computes: its device, the operators that work across devices, and the target to compile for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.targets.target import Target

CPU = torch.device("cpu")


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _tensors(inner)


def device_of(graph: Graph, arguments: Sequence[Any] = ()) -> torch.device:
    """The GPU that the first argument on one lies on, or the first value of the graph; the CPU when none does."""
    values = [*arguments, *(node.meta.get("val") for node in graph.nodes)]
    return next((t.device for value in values for t in _tensors(value) if t.device.type == "cuda"), CPU)


def strays(graph: Graph, device: torch.device) -> list[Node]:
    """Operators with a result elsewhere than on `device`, or that read a tensor from elsewhere.

    Numbers on the CPU, tensors without dimensions, are taken along as PyTorch does.
    """
    return [node for node in graph.nodes if node.op == "call_function" and _is_stray(node, device)]


def _is_stray(node: Node, device: torch.device) -> bool:
    if any(not _same(t.device, device) for t in _tensors(node.meta.get("val"))):
        return True
    read = [t for source in node.all_input_nodes for t in _tensors(source.meta.get("val"))]
    return any(not _same(t.device, device) and (t.dim() or t.device.type != "cpu") for t in read)


def _same(one: torch.device, other: torch.device) -> bool:
    """`cuda` is the first GPU."""
    return one.type == other.type and (one.index or 0) == (other.index or 0)


def target_of(named: str | None, device: torch.device) -> Target | str:
    """The target for graphs on `device`, unless one is named: `cuda` and none at all mean the device itself.

    Raises TilewrightError for a GPU that no code is generated for.
    """
    if device.type != "cuda" or named not in (None, "cuda"):
        return named or "cpu"
    from tilewright.compiler.targets import devices as target_device
    from tilewright.runtime import cuda

    if torch.version.hip:
        raise TilewrightError(f"{device} is an AMD GPU: code is generated for those, but not run")
    found = cuda.device(device.index or 0)
    return target_device.of_device(found.name, found.capability, found.multiprocessors, found.shared_bytes)


def beside(tensor: Any, device: torch.device) -> Any:
    """A number on the CPU moved to the device of a graph; everything else as it is."""
    if isinstance(tensor, torch.Tensor) and not tensor.dim() and tensor.device != device:
        return tensor.to(device)
    return tensor
