"""Rows of a part of a tensor, written where the whole lies: the part is not copied out and back.

    s = select(c, 0, 3)                                        // c: [L, H, S, D], s: [H, S, D]
    w = index_put(view(s, [H * S, D]), [rows], v)
    slice_scatter(c, unsqueeze(view(w, [H, S, D]), 0), 0, 3, 4)
      =>
    view(index_put(view(c, [L, H * S, D]), [3, rows], v), [L, H, S, D])

Caches of all layers are such a whole, of which a layer is a part and a position a row of that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.graph import Graph
from torch.fx.node import Node, map_arg

aten = torch.ops.aten

_VIEWS = {aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.unsqueeze.default}
_PUTS = {aten.index_put.default, aten._unsafe_index_put.default}


@dataclass(frozen=True)
class _Write:
    """Values written into rows of a part, of the shape `shape`, by numbers of its first dimensions."""

    shape: tuple[int, ...]
    indices: tuple[Node, ...]
    values: Node
    accumulate: bool


def write_where_wholes_lie(graph: Graph) -> None:
    """Rewrites writes of rows into a part that is chosen along the first dimension of a dense tensor."""
    for node in list(graph.nodes):
        chosen = _chosen(node)
        if chosen is None:
            continue
        whole, number, part = chosen
        with graph.inserting_before(node):
            write = _write(graph, node, part, whole, number)
            if write is not None:
                node.replace_all_uses_with(_written(graph, node, whole, number, write))
    graph.eliminate_dead_code()


def _chosen(node: Node) -> tuple[Node, int, Node] | None:
    """The whole, the number and the new value of the part that a node writes; None where it writes something else."""
    if node.target is not aten.slice_scatter.default or len(node.args) != 5:
        return None
    whole, part, dim, start, end = node.args
    if dim != 0 or not isinstance(start, int) or end != start + 1 or not isinstance(whole, Node):
        return None
    value = whole.meta["val"]
    is_dense = value.is_contiguous() and 0 <= start < value.shape[0] > 1
    return (whole, start, part) if is_dense and isinstance(part, Node) else None


def _write(graph: Graph, node: Node, part: Node, whole: Node, number: int) -> _Write | None:
    """What is written into the part; None where anything else reads it, or it is made in another way."""
    while part.target in _VIEWS and len(part.users) == 1:
        (part,) = part.all_input_nodes
    if len(part.users) != 1 or not part.args or not _is_part(part.args[0], whole, number):
        return None
    old = part.args[0].meta["val"]  # type: ignore[union-attr]
    if part.target in _PUTS:
        indices, values = part.args[1:3]
        is_plain = all(isinstance(index, Node) for index in indices)  # type: ignore[union-attr]
        is_numbered = is_plain and all(index.meta["val"].dtype == torch.int64 for index in indices)  # type: ignore[union-attr]
        accumulate = bool(part.args[3] if len(part.args) > 3 else part.kwargs.get("accumulate", False))
        return _Write(tuple(old.shape), tuple(indices), values, accumulate) if is_numbered else None  # type: ignore[arg-type]
    if part.target is not aten.slice_scatter.default or len(part.args) != 5:
        return None
    _, values, dim, start, end = part.args
    if not all(isinstance(n, int) for n in (dim, start, end)) or dim == old.dim() - 1:
        return None
    return _of_slice(graph, node, tuple(old.shape), values, dim, start, end)  # type: ignore[arg-type]


def _is_part(value: Any, whole: Node, number: int) -> bool:
    """Whether a value is the part of that number, reshaped or not."""
    while isinstance(value, Node) and value.target in _VIEWS:
        (value,) = value.all_input_nodes
    if not isinstance(value, Node) or value.args[:2] != (whole, 0):
        return False
    if value.target is aten.select.int:
        return value.args[2] % whole.meta["val"].shape[0] == number  # type: ignore[operator]
    return value.target is aten.slice.Tensor and value.args[2:] == (number, number + 1)


def _of_slice(
    graph: Graph, node: Node, shape: tuple[int, ...], values: Node, dim: int, start: int, end: int
) -> _Write | None:
    """A slice along one dimension as rows: numbers of what is in front of it, and of the slice's own places."""
    start, end = (min(n + shape[dim] if n < 0 else n, shape[dim]) for n in (start, end))
    if end <= start:
        return None
    outer, count, behind = math.prod(shape[:dim]), end - start, list(shape[dim + 1 :])
    images = _emit(graph, node, aten.view.default, _numbers(graph, node, 0, outer), [outer, 1])
    places = _emit(graph, node, aten.view.default, _numbers(graph, node, start, end), [1, count])
    rows = _emit(graph, node, aten.reshape.default, values, [outer, count, *behind])
    return _Write((outer, shape[dim], *behind), (images, places), rows, False)


def _written(graph: Graph, node: Node, whole: Node, number: int, write: _Write) -> Node:
    extent = whole.meta["val"].shape[0]
    rank = max(index.meta["val"].dim() for index in write.indices)
    which = _emit(graph, node, aten.view.default, _numbers(graph, node, number, number + 1), [1] * rank)
    cut = _emit(graph, node, aten.view.default, whole, [extent, *write.shape])
    put = _emit(
        graph, node, aten.index_put.default, cut, [which, *write.indices], write.values, write.accumulate
    )
    return _emit(graph, node, aten.view.default, put, list(node.meta["val"].shape))


def _numbers(graph: Graph, node: Node, start: int, end: int) -> Node:
    device = {"device": torch.device("cpu"), "pin_memory": False}
    made = graph.call_function(aten.arange.start, (start, end), {"dtype": torch.int64, **device})
    with node.meta["val"].fake_mode:
        made.meta = {**_location(node), "val": torch.arange(start, end)}
    return made


def _emit(graph: Graph, node: Node, target: Any, *args: Any) -> Node:
    made = graph.call_function(target, args)
    made.meta = {**_location(node), "val": target(*map_arg(args, lambda n: n.meta["val"]))}
    return made


def _location(node: Node) -> dict[str, Any]:
    return {name: known for name, known in node.meta.items() if name not in ("val", "tensor_meta")}
