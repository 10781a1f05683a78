"""Writes attention as plain operations: scores, softmax over keys, and the weighted sum of values.

    %r = "tilewright.attention"(%q, %k, %v)
      =>
    %s = linalg.generic  // sum over k of Q K, in f32
    %t = linalg.generic  // scale, and the op's region
    %m, %e, %z = ...     // maximum, exponentials and their sum along keys
    %r = linalg.generic  // sum over n of %e V ; divided by %z

What `causal` says is in the region, or is done here; rows whose scores are all -inf give zeros with `zero_empty`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.dialects.attention import ATTENTION, Attention
from tilewright.compiler.families.block_loops import apply_region
from tilewright.compiler.ir import arith, ir, linalg, tensor, walk
from tilewright.compiler.ir import math as math_dialect
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class ExpandAttention(Pass):
    """Replaces every `tilewright.attention` on tensors; f16 and bf16 are computed in f32 and rounded once."""

    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation) -> None:
        for attention in walk(op, ATTENTION):
            read = Attention.read(attention)
            with ir.InsertionPoint(attention), attention.location:
                attention.results[0].replace_all_uses_with(_Expansion(read).result())
            attention.erase()


class _Expansion:
    """The operations that one attention becomes; loops are numbered as in `Attention.loops`."""

    def __init__(self, attention: Attention):
        self.a = attention
        self.batch = list(range(len(attention.extents)))
        first = len(self.batch)
        self.row, self.column, self.inner, self.width = range(first, first + 4)
        wide = attention.element.width > 32
        self.real = ir.F64Type.get() if wide else ir.F32Type.get()

    def result(self) -> ir.Value:
        rows, scores = [*self.batch, self.row], [*self.batch, self.row, self.column]
        products = self.reduce(
            scores, [self.inner], [0, 1], 0.0, lambda q, k, total: arith.addf(total, arith.mulf(q, k))
        )
        masked = self.mask(products, scores)
        top = self.reduce_value(masked, scores, rows, -math.inf, arith.maximumf)
        weights = self.weights(masked, top, scores, rows)
        total = self.reduce_value(weights, scores, rows, 0.0, arith.addf)
        return self.combine(weights, total, scores, rows)

    # Pieces. `loops` are numbers of loops; a value computed here is stored in the order of its loops.

    def reduce(
        self, kept: list[int], over: list[int], operands: list[int], start: float, body: Callable
    ) -> ir.Value:
        loops = [*kept, *over]
        inputs = [self.a.op.operands[i] for i in operands]
        maps = [self.compress(self.a.maps[i], loops) for i in operands]
        return self.generic(
            loops, kept, over, inputs, maps, start, lambda values: body(*map(self.real_of, values))
        )

    def reduce_value(
        self, value: ir.Value, loops: list[int], kept: list[int], start: float, combine: Callable
    ) -> ir.Value:
        maps = [self.plain(loops, loops)]
        over = [loop for loop in loops if loop not in kept]
        return self.generic(loops, kept, over, [value], maps, start, lambda v: combine(v[1], v[0]))

    def mask(self, products: ir.Value, scores: list[int]) -> ir.Value:
        """Scales, applies the region and what `causal` asks for."""
        a = self.a
        inputs = [products, *list(a.op.operands)[3:]]
        maps = [self.plain(scores, scores), *(self.compress(m, scores) for m in a.maps[3:-1])]

        def body(values: list[ir.Value]) -> ir.Value:
            score = arith.mulf(values[0], self.number(a.scale))
            row, column = linalg.IndexOp(len(self.batch)).result, linalg.IndexOp(len(self.batch) + 1).result
            given = (
                score
                if a.body.arguments[0].type == self.real
                else arith.truncf(a.body.arguments[0].type, score)
            )
            (found,) = apply_region(a.body, [given, *values[1 : len(inputs)], row, column])
            found = self.real_of(found)
            if a.causal is not None:
                last = arith.addi(row, arith.constant(ir.IndexType.get(), a.causal))
                hidden = arith.cmpi(arith.CmpIPredicate.sgt, column, last)
                found = arith.select(hidden, self.number(-math.inf), found)
            return found

        return self.generic(scores, scores, [], inputs, maps, None, body)

    def weights(self, masked: ir.Value, top: ir.Value, scores: list[int], rows: list[int]) -> ir.Value:
        def body(values: list[ir.Value]) -> ir.Value:
            score, most = values[:2]
            if self.a.zero_empty:
                empty = arith.cmpf(arith.CmpFPredicate.OEQ, most, self.number(-math.inf))
                most = arith.select(empty, self.number(0.0), most)
            return math_dialect.exp(arith.subf(score, most))

        maps = [self.plain(scores, scores), self.plain(scores, rows)]
        return self.generic(scores, scores, [], [masked, top], maps, None, body)

    def combine(self, weights: ir.Value, total: ir.Value, scores: list[int], rows: list[int]) -> ir.Value:
        """The weighted sums of values, then the division, written where the op's result has them."""
        a = self.a
        outer = [*rows, self.width]
        loops = [*outer, self.column]
        maps = [self.plain(loops, scores), self.compress(a.maps[2], loops)]
        sums = self.generic(
            loops,
            outer,
            [self.column],
            [weights, a.op.operands[2]],
            maps,
            0.0,
            lambda v: arith.addf(v[2], arith.mulf(v[0], self.real_of(v[1]))),
        )

        def divide(values: list[ir.Value]) -> ir.Value:
            found = arith.divf(values[0], values[1])
            if a.zero_empty:
                none = arith.cmpf(arith.CmpFPredicate.OEQ, values[1], self.number(0.0))
                found = arith.select(none, self.number(0.0), found)
            return self.element_of(found)

        result = ir.RankedTensorType(a.op.results[0].type)
        out = tensor.empty(list(result.shape), result.element_type)
        return self.write(
            outer,
            [],
            [sums, total],
            [self.plain(outer, outer), self.plain(outer, rows)],
            out,
            self.compress(a.maps[-1], outer),
            divide,
        )

    # Writing one generic.

    def generic(
        self,
        loops: list[int],
        kept: list[int],
        over: list[int],
        inputs: Sequence[ir.Value],
        maps: Sequence[ir.AffineMap],
        start: float | None,
        body: Callable[[list[ir.Value]], ir.Value],
    ) -> ir.Value:
        """A generic that stores `kept` loops in their order; `start` fills what it accumulates onto."""
        out = tensor.empty([self.a.loops[loop] for loop in kept], self.real)
        if start is not None:
            out = linalg.fill(self.number(start), outs=[out])
        return self.write(loops, over, inputs, maps, out, self.plain(loops, kept), body)

    def write(self, loops, over, inputs, maps, out, result_map, body) -> ir.Value:
        maps = list(maps)
        inputs = [self.trimmed(value, map_, loops) for value, map_ in zip(inputs, maps)]
        plain = {
            expr.position
            for m in (*maps, result_map)
            for expr in m.results
            if isinstance(expr, ir.AffineDimExpr)
        }
        missing = [place for place in range(len(loops)) if place not in plain]
        if missing:
            # A loop that operands only know in sums: an operand that is never read says how long it is.
            inputs.append(tensor.empty([self.a.loops[loops[place]] for place in missing], self.real))
            exprs = [ir.AffineExpr.get_dim(place) for place in missing]
            maps.append(ir.AffineMap.get(len(loops), 0, exprs))
        kinds = ir.ArrayAttr.get(
            [
                ir.Attribute.parse(f"#linalg.iterator_type<{'reduction' if loop in over else 'parallel'}>")
                for loop in loops
            ]
        )
        attribute = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in (*maps, result_map)])
        op = linalg.GenericOp([out.type], inputs, [out], attribute, kinds)
        types = [ir.RankedTensorType(value.type).element_type for value in (*inputs, out)]
        block = op.regions[0].blocks.append(*types)
        with ir.InsertionPoint(block):
            values = list(block.arguments)
            if missing:
                del values[-2]
            linalg.YieldOp([body(values)])
        return op.results[0]

    def trimmed(self, value: ir.Value, map_: ir.AffineMap, loops: list[int]) -> ir.Value:
        """The first part of a tensor along dimensions that one loop indexes, as long as the loop: generics ask for that."""
        shape = ir.RankedTensorType(value.type).shape
        sizes = [
            self.a.loops[loops[expr.position]] if isinstance(expr, ir.AffineDimExpr) else extent
            for expr, extent in zip(map_.results, shape)
        ]
        if sizes == list(shape):
            return value
        zeros, ones = [0] * len(sizes), [1] * len(sizes)
        element = ir.RankedTensorType(value.type).element_type
        type_ = ir.RankedTensorType.get(sizes, element)
        return tensor.extract_slice(type_, value, [], [], [], zeros, sizes, ones)

    def plain(self, loops: list[int], kept: list[int]) -> ir.AffineMap:
        """The map from `loops` to the dimensions of a value stored in the order of `kept`."""
        return ir.AffineMap.get(len(loops), 0, [ir.AffineExpr.get_dim(loops.index(loop)) for loop in kept])

    def compress(self, map_: ir.AffineMap, loops: list[int]) -> ir.AffineMap:
        """An operand's map on fewer loops, in another order; it depends on none of the others."""
        zero = ir.AffineExpr.get_constant(0)
        places = [
            ir.AffineExpr.get_dim(loops.index(loop)) if loop in loops else zero for loop in range(map_.n_dims)
        ]
        exprs = [expr.compose(ir.AffineMap.get(len(loops), 0, places)) for expr in map_.results]
        return ir.AffineMap.get(len(loops), 0, exprs)

    def number(self, value: float) -> ir.Value:
        return arith.constant(self.real, ir.FloatAttr.get(self.real, value))

    def real_of(self, value: ir.Value) -> ir.Value:
        return value if value.type == self.real else arith.extf(self.real, value)

    def element_of(self, value: ir.Value) -> ir.Value:
        return value if value.type == self.a.element else arith.truncf(self.a.element, value)
