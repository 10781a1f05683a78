"""What an element of a tensor is computed from: elementwise operations as one expression tree over elements.

    weights[b, m, n] = exp(s[b, m, n] - t[b, m]) / u[b, m]

however many `linalg.generic` operations, views and broadcasts it took to write that down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.compiler.analysis.element_source import Element, Linear, Loops, moved_from
from tilewright.compiler.analysis.structure import Structured, producer
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.quasi_affine import QuasiAffine

_MOST_NODES = 400
"""Trees of more nodes are cut off: no mask or softmax needs a tenth of them."""


@dataclass(frozen=True)
class Constant:
    """A number."""

    attribute: ir.Attribute


@dataclass(frozen=True)
class Position:
    """The value of a loop expression, of type `index`."""

    expr: Linear


@dataclass(frozen=True)
class Read:
    """An element of a tensor that no elementwise operation computes."""

    element: Element


@dataclass(frozen=True)
class Apply:
    """A scalar operation; `element` is the element of a tensor that it is the value of, if it is."""

    op: ir.Operation
    operands: tuple[Node, ...]
    element: Element | None = None

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def attributes(self) -> str:
        return str({name: str(self.op.attributes[name]) for name in self.op.attributes})


Node = Constant | Position | Read | Apply


class Expressions:
    """Builds trees over `loops`; `inlined` are the tensors whose elements they took apart or saw through."""

    def __init__(self, loops: Loops):
        self.loops = loops
        self.inlined: set[ir.Value] = set()
        self._known: dict[tuple, Node] = {}
        self._nodes = 0

    def of(self, element: Element) -> Node:
        """The tree of an element."""
        while (found := moved_from(element, self.loops)) is not None:
            self.inlined.add(element.value)
            element = found
        key = (element.value, tuple(map(self.loops.resolved, element.index)))
        if key not in self._known:
            self._known[key] = self._of_origin(element)
        return self._known[key]

    def _of_origin(self, element: Element) -> Node:
        op = producer(element.value)
        if op is None or self._nodes > _MOST_NODES:
            return Read(element)
        if op.name == "linalg.fill":
            return _constant(op.operands[0]) or Read(element)
        if op.name == "arith.constant":
            dense = op.attributes["value"]
            splat = isinstance(dense, ir.DenseElementsAttr) and dense.is_splat
            return Constant(dense.get_splat_value()) if splat else Read(element)
        structured = Structured.read(op)
        if structured is None or not structured.is_elementwise or len(op.results) != 1:
            return Read(element)
        if structured.accumulates or not structured.result_map.is_permutation:
            return Read(element)
        found = self._body(structured, element)
        if found is None:
            return Read(element)
        self.inlined.add(element.value)
        return found

    def _body(self, structured: Structured, element: Element) -> Node | None:
        """The tree of what a generic's body yields; None when it does more than compute."""
        exprs = {
            ir.AffineDimExpr(expr).position: index
            for expr, index in zip(structured.result_map.results, element.index)
        }
        values: dict[ir.Value, Node] = {}
        for number, argument in enumerate(list(structured.body.arguments)[: structured.num_inputs]):
            operand = structured.op.operands[number]
            if not isinstance(operand.type, ir.RankedTensorType):
                scalar = _constant(operand)
                if scalar is None:
                    return None
                values[argument] = scalar
                continue
            index = []
            for expr in structured.maps[number].results:
                if isinstance(expr, ir.AffineConstantExpr):
                    index.append(QuasiAffine((), expr.value))
                elif isinstance(expr, ir.AffineDimExpr):
                    index.append(exprs[expr.position])
                else:
                    return None
            values[argument] = self.of(Element(operand, tuple(index)))
        for view in structured.body.operations:
            op = view.operation
            self._nodes += 1
            if op.name == "linalg.yield":
                return _named(_value(op.operands[0], values), element)
            if op.name == "linalg.index":
                values[op.results[0]] = Position(exprs[ir.IntegerAttr(op.attributes["dim"]).value])
                continue
            operands = [_value(operand, values) for operand in op.operands]
            if op.name.split(".")[0] not in ("arith", "math") or len(op.results) != 1 or None in operands:
                return None
            if op.name == "arith.constant":
                values[op.results[0]] = Constant(op.attributes["value"])
            else:
                values[op.results[0]] = Apply(op, tuple(node for node in operands if node is not None))
        return None

    def same(self, one: Node, other: Node) -> bool:
        """Whether two trees compute the same number."""
        if one is other:
            return True
        if isinstance(one, Apply) and isinstance(other, Apply):
            return (
                one.name == other.name
                and len(one.operands) == len(other.operands)
                and one.attributes == other.attributes
                and all(map(self.same, one.operands, other.operands))
            )
        if isinstance(one, Read) and isinstance(other, Read):
            return one.element.value == other.element.value and [
                *map(self.loops.resolved, one.element.index)
            ] == [*map(self.loops.resolved, other.element.index)]
        if isinstance(one, Position) and isinstance(other, Position):
            return self.loops.resolved(one.expr) == self.loops.resolved(other.expr)
        return isinstance(one, Constant) and isinstance(other, Constant) and one.attribute == other.attribute


def _named(node: Node | None, element: Element) -> Node | None:
    return Apply(node.op, node.operands, element) if isinstance(node, Apply) else node


def _value(value: ir.Value, values: dict[ir.Value, Node]) -> Node | None:
    return values[value] if value in values else _constant(value)


def _constant(value: ir.Value) -> Constant | None:
    op = producer(value)
    if op is None or op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    return Constant(attribute) if isinstance(attribute, (ir.FloatAttr, ir.IntegerAttr)) else None


def nodes(node: Node, within: Callable[[Node], bool] = lambda node: True) -> list[Node]:
    """Every node of a tree once, whatever number of others it is an operand of; below those that are `within` only."""
    seen: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if id(node) in seen:
            return
        seen[id(node)] = node
        if isinstance(node, Apply) and within(node):
            for operand in node.operands:
                visit(operand)

    visit(node)
    return list(seen.values())


def leaves(node: Node) -> list[Node]:
    """Every leaf of a tree, once."""
    return [found for found in nodes(node) if not isinstance(found, Apply)]


def number(node: Node) -> float | None:
    """The value of a constant; None for anything else."""
    if not isinstance(node, Constant) or not isinstance(node.attribute, (ir.FloatAttr, ir.IntegerAttr)):
        return None
    return float(node.attribute.value)
