"""Parts of a tensor that are written: read again, and rows of them where the whole lies.

A part that is read as it was written is what was written there:

    slice(slice_scatter(c, v, 0, 3, 4), 0, 3, 4)   =>   v

Rows that are written into a part are written into the whole: the part is not copied out and back.

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
from typing import Any, cast

import torch
from torch.fx.graph import Graph
from torch.fx.node import Node, map_arg

aten = torch.ops.aten

_VIEWS = {aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.unsqueeze.default}
_PUTS = {aten.index_put.default, aten._unsafe_index_put.default}
_READS = {aten.select.int, aten.slice.Tensor}
_ALL: tuple[Any, ...] = (0, None, None, 1)
"""Dimension, start, end and step of a slice that says none of them."""


def read_what_was_written(graph: Graph) -> None:
    """Replaces slices of a tensor by what was written into it at the same place.

    torch-mlir does so as well, and makes literals of signed numbers of constants that are unsigned bytes.
    """
    is_changed = False
    for node in list(graph.nodes):
        place = _place(node) if node.target in _READS else None
        source: Any = node.args[0] if place else None
        if place is None or source.target is not aten.slice_scatter.default or _place(source) != place:
            continue
        written: Any = source.args[1]
        if written.meta["val"].dtype != node.meta["val"].dtype:
            continue
        if node.target is aten.select.int:
            with graph.inserting_before(node):
                written = graph.call_function(aten.squeeze.dim, (written, place[0]))
            written.meta = dict(node.meta)
        node.replace_all_uses_with(written)
        is_changed = True
    if is_changed:
        graph.eliminate_dead_code()


def _place(node: Node) -> tuple[int, int, int] | None:
    """Dimension, start and end of what a node reads or writes of its first operand by steps of one; None for others."""
    if not node.args or not isinstance(whole := node.args[0], Node) or node.kwargs:
        return None
    shape, numbers = whole.meta["val"].shape, cast("tuple[Any, ...]", node.args[1:])
    if node.target is aten.select.int:
        dim, index = numbers
        start = index % shape[dim]
        end, step = start + 1, 1
    elif node.target is aten.slice.Tensor or node.target is aten.slice_scatter.default:
        numbers = numbers[node.target is aten.slice_scatter.default :]
        dim, start, end, step = *numbers, *_ALL[len(numbers) :]
    else:
        return None
    start, end, _ = slice(start, end).indices(shape[dim])
    return (dim % len(shape), start, end) if step == 1 else None


def write_where_wholes_lie(graph: Graph) -> None:
    """Rewrites writes of rows into a part that is chosen along the first dimension of a dense tensor."""
    is_changed = False
    for node in list(graph.nodes):
        chosen = _chosen(node)
        if chosen is not None:
            is_changed = True
            with graph.inserting_before(node):
                written = _Part(graph, node, *chosen).written()
            if written is not None:
                node.replace_all_uses_with(written)
    if is_changed:
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


@dataclass(frozen=True)
class _Part:
    """A part of a dense tensor, by number, and its new value, which `node` writes into the whole."""

    graph: Graph
    node: Node
    whole: Node
    number: int
    value: Node

    def written(self) -> Node | None:
        """The whole with what is written into the part; None where anything else reads its new value, or makes it."""
        value = self.value
        while value.target in _VIEWS and len(value.users) == 1:
            (value,) = value.all_input_nodes
        if len(value.users) != 1 or not value.args or not self._is_old(value.args[0]):
            return None
        old = tuple(value.args[0].meta["val"].shape)  # type: ignore[union-attr]
        if value.target in _PUTS:
            indices, values = value.args[1:3]
            numbered = all(isinstance(i, Node) and i.meta["val"].dtype == torch.int64 for i in indices)  # type: ignore[union-attr]
            accumulate = value.args[3] if len(value.args) > 3 else value.kwargs.get("accumulate", False)
            return self._rows(old, indices, values, accumulate) if numbered else None
        if value.target is not aten.slice_scatter.default or len(value.args) != 5:
            return None
        _, values, dim, start, end = value.args
        if not isinstance(start, int) or not isinstance(end, int) or not isinstance(dim, int):
            return None
        start, end = (min(n + old[dim] if n < 0 else n, old[dim]) for n in (start, end))
        return self._slice(old, values, dim, start, end) if end > start else None

    def _is_old(self, value: Any) -> bool:
        """Whether a value is the part as it was, reshaped or not."""
        while isinstance(value, Node) and value.target in _VIEWS:
            (value,) = value.all_input_nodes
        if not isinstance(value, Node) or value.args[:2] != (self.whole, 0):
            return False
        if value.target is aten.select.int:
            return value.args[2] % self.whole.meta["val"].shape[0] == self.number  # type: ignore[operator]
        return value.target is aten.slice.Tensor and value.args[2:] == (self.number, self.number + 1)

    def _slice(self, old: tuple[int, ...], values: Any, dim: int, start: int, end: int) -> Node | None:
        """A slice of the part, of shape `old`: one of the whole along its first dimension, else rows."""
        outer, count, behind = math.prod(old[:dim]), end - start, list(old[dim + 1 :])
        if outer == 1:
            extent, before = self.whole.meta["val"].shape[0], self.number * old[dim]
            flat = self._emit(aten.view.default, self.whole, [extent * old[dim], *behind])
            rows = self._emit(aten.reshape.default, values, [count, *behind])
            put = self._emit(aten.slice_scatter.default, flat, rows, 0, before + start, before + end)
            return self._emit(aten.view.default, put, list(self.node.meta["val"].shape))
        if not behind or 2 * count > old[dim]:
            return None  # as many elements are numbered as are copied
        images = self._emit(aten.view.default, self._numbers(0, outer), [outer, 1])
        places = self._emit(aten.view.default, self._numbers(start, end), [1, count])
        rows = self._emit(aten.reshape.default, values, [outer, count, *behind])
        return self._rows((outer, old[dim], *behind), (images, places), rows, False)

    def _rows(self, old: tuple[int, ...], indices: Any, values: Any, accumulate: Any) -> Node:
        """Rows of the part, of shape `old`, by numbers of its first dimensions, as rows of the whole."""
        rank = max(index.meta["val"].dim() for index in indices)
        which = self._emit(aten.view.default, self._numbers(self.number, self.number + 1), [1] * rank)
        cut = self._emit(aten.view.default, self.whole, [self.whole.meta["val"].shape[0], *old])
        put = self._emit(aten.index_put.default, cut, [which, *indices], values, accumulate)
        return self._emit(aten.view.default, put, list(self.node.meta["val"].shape))

    def _numbers(self, start: int, end: int) -> Node:
        kinds = {"dtype": torch.int64, "device": torch.device("cpu"), "pin_memory": False}
        made = self.graph.call_function(aten.arange.start, (start, end), kinds)
        with self.node.meta["val"].fake_mode:
            made.meta = {**self._location, "val": torch.arange(start, end)}
        return made

    def _emit(self, target: Any, *args: Any) -> Node:
        made = self.graph.call_function(target, args)
        made.meta = {**self._location, "val": target(*map_arg(args, lambda n: n.meta["val"]))}
        return made

    @property
    def _location(self) -> dict[str, Any]:
        return {name: known for name, known in self.node.meta.items() if name not in ("val", "tensor_meta")}
