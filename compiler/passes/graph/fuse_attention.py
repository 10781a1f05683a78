"""Recognises attention, however its importer spelled it, and makes one operation of it.

    %p = expand, transpose, slice of %qkv              // [B, T, 3*H*D] -> Q, K, V [B, H, T, D]
    %s = linalg.batch_matmul(Q * scale, K^T)
    %m = where(mask, %s, -inf)
    %t = max over keys ; %e = exp(%m - %t) ; %u = sum over keys ; %w = %e / %u
    %r = linalg.batch_matmul(%w, V) ; transposed to [B, T, H*D]
      =>
    %r = "tilewright.attention"(%qkv, %qkv, %qkv) {indexing_maps = ...}

Queries, keys, values and the result are read and written where they lie, through the op's index maps: the
transposed copies and slices go. Upstream has no such pass; `tm_tensor.attention` has neither index maps nor scale.
Source: T. Dao et al., "FlashAttention", 2022, for what the fused operation is good for.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim, loop_extents
from tilewright.compiler.analysis.element_expression import (
    Apply,
    Constant,
    Expressions,
    Node,
    Position,
    Read,
    leaves,
    nodes,
    number,
)
from tilewright.compiler.analysis.element_movement import destination, farthest, narrowed
from tilewright.compiler.analysis.element_source import (
    Element,
    Linear,
    Loops,
    origin,
)
from tilewright.compiler.analysis.softmax_form import WEIGHTS_END_IN, Softmax, causal_bound
from tilewright.compiler.analysis.structure import maps_of, producer
from tilewright.compiler.dialects.attention import ATTENTION, MOST_EXTRA, YIELD
from tilewright.compiler.ir import arith, functions, ir, static_shape
from tilewright.compiler.nouns.attention_cut import AttentionShape
from tilewright.compiler.nouns.quasi_affine import QuasiAffine
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.targets.file import written
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.gpu.attention_tiles import attention_candidates

_CONTRACTIONS = ("linalg.generic", "linalg.matmul", "linalg.batch_matmul")


@dataclass(frozen=True)
class FuseAttention(Pass):
    """Fuses attention of at least `min_rows` queries: with fewer, a vector of queries would be mostly empty.

    With `keep_narrow`, queries, keys and values that are widened to f32 for it are read in f16 or bf16 as they lie, and
    a result that is rounded again is written so: for targets whose matrix units take them. Where the target is a GPU, heads
    that are too long for any block of one of its multiprocessors stay two products and a softmax.
    """

    target: str = "cpu"
    min_rows: int = 8
    keep_narrow: bool = False

    @classmethod
    def for_target(cls, target: Target) -> FuseAttention:
        """The pass for a target."""
        return cls(written(target), keep_narrow=target.kind == "gpu")

    def run(self, op: ir.Operation) -> None:
        target = self.target_named(op, self.target)
        for function in functions(op.opview):
            if len(function.regions[0].blocks) != 1:
                continue
            for view in list(function.regions[0].blocks[0].operations):
                product = Product.read(view.operation)
                if product is None:
                    continue
                found = _Match.of(product, 0, self.keep_narrow) or _Match.of(product, 1, self.keep_narrow)
                if found is not None and self.pays(found, target):
                    found.rewrite()

    def pays(self, found: _Match, target: Target) -> bool:
        """Whether there are queries enough, and a kernel that holds their heads."""
        rows, columns, width, inner = (found.loops.extents[i] for i in (_ROW, _COLUMN, _WIDTH, _INNER))
        if rows < self.min_rows or target.kind != "gpu":
            return rows >= self.min_rows
        shape = AttentionShape(1, rows, columns, inner, width, causal=False)
        dtype = str(ir.RankedTensorType(found.operands[0].value.type).element_type)
        return bool(attention_candidates(shape, dtype, target, top_k=1))


@dataclass(frozen=True)
class Product:
    """A sum of products of floats over one loop, started at zero."""

    op: ir.Operation
    positions: tuple[tuple[int, ...], ...]
    extents: tuple[int, ...]
    summed: int

    @classmethod
    def read(cls, op: ir.Operation) -> Product | None:
        if op.name not in _CONTRACTIONS or len(op.operands) != 3 or len(op.results) != 1:
            return None
        types = [operand.type for operand in op.operands]
        if not all(isinstance(t, ir.RankedTensorType) and t.has_static_shape for t in types):
            return None
        element = ir.RankedTensorType(types[2]).element_type
        if not isinstance(element, (ir.F32Type, ir.F64Type)):
            return None
        maps = maps_of(op)
        if any(ir.RankedTensorType(t).element_type != element for t in types):
            return None
        if not all(is_dim(expr) for map_ in maps for expr in map_.results) or not _multiplies(op):
            return None
        positions = tuple(tuple(expr.position for expr in map_.results) for map_ in maps)
        summed = set(positions[0]) & set(positions[1]) - set(positions[2])
        start = producer(op.operands[2])
        if len(summed) != 1 or start is None or start.name != "linalg.fill":
            return None
        zero = producer(start.operands[0])
        if zero is None or zero.name != "arith.constant" or ir.FloatAttr(zero.attributes["value"]).value:
            return None
        if set(range(maps[0].n_dims)) != {*positions[2], *summed}:
            return None
        extents = loop_extents(maps, [static_shape(t) for t in types])
        return cls(op, positions, extents, summed.pop())


def _multiplies(op: ir.Operation) -> bool:
    names = [view.operation.name for view in op.regions[0].blocks[0].operations]
    if names != ["arith.mulf", "arith.addf", "linalg.yield"]:
        return False
    multiply, add, _ = (view.operation for view in op.regions[0].blocks[0].operations)
    arguments = list(op.regions[0].blocks[0].arguments)
    return set(multiply.operands) == set(arguments[:2]) and set(add.operands) == {
        arguments[2],
        multiply.results[0],
    }


_ROW, _COLUMN, _WIDTH, _INNER = range(4)
"""The loops m, n, d and k of a match, in the order in which they are made."""


@dataclass
class _Match:
    """Attention found in front of `product`, its second matrix product: its loops, and where everything lies.

    `consumers` are the views and transposes that alone read the product, up to `result`.
    """

    product: Product
    loops: Loops
    operands: tuple[Element, Element, Element]
    result: Element
    consumers: list[ir.Operation]
    softmax: Softmax
    body: _Body
    scale: float

    @classmethod
    def of(cls, product: Product, weights_at: int, keep_narrow: bool) -> _Match | None:
        """The attention whose weights are operand `weights_at` of `product`; None when there is none."""
        sides = [set(positions) for positions in product.positions]
        left, right, out = sides[weights_at], sides[1 - weights_at], sides[2]
        rows, widths = (out & left) - right, (out & right) - left
        if len(rows) != 1 or len(widths) != 1:
            return None
        (row,), (width,) = rows, widths
        loops = Loops()
        exprs = {loop: loops.fixed(product.extents[loop]) for loop in (row, product.summed, width)}
        inner = loops.fixed(1)
        for loop in product.positions[2]:
            if loop not in exprs:
                exprs[loop] = loops.new(product.extents[loop], splittable=True)
        at = [tuple(exprs[loop] for loop in positions) for positions in product.positions]
        operand = origin(Element(product.op.operands[weights_at], at[weights_at]), loops)
        if not _ends_in(operand.value, WEIGHTS_END_IN):
            return None
        expressions = Expressions(loops)
        weights = expressions.of(Element(product.op.operands[weights_at], at[weights_at]))
        softmax = Softmax.read(weights, expressions, exprs[product.summed])
        if softmax is None:
            return None
        found = _scores(softmax, loops)
        if found is None or not _is_private(found[0].element.value, product.op, expressions.inlined):
            return None
        scores, first, score_exprs = found
        loops.extents[_INNER] = first.extents[first.summed]
        score_exprs[first.summed] = inner
        queries, keys = (
            Element(first.op.operands[i], tuple(score_exprs[loop] for loop in first.positions[i]))
            for i in range(2)
        )
        if _moves_along(queries, _COLUMN, loops):
            queries, keys = keys, queries
        if _moves_along(queries, _COLUMN, loops) or _moves_along(keys, _ROW, loops):
            return None
        scale = 1.0
        unscaled = []
        for element in (queries, keys):
            element, factor = _unscaled(element, expressions)
            scale *= factor
            unscaled.append(element)
        values = Element(product.op.operands[1 - weights_at], at[1 - weights_at])
        operands = (*unscaled, values)
        narrow = narrowed(operands, loops) if keep_narrow else None
        lying = [
            farthest(element, loops, along)
            for element, along in zip(narrow or operands, (_INNER, _INNER, _WIDTH))
        ]
        result, consumers = destination(
            Element(product.op.results[0], at[2]), loops, _WIDTH, narrow is not None
        )
        tree, scale = _factored(softmax.scores, scores, scale)
        body = _Body(tree, scores, loops, ir.RankedTensorType(product.op.results[0].type).element_type)
        if not body.is_writable:
            return None
        return cls(product, loops, (lying[0], lying[1], lying[2]), result, consumers, softmax, body, scale)

    def rewrite(self) -> None:
        """Replaces the attention by one operation."""
        op = self.product.op
        loops = self.loops
        type_ = ir.RankedTensorType(self.result.value.type)
        batch = sorted(
            {
                loop
                for element in (*self.operands, *self.body.extra, self.result)
                for expr in element.index
                for loop in loops.resolved(expr).variables
            }
            - {_ROW, _COLUMN, _WIDTH, _INNER}
        )
        last = self.consumers[-1] if self.consumers else op
        with ir.InsertionPoint(last), op.location:
            order = [*batch, _ROW, _COLUMN, _INNER, _WIDTH]
            elements = [*self.operands, *self.body.extra, self.result]
            maps = [self.map(element, order) for element in elements]
            i64 = ir.IntegerType.get_signless(64)
            attributes: dict[str, ir.Attribute] = {
                "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps]),
                "loops": ir.ArrayAttr.get([ir.IntegerAttr.get(i64, loops.extents[loop]) for loop in order]),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get(
                    [1, 1, 1, *(int(i < len(self.body.extra)) for i in range(MOST_EXTRA))]
                ),
                "scale": ir.FloatAttr.get(ir.F64Type.get(), self.scale),
            }
            if self.softmax.zero_empty:
                attributes["zero_empty"] = ir.UnitAttr.get()
            bound = causal_bound(self.softmax.scores, loops, _ROW, _COLUMN)
            if bound is not None:
                attributes["causal"] = ir.IntegerAttr.get(i64, bound)
            attention = ir.Operation.create(
                ATTENTION,
                results=[type_],
                operands=[element.value for element in elements[:-1]],
                attributes=attributes,
                regions=1,
            )
            self.body.build(attention)
        self.result.value.replace_all_uses_with(attention.results[0])
        for consumer in reversed(self.consumers):
            consumer.erase()
        op.erase()

    def map(self, element: Element, order: list[int]) -> ir.AffineMap:
        """Where `element` is, over the loops in `order`."""
        results = []
        for expr in element.index:
            result = ir.AffineExpr.get_constant(expr.offset)
            for term in self.loops.terms(expr):
                if self.loops.extents[term.variable] > 1 or term.variable in order:
                    result = result + ir.AffineExpr.get_dim(order.index(term.variable)) * term.scale
            results.append(result)
        return ir.AffineMap.get(len(order), 0, results)


def _ends_in(value: ir.Value, names: frozenset[str]) -> bool:
    """Whether an elementwise operation computes `value` and yields one of `names`: cheaper to ask than its whole tree."""
    op = producer(value)
    if op is None or op.name != "linalg.generic":
        return False
    *_, terminator = op.regions[0].blocks[0].operations
    last = producer(terminator.operation.operands[0])
    return last is not None and last.name in names


def _moves_along(element: Element, loop: int, loops: Loops) -> bool:
    return any(loop in loops.resolved(expr).variables for expr in element.index)


def _scores(softmax: Softmax, loops: Loops) -> tuple[Read, Product, dict[int, Linear]] | None:
    """The one element of a matrix product in the scores' tree that moves along rows and columns, and its loops."""
    found: list[Read] = []
    for node in leaves(softmax.scores):
        if isinstance(node, Read) and node not in found:
            op = producer(node.element.value)
            moving = all(_moves_along(node.element, loop, loops) for loop in (_ROW, _COLUMN))
            if op is not None and moving and Product.read(op) is not None:
                found.append(node)
    if len(found) != 1:
        return None
    product = Product.read(found[0].element.value.owner.operation)
    assert product is not None
    exprs = dict(zip(product.positions[2], found[0].element.index))
    plain = [QuasiAffine.of(loop) for loop in (_ROW, _COLUMN)]
    for expr in exprs.values():
        own = loops.resolved(expr)
        if {_ROW, _COLUMN} & set(own.variables) and own not in plain:
            return None
    return found[0], product, exprs


def _is_private(scores: ir.Value, sink: ir.Operation, between: set[ir.Value]) -> bool:
    """Whether all that is computed from the scores, up to `sink`, is in `between`: nobody else asks for it."""
    pending, seen = [scores], {scores}
    while pending:
        for use in pending.pop().uses:
            user = use.owner.operation
            if user == sink:
                continue
            for result in user.results:
                if result not in between:
                    return False
                if result not in seen:
                    seen.add(result)
                    pending.append(result)
            if not len(user.results):
                return False
    return True


def _unscaled(element: Element, expressions: Expressions) -> tuple[Element, float]:
    """Takes constant factors off queries or keys."""
    scale = 1.0
    while True:
        node = expressions.of(element)
        if not isinstance(node, Apply) or node.name not in ("arith.mulf", "arith.divf"):
            return element, scale
        left, right = node.operands
        factor = number(right)
        if factor is None and node.name == "arith.mulf":
            left, factor = right, number(left)
        inner = left.element if isinstance(left, (Read, Apply)) else None
        if not factor or inner is None:
            return element, scale
        scale = scale * factor if node.name == "arith.mulf" else scale / factor
        element = inner


def _factored(tree: Node, scores: Read, scale: float) -> tuple[Node, float]:
    """Takes the constant factor of the scores, if nothing reads them but multiplied by it, out of their tree."""
    readers = [
        node
        for node in nodes(tree)
        if isinstance(node, Apply) and any(_is_read_of(operand, scores) for operand in node.operands)
    ]
    factors = {_factor(reader, scores) for reader in readers}
    if len(factors) != 1 or (only := factors.pop()) is None:
        return tree, scale
    known: dict[int, Node] = {id(reader): scores for reader in readers}

    def without(node: Node) -> Node:
        if id(node) not in known:
            operands = tuple(map(without, node.operands)) if isinstance(node, Apply) else ()
            changed = isinstance(node, Apply) and any(a is not b for a, b in zip(operands, node.operands))
            known[id(node)] = Apply(node.op, operands) if changed else node
        return known[id(node)]

    kind, factor = only
    return without(tree), scale * factor if kind == "arith.mulf" else scale / factor


def _factor(node: Apply, scores: Read) -> tuple[str, float] | None:
    """How the scores are multiplied or divided by a number; None where something else is computed from them."""
    if node.name not in ("arith.mulf", "arith.divf"):
        return None
    left, right = node.operands
    if _is_read_of(right, scores) and node.name == "arith.mulf":
        left, right = right, left
    factor = number(right)
    return (node.name, factor) if factor and _is_read_of(left, scores) else None


def _is_read_of(node: Node, scores: Read) -> bool:
    return isinstance(node, Read) and node.element.value == scores.element.value


class _Body:
    """Writes the region that changes scores; `extra` are the elements of other tensors that it reads."""

    def __init__(self, tree: Node, scores: Read, loops: Loops, element: ir.Type):
        self.tree, self.scores, self.loops, self.element = tree, scores, loops, element
        self.extra: list[Element] = []
        self.read: dict[int, Element | None] = {}
        self.values: dict[int, ir.Value] = {}
        self.collect()

    @property
    def is_writable(self) -> bool:
        """Whether few enough other tensors are read, and no bare position of a batch loop, a head's number say, is."""
        found = [node for node in self.computed() if isinstance(node, Position)]
        return len(self.extra) <= MOST_EXTRA and all(map(self.is_placed, found))

    def computed(self) -> list[Node]:
        """The nodes of the tree down to those that are read."""
        return nodes(self.tree, lambda node: self.as_read(node) is None)

    def collect(self) -> None:
        for node in self.computed():
            element = self.as_read(node)
            if element is not None and not any(self.is_same(element, other) for other in self.extra):
                self.extra.append(element)

    def is_same(self, one: Element, other: Element) -> bool:
        resolved = self.loops.resolved
        return one.value == other.value and [*map(resolved, one.index)] == [*map(resolved, other.index)]

    def as_read(self, node: Node) -> Element | None:
        """The element to read for a tree that the scores are not part of, unless positions alone decide it."""
        if id(node) not in self.read:
            self.read[id(node)] = self.find_read(node)
        return self.read[id(node)]

    def find_read(self, node: Node) -> Element | None:
        if not isinstance(node, (Read, Apply)) or node.element is None:
            return None
        found = leaves(node)
        if any(_is_read_of(leaf, self.scores) for leaf in found):
            return None
        decided = all(isinstance(leaf, Constant) or self.is_placed(leaf) for leaf in found)
        return None if decided else node.element

    def is_placed(self, node: Node) -> bool:
        """Whether `node` is a position in terms of row and column alone."""
        return isinstance(node, Position) and {*self.loops.resolved(node.expr).variables} <= {_ROW, _COLUMN}

    def build(self, attention: ir.Operation) -> None:
        index = ir.IndexType.get()
        types = [ir.RankedTensorType(element.value.type).element_type for element in self.extra]
        block = ir.Block.create_at_start(attention.regions[0], [self.element, *types, index, index])
        with ir.InsertionPoint(block):
            ir.Operation.create(YIELD, operands=[self.value(self.tree, list(block.arguments))])

    def value(self, node: Node, arguments: list[ir.Value]) -> ir.Value:
        if id(node) not in self.values:
            self.values[id(node)] = self.compute(node, arguments)
        return self.values[id(node)]

    def compute(self, node: Node, arguments: list[ir.Value]) -> ir.Value:
        if _is_read_of(node, self.scores):
            return arguments[0]
        element = self.as_read(node)
        if element is not None:
            place = next(i for i, other in enumerate(self.extra) if self.is_same(element, other))
            return arguments[1 + place]
        if isinstance(node, Constant):
            return arith.constant(node.attribute.type, node.attribute)
        if isinstance(node, Position):
            return self.position(node, arguments)
        assert isinstance(node, Apply)
        attributes = {name: node.op.attributes[name] for name in node.op.attributes}
        operands = [self.value(operand, arguments) for operand in node.operands]
        clone = ir.Operation.create(node.name, [node.op.results[0].type], operands, attributes)
        return clone.results[0]

    def position(self, node: Position, arguments: list[ir.Value]) -> ir.Value:
        expr = self.loops.resolved(node.expr)
        places = {_ROW: arguments[-2], _COLUMN: arguments[-1]}
        index = ir.IndexType.get()
        if expr.plain is not None:
            return places[expr.plain]
        total = arith.constant(index, expr.offset)
        for term in self.loops.terms(expr):
            factor = arith.constant(index, term.scale)
            total = arith.addi(total, arith.muli(places[term.variable], factor))
        return total
