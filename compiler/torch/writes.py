"""What a graph writes into its arguments: copies at its end, which compiled code computes as results, or in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

Run = Callable[[list[Any]], list[Any]]


@dataclass(frozen=True)
class Writes:
    """The numbers of the arguments that a graph writes into, and where among its results it returns which of them."""

    arguments: tuple[int, ...]
    returned: tuple[tuple[int, int], ...]

    @classmethod
    def take(cls, module: GraphModule) -> Writes:
        """Takes the copies into arguments off a graph, and what they return off its outputs; appends what they copy to these."""
        graph = module.graph
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        output = next(node for node in graph.nodes if node.op == "output")
        copies = [
            node
            for node in graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
            if node.args[0] in placeholders
        ]
        number = {node: placeholders.index(node.args[0]) for node in copies}  # type: ignore[arg-type]
        outputs: list[Any] = list(output.args[0])  # type: ignore[arg-type]
        returned = [(at, number[node]) for at, node in enumerate(outputs) if node in number]
        if copies:
            kept = [node for node in outputs if node not in number]
            output.args = ([*kept, *(node.args[1] for node in copies)],)
            for node in copies:
                node.replace_all_uses_with(node.args[1])  # type: ignore[arg-type]
                graph.erase_node(node)
            module.recompile()
        return cls(tuple(number.values()), tuple(returned))

    def after(self, run: Run) -> Run:
        """Calls `run` and writes its last results into their arguments, those that are not there already."""
        if not self.arguments:
            return run

        def call(arguments: list[Any]) -> list[Any]:
            results = run(arguments)
            count = len(results) - len(self.arguments)
            with torch.no_grad():
                for number, value in zip(self.arguments, results[count:]):
                    if value is not arguments[number]:
                        arguments[number].copy_(value)
            outputs = list(results[:count])
            for at, number in self.returned:
                outputs.insert(at, arguments[number])
            return outputs

        return call
