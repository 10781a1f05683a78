"""What a graph writes into its arguments: copies at its end, which compiled code computes as results, or in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

Run = Callable[[list[Any]], list[Any]]


def take_writes(module: GraphModule) -> list[int]:
    """Takes the copies into arguments off a graph and appends what they copy to its outputs; the arguments' numbers, in this order."""
    graph = module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    output = next(node for node in graph.nodes if node.op == "output")
    copies = [
        node
        for node in graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
        if node.args[0] in placeholders and not node.users
    ]
    written = [placeholders.index(node.args[0]) for node in copies]  # type: ignore[arg-type]
    if copies:
        output.args = ([*output.args[0], *(node.args[1] for node in copies)],)  # type: ignore[misc]
        for node in copies:
            graph.erase_node(node)
        module.recompile()
    return written


def writing(run: Run, written: Sequence[int]) -> Run:
    """Calls `run` and writes its last results into the arguments of these numbers, those that are not there already."""

    def call(arguments: list[Any]) -> list[Any]:
        results = run(arguments)
        count = len(results) - len(written)
        with torch.no_grad():
            for number, value in zip(written, results[count:]):
                if value is not arguments[number]:
                    arguments[number].copy_(value)
        return results[:count]

    return call
