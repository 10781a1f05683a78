"""Sums of tensors that are zero but for a part each, as gradients of `x[0], x[1], x[2]` are: the parts beside each other.

    slice_scatter(zeros, a, 0, 0, 1) + slice_scatter(zeros, b, 0, 1, 2)   =>   cat([a, b], 0)
    (c + slice_scatter(zeros, a, 0, 0, 1)) + slice_scatter(zeros, b, 0, 2, 3)
      =>
    c + slice_scatter(slice_scatter(zeros, a, 0, 0, 1), b, 0, 2, 3)

What is filled, read and added is a tensor for each part otherwise. Every element gets the same terms in the same order,
zeros aside: only -0.0 may be left where the sum with a zero is 0.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx.graph import Graph
from torch.fx.node import Node

aten = torch.ops.aten

_ZEROS = {aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default}
_FULL = {aten.full.default, aten.full_like.default, aten.new_full.default}


@dataclass(frozen=True)
class _Parts:
    """A tensor like `zeros` but for `values` from `starts` to `ends` of dimension `dim`, in ascending order."""

    zeros: Node
    dim: int
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    values: tuple[Node, ...]

    def beside(self, other: _Parts) -> _Parts | None:
        """Both in one tensor; None where they overlap or lie along different dimensions."""
        if self.dim != other.dim:
            return None
        pairs = [*zip(self.starts, self.ends, self.values), *zip(other.starts, other.ends, other.values)]
        starts, ends, values = zip(*sorted(pairs, key=lambda part: part[:2]))
        if any(start < end for start, end in zip(starts[1:], ends)):
            return None
        return _Parts(self.zeros, self.dim, starts, ends, values)

    def emit(self, graph: Graph, meta: dict[str, Any]) -> Node:
        """The tensor as a node, with the `meta` of the sum that it stands for."""
        if (0, *self.ends) == (*self.starts, self.zeros.meta["val"].shape[self.dim]):
            made = graph.call_function(aten.cat.default, (list(self.values), self.dim))
            made.meta = dict(meta)
            return made
        made = self.zeros
        for start, end, value in zip(self.starts, self.ends, self.values):
            made = graph.call_function(aten.slice_scatter.default, (made, value, self.dim, start, end))
            made.meta = dict(meta)
        return made


def join_disjoint_terms(graph: Graph) -> None:
    """Rewrites sums of terms that are zero but for a part, where no two terms next to each other share an element."""
    parts: dict[Node, _Parts] = {}
    for node in list(graph.nodes):
        found = _inserted(node)
        if found is not None:
            parts[node] = found
        elif _is_sum(node):
            _join(graph, node, parts)
    if any(node.op == "call_function" and not node.users for node in graph.nodes):
        graph.eliminate_dead_code()


def _join(graph: Graph, node: Node, parts: dict[Node, _Parts]) -> None:
    for term, beside, others in _neighbours(node):
        one, two = _of_one_reader(term, parts), _of_one_reader(beside, parts)
        both = one.beside(two) if one is not None and two is not None else None
        if both is None:
            continue
        with graph.inserting_before(node):
            made = both.emit(graph, node.meta)
        parts[made] = both
        if others is None:
            node.replace_all_uses_with(made)
        else:
            node.args = (others, made)
        return


def _neighbours(node: Node) -> Iterator[tuple[Any, Any, Any]]:
    """Pairs of terms that are added one after the other, and what both are added to, if anything."""
    args: tuple[Any, ...] = node.args
    for term, rest in (args, args[::-1]):
        yield term, rest, None
        if _is_sum(rest) and len(rest.users) == 1:
            for last, others in (rest.args, rest.args[::-1]):
                yield term, last, others


def _of_one_reader(node: Any, parts: dict[Node, _Parts]) -> _Parts | None:
    """What `node` is made of, if nothing else reads it: otherwise it is made anyway."""
    return parts.get(node) if isinstance(node, Node) and len(node.users) == 1 else None


def _inserted(node: Node) -> _Parts | None:
    """The part of a slice that is written into zeros by steps of one; None for another node."""
    if node.target is not aten.slice_scatter.default or node.kwargs:
        return None
    defaults: tuple[Any, ...] = (0, None, None, 1)
    args: tuple[Any, ...] = (*node.args, *defaults[len(node.args) - 2 :])
    zeros, value, dim, start, end, step = args
    if step != 1 or not isinstance(value, Node) or not _is_zero(zeros):
        return None
    shape = node.meta["val"].shape
    start, end, _ = slice(start, end).indices(shape[dim])
    if value.meta["val"].dtype != node.meta["val"].dtype or start >= end:
        return None
    return _Parts(zeros, dim % len(shape), (start,), (end,), (value,))


def _is_zero(node: Any) -> bool:
    return node.target in _ZEROS or (node.target in _FULL and node.args[1] == 0)


def _is_sum(node: Any) -> bool:
    """Whether `node` adds two tensors of its own shape and type."""
    if not isinstance(node, Node) or node.target is not aten.add.Tensor or node.kwargs:
        return False
    like = node.meta["val"]
    return all(
        isinstance(term, Node)
        and term.meta["val"].shape == like.shape
        and term.meta["val"].dtype == like.dtype
        for term in node.args
    )
