"""Evaluates element-wise operators on constants while they are still ATen's."""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

aten = torch.ops.aten

_CONSTANTS = {aten.full.default: 1, aten.scalar_tensor.default: 0}
"""Operators that make a tensor of one number -> which argument it is."""


def fold_constants(module: GraphModule) -> None:
    """Replaces element-wise nodes whose inputs hold one number each by `full`.

    PyTorch's own arithmetic decides: torch-mlir's folders take `-7 // 2` and `-7 % 3` for other numbers, and end
    the process on a comparison of integers with a fraction.
    """
    for node in list(module.graph.nodes):
        if node.target is aten.alias.default and node.args[0].target in _CONSTANTS:
            node.replace_all_uses_with(node.args[0])
            module.graph.erase_node(node)
            continue
        value = node.meta.get("val")
        if not _is_foldable(node) or not isinstance(value, torch.Tensor) or value.dtype.is_complex:
            continue
        numbers = {source: _number(source) for source in node.all_input_nodes}
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n, known=numbers: known[n])
        try:
            result = node.target(*args, **kwargs).to(value.dtype)
        except RuntimeError:  # an integer divided by zero: an error of the call, not of compiling
            continue
        placement: dict[str, Any] = {
            "dtype": value.dtype,
            "layout": torch.strided,
            "device": torch.device("cpu"),
            "pin_memory": False,
        }
        with module.graph.inserting_before(node):
            arguments = (list(value.shape), result.item())
            folded = module.graph.call_function(aten.full.default, arguments, placement)
        folded.meta = dict(node.meta)
        node.replace_all_uses_with(folded)
        module.graph.erase_node(node)


def _is_foldable(node: Node) -> bool:
    target = node.target
    return (
        isinstance(target, OpOverload)
        and torch.Tag.pointwise in target.tags
        and torch.Tag.nondeterministic_seeded not in target.tags
        and bool(node.all_input_nodes)
        and all(
            source.target in _CONSTANTS
            and isinstance(source.args[_CONSTANTS[source.target]], (bool, int, float))  # type: ignore[index]
            for source in node.all_input_nodes
        )
    )


def _number(source: Node) -> torch.Tensor:
    number = source.args[_CONSTANTS[source.target]]  # type: ignore[index]
    return torch.full((), number, dtype=source.meta["val"].dtype)  # type: ignore[arg-type]
