"""Parts of complex numbers read where they were made, not out of pairs that are written and read again.

    z = complex(a, b); y = transpose(z, 0, 1); r = select(view_as_real(y), -1, 0)   =>   r = transpose(a, 0, 1)
    z = view_as_complex(x); i = select(view_as_real(z), -1, 1)                       =>   i = select(x, -1, 1)
    z an argument;          i = select(view_as_real(z), -1, 1)                       =>   i = tilewright.part(z, 1)

Transforms along several dimensions, and products of transforms, take numbers apart that the operator before has just joined.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx.graph import Graph
from torch.fx.node import Node

aten = torch.ops.aten

_LIBRARY = torch.library.Library("tilewright", "FRAGMENT")
_LIBRARY.define("part(Tensor x, int number) -> Tensor")
_LIBRARY.impl(
    "part", lambda x, number: torch.view_as_real(x).select(-1, number).clone(), "CompositeExplicitAutograd"
)
torch.library.register_fake("tilewright::part", lambda x, number: torch.real(x).new_empty(x.shape))

_MOVES = {
    *(aten.permute.default, aten.transpose.int, aten.slice.Tensor, aten.unsqueeze.default, aten.squeeze.dim),
    *(
        aten.expand.default,
        aten.view.default,
        aten._unsafe_view.default,
        aten.clone.default,
        aten.flip.default,
    ),
    *(aten.t.default, aten.select.int, aten.alias.default),
}
"""Operators of one tensor that move its elements, whatever they are."""

_Parts = tuple[Node, Node]


def read_parts(graph: Graph) -> None:
    """Rewrites what reads one part of numbers whose parts are known; results of the graph stay what they are."""
    known: dict[Node, _Parts | None] = {}
    for node in list(graph.nodes):
        taken = _taken(node)
        if taken is None or any(user.op == "output" for user in node.users):
            continue
        source, part = taken
        parts = _parts(graph, source, known)
        if parts is not None:
            node.replace_all_uses_with(parts[part])
    if known:
        graph.eliminate_dead_code()


def _taken(node: Node) -> tuple[Node, int] | None:
    """The complex numbers of which `node` is a part, and which part."""
    pairs = node.args[0] if node.target is aten.select.int else None
    if not isinstance(pairs, Node) or pairs.target is not aten.view_as_real.default:
        return None
    (source,), (_, dim, part) = pairs.args, node.args
    is_part = dim in (-1, pairs.meta["val"].dim() - 1)
    return (source, part % 2) if is_part and isinstance(source, Node) and isinstance(part, int) else None


def _parts(graph: Graph, node: Node, known: dict[Node, _Parts | None]) -> _Parts | None:
    """The real and the imaginary part of a node, made right before it where it moves others."""
    moves: list[Node] = []
    at = node
    while at not in known and at.target in _MOVES and isinstance(at.args[0], Node):
        moves.append(at)
        at = at.args[0]
    if at not in known:
        known[at] = _made(graph, at)
    parts = known[at]
    for move in reversed(moves):
        parts = known[move] = None if parts is None else _moved(graph, move, parts)
    return parts


def _made(graph: Graph, node: Node) -> _Parts | None:
    """Those of numbers that were made of parts."""
    shape = node.meta["val"].shape if isinstance(node.meta.get("val"), torch.Tensor) else None
    if node.target is aten.complex.default:
        re, im = node.args
        if not isinstance(re, Node) or not isinstance(im, Node):
            return None
        return (re, im) if re.meta["val"].shape == im.meta["val"].shape == shape else None
    if node.target is aten.view_as_complex.default and isinstance(node.args[0], Node):
        pairs = node.args[0]
        last = pairs.meta["val"].dim() - 1
        re, im = (_call(graph, node, aten.select.int, (pairs, last, part)) for part in range(2))
        return re, im
    if node.op == "placeholder":
        first = next(other for other in graph.nodes if other.op != "placeholder")
        part = torch.ops.tilewright.part.default
        re, im = (_call(graph, node, part, (node, number), before=first) for number in range(2))
        return re, im
    return None


def _moved(graph: Graph, move: Node, parts: _Parts) -> _Parts:
    re, im = (_call(graph, move, move.target, (part, *move.args[1:]), move.kwargs) for part in parts)
    return re, im


def _call(
    graph: Graph, at: Node, target: Any, args: tuple[Any, ...], kwargs: Any = None, before: Node | None = None
) -> Node:
    """A real node in the place of `at`, or `before` another one, of one part of it."""
    with graph.inserting_before(before or at):
        made = graph.call_function(target, args, kwargs or {})
    # What else a node says of itself is of complex numbers.
    place = {"stack_trace": at.meta["stack_trace"]} if "stack_trace" in at.meta else {}
    made.meta = {"val": torch.real(at.meta["val"]), **place}
    return made
