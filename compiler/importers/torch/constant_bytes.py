"""Unsigned bytes that are constant, which torch-mlir folds into literals of signed ones, and ends: written so that it has nothing to fold."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch.fx.graph import Graph
from torch.fx.node import Node, map_arg

from tilewright.compiler.importers.torch.promotion import converted
from tilewright.compiler.importers.torch.tracer import NEEDS_STORAGE

_FULL = {torch.ops.aten.full.default, torch.ops.aten.full_like.default}
_MOST = 1 << 20
"""Elements of a constant that is computed to see whether all of them are one number."""


def fold_uniform_bytes(graph: Graph) -> None:
    """Replaces what is computed of one number alone, and is bytes that are all equal, by these bytes.

    split(full([5, 1], 2), [1, 4])[1]   =>   full([4, 1], 2)
    """
    known: dict[Node, Any] = {}
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if node.target in _FULL and value.numel() <= _MOST:
            own = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
            known[node] = own.fill_(node.args[1])
            continue
        is_computed = isinstance(node.target, OpOverload) or node.target is operator.getitem
        inputs = node.all_input_nodes
        is_computed = is_computed and not is_random(node) and node.target not in NEEDS_STORAGE
        if not is_computed or not inputs or not known.keys() >= set(inputs):
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        if not all(isinstance(v, torch.Tensor) and v.numel() <= _MOST for v in values):
            continue
        known[node] = found = node.target(*map_arg(node.args, known.get), **map_arg(node.kwargs, known.get))
        if not isinstance(value, torch.Tensor) or value.dtype != torch.uint8 or not value.numel():
            continue
        number = int(found.flatten()[0])
        if bool((found == number).all()):
            with graph.inserting_before(node):
                kinds = {"dtype": torch.uint8, "layout": torch.strided, "device": torch.device("cpu")}
                full = graph.call_function(torch.ops.aten.full.default, (list(value.shape), number), kinds)
            full.meta, known[full] = dict(node.meta), found
            node.replace_all_uses_with(full)
    for node in reversed(list(graph.nodes)):
        if node in known and not node.users:
            graph.erase_node(node)


def is_random(node: Node) -> bool:
    """True for operators whose result depends on a random number generator."""
    target = node.target
    return isinstance(target, OpOverload) and torch.Tag.nondeterministic_seeded in target.tags


def join_constant_bytes(graph: Graph) -> None:
    """Writes unsigned bytes that are all constant into zeros one by one: torch-mlir joins them to signed ones, and ends."""
    constants: set[Node] = set()
    for node in list(graph.nodes):
        if node.op != "call_function" or is_random(node) or not constants.issuperset(node.all_input_nodes):
            continue
        constants.add(node)
        value = node.meta.get("val")
        is_joined = node.target is torch.ops.aten.cat.default and isinstance(value, torch.Tensor)
        if not is_joined or value.dtype != torch.uint8:
            continue
        tensors = [t for t in cast("list[Node]", node.args[0]) if t.meta["val"].numel()]
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        with graph.inserting_before(node):
            kinds = {"dtype": torch.uint8, "layout": torch.strided, "device": torch.device("cpu")}
            joined = graph.call_function(torch.ops.aten.full.default, (list(value.shape), 0), kinds)
            joined.meta, first = dict(node.meta), 0
            for tensor in tensors:
                end = first + tensor.meta["val"].shape[cast("int", dim)]
                written = (joined, tensor, dim, first, end)
                joined = graph.call_function(torch.ops.aten.slice_scatter.default, written)
                joined.meta, first = dict(node.meta), end
        made = tensors[0] if len(tensors) == 1 else joined
        node.replace_all_uses_with(made)
        graph.erase_node(node)
        constants.add(made)


@contextlib.contextmanager
def signed_results(graph: Graph) -> Iterator[None]:
    """Lets constant bytes among the results be signed ones of the same bits: torch-mlir returns no others."""
    output = next(node for node in graph.nodes if node.op == "output")
    given, added = output.args, {}
    for node in output.all_input_nodes:
        value = node.meta.get("val")
        if node.target in _FULL and value is not None and value.dtype == torch.uint8:
            number = converted(node.args[1], torch.int8)
            with graph.inserting_before(output):
                placement: dict[str, Any] = {**node.kwargs, "dtype": torch.int8}
                placement.pop("memory_format", None)
                added[node] = graph.call_function(
                    torch.ops.aten.full.default, (list(value.shape), number), placement
                )
            added[node].meta["val"] = value.to(torch.int8)
    output.args = torch.fx.node.map_arg(given, lambda node: added.get(node, node))
    try:
        yield
    finally:
        output.args = given
        for node in added.values():
            graph.erase_node(node)
