"""What is chosen along a dimension that a tensor was only spread over, of the tensor itself.

    select(expand(unsqueeze(x, 1), [20000, 64]), 1, 0)   =>   squeeze(unsqueeze(x, 1), 1)

Layers of graphs spread the number of a node over all its features, and what is computed with numbers of rows wants one of each: the
spread tensor is written and read otherwise.
"""

from __future__ import annotations

import torch
from torch.fx.graph import Graph
from torch.fx.node import Node

aten = torch.ops.aten


def read_before_expanding(graph: Graph) -> None:
    """Rewrites such selections; what they were of goes where nothing else reads it."""
    changed = False
    for node in list(graph.nodes):
        if node.target == aten.select.int and _is_expanded(node.args[0]):
            changed |= _read_before(graph, node)
    if changed:
        graph.eliminate_dead_code()


def _is_expanded(node: object) -> bool:
    return isinstance(node, Node) and node.target == aten.expand.default


def _read_before(graph: Graph, node: Node) -> bool:
    expanded, dim = node.args[0], node.args[1]
    assert isinstance(expanded, Node) and isinstance(dim, int)
    source = expanded.args[0]
    assert isinstance(source, Node)
    value, spread, chosen = source.meta["val"], expanded.meta["val"], node.meta["val"]
    own = dim % spread.dim() - (spread.dim() - value.dim())
    if own >= 0 and (value.shape[own] != 1 or spread.shape[dim] == 1):
        return False
    # What else a node says of itself is of the shape that it has.
    place = {name: said for name, said in node.meta.items() if name == "stack_trace"}
    with graph.inserting_before(node):
        if own >= 0:
            source = graph.call_function(aten.squeeze.dim, (source, own))
            source.meta = {"val": value.squeeze(own), **place}
        if source.meta["val"].shape != chosen.shape:
            source = graph.call_function(aten.expand.default, (source, list(chosen.shape)))
            source.meta = {"val": chosen, **place}
    node.replace_all_uses_with(source)
    graph.erase_node(node)
    return True
