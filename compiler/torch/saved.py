"""How images that a forward graph saves for the backward one lie in memory: channels last, as both compute them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch.fx import Graph, GraphModule, Node

aten = torch.ops.aten

_OF_IMAGES = (
    aten.convolution.default,
    aten.max_pool2d_with_indices.default,
    aten.max_pool3d_with_indices.default,
    aten.avg_pool2d.default,
    aten.avg_pool3d.default,
)
"""Operators whose first operand and results are stored channels last."""

_COPIES = (aten.clone.default, aten._to_copy.default, aten.alias.default, aten.detach.default)
"""Element-wise operators that PyTorch does not tag as such."""

_VIEWS = (aten.view.default, aten._unsafe_view.default)


def save_channels_last(forward: GraphModule, backward: GraphModule, results: int) -> None:
    """Lets images cross from `forward`, behind its first `results` outputs, to `backward` as [N, ..., C].

    Row-major they would be brought into another order at the end of the one graph, and back by the other. What is
    saved as the caller has it, an argument or a result of the model, stays.
    """
    output = next(node for node in forward.graph.nodes if node.op == "output")
    outputs = list(output.args[0])  # type: ignore[arg-type]
    given = {node.name: node for node in backward.graph.nodes if node.op == "placeholder"}
    images = _images(forward.graph)
    moved: dict[Node, Node] = {}
    for number in range(results, len(outputs)):
        node = outputs[number]
        if node not in images or node in outputs[:results] or node.name not in given:
            continue
        # A view of it would be a transposition.
        if _is_row_major(node) and not any(user.target in _VIEWS for user in given[node.name].users):
            moved[node] = moved.get(node) or _stored(forward.graph, output, node)
            outputs[number] = moved[node]
            _read(backward.graph, given[node.name])
    if moved:
        output.args = (type(output.args[0])(outputs),)  # type: ignore[call-arg]
        forward.recompile()
        backward.recompile()


def read_row_major(graph: Graph, eager: Callable[[Node], bool]) -> None:
    """Lets operators that PyTorch computes read what follows from saved images row-major, as they did when traced.

    Not all of its kernels heed strides: `adaptive_max_pool3d_backward` takes its indices to be row-major.
    """
    following: set[Node] = set()
    for node in list(graph.nodes):
        is_read = (
            node.target is aten.permute.default
            and node.args[0].op == "placeholder"
            and list(node.args[1]) == _to_front(_rank(node))
        )
        if not is_read and following.isdisjoint(node.all_input_nodes):
            continue
        following.add(node)
        if node.op == "call_function" and not is_read and eager(node):
            with graph.inserting_before(node):
                for operand in [n for n in node.all_input_nodes if n in following and _rank(n) > 2]:
                    node.replace_input_with(operand, graph.call_method("contiguous", (operand,)))


def _to_front(rank: int) -> list[int]:
    """The order that brings the last dimension of images behind their first."""
    return [0, rank - 1, *range(1, rank - 1)]


def name_views(graph: Graph) -> None:
    """Writes transpositions as the operator that PyTorch knows for a view when it decides what to save."""
    for node in graph.find_nodes(op="call_function", target=aten.transpose.int):
        order = list(range(_rank(node)))
        first, second = node.args[1:]
        if order:  # a number has no dimensions, though PyTorch takes 0 and -1 for them
            order[first], order[second] = order[second], order[first]  # type: ignore[index]
        node.target, node.args = aten.permute.default, (node.args[0], order)


def _images(graph: Graph) -> set[Node]:
    """What convolutions and poolings read and give, and what element-wise operators make of it or make it from."""
    found: set[Node] = set()
    pending = [node for op in _OF_IMAGES for call in graph.find_nodes(op="call_function", target=op)
               for node in (call.args[0], call, *call.users)]  # fmt: skip
    while pending:
        node = pending.pop()
        if isinstance(node, Node) and node not in found and _rank(node) > 2:
            found.add(node)
            pending += [other for other in _beside(node) if other.meta["val"].shape == node.meta["val"].shape]
    return found


def _beside(node: Node) -> Iterator[Node]:
    """The tensors that an element-wise operator has in common with `node`."""
    if _is_elementwise(node):
        yield from (operand for operand in node.all_input_nodes if _rank(operand) > 2)
    for user in node.users:
        if _is_elementwise(user):
            yield user


def _is_elementwise(node: Node) -> bool:
    return node.target in _COPIES or torch.Tag.pointwise in getattr(node.target, "tags", ())


def _rank(node: Node) -> int:
    value = node.meta.get("val")
    return value.dim() if isinstance(value, torch.Tensor) else 0


def _is_row_major(node: Node) -> bool:
    """Whether a computed tensor of static shape lies row-major, and would not if its channels were last."""
    value = node.meta["val"]
    shape = value.shape
    static = all(isinstance(extent, int) for extent in shape)
    return (
        node.op != "placeholder"
        and static
        and value.is_contiguous()
        and shape[1] > 1
        and shape[2:].numel() > 1
    )


def _stored(graph: Graph, output: Node, node: Node) -> Node:
    """`node` with its channels last, as a row-major tensor."""
    value = node.meta["val"]
    with graph.inserting_before(output):
        stored = graph.call_function(aten.permute.default, (node, [0, *range(2, value.dim()), 1]))
    stored.meta["val"] = value.permute(stored.args[1]).contiguous()
    return stored


def _read(graph: Graph, placeholder: Node) -> None:
    """Lets `graph` get `placeholder` with its channels last."""
    value, rank = placeholder.meta["val"], placeholder.meta["val"].dim()
    with graph.inserting_after(placeholder):
        plain = graph.call_function(aten.permute.default, (placeholder, _to_front(rank)))
    placeholder.replace_all_uses_with(plain, lambda user: user is not plain)
    plain.meta["val"] = value
    stored = value.permute([0, *range(2, rank), 1]).contiguous()
    # Its own from now on: until here it is the other graph's node's.
    placeholder.meta = {key: kept for key, kept in placeholder.meta.items() if key != "tensor_meta"}
    placeholder.meta["val"] = stored
    plain.meta["val"] = stored.permute(plain.args[1])
