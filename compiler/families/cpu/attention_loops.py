"""Emits the loops of one rTask of attention on buffers: online softmax with queries along vector lanes.

For a group of queries, `w` vectors wide:

    qT[k, lane] = scale * Q[row, k]                                     // transposed once
    for blocks of keys:
      sT[n, lane] = region(sum over k of K[n, k] * qT[k, lane])         // register tiles of n x w
      top' = max(top, max over n of sT)
      p = exp(sT - top') ; total = total * exp(top - top') + sum over n of p
      oT[d, lane] = oT * exp(top - top') + sum over n of V[n, d] * p    // register tiles of d x w
    out[row, d] = oT[d, lane] / total                                   // transposed back

Blocks are summed on their own before they are added, so that many keys round no more often than the blocks that they are. Rows
of scores are lanes, so no reduction runs across a vector, and K and V are read as scalars wherever they lie.
Source: T. Dao, "FlashAttention-2", 2023, algorithm 1, with the final division of its §3.1.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import evaluate
from tilewright.compiler.dialects.attention import YIELD, Attention
from tilewright.compiler.families.cpu.index_loops import at_most, index, loop, plus, sum_of
from tilewright.compiler.families.cpu.vector_transpose import transpose_square
from tilewright.compiler.ir import affine, arith, ir, memref, scf, vector
from tilewright.compiler.ir import math as math_dialect
from tilewright.compiler.nouns.attention_cut import AttentionCut, AttentionLoops, rows_in_flight
from tilewright.compiler.rewriting.elementary import exp2_weight
from tilewright.compiler.rewriting.expression import Number

_LOG2_E = math.log2(math.e)


@dataclass
class Group:
    """Queries computed together: the first one's number, `vectors` of lanes, of which `rows` are queries."""

    start: ir.Value
    vectors: int
    rows: int


class AttentionKernel:
    """Writes the kernel of `attention` on `buffers` (its operands, then its result), at the insertion point."""

    def __init__(
        self,
        attention: Attention,
        buffers: Sequence[ir.Value],
        cut: AttentionCut,
        lanes: int,
    ):
        self.a, self.buffers, self.cut, self.lanes = attention, buffers, cut, lanes
        self.element = attention.element
        self.vector_type = ir.VectorType.get([lanes], self.element)
        self.batch: list[ir.Value] = []
        self.zero = index(0)

    def emit(self) -> None:
        """Writes the grid: the batch loops, and pieces of the queries."""
        pieces = -(-self.a.rows // self.cut.queries)
        extents = [*self.a.extents, pieces]
        grid = scf.ForallOp([0] * len(extents), extents, [1] * len(extents))
        block = grid.regions[0].blocks[0]
        with ir.InsertionPoint.at_block_begin(block):
            *self.batch, piece = block.arguments
            self.zero = index(0)
            first = at_most(piece, self.cut.queries, self.a.rows - self.cut.queries)
            offset = 0
            for count, vectors in self.cut.groups(self.lanes):
                self.groups(first, offset, count, vectors)
                offset += count * vectors * self.lanes
            scf.InParallelOp()

    def groups(self, first: ir.Value, offset: int, count: int, vectors: int) -> None:
        """`count` groups from query `first + offset` on; the last one overlaps its neighbour if rows run out."""
        width = vectors * self.lanes
        rows = min(width, self.cut.queries)
        scratch = Scratch(self, vectors)

        def one(number: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            d0 = ir.AffineExpr.get_dim(0)
            exprs = [d0 * width + offset, ir.AffineExpr.get_constant(self.cut.queries - rows)]
            inside = affine.AffineMinOp(ir.AffineMap.get(1, 0, exprs), [number]).result
            scratch.compute(Group(sum_of(first, inside), vectors, rows))
            return []

        loop(0, count, 1, one)

    def address(self, number: int, **loops: ir.Value) -> list[ir.Value]:
        """Where value `number` is at `row`, `column`, `inner`, `width`; loops not named are at 0."""
        map_ = self.a.maps[number]
        names = ("row", "column", "inner", "width")
        places = [*self.batch, *(loops.get(name, self.zero) for name in names)]
        found = []
        for expr in map_.results:
            if isinstance(expr, ir.AffineDimExpr):
                found.append(places[expr.position])
            else:
                found.append(affine.apply(ir.AffineMap.get(map_.n_dims, 0, [expr]), places))
        return found

    def stride(self, number: int, position: int) -> int:
        """Elements between neighbours along one of the last four loops (0 to 3) of value `number`."""
        shape = self.buffers[number].type.shape
        sizes = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
        dim = len(self.a.extents) + position
        at = [int(d == dim) for d in range(self.a.maps[number].n_dims)]
        zero = [0] * len(at)
        results = self.a.maps[number].results
        return sum(size * (evaluate(e, at) - evaluate(e, zero)) for size, e in zip(sizes, results))

    def splat(self, value: float) -> ir.Value:
        number = ir.FloatAttr.get(self.element, value)
        return arith.constant(self.vector_type, ir.DenseElementsAttr.get_splat(self.vector_type, number))

    def broadcast(self, scalar: ir.Value) -> ir.Value:
        return vector.broadcast(ir.VectorType.get([self.lanes], scalar.type), scalar)

    def segments(self, extent: int, size: int, body: Callable, carried: list[ir.Value]) -> list[ir.Value]:
        """`body(start, size, carried)` over pieces of `extent`, the last one smaller."""
        full = extent - extent % size
        if full:
            carried = loop(0, full, size, lambda i, c: body(i, size, c), carried)
        if extent > full:
            carried = list(body(index(full), extent - full, carried))
        return carried


class Scratch:
    """A group's memory: queries, a block of scores, results and staged operands, all with queries along lanes."""

    def __init__(self, kernel: AttentionKernel, vectors: int):
        self.k, self.vectors = kernel, vectors
        self.width = vectors * kernel.lanes
        a, element = kernel.a, kernel.element
        self.queries = self.allocate(a.inner, element)
        self.scores = self.allocate(kernel.cut.keys, element)
        self.out = self.allocate(a.width, element)
        self.inverse = self.allocate(1, element)
        self.staged = {
            number: self.allocate(kernel.cut.keys if kernel.stride(number, 1) else 1, self.kept(number))
            for number in range(3, len(kernel.buffers) - 1)
            if kernel.stride(number, 0)
        }

    def allocate(self, rows: int, element: ir.Type) -> ir.Value:
        return memref.alloc(ir.MemRefType.get([rows, self.width], element), [], [])

    def kept(self, number: int) -> ir.Type:
        """How an operand's elements are staged: booleans as bytes, which vectors can be loaded of."""
        element = self.k.buffers[number].type.element_type
        boolean = isinstance(element, ir.IntegerType) and element.width < 8
        return ir.IntegerType.get_signless(8) if boolean else element

    # One group.

    def compute(self, group: Group) -> None:
        k = self.k
        self.group = group
        self.load_queries()
        single = k.cut.keys == k.a.columns
        top = [k.splat(-math.inf)] * self.vectors
        total = [k.splat(0.0)] * self.vectors
        if single:
            _, total = self.block(k.zero, k.a.columns, top, total, True)
        else:
            self.clear(self.out, k.a.width)
            state = self.blocks([*top, *total])
            total = state[self.vectors :]
        self.store(total)

    def blocks(self, state: list[ir.Value]) -> list[ir.Value]:
        """All blocks of keys; past the last key that the last query may see, none."""
        k, v = self.k, self.vectors
        size, columns = k.cut.keys, k.a.columns

        def one(start: ir.Value, count: int, carried: list[ir.Value]) -> list[ir.Value]:
            top, total = self.block(start, count, carried[:v], carried[v:], False)
            return [*top, *total]

        if k.a.causal is None:
            return k.segments(columns, size, one, state)
        full = columns - columns % size
        reach = plus(self.group.start, self.group.rows + k.a.causal)
        state = loop(0, at_most(reach, 1, full), size, lambda i, c: one(i, size, c), state)
        if columns > full:
            state = loop(
                full,
                at_most(reach, 1, columns),
                columns - full,
                lambda i, c: one(i, columns - full, c),
                state,
            )
        return state

    def clear(self, buffer: ir.Value, rows: int) -> None:
        def row(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            for v in range(self.vectors):
                vector.store(self.k.splat(0.0), buffer, [i, index(v * self.k.lanes)])
            return []

        loop(0, rows, 1, row)

    def block(
        self, start: ir.Value, count: int, top: list[ir.Value], total: list[ir.Value], single: bool
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """One block of keys: scores, their weights, and what these make of the values."""
        k = self.k
        for number in self.staged:
            self.stage(number, start, count)
        size = rows_in_flight(count, self.vectors, k.cut.registers)
        seen = k.segments(count, size, lambda j, n, c: self.score_rows(start, j, n, c), top)
        low = k.splat(-math.inf)
        base = []
        for value in seen:
            empty = arith.cmpf(1, value, low)
            base.append(arith.select(empty, k.splat(0.0), value))
        factor = None if single else [self.weight(old, new) for old, new in zip(top, base)]
        sums = loop(0, count, 1, lambda j, c: self.weigh(j, base, c), [k.splat(0.0)] * self.vectors)
        total = sums if factor is None else [vector.fma(*three) for three in zip(total, factor, sums)]
        rows = rows_in_flight(k.a.width, self.vectors, k.cut.registers)
        k.segments(k.a.width, rows, lambda d, n, _: self.value_rows(start, count, d, n, factor), [])
        return seen, total

    def score_rows(self, start: ir.Value, row: ir.Value, count: int, top: list[ir.Value]) -> list[ir.Value]:
        """Scores of `count` keys from `start + row` on; gives the largest so far."""
        k, lanes = self.k, self.k.lanes
        keys = [sum_of(start, plus(row, i)) for i in range(count)]

        def step(i: ir.Value, sums: list[ir.Value]) -> list[ir.Value]:
            queries = [
                vector.load(k.vector_type, self.queries, [i, index(v * lanes)]) for v in range(self.vectors)
            ]
            result = []
            for n, key in enumerate(keys):
                scalar = k.broadcast(memref.load(k.buffers[1], k.address(1, column=key, inner=i)))
                for v, query in enumerate(queries):
                    result.append(vector.fma(scalar, query, sums[n * self.vectors + v]))
            return result

        sums = loop(0, k.a.inner, 1, step, [k.splat(0.0)] * (count * self.vectors))
        for n, key in enumerate(keys):
            for v in range(self.vectors):
                score = self.changed(sums[n * self.vectors + v], plus(row, n), key, v)
                top[v] = arith.select(arith.cmpf(2, score, top[v]), score, top[v])
                vector.store(score, self.scores, [plus(row, n), index(v * lanes)])
        return top

    def changed(self, score: ir.Value, row: ir.Value, key: ir.Value, v: int) -> ir.Value:
        """The score after the op's region, for vector `v` of queries and one key, which is row `row` of the block."""
        k = self.k
        if k.a.keeps_scores:
            return score
        arguments = list(k.a.body.arguments)
        values = {arguments[0]: score}
        for place, argument in enumerate(arguments[1:-2]):
            if next(iter(argument.uses), None) is not None:
                values[argument] = self.operand(3 + place, row, key, v)
        lane_type = ir.VectorType.get([k.lanes], ir.IndexType.get())
        if next(iter(arguments[-2].uses), None) is not None:
            first = plus(self.group.start, v * k.lanes)
            values[arguments[-2]] = arith.addi(k.broadcast(first), vector.step(lane_type))
        if next(iter(arguments[-1].uses), None) is not None:
            values[arguments[-1]] = k.broadcast(key)
        return _vectorized(k.a.body, values, k.lanes)

    def operand(self, number: int, row: ir.Value, key: ir.Value, v: int) -> ir.Value:
        """Elements of an operand after the values, for vector `v` of queries and one key."""
        k = self.k
        if number not in self.staged:
            return k.broadcast(memref.load(k.buffers[number], k.address(number, column=key)))
        element = self.kept(number)
        place = [row if k.stride(number, 1) else k.zero, index(v * k.lanes)]
        found = vector.load(ir.VectorType.get([k.lanes], element), self.staged[number], place)
        wanted = k.buffers[number].type.element_type
        return found if element == wanted else arith.trunci(ir.VectorType.get([k.lanes], wanted), found)

    # Softmax.

    def weight(self, score: ir.Value, top: ir.Value) -> ir.Value:
        """exp(score - top), by powers of 2 for f32.

        The difference comes first: fma(score, log2(e), -top * log2(e)) would be off by the rounding of `top`, which
        is beyond all bounds where masks of -3e38 were added to whole rows.
        """
        difference = Number(arith.subf(score, top))
        if isinstance(self.k.element, ir.F32Type):
            return exp2_weight(difference * _LOG2_E).value
        return math_dialect.exp(difference.value)

    def weigh(self, row: ir.Value, top: list[ir.Value], total: list[ir.Value]) -> list[ir.Value]:
        k = self.k
        result = []
        for v in range(self.vectors):
            place = [row, index(v * k.lanes)]
            power = self.weight(vector.load(k.vector_type, self.scores, place), top[v])
            vector.store(power, self.scores, place)
            result.append(arith.addf(total[v], power))
        return result

    # Values.

    def value_rows(
        self, start: ir.Value, count: int, width: ir.Value, rows: int, factor: list[ir.Value] | None
    ) -> list[ir.Value]:
        """Adds the block's values times weights to `rows` rows of results; `factor` is what these shrink by first."""
        k, lanes = self.k, self.k.lanes
        places = [(plus(width, d), index(v * lanes)) for d in range(rows) for v in range(self.vectors)]

        def step(j: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            weights = [
                vector.load(k.vector_type, self.scores, [j, index(v * lanes)]) for v in range(self.vectors)
            ]
            key, result = sum_of(start, j), []
            for d in range(rows):
                place = k.address(2, column=key, width=plus(width, d))
                scalar = k.broadcast(memref.load(k.buffers[2], place))
                for v, weight in enumerate(weights):
                    result.append(vector.fma(scalar, weight, carried[d * self.vectors + v]))
            return result

        sums = loop(0, count, 1, step, [k.splat(0.0)] * len(places))
        for i, (place, value) in enumerate(zip(places, sums)):
            if factor is not None:
                before = vector.load(k.vector_type, self.out, place)
                value = vector.fma(before, factor[i % self.vectors], value)
            vector.store(value, self.out, list(place))
        return []

    # Between rows in memory and lanes.

    def squares(self, rows: int, columns: int, contiguous: bool, square: Callable, single: Callable) -> None:
        """`square(r, c)` over lanes x lanes pieces, the last ones overlapping, or `single(r, c)` over elements."""
        lanes = self.k.lanes

        def nest(count: int, size: int, limit: int, body: Callable[[ir.Value], None]) -> None:
            def one(i: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                body(at_most(i, size, limit))
                return []

            loop(0, count, 1, one)

        if contiguous and min(rows, columns) >= lanes:
            nest(-(-rows // lanes), lanes, rows - lanes, lambda r: nest(
                -(-columns // lanes), lanes, columns - lanes, lambda c: square(r, c)))  # fmt: skip
        else:
            nest(rows, 1, rows - 1, lambda r: nest(columns, 1, columns - 1, lambda c: single(r, c)))

    def load_queries(self) -> None:
        k, a = self.k, self.k.a
        if self.group.rows < self.width:
            self.clear(self.queries, a.inner)
        scale = ir.FloatAttr.get(k.element, a.scale)

        def square(r: ir.Value, c: ir.Value) -> None:
            factor = k.splat(a.scale)
            rows = [
                vector.load(k.vector_type, k.buffers[0], k.address(0, row=self.query(r, i), inner=c))
                for i in range(k.lanes)
            ]
            for i, column in enumerate(transpose_square(rows)):
                vector.store(arith.mulf(column, factor), self.queries, [plus(c, i), r])

        def single(r: ir.Value, c: ir.Value) -> None:
            value = memref.load(k.buffers[0], k.address(0, row=self.query(r, 0), inner=c))
            memref.store(arith.mulf(value, arith.constant(k.element, scale)), self.queries, [c, r])

        self.squares(self.group.rows, a.inner, k.stride(0, 2) == 1, square, single)

    def query(self, row: ir.Value, offset: int) -> ir.Value:
        return sum_of(self.group.start, plus(row, offset))

    def stage(self, number: int, start: ir.Value, count: int) -> None:
        """Brings a block of an operand that differs from query to query into lanes."""
        k = self.k
        buffer, target, element = k.buffers[number], self.staged[number], self.kept(number)
        own = buffer.type.element_type
        type_ = ir.VectorType.get([k.lanes], element)

        def square(r: ir.Value, c: ir.Value) -> None:
            column = sum_of(start, c)
            rows = [
                vector.load(type_, buffer, k.address(number, row=self.query(r, i), column=column))
                for i in range(k.lanes)
            ]
            for i, value in enumerate(transpose_square(rows)):
                vector.store(value, target, [plus(c, i), r])

        def single(r: ir.Value, c: ir.Value) -> None:
            place = k.address(number, row=self.query(r, 0), column=sum_of(start, c))
            value = memref.load(buffer, place)
            memref.store(value if own == element else arith.extui(element, value), target, [c, r])

        columns = count if k.stride(number, 1) else 1
        contiguous = k.stride(number, 1) == 1 and own == element
        self.squares(self.group.rows, columns, contiguous, square, single)

    def store(self, total: list[ir.Value]) -> None:
        """Divides results by the weights' sums and writes them as rows."""
        k, a, last = self.k, self.k.a, len(self.k.buffers) - 1
        for v, value in enumerate(total):
            inverse = arith.divf(k.splat(1.0), value)
            if a.zero_empty:
                inverse = arith.select(arith.cmpf(1, value, k.splat(0.0)), k.splat(0.0), inverse)
            vector.store(inverse, self.inverse, [k.zero, index(v * k.lanes)])

        def square(r: ir.Value, c: ir.Value) -> None:
            inverse = vector.load(k.vector_type, self.inverse, [k.zero, r])
            columns = [
                arith.mulf(vector.load(k.vector_type, self.out, [plus(c, i), r]), inverse)
                for i in range(k.lanes)
            ]
            for i, row in enumerate(transpose_square(columns)):
                place = k.address(last, row=self.query(r, i), width=c)
                vector.store(row, k.buffers[last], place)

        def single(r: ir.Value, c: ir.Value) -> None:
            inverse = memref.load(self.inverse, [k.zero, r])
            value = arith.mulf(memref.load(self.out, [c, r]), inverse)
            memref.store(value, k.buffers[last], k.address(last, row=self.query(r, 0), width=c))

        self.squares(self.group.rows, a.width, k.stride(last, 3) == 1, square, single)


def _vectorized(body: ir.Block, values: dict[ir.Value, ir.Value], lanes: int) -> ir.Value:
    """What the region yields, computed on vectors; scalars from outside are broadcast."""

    def value(scalar: ir.Value) -> ir.Value:
        if scalar not in values:
            values[scalar] = vector.broadcast(ir.VectorType.get([lanes], scalar.type), scalar)
        return values[scalar]

    for view in body.operations:
        op = view.operation
        if op.name == YIELD:
            return value(op.operands[0])
        if op.name == "arith.constant":
            type_ = ir.VectorType.get([lanes], op.results[0].type)
            splat = ir.DenseElementsAttr.get_splat(type_, op.attributes["value"])
            values[op.results[0]] = arith.constant(type_, splat)
            continue
        clone = ir.Operation.create(
            op.name,
            results=[ir.VectorType.get([lanes], result.type) for result in op.results],
            operands=[value(operand) for operand in op.operands],
            attributes={name: op.attributes[name] for name in op.attributes},
        )
        values.update(zip(op.results, clone.results))
    raise AssertionError(f"the region of an attention ends in {YIELD}")


def attention_loops(attention: Attention, vector_bits: int, registers: int) -> AttentionLoops:
    """What a cut of an operation is chosen for, on `registers` of `vector_bits`."""
    a = attention
    return AttentionLoops(a.rows, a.columns, a.width, max(1, vector_bits // a.element.width), registers)
