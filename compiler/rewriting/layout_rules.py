"""How each kind of operation takes part when the storage orders of its tensors change: one rule per kind.

A rule answers "which orders do the others get when this one has that order?" with an `Assignment`, and builds
the operation anew for one. Rules are read by `propagate-layouts`; none decides anything.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from tilewright.compiler.analysis.affine_access import dims, is_dim, map_dims
from tilewright.compiler.analysis.structure import maps_of, producer
from tilewright.compiler.ir import ir, linalg, walk
from tilewright.compiler.rewriting import storage_order
from tilewright.compiler.rewriting.reshaping import reshaped
from tilewright.compiler.rewriting.storage_order import Order

ATTRIBUTE = "tilewright.layouts"
"""On a convolution: one text of `Layout` per operand, the result last; its presence starts propagation."""

STRIDED_READ_FRACTION = 4
"""An input with less than 1/4 of its reader's elements is read across its storage rather than transposed."""


@dataclass(frozen=True)
class Assignment:
    """Storage orders of an operation's operands (None: not a tensor, or not read) and results.

    `loops` is the order in which a structured operation visits its loops, outermost first.
    """

    operands: tuple[Order | None, ...]
    results: tuple[Order, ...]
    loops: Order = ()


class Rule:
    """Base: an operation that keeps its meaning when its tensors are stored in other, related orders."""

    reads_any_order = False
    """Whether inputs may arrive in orders other than the assignment's."""

    moves_bytes = False
    """Whether the operation, left as it is, does nothing but move its operand's bytes."""

    is_plain = True
    """Whether operands in plain order give results in plain order without crossing any storage."""

    def __init__(self, op: ir.Operation):
        self.op = op
        self.shapes = [_shape(operand) for operand in op.operands]
        self.result_shapes = [_shape(result) for result in op.results]
        self.inner = [inner for inner in walk(op) if inner != op] if len(op.regions) else []

    def unchanged(self) -> Assignment:
        """Everything in the order the program means."""
        orders = tuple(None if shape is None else storage_order.identity(len(shape)) for shape in self.shapes)
        results = tuple(storage_order.identity(len(shape or ())) for shape in self.result_shapes)
        return Assignment(orders, results)

    def by_operand(self, number: int, order: Order) -> Assignment | None:
        """The assignment when operand `number` is stored in `order`; None when that decides nothing."""
        raise NotImplementedError

    def by_result(self, number: int, order: Order) -> Assignment | None:
        """The assignment that gives result `number` the bytes of `order`; None when there is none."""
        raise NotImplementedError

    def rebuild(self, chosen: Assignment, operands: list[ir.Value], orders: list[Order]) -> list[ir.Value]:
        """The stored results, computed from stored `operands`; inserts at the current point."""
        raise NotImplementedError

    def _type(self, number: int, order: Order) -> ir.RankedTensorType:
        type_ = ir.RankedTensorType(self.op.results[number].type)
        return ir.RankedTensorType.get(storage_order.permuted(type_.shape, order), type_.element_type)


class Structured(Rule):
    """A linalg operation with loops and a body: maps compose with orders, loops follow the storage."""

    reads_any_order = True

    def __init__(self, op: ir.Operation):
        super().__init__(op)
        self.maps = maps_of(op)
        self.count = self.maps[0].n_dims
        self.first_out = len(op.operands) - len(op.results)
        kinds = op.attributes.get("iterator_types", None)
        self.parallel, self.moving = _movement(linalg.get_indexing_maps(op), kinds, self.first_out)
        self.extracts = extracts_from_outside(op)
        self.is_plain = all(list(loops) == sorted(loops) for loops in self.moving)

    def by_operand(self, number: int, order: Order) -> Assignment | None:
        return self.by_loops([self.moving[number][dim] for dim in order])

    def by_result(self, number: int, order: Order) -> Assignment | None:
        return self.by_operand(self.first_out + number, order)

    def by_loops(self, preferred: Sequence[int]) -> Assignment:
        """The assignment whose loops run in `preferred` order, those not listed behind their predecessors."""
        loops, orders = _along(self.moving, self.count, tuple(preferred))
        operands = tuple(order if shape is not None else None for shape, order in zip(self.shapes, orders))
        return Assignment(operands, orders[self.first_out :], loops)

    def by_extract(self, extract: ir.Operation, order: Order) -> Assignment:
        """The assignment that follows the storage `order` of a tensor which the body indexes itself."""
        loops = [self._loop_of(extract.operands[1 + dim]) for dim in order]
        return self.by_loops([loop for loop in loops if loop is not None])

    def _loop_of(self, index: ir.Value) -> int | None:
        """The first parallel loop that `index`, computed in the body, depends on."""
        block, seen, pending, loops = self.op.regions[0].blocks[0], set[ir.Value](), [index], set[int]()
        while pending:
            value = pending.pop()
            if value in seen:
                continue
            seen.add(value)
            source = producer(value)
            if source is None:
                if value.owner == block:
                    loops |= map_dims(self.maps[ir.BlockArgument(value).arg_number])
            elif source.name == "linalg.index":
                loops.add(ir.IntegerAttr(source.attributes["dim"]).value)
            elif source.block == block:
                pending.extend(source.operands)
        return min((loop for loop in loops if self.parallel[loop]), default=None)

    def rebuild(self, chosen: Assignment, operands: list[ir.Value], orders: list[Order]) -> list[ir.Value]:
        op = self.op
        nest = sorted(chosen.loops, key=lambda loop: not self.parallel[loop])
        place = storage_order.inverted(tuple(nest))
        renamed = ir.AffineMap.get(self.count, 0, [ir.AffineDimExpr.get(p) for p in place])
        maps = []
        for map_, order in zip(self.maps, orders):
            exprs = [expr.compose(renamed) for expr in storage_order.permuted(map_.results, order)]
            maps.append(ir.AffineMapAttr.get(ir.AffineMap.get(self.count, 0, exprs)))
        kinds = [_iterator("parallel" if self.parallel[loop] else "reduction") for loop in nest]
        generic = ir.Operation.create(
            "linalg.generic",
            results=[self._type(i, order) for i, order in enumerate(chosen.results)],
            operands=operands,
            attributes={
                **discardable(op),
                "indexing_maps": ir.ArrayAttr.get(maps),
                "iterator_types": ir.ArrayAttr.get(kinds),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([self.first_out, len(op.results)]),
            },
            regions=1,
            loc=op.location,
        )
        body = op.regions[0].blocks[0]
        body.append_to(generic.regions[0])
        for inner in self.inner:
            if inner.name == "linalg.index":
                dim = ir.IntegerAttr(inner.attributes["dim"])
                inner.attributes["dim"] = ir.IntegerAttr.get(dim.type, place[dim.value])
        return list(generic.results)


@cache
def _movement(
    maps: ir.ArrayAttr, kinds: ir.ArrayAttr | None, first_out: int
) -> tuple[tuple[bool, ...], tuple[tuple[int, ...], ...]]:
    """Which loops are parallel, and per operand and dimension the loop that moves along it.

    A constant dimension counts as moved by the loop it is right-aligned with.
    """
    read = [ir.AffineMapAttr(attribute).value for attribute in maps]
    count = read[0].n_dims
    written = set[int]().union(*(map_dims(map_) for map_ in read[first_out:]))
    parallel = tuple(loop in written for loop in range(count))
    if kinds is not None:
        parallel = tuple("parallel" in str(kind) for kind in kinds)

    def mover(expr: ir.AffineExpr, aligned: int) -> int:
        loops = sorted(dims(expr), key=lambda loop: (not parallel[loop], loop))
        return loops[0] if loops else min(max(aligned, 0), count - 1)

    return parallel, tuple(
        tuple(mover(expr, place + count - len(map_.results)) for place, expr in enumerate(map_.results))
        for map_ in read
    )


@cache
def _along(
    moving: tuple[tuple[int, ...], ...], count: int, preferred: tuple[int, ...]
) -> tuple[Order, tuple[Order, ...]]:
    """All `count` loops, `preferred` ones in their order, and the operands' orders that follow these loops."""
    loops = storage_order.merged(list(dict.fromkeys(preferred)), count)
    place = storage_order.inverted(loops)
    orders = (sorted(range(len(m)), key=lambda dim, m=m: (place[m[dim]], dim)) for m in moving)
    return loops, tuple(map(tuple, orders))


class Convolution(Structured):
    """A structured operation that carries the orders of all its operands: the sources of propagation."""

    reads_any_order = False

    def __init__(self, op: ir.Operation, orders: list[Order]):
        super().__init__(op)
        written = [self.moving[-1][dim] for dim in orders[-1]]
        summed = [self.moving[1][dim] for dim in orders[1]]
        loops = storage_order.merged(list(dict.fromkeys([*written, *summed])), self.count)
        self.assignment = Assignment(tuple(orders), (orders[-1],), loops)


class Transpose(Rule):
    """A pure transpose: another reading of the same bytes."""

    moves_bytes = True
    is_plain = False

    def __init__(self, op: ir.Operation, permutation: Order):
        super().__init__(op)
        self.permutation = permutation

    def by_operand(self, number: int, order: Order) -> Assignment | None:
        if number != 0:
            return None
        return Assignment((order, None), (storage_order.after_transpose(order, self.permutation),))

    def by_result(self, number: int, order: Order) -> Assignment | None:
        return Assignment((storage_order.before_transpose(order, self.permutation), None), (order,))

    def rebuild(self, chosen: Assignment, operands: list[ir.Value], orders: list[Order]) -> list[ir.Value]:
        return [operands[0]]


class Reshape(Rule):
    """`tensor.expand_shape` and `tensor.collapse_shape`, where they regroup bytes that lie together."""

    def __init__(self, op: ir.Operation):
        super().__init__(op)
        self.groups = [[ir.IntegerAttr(d).value for d in group] for group in op.attributes["reassociation"]]
        self.expands = op.name == "tensor.expand_shape"

    def by_operand(self, number: int, order: Order) -> Assignment | None:
        if number != 0:
            return None
        if self.expands:
            return self._assignment(order, storage_order.after_expand(order, self.groups))
        return self._assignment(*storage_order.collapsible(order, self.groups, self.shapes[0] or ()))

    def by_result(self, number: int, order: Order) -> Assignment | None:
        if not self.expands:
            return self._assignment(storage_order.after_expand(order, self.groups), order)
        source = storage_order.before_expand(order, self.groups, self.result_shapes[0] or ())
        return None if source is None else self._assignment(source, order)

    def _assignment(self, operand: Order, result: Order) -> Assignment:
        return Assignment((operand, *[None] * (len(self.shapes) - 1)), (result,))

    def rebuild(self, chosen: Assignment, operands: list[ir.Value], orders: list[Order]) -> list[ir.Value]:
        return [reshaped(operands[0], self._type(0, chosen.results[0]).shape, self.op.location)]


class Pad(Rule):
    """`tensor.pad` with one static amount per side and a value that does not depend on the place."""

    def by_operand(self, number: int, order: Order) -> Assignment | None:
        return Assignment((order, *[None] * (len(self.shapes) - 1)), (order,)) if number == 0 else None

    def by_result(self, number: int, order: Order) -> Assignment | None:
        return self.by_operand(0, order)

    def rebuild(self, chosen: Assignment, operands: list[ir.Value], orders: list[Order]) -> list[ir.Value]:
        attributes = {name: self.op.attributes[name] for name in self.op.attributes}
        for side in ("static_low", "static_high"):
            amounts = list(ir.DenseI64ArrayAttr(attributes[side]))
            attributes[side] = ir.DenseI64ArrayAttr.get(storage_order.permuted(amounts, orders[0]))
        type_ = self._type(0, chosen.results[0])
        new = _create(self.op, [type_], operands, attributes, regions=1)
        self.op.regions[0].blocks[0].append_to(new.regions[0])
        return list(new.results)


class Concat(Rule):
    """`tensor.concat`: all tensors in one order."""

    def by_operand(self, number: int, order: Order) -> Assignment | None:
        return Assignment((order,) * len(self.shapes), (order,))

    def by_result(self, number: int, order: Order) -> Assignment | None:
        return self.by_operand(0, order)

    def rebuild(self, chosen: Assignment, operands: list[ir.Value], orders: list[Order]) -> list[ir.Value]:
        order, dim = chosen.results[0], ir.IntegerAttr(self.op.attributes["dim"])
        attributes = {**discardable(self.op), "dim": ir.IntegerAttr.get(dim.type, order.index(dim.value))}
        return list(_create(self.op, [self._type(0, order)], operands, attributes).results)


class Slice(Rule):
    """`tensor.extract_slice` and `tensor.insert_slice` of static sizes, rank-reducing ones included."""

    def __init__(self, op: ir.Operation):
        super().__init__(op)
        self.inserts = op.name == "tensor.insert_slice"
        part = self.shapes[0] if self.inserts else self.result_shapes[0]
        self.sizes = list(ir.DenseI64ArrayAttr(op.attributes["static_sizes"]))
        self.whole = 1 if self.inserts else 0
        self.dropped = _dropped(self.sizes, part or ())

    def by_operand(self, number: int, order: Order) -> Assignment | None:
        if self.inserts and number == 0:
            order = self._with_dropped(order)
        elif number != self.whole:
            return None
        part = storage_order.without(order, self.dropped)
        operands = (part, order) if self.inserts else (order,)
        rest = (None,) * (len(self.shapes) - len(operands))
        return Assignment((*operands, *rest), (order if self.inserts else part,))

    def by_result(self, number: int, order: Order) -> Assignment | None:
        return self.by_operand(self.whole, order if self.inserts else self._with_dropped(order))

    def _with_dropped(self, part: Order) -> Order:
        """The order of the whole that keeps the part's order and the dropped dimensions in their places."""
        kept = [dim for dim in range(len(self.sizes)) if dim not in self.dropped]
        return storage_order.merged([kept[dim] for dim in part], len(self.sizes))

    def rebuild(self, chosen: Assignment, operands: list[ir.Value], orders: list[Order]) -> list[ir.Value]:
        order = orders[self.whole]
        segments = [list(range(first, end)) for first, end in _segments(self.op)]
        attributes = {name: self.op.attributes[name] for name in self.op.attributes}
        rebuilt = [operands[i] for segment in segments[: self.whole + 1] for i in segment]
        for name, segment in zip(("offsets", "sizes", "strides"), segments[self.whole + 1 :]):
            static = list(ir.DenseI64ArrayAttr(attributes[f"static_{name}"]))
            dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
            if name == "sizes":
                dynamic = ir.ShapedType.get_dynamic_size()
            values = dict(zip([d for d, amount in enumerate(static) if amount == dynamic], segment))
            rebuilt += [operands[values[dim]] for dim in order if dim in values]
            attributes[f"static_{name}"] = ir.DenseI64ArrayAttr.get(storage_order.permuted(static, order))
        type_ = self._type(0, chosen.results[0])
        return list(_create(self.op, [type_], rebuilt, attributes).results)


_FIXED = ("matmul", "matvec", "vecmat", "dot", "batch_", "mmt4d", "contract", "quantized_", "fill", "softmax")
"""Named linalg operations, by prefix, that want their tensors in the order they are written for."""


def rule_for(op: ir.Operation) -> Rule | None:
    """The rule of `op`'s kind; None when its tensors must be in the order the program means."""
    name = op.name
    if not name.startswith(("linalg.", "tensor.")) or not op.results:
        return None
    types = [value.type for value in (*op.operands, *op.results)]
    if not all(_is_static(type_) for type_ in types) or not _shape(op.results[0]):
        return None
    if name in ("tensor.expand_shape", "tensor.collapse_shape"):
        return Reshape(op) if _shape(op.operands[0]) else None
    if name == "tensor.pad":
        return Pad(op) if len(op.operands) == 1 and not _reads_place(op) else None
    if name == "tensor.concat":
        return Concat(op)
    if name in ("tensor.extract_slice", "tensor.insert_slice"):
        rule = Slice(op)
        static_sizes = _segments(op)[rule.whole + 2]
        return rule if static_sizes[0] == static_sizes[1] and _shape(op.operands[0]) else None
    return _structured_rule(op)


def _structured_rule(op: ir.Operation) -> Rule | None:
    short = op.name.removeprefix("linalg.")
    if not op.name.startswith("linalg.") or short.startswith(_FIXED) or len(op.regions) != 1:
        return None
    blocks = list(op.regions[0].blocks)
    if len(blocks) != 1 or len(blocks[0].arguments) != len(op.operands):
        return None
    if short == "generic" and linalg.isa_contraction_op(op):
        return None
    permutation = transposed_by(op)
    if permutation is not None:
        return Transpose(op, permutation)
    rule = Structured(op)
    for map_, shape in zip(rule.maps[rule.first_out :], rule.shapes[rule.first_out :]):
        for expr, extent in zip(map_.results, shape or ()):
            if not is_dim(expr) and extent != 1:
                return None
    return rule


def transposed_by(op: ir.Operation) -> Order | None:
    """The permutation of a `linalg.transpose`, or of a generic that yields what it reads; else None."""
    if op.name == "linalg.transpose":
        return tuple(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
    if op.name != "linalg.generic" or len(op.operands) != 2:
        return None
    body = op.regions[0].blocks[0]
    first = body.operations[0].operation
    if first.name != "linalg.yield" or first.operands[0] != body.arguments[0]:
        return None
    read, written = maps_of(op)
    if not (read.is_permutation and written.is_permutation):
        return None
    loops = [ir.AffineDimExpr(expr).position for expr in read.results]
    return tuple(loops.index(ir.AffineDimExpr(expr).position) for expr in written.results)


def extracts_from_outside(op: ir.Operation) -> list[ir.Operation]:
    """The body's `tensor.extract` operations of tensors defined outside."""
    block = op.regions[0].blocks[0]
    found = []
    for inner in block.operations:
        if inner.operation.name == "tensor.extract":
            source = producer(inner.operation.operands[0])
            if source is None or source.block != block:
                found.append(inner.operation)
    return found


def reindex(extract: ir.Operation, stored: ir.Value, order: Order) -> None:
    """Lets `extract` read the tensor's `stored` version."""
    indices = list(extract.operands)[1:]
    extract.operands[0] = stored
    for place, dim in enumerate(order):
        extract.operands[1 + place] = indices[dim]


def discardable(op: ir.Operation) -> dict[str, ir.Attribute]:
    """The attributes that are not the operation's own: those of some dialect other than linalg."""
    return {
        name: op.attributes[name]
        for name in op.attributes
        if "." in name and not name.startswith("linalg.") and name != ATTRIBUTE
    }


def _create(
    op: ir.Operation,
    types: list[ir.Type],
    operands: list[ir.Value],
    attributes: dict[str, ir.Attribute],
    regions: int = 0,
) -> ir.Operation:
    return ir.Operation.create(op.name, types, operands, attributes, regions=regions, loc=op.location)


@cache
def _iterator(kind: str) -> ir.Attribute:
    return ir.Attribute.parse(f"#linalg.iterator_type<{kind}>")


def _shape(value: ir.Value) -> tuple[int, ...] | None:
    """The shape of a ranked tensor; None for anything else."""
    type_ = value.type
    return tuple(ir.RankedTensorType(type_).shape) if isinstance(type_, ir.RankedTensorType) else None


def _is_static(type_: ir.Type) -> bool:
    return not isinstance(type_, ir.ShapedType) or (type_.has_rank and type_.has_static_shape)


def _reads_place(pad: ir.Operation) -> bool:
    block = pad.regions[0].blocks[0]
    return any(next(iter(argument.uses), None) is not None for argument in block.arguments)


def _segments(op: ir.Operation) -> list[tuple[int, int]]:
    """First and end operand number of each operand group."""
    ends = [0]
    for size in ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]):
        ends.append(ends[-1] + size)
    return list(itertools.pairwise(ends))


def _dropped(sizes: list[int], part: Sequence[int]) -> set[int]:
    """The unit dimensions of a slice of `sizes` that its rank-reduced `part` lacks, the last if several."""
    dropped, at = set(), 0
    for dim, size in enumerate(sizes):
        if at < len(part) and part[at] == size:
            at += 1
        else:
            dropped.add(dim)
    return dropped
