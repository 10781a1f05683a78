"""Imports the flat ATen graphs that AOTAutograd hands over: functional, static, outputs a list."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch.fx import GraphModule, Node

from tilewright.compiler.importers import Imported
from tilewright.compiler.importers.torch.assertions import attach
from tilewright.compiler.importers.torch.fold import fold_constants
from tilewright.compiler.importers.torch.lowering import annotate, lower_graph
from tilewright.compiler.importers.torch.results import physical
from tilewright.compiler.importers.torch.simplify import lift_constants, simplify
from tilewright.compiler.importers.torch.types import dtype_name
from tilewright.runtime.program import TensorSpec
from tilewright.runtime.signature import Output, Signature, Tree


def import_graph(
    module: GraphModule,
    weights: Sequence[torch.Tensor | None],
    parameters: Collection[int] = (),
    written: Sequence[int] = (),
) -> Imported:
    """Lowers `module`, whose placeholder i is a weight when `weights[i]` is a tensor, else an input.

    Inputs that are `parameters` of a model, given at every call, are marked as such. The last outputs are what placeholders
    number `written` are after the call: code may compute them in place and return the input itself, where that is dense.

    The signature takes the tensors among the inputs in order and returns a list as long as the graph's
    outputs. The graph is rewritten. Raises UnsupportedError.
    """
    graph = module.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    output = next(node for node in graph.nodes if node.op == "output")
    marked = {placeholders[i].name for i in parameters}
    inputs = [node for node, weight in zip(placeholders, weights) if weight is None]
    tensors = [node for node in inputs if isinstance(node.meta.get("val"), torch.Tensor)]
    outputs, leaves, results = _outputs(module, output, tensors, placeholders, weights)
    updates = _updates(output, [placeholders[i] for i in written], tensors, outputs, leaves)
    attach(graph, results)
    output.args = (tuple(results),)
    simplify(module)
    constants = lift_constants(module)
    fold_constants(module)
    bound: list[tuple[Node, torch.Tensor]] = []
    returned = {o.index for o in outputs if o.source == "weight"}
    given = [(node, weight) for node, weight in zip(placeholders, weights) if weight is not None]
    numbers: dict[int, int] = {}
    for number, (node, weight) in enumerate(given):
        if node.users or number in returned:
            numbers[number] = len(bound)
            bound.append((node, weight))
        else:
            graph.erase_node(node)
    bound += [(node, tensor) for _, tensor, node in constants]
    for node in inputs:
        if node not in tensors:
            graph.erase_node(node)
    for node in reversed([node for node, _ in bound] + tensors):
        first = next(iter(graph.nodes))
        if node is not first:
            first.prepend(node)
    lowered = lower_graph(module)
    annotate(
        lowered,
        [("weight", node.name) for node, _ in bound] + [("input", node.name) for node in tensors],
        marked,
        {len(bound) + number: result for number, result in updates.items()},
    )
    results = list(output.args[0])
    signature = Signature(
        positional=tuple(node.name for node in tensors),
        arguments=tuple((node.name, Tree("tensor", index=i)) for i, node in enumerate(tensors)),
        inputs=tuple(_spec(node.name, node) for node in tensors),
        results=tuple(_spec(f"result{i}", node) for i, node in enumerate(results)),
        outputs=tuple(
            o if o.source != "weight" else Output("weight", numbers[o.index], o.dtype, o.shape, whole=True)
            for o in outputs
        ),
        returns=Tree("list", tuple(leaves)),
    )
    return Imported(lowered, signature, [tensor for _, tensor in bound])


def _updates(
    output: Node,
    written: Sequence[Node],
    tensors: list[Node],
    outputs: Sequence[Output],
    leaves: Sequence[Tree],
) -> dict[int, int]:
    """The results, by number of input, that are inputs' new values and nothing else, and as dense as these are."""
    items = list(output.args[0])  # type: ignore[arg-type]
    first = len(items) - len(written)
    updates = {}
    for node, item, leaf in zip(written, items[first:], leaves[first:]):
        if node not in tensors or leaf.kind != "tensor" or items.count(item) > 1:
            continue
        found, value = outputs[leaf.index], node.meta["val"]
        is_dense = found.source == "result" and found.strides is None and value.is_contiguous()
        if is_dense and (found.dtype, found.shape) == (dtype_name(value.dtype), tuple(value.shape)):
            updates[tensors.index(node)] = found.index
    return updates


def _outputs(
    module: GraphModule,
    output: Node,
    tensors: list[Node],
    placeholders: list[Node],
    weights: Sequence[torch.Tensor | None],
) -> tuple[list[Output], list[Tree], list[Node]]:
    """Where each element of the graph's output comes from, and the nodes that compute results."""
    given = [node for node, weight in zip(placeholders, weights) if weight is not None]
    outputs: list[Output] = []
    leaves: list[Tree] = []
    results: list[Node] = []
    numbers: dict[Node, int] = {}
    for item in output.args[0]:  # type: ignore[union-attr]
        value = item.meta.get("val") if isinstance(item, Node) else item
        if not isinstance(value, torch.Tensor):
            leaves.append(Tree("constant", value=value))
            continue
        assert isinstance(item, Node)
        if item not in numbers:
            numbers[item] = len(outputs)
            shape, dtype = tuple(value.shape), dtype_name(value.dtype)
            if item in tensors:
                outputs.append(Output("input", tensors.index(item), dtype, shape, whole=True))
            elif item in given:
                outputs.append(Output("weight", given.index(item), dtype, shape, whole=True))
            elif value.numel() == 0:
                outputs.append(Output("empty", 0, dtype, shape, tuple(value.stride())))
            else:
                node, strides = _physical_node(module, output, item, value)
                outputs.append(Output("result", len(results), dtype, shape, strides))
                results.append(node)
        leaves.append(Tree("tensor", index=numbers[item]))
    return outputs, leaves, results


def _physical_node(
    module: GraphModule, output: Node, node: Node, value: torch.Tensor
) -> tuple[Node, tuple[int, ...] | None]:
    """`node` in memory order: the operators that `physical` applies to its value, appended to the graph."""
    if value.is_contiguous():
        return node, None
    aten = torch.ops.aten
    shape, eager = value.shape, value.stride()
    with module.graph.inserting_before(output):
        for d in range(value.dim()):
            if eager[d] == 0 and shape[d] > 1:
                value = value.narrow(d, 0, 1)
                node = module.graph.call_function(aten.slice.Tensor, (node, d, 0, 1))
                node.meta["val"] = value
        original = torch.empty_strided(shape, eager, device="meta")
        order = sorted(range(len(shape)), key=lambda d: -eager[d] if shape[d] > 1 else 0)
        if order != list(range(len(shape))):
            node = module.graph.call_function(aten.permute.default, (node, order))
            node.meta["val"] = value.permute(order)
    return node, physical(original)[1]


def _spec(name: str, node: Node) -> TensorSpec:
    value = node.meta["val"]
    return TensorSpec(name, dtype_name(value.dtype), tuple(int(extent) for extent in value.shape))
