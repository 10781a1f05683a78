"""propagate-layouts: the orders that convolutions ask for spread; transposes remain at the borders only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.ir import arith, functions, ir, linalg, static_shape, tensor, walk
from tilewright.compiler.nouns.layout import Layout
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting import layout_rules, storage_order
from tilewright.compiler.rewriting.layout_rules import (
    ATTRIBUTE,
    STRIDED_READ_FRACTION,
    Assignment,
    Convolution,
    Rule,
    Structured,
)
from tilewright.compiler.rewriting.reshaping import reshaped
from tilewright.compiler.rewriting.storage_order import Order

_SOURCES = ("tensor.empty", "linalg.fill")

_REQUESTS = 3
"""Orders remembered per value; a value whose readers want more of them gets a transpose for the rest."""


@dataclass(frozen=True)
class PropagateLayouts(Pass):
    """Stores tensors as `tilewright.layouts` asks, and all that lies between such operations accordingly.

    Before:

        %p = tensor.pad %x : tensor<[N, C, H, W]>
        %c = linalg.conv_2d_nchw_fchw {tilewright.layouts = [...]} ins(%p, %w) outs(%zero)
        %r = linalg.generic ins(%c) {relu}
        return %r

    After:

        %x1 = linalg.transpose ins(%x) permutation = [0, 2, 3, 1]
        %p = tensor.pad %x1 : tensor<[N, H, W, C]>
        %w1 = linalg.transpose ins(%w) permutation = [2, 3, 1, 0]
        %c = linalg.generic ins(%p, %w1) outs(%zero)         // loops n, h, w, o, r, s, i
        %r = linalg.generic ins(%c) {relu}                   // loops n, h, w, o
        %r1 = linalg.transpose ins(%r) permutation = [0, 3, 1, 2]
        return %r1

    One sweep backward collects which orders the readers of each value request; one sweep forward picks, per
    operation, the order that moves the fewest elements, and rebuilds the operation for it. Structured
    operations, pads, slices, concatenations, reshapes that regroup neighbouring bytes and transposes follow
    their tensors; contractions, calls, control flow and returns get the original order. Functions without the
    attribute are left alone. Refuses layouts that are not reorders.

    Source: ALT, EuroSys'23, §4.2 and Algorithm 1. Unlike there, what a producer stores may flow into the next
    convolution, and several requests are weighed against each other.
    """

    anchor: ClassVar[str] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview):
            for block in function.regions[0].blocks:
                operations = [inner.operation for inner in block.operations]
                asked = {inner: self._orders(inner) for inner in operations if ATTRIBUTE in inner.attributes}
                if asked:
                    _Propagation(operations, asked).run()

    def _orders(self, op: ir.Operation) -> list[Order]:
        if not op.name.startswith("linalg.") or len(op.results) != 1:
            raise self.refusal(
                op, f"`{op.name}` cannot ask for layouts; only a linalg operation with one result can"
            )
        orders = []
        texts = [ir.StringAttr(text).value for text in op.attributes[ATTRIBUTE]]
        if len(texts) != len(op.operands):
            found = f"{len(texts)} layout(s) for {len(op.operands)} operands"
            raise self.refusal(op, f"{found}; give `{ATTRIBUTE}` one text per operand")
        for number, (text, operand) in enumerate(zip(texts, op.operands)):
            try:
                order = Layout.parse(static_shape(operand.type), text).order
            except ValueError as error:
                raise self.refusal(op, f"operand {number}: {error}") from None
            if order is None:
                raise self.refusal(op, f"operand {number}: `{text}` is no reorder; only reorders propagate")
            orders.append(order)
        return orders


class _Propagation:
    """One block: what each value's readers request, and the versions of it that exist."""

    def __init__(self, operations: list[ir.Operation], asked: dict[ir.Operation, list[Order]]):
        self.operations = operations
        self.rules: list[Rule | None] = [
            Convolution(op, asked[op]) if op in asked else layout_rules.rule_for(op) for op in operations
        ]
        self.requests: dict[ir.Value, dict[Order, bool]] = {}  # order -> whether a convolution requests it
        self.versions: dict[ir.Value, dict[Order, ir.Value]] = {}
        self.orders: dict[ir.Value, Order] = {}  # the order that each value is computed in
        self.dead: list[ir.Operation] = []

    def run(self) -> None:
        for op, rule in zip(reversed(self.operations), reversed(self.rules)):
            self._ask(op, rule)
        for op, rule in zip(self.operations, self.rules):
            self._place(op, rule)
        sources = [op for op in self.operations if op.name in _SOURCES]
        for op in reversed(self.dead):
            op.erase()
        for op in reversed(sources):
            if next(iter(op.results[0].uses), None) is None:
                op.erase()

    # Backward: requests.

    def _ask(self, op: ir.Operation, rule: Rule | None) -> None:
        if rule is None:
            for operand in op.operands:
                if isinstance(operand.type, ir.RankedTensorType):
                    self._ask_for(operand, storage_order.identity(operand.type.rank), False)
        elif isinstance(rule, Convolution):
            self._pass_on(op, rule, rule.assignment, True)
        else:
            for number, result in enumerate(op.results):
                for order, convolves in self.requests.get(result, {}).items():
                    assignment = rule.by_result(number, order)
                    if assignment is not None:
                        self._pass_on(op, rule, assignment, convolves)

    def _pass_on(self, op: ir.Operation, rule: Rule, assignment: Assignment, convolves: bool) -> None:
        rank = len(assignment.results[0])
        results = sum(math.prod(shape or ()) for shape in rule.result_shapes)
        for operand, shape, order in zip(op.operands, rule.shapes, assignment.operands):
            if shape is None or order is None:
                continue
            if not isinstance(rule, Convolution) and results < math.prod(shape):
                continue  # behind an operation that shrinks its operand, a transpose moves less
            same = storage_order.same_bytes(order, storage_order.identity(len(order)), shape)
            if not (same and rule.reads_any_order and len(order) < rank):
                self._ask_for(operand, order, convolves)

    def _ask_for(self, value: ir.Value, order: Order, convolves: bool) -> None:
        requests = self.requests.setdefault(value, {})
        if order in requests or len(requests) < _REQUESTS:
            requests[order] = requests.get(order, False) or convolves

    # Forward: choices.

    def _place(self, op: ir.Operation, rule: Rule | None) -> None:
        chosen = self._choose(op, rule) if rule is not None else None
        if rule is None or chosen is None:
            self._restore(op, rule)
            return
        with ir.InsertionPoint(op), op.location:
            self._restore_body(rule)
            orders: list[Order] = []
            values: list[ir.Value] = []
            for number, operand in enumerate(op.operands):
                order = self._operand_order(rule, chosen, number, operand)
                orders.append(order or ())
                values.append(operand if order is None else self._stored(operand, order))
            results = rule.rebuild(chosen, values, orders)
        for old, new, order in zip(op.results, results, chosen.results):
            self.versions[old] = {order: new}
            self.orders[old] = order
        self.dead.append(op)

    def _choose(self, op: ir.Operation, rule: Rule) -> Assignment | None:
        """The assignment that moves the fewest elements; None to leave the operation as it is."""
        if isinstance(rule, Convolution):
            return rule.assignment
        candidates = self._candidates(op, rule)
        if not candidates:
            return None
        best, least = None, self._moved(op, rule, rule.unchanged(), 1)
        if rule.moves_bytes:
            least += math.prod(rule.shapes[0] or ())
        for assignment in candidates:
            moved = self._moved(op, rule, assignment, 0 if rule.reads_any_order else 1)
            if moved < least or (moved == least and best is None):
                best, least = assignment, moved
        return best

    def _candidates(self, op: ir.Operation, rule: Rule) -> list[Assignment]:
        """Assignments worth weighing, preferred first: along the largest operands, then as readers request."""
        found: list[Assignment | None] = []
        sizes = [math.prod(shape or ()) for shape in rule.shapes]
        for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
            if rule.shapes[number] is None or self._is_regenerable(op.operands[number]):
                continue
            order = self._order(op.operands[number])
            if order != storage_order.identity(len(order)) or not rule.is_plain:
                found.append(rule.by_operand(number, order))
        if isinstance(rule, Structured):
            for extract in rule.extracts:
                order = self._order(extract.operands[0])
                if order != storage_order.identity(len(order)):
                    found.append(rule.by_extract(extract, order))
        for number, result in enumerate(op.results):
            for order, convolves in self.requests.get(result, {}).items():
                if convolves and order != storage_order.identity(len(order)):
                    found.append(rule.by_result(number, order))
        return list(dict.fromkeys(assignment for assignment in found if assignment is not None))

    def _moved(self, op: ir.Operation, rule: Rule, assignment: Assignment, reshape: int) -> int:
        """Elements that conversions of operands, and of results for readers that request others, would move.

        A reshape in front of the operation counts `reshape`, one behind it 1.
        """
        moved = 0
        for operand, shape, order in zip(op.operands, rule.shapes, assignment.operands):
            if shape is None or order is None or self._is_regenerable(operand):
                continue
            if not (rule.reads_any_order and _is_small(rule, shape)):
                moved += _distance(self._order(operand), order, shape, reshape)
        for result, shape, order in zip(op.results, rule.result_shapes, assignment.results):
            for request in self.requests.get(result, {}):
                moved += _distance(order, request, shape or (), 1)
        return moved

    def _operand_order(self, rule: Rule, chosen: Assignment, number: int, operand: ir.Value) -> Order | None:
        """The order to hand the operand over in; None: as it is."""
        order, shape = chosen.operands[number], rule.shapes[number]
        if order is None or shape is None:
            return None
        if not rule.reads_any_order or number >= len(rule.shapes) - len(chosen.results):
            return order
        if order in self.versions.get(operand, ()):
            return order
        stored = self._order(operand)
        return stored if _is_small(rule, shape) or storage_order.same_bytes(stored, order, shape) else order

    # Versions of values.

    def _order(self, value: ir.Value) -> Order:
        known = self.orders.get(value)
        return storage_order.identity(ir.RankedTensorType(value.type).rank) if known is None else known

    def _is_regenerable(self, value: ir.Value) -> bool:
        """Whether `value` can be made in any order at no cost: empty, or one scalar everywhere."""
        owner = layout_rules.producer(value)
        if owner is None:
            return False
        if owner.name == "arith.constant":
            data = owner.attributes["value"]
            return isinstance(data, ir.DenseElementsAttr) and data.is_splat
        return owner.name in _SOURCES and ir.ShapedType(value.type).has_static_shape

    def _stored(self, value: ir.Value, order: Order) -> ir.Value:
        """`value` stored in `order`; inserts, once, what it takes."""
        own = self._order(value)
        versions = self.versions.setdefault(value, {own: value})
        if order not in versions:
            versions[order] = self._convert(value, versions, order)
        return versions[order]

    def _convert(self, value: ir.Value, versions: dict[Order, ir.Value], order: Order) -> ir.Value:
        type_ = ir.RankedTensorType(value.type)
        shape = storage_order.permuted(type_.shape, order)
        loc = ir.Location.current
        if self._is_regenerable(value):
            owner = value.owner.operation
            if owner.name == "arith.constant":
                data = ir.DenseElementsAttr(owner.attributes["value"])
                kind = ir.RankedTensorType.get(shape, type_.element_type)
                again = ir.DenseElementsAttr.get_splat(kind, data.get_splat_value())
                return arith.constant(kind, again)
            empty = tensor.empty(shape, type_.element_type)
            return empty if owner.name == "tensor.empty" else linalg.fill(owner.operands[0], outs=[empty])
        for known, version in versions.items():
            if storage_order.same_bytes(known, order, type_.shape):
                return reshaped(version, shape, loc)
        source = self._order(value)
        empty = tensor.empty(shape, type_.element_type)
        moved = linalg.transpose(
            versions[source], outs=[empty], permutation=list(storage_order.conversion(source, order))
        )
        return moved if isinstance(moved, ir.Value) else moved.results[0]

    # What keeps the original order.

    def _restore(self, op: ir.Operation, rule: Rule | None) -> None:
        """Gives `op` and what is nested in it the values it is written for."""
        with ir.InsertionPoint(op), op.location:
            self._restore_operands(op)
            if rule is not None:
                self._restore_body(rule)
            elif len(op.regions):
                for inner in walk(op):
                    self._restore_operands(inner)

    def _restore_operands(self, op: ir.Operation) -> None:
        for number, operand in enumerate(op.operands):
            if operand in self.versions:
                plain = self._stored(operand, storage_order.identity(ir.RankedTensorType(operand.type).rank))
                if plain != operand:
                    op.operands[number] = plain

    def _restore_body(self, rule: Rule) -> None:
        """Lets a body read the stored versions of outside tensors."""
        if isinstance(rule, Structured):
            for extract in rule.extracts:
                source = extract.operands[0]
                order = self._order(source)
                if source in self.orders:
                    layout_rules.reindex(extract, self._stored(source, order), order)
        for inner in rule.inner:
            self._restore_operands(inner)


def _is_small(rule: Rule, shape: tuple[int, ...]) -> bool:
    largest = max(math.prod(result or ()) for result in rule.result_shapes)
    return math.prod(shape) * STRIDED_READ_FRACTION < largest


def _distance(source: Order, target: Order, shape: tuple[int, ...], reshape: int) -> int:
    """Elements moved from one order to another; a mere reshape counts `reshape`."""
    if source == target:
        return 0
    return reshape if storage_order.same_bytes(source, target, shape) else math.prod(shape)
