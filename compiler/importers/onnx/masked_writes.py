"""Writes of one number where a mask holds, `x[mask] = v`, as selections: their places are as many as data says.

torch.onnx writes one as

    places = Transpose(NonZero(mask)); y = ScatterND(x, places, Reshape(Expand(v, count)))

of which nothing but `y` has a shape that is known. `rewritten` puts one node of our own in its place, before the graph
is built; nodes that only made the places are put out of use, and none is taken out, so that all keep their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper

from tilewright.compiler.importers.onnx import forms
from tilewright.compiler.importers.onnx.builder import Builder
from tilewright.compiler.importers.onnx.file import subgraphs
from tilewright.compiler.importers.onnx.rules import rule
from tilewright.compiler.importers.onnx.values import POISON, Node, Refused

DOMAIN = "tilewright.masked_writes"
"""Domain of the nodes that stand for others."""


def rewritten(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes of the graph with its masked writes in one node each."""
    makers = {name: node for node in graph.node for name in node.output}
    nodes = [_masked_write(node, makers) or node for node in graph.node]
    if all(new is old for new, old in zip(nodes, graph.node)):
        return nodes
    returned = {info.name for info in graph.output}
    once_read = returned.union(*(_reads(node) for node in graph.node))
    read = set(returned)
    for index in range(len(nodes) - 1, -1, -1):
        node = nodes[index]
        if read.intersection(node.output) or not once_read.intersection(node.output):
            read.update(_reads(node))
        else:
            nodes[index] = helper.make_node("Unused", [], node.output, name=node.name, domain=DOMAIN)
    return nodes


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names that a node reads, those inside of its branches and bodies among them."""
    yield from node.input
    for inner in subgraphs(node):
        yield from (info.name for info in inner.output)
        for below in inner.node:
            yield from _reads(below)


def _masked_write(node: onnx.NodeProto, makers: dict[str, onnx.NodeProto]) -> onnx.NodeProto | None:
    """The node that writes `v` where a mask holds, if this one does."""
    if not _is(node, "ScatterND") or any(a.name == "reduction" and a.s != b"none" for a in node.attribute):
        return None
    turned, numbers = (makers.get(name) for name in node.input[1:3])
    if numbers is not None and _is(numbers, "Reshape"):
        numbers = makers.get(numbers.input[0])
    places = makers.get(turned.input[0]) if turned is not None and _is(turned, "Transpose") else None
    if places is None or numbers is None or not (_is(places, "NonZero") and _is(numbers, "Expand")):
        return None
    if turned is None or [list(a.ints) for a in turned.attribute] not in ([], [[1, 0]]):
        return None
    mask = makers.get(places.input[0])
    narrow = mask.input[0] if mask is not None and _is(mask, "Expand") else places.input[0]
    inputs = [node.input[0], places.input[0], numbers.input[0], narrow]
    return helper.make_node("WriteWhere", inputs, node.output, name=node.name, domain=DOMAIN)


def _is(node: onnx.NodeProto, op: str) -> bool:
    return node.op_type == op and node.domain in ("", "ai.onnx")


@rule("WriteWhere", domain=DOMAIN)
def write_where(b: Builder, node: Node):
    """x with v where the mask holds; of a mask of data, v is one element, or as much of x as the mask does not tell apart.

    x: [B, T, H], mask: [B, T] and v: [H], or mask: [B, T, H], expanded from [B, T, 1], the fourth operand.
    """
    x, mask, v, narrow = (node.operand(i) for i in range(4))
    if mask.shape != x.shape[: mask.rank]:
        raise Refused(f"its mask has the shape {mask.shape}, what it writes into {x.shape}")
    row = x.shape[mask.rank :]
    if mask.array is not None and not mask.weight:
        places = np.argwhere(mask.array)
        shape = (len(places), *row)
        numbers = forms.reshape(b, v, shape) if v.size == math.prod(shape) else forms.expand(b, v, shape)
        return b.op("ScatterND", x, b.const(places), numbers)
    narrow = narrow if narrow.rank == mask.rank else mask
    apart = (*narrow.shape, *[1] * len(row))
    written = forms.reshape(b, v, v.shape[next((i for i, n in enumerate(v.shape) if n != 1), v.rank) :])
    first = x.rank - written.rank
    if first < 0 or written.shape != x.shape[first:] or any(extent != 1 for extent in apart[first:]):
        raise Refused("it writes where a mask of data holds, and not the same into all places")
    return b.op("Where", forms.reshape(b, forms.cast(b, narrow, TensorProto.BOOL), apart), written, x)


@rule("Unused", domain=DOMAIN)
def unused(b: Builder, node: Node):
    """What nothing reads any more."""
    return [POISON] * node.outputs
