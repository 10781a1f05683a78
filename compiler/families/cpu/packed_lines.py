"""Sorts of lines whose elements fit with their places into 64 bits: comparisons are those of integers, and all differ.

    key(x) = bits of x in the order of x      -0.0 as 0.0, NaN greatest; all bits turned around where large ones come first;
                                              integers of 64 bits count from the least of their line
    a[p] = key(x[p]) << 32 | p                p < n, and behind it numbers greater than all

    columns of vectors of a are sorted side by side       sorting networks of min and max, 8 vectors in registers at a time
    then runs of m, 2 m, .. are merged                    from both ends, so that neither run is ever used up
    result[p] = x[low half of a[p]]

Of few elements, in a long line, the best so far are kept in order instead; most vectors have none that is better.
Networks: Batcher, "Sorting networks and their applications", AFIPS 1968, with halves mirrored, so that all exchanges go one way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.analysis.line_operations import TOPK, selects
from tilewright.compiler.analysis.sort_order import Order
from tilewright.compiler.families.cpu.index_loops import index, loop, plus, sum_of
from tilewright.compiler.ir import affine, arith, ir, memref, scf, static_shape, vector

_IN_REGISTERS = 8
"""Vectors that exchange elements in registers, of which there are at least 16."""
_GREATEST = (1 << 63) - 1
_LONGEST = 256
"""Vectors of a column, so that a column of each lane stays in the first cache while it is sorted."""


@dataclass(frozen=True)
class PackedLines:
    """A `tm_tensor.topk` on buffers along dimension `dim`, of elements of at most 32 bits, or of integers of 64.

    Those that have 64 are to be less than 2^32 apart in a line.
    """

    source: ir.Value
    values: ir.Value
    places: ir.Value
    dim: int
    order: Order
    vector_bits: int

    @classmethod
    def read(cls, op: ir.Operation, vector_bits: int) -> PackedLines | None:
        """None for operations of other elements, given numbers, or another order than that of numbers."""
        if op.name != TOPK or len(op.operands) != 3:
            return None
        source, values, places = op.operands
        element, order = ir.MemRefType(source.type).element_type, Order.of(op)
        narrow = isinstance(element, (ir.F32Type, ir.F16Type, ir.BF16Type)) or (
            isinstance(element, ir.IntegerType) and element.width <= 64
        )
        dim = ir.IntegerAttr(op.attributes["dimension"]).value
        shape = static_shape(source.type)
        if (
            order is None
            or not narrow
            or not all((*shape, *static_shape(values.type)))
            or shape[dim] >= 1 << 32
        ):
            return None
        return cls(source, values, places, dim, order, vector_bits)

    @property
    def length(self) -> int:
        return static_shape(self.source.type)[self.dim]

    @property
    def kept(self) -> int:
        return static_shape(self.values.type)[self.dim]

    @property
    def lanes(self) -> int:
        return max(2, self.vector_bits // 64)

    @property
    def groups(self) -> int:
        """Parts of a line, a power of two, whose columns are sorted by themselves."""
        return 1 << max(0, math.ceil(math.log2(self.length / (self.lanes * _LONGEST))))

    @property
    def column(self) -> int:
        """Vectors of a part."""
        least = -(-self.length // (self.lanes * self.groups))
        return least if least <= 2 * _IN_REGISTERS else -(-least // _IN_REGISTERS) * _IN_REGISTERS

    @property
    def selects(self) -> bool:
        """Whether the best so far are kept in order, of which an element is rarely one."""
        return selects(self.kept, self.length)

    @property
    def scratch(self) -> tuple[ir.MemRefType, ...]:
        """The buffers that the lines of one kernel take in turn."""
        i64, i32 = (ir.IntegerType.get_signless(bits) for bits in (64, 32))
        if self.selects:
            return ir.MemRefType.get([self.kept], i64), ir.MemRefType.get([2 * self.lanes], i32)
        padded = ir.MemRefType.get([self.groups * self.column * self.lanes], i64)
        return padded, padded

    @property
    def is_wide(self) -> bool:
        """Whether elements have more bits than their key."""
        return ir.MemRefType(self.source.type).element_type.width == 64

    def emit(
        self, at: Sequence[ir.Value], scratch: Sequence[ir.Value], least: ir.Value | None = None
    ) -> None:
        """The loops of the line at `at`, its indices along all other dimensions; `least` is its least element where they are wide."""
        _Line(self, at, least).emit(*scratch)


class _Line:
    """The loops of one line, at the current insertion point."""

    def __init__(self, lines: PackedLines, at: Sequence[ir.Value], least: ir.Value | None):
        self.lines, self.at, self.least = lines, list(at), least
        self.i32, self.i64 = (ir.IntegerType.get_signless(bits) for bits in (32, 64))
        type_ = ir.MemRefType(lines.source.type)
        self.element = type_.element_type
        strides, _ = type_.get_strides_and_offset()
        boolean = isinstance(self.element, ir.IntegerType) and self.element.width < 8
        self.is_dense = strides[lines.dim] == 1 and lines.dim == len(strides) - 1 and not boolean

    def emit(self, first: ir.Value, second: ir.Value) -> None:
        if self.lines.selects:
            self.select(first, second)
            return
        self.fill(first)
        width = self.lines.column
        part, end = width * self.lines.lanes, width * self.lines.lanes * self.lines.groups
        loop(0, end, part, lambda base, _: self.sort_columns(first, base) or [])
        sorted_, other = self.stand_up(first, second, part, end)
        while width < end:
            self.merge(sorted_, other, width, end)
            sorted_, other, width = other, sorted_, 2 * width
        self.write(sorted_)

    # Keys.

    def place(self, k: ir.Value) -> list[ir.Value]:
        return [*self.at[: self.lines.dim], k, *self.at[self.lines.dim :]]

    def key(self, value: ir.Value, lanes: int) -> ir.Value:
        """Elements as integers of 32 bits that have their order: [lanes], or one where `lanes` is 0."""
        i32 = _shaped(self.i32, lanes)
        if isinstance(self.element, ir.FloatType):
            if not isinstance(self.element, ir.F32Type):
                value = arith.extf(_shaped(ir.F32Type.get(), lanes), value)
            unordered = arith.cmpf(arith.CmpFPredicate.UNO, value, value)
            zero = _constant(_shaped(ir.F32Type.get(), lanes), ir.FloatAttr.get(ir.F32Type.get(), 0.0))
            bits = arith.bitcast(i32, arith.addf(value, zero))
            signs = arith.shrsi(bits, self.number(31, lanes))
            turned = arith.xori(bits, arith.andi(signs, self.number((1 << 31) - 1, lanes)))
            key = arith.select(unordered, self.number((1 << 31) - 1, lanes), turned)
        elif self.least is not None:
            least = vector.broadcast(value.type, self.least) if lanes else self.least
            key = arith.xori(arith.trunci(i32, arith.subi(value, least)), self.number(-(1 << 31), lanes))
        elif self.element.width < 32:
            key = (arith.extui if self.lines.order.is_unsigned else arith.extsi)(i32, value)
        else:
            key = value
            if self.lines.order.is_unsigned:
                key = arith.xori(key, self.number(-(1 << 31), lanes))
        return key if self.lines.order.is_ascending else arith.xori(key, self.number(-1, lanes))

    def number(self, value: int, lanes: int) -> ir.Value:
        return _constant(_shaped(self.i32, lanes), ir.IntegerAttr.get(self.i32, value))

    def packed(self, key: ir.Value, k: ir.Value) -> ir.Value:
        """One key, and where it is from."""
        high = arith.shli(arith.extsi(self.i64, key), _constant(self.i64, 32))
        return arith.ori(high, arith.index_cast(self.i64, k))

    def load(self, k: ir.Value) -> ir.Value:
        return self.key(memref.load(self.lines.source, self.place(k)), 0)

    def load_vector(self, k: ir.Value, lanes: int) -> ir.Value:
        type_ = ir.VectorType.get([lanes], self.element)
        return self.key(vector.load(type_, self.lines.source, self.place(k)), lanes)

    def fill(self, a: ir.Value) -> None:
        lanes, length = self.lines.lanes, self.lines.length
        whole = length - length % lanes if self.is_dense else 0
        wide = ir.VectorType.get([lanes], self.i64)
        if whole:
            numbers = arith.constant(
                wide, ir.DenseElementsAttr.get(np.arange(lanes, dtype=np.int64), type=wide)
            )
            shift = _constant(wide, ir.IntegerAttr.get(self.i64, 32))

            def several(k: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                high = arith.shli(arith.extsi(wide, self.load_vector(k, lanes)), shift)
                start = vector.broadcast(wide, arith.index_cast(self.i64, k))
                vector.store(arith.ori(high, arith.addi(start, numbers)), a, [k])
                return []

            loop(0, whole, lanes, several)

        def one(k: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            memref.store(self.packed(self.load(k), k), a, [k])
            return []

        if whole < length:
            loop(whole, length, 1, one)
        padded = static_shape(a.type)[0]
        if length < padded:
            greatest = _constant(self.i64, _GREATEST)

            def pad(k: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                memref.store(greatest, a, [k])
                return []

            loop(length, padded, 1, pad)

    # Networks.

    def sort_columns(self, a: ir.Value, base: ir.Value) -> None:
        """Sorts every lane of the vectors from element `base` on."""
        column = self.lines.column
        if column <= 2 * _IN_REGISTERS:
            self.exchange_all(a, base, column, list(_network(column)))
            return
        last = [pair for half in (4, 2, 1) for pair in _halves(_IN_REGISTERS, half)]

        def in_registers(pairs: Sequence[tuple[int, int]]) -> None:
            def some(k: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                self.exchange_all(a, self.vector_at(base, k), _IN_REGISTERS, pairs)
                return []

            loop(0, column, _IN_REGISTERS, some)

        in_registers(list(_network(_IN_REGISTERS)))
        size = 2 * _IN_REGISTERS
        while size < 2 * column:
            self.exchange_blocks(a, base, size, size // 2, is_mirrored=True)
            half = size // 4
            while half >= _IN_REGISTERS:
                self.exchange_blocks(a, base, 2 * half, half, is_mirrored=False)
                half //= 2
            in_registers(last)
            size *= 2

    def exchange_blocks(self, a: ir.Value, base: ir.Value, size: int, half: int, is_mirrored: bool) -> None:
        """Exchanges vectors of the halves of every block of `size`, the first with the last where it `is_mirrored`.

        What lies behind the column's end is greater than all: what would be exchanged with that stays where it is.
        """
        column = self.lines.column
        d0, d1, d2 = (ir.AffineExpr.get_dim(number) for number in range(3))
        lanes = self.lines.lanes
        high = d1 + (size - 1) - d2 if is_mirrored else d1 + half + d2

        def block(start: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            def one(t: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                places = [_affine(d0 + expr * lanes, base, start, t) for expr in (d1 + d2, high)]
                self.store_all(a, places, self.exchanged(self.load_all(a, places), [(0, 1)]))
                return []

            first: ir.Value | int = 0
            end: ir.Value | int = half
            if column % size and is_mirrored:
                first = arith.maxsi(index(0), plus(start, size - column))
            elif column % size:
                end = arith.minsi(index(half), _affine(column - half - d0, start))
            loop(first, end, 1, one)
            return []

        loop(0, column, size, block)

    def vector_at(self, base: ir.Value, number: ir.Value) -> ir.Value:
        """Where a vector of a column begins."""
        d0, d1 = (ir.AffineExpr.get_dim(number) for number in range(2))
        return _affine(d0 + d1 * self.lines.lanes, base, number)

    def exchange_all(
        self, a: ir.Value, start: ir.Value, count: int, pairs: Sequence[tuple[int, int]]
    ) -> None:
        """Exchanges pairs among `count` vectors from element `start` on, all in registers."""
        places = [plus(start, number * self.lines.lanes) for number in range(count)]
        if pairs:
            self.store_all(a, places, self.exchanged(self.load_all(a, places), pairs))

    @staticmethod
    def exchanged(values: list[ir.Value], pairs: Sequence[tuple[int, int]]) -> list[ir.Value]:
        for low, high in pairs:
            a, b = values[low], values[high]
            values[low], values[high] = arith.minsi(a, b), arith.maxsi(a, b)
        return values

    def load_all(self, a: ir.Value, places: Sequence[ir.Value]) -> list[ir.Value]:
        type_ = ir.VectorType.get([self.lines.lanes], self.i64)
        return [vector.load(type_, a, [place]) for place in places]

    @staticmethod
    def store_all(a: ir.Value, places: Sequence[ir.Value], values: Sequence[ir.Value]) -> None:
        for place, value in zip(places, values, strict=True):
            vector.store(value, a, [place])

    # Merges.

    def stand_up(self, a: ir.Value, b: ir.Value, part: int, end: int) -> tuple[ir.Value, ir.Value]:
        """Columns as runs, one behind the other: (where they are, what is free)."""
        lanes, column = self.lines.lanes, self.lines.column
        if column == 1:
            return a, b
        d0, d1 = (ir.AffineExpr.get_dim(number) for number in range(2))

        def group(base: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            def one(s: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                for lane in range(lanes):
                    value = memref.load(a, [_affine(d0 + d1 * lanes + lane, base, s)])
                    memref.store(value, b, [_affine(d0 + d1 + lane * column, base, s)])
                return []

            loop(0, column, 1, one)
            return []

        loop(0, end, part, group)
        return b, a

    def merge(self, source: ir.Value, target: ir.Value, width: int, end: int) -> None:
        """Merges neighbouring runs of `width` elements, each pair from both ends at once: half of the result from either."""

        def pair(low: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            middle = plus(low, width)
            ends = [low, middle, plus(middle, -1), plus(middle, width - 1)]
            last = ends[3]

            def step(k: ir.Value, runs: list[ir.Value]) -> list[ir.Value]:
                left, right, left_end, right_end = runs
                a, b = memref.load(source, [left]), memref.load(source, [right])
                memref.store(arith.minsi(a, b), target, [sum_of(low, k)])
                c, d = memref.load(source, [left_end]), memref.load(source, [right_end])
                memref.store(arith.maxsi(c, d), target, [arith.subi(last, k)])
                from_left = arith.cmpi(arith.CmpIPredicate.slt, a, b)
                from_right = arith.cmpi(arith.CmpIPredicate.slt, c, d)
                return [
                    *_moved(left, right, from_left, 1),
                    *reversed(_moved(right_end, left_end, from_right, -1)),
                ]

            loop(0, width, 1, step, ends)
            return []

        loop(0, end, 2 * width, pair)

    def write(self, a: ir.Value) -> None:
        """The first elements of what is sorted, and where they are from."""
        places = ir.MemRefType(self.lines.places.type).element_type

        def one(k: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            low = arith.trunci(self.i32, memref.load(a, [k]))
            where = arith.index_castui(ir.IndexType.get(), low)
            memref.store(memref.load(self.lines.source, self.place(where)), self.lines.values, self.place(k))
            memref.store(arith.index_cast(places, where), self.lines.places, self.place(k))
            return []

        loop(0, self.lines.kept, 1, one)

    # Few of many.

    def select(self, best: ir.Value, keys: ir.Value) -> None:
        """Keeps the best elements so far in order in `best`."""
        kept, length, lanes = self.lines.kept, self.lines.length, 2 * self.lines.lanes

        def first(k: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            self.insert(best, self.packed(self.load(k), k), k)
            return []

        loop(0, kept, 1, first)

        def worst() -> ir.Value:
            high = arith.shrsi(memref.load(best, [index(kept - 1)]), _constant(self.i64, 32))
            return arith.trunci(self.i32, high)

        def one(key: ir.Value, k: ir.Value, last: ir.Value) -> ir.Value:
            """The worst key that is kept once an element is known: one that comes later and is as good is no better."""

            def insert() -> ir.Value:
                self.insert(best, self.packed(key, k), index(kept - 1))
                return worst()

            return _where(arith.cmpi(arith.CmpIPredicate.slt, key, last), insert, last)

        def several(k: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
            (last,) = carried
            found = self.load_vector(k, lanes)
            better = arith.cmpi(
                arith.CmpIPredicate.slt, found, vector.broadcast(_shaped(self.i32, lanes), last)
            )
            any_ = vector.reduction(ir.IntegerType.get_signless(1), vector.CombiningKind.OR, better)

            def each() -> ir.Value:
                vector.store(found, keys, [index(0)])
                (after,) = loop(
                    0, lanes, 1, lambda n, c: [one(memref.load(keys, [n]), sum_of(k, n), c[0])], [last]
                )
                return after

            return [_where(any_, each, last)]

        last, done = worst(), kept
        if self.is_dense and length - kept >= lanes:
            done = length - (length - kept) % lanes
            (last,) = loop(kept, done, lanes, several, [last])
        if done < length:
            loop(done, length, 1, lambda k, c: [one(self.load(k), k, c[0])], [last])
        self.write(best)

    def insert(self, best: ir.Value, element: ir.Value, end: ir.Value) -> None:
        """Puts an element where it belongs among the `end` first ones of `best`; those behind it move on."""
        type_ = ir.IndexType.get()
        search = scf.WhileOp([type_], [end])
        with ir.InsertionPoint(search.before.blocks.append(type_)):
            hole = search.before.blocks[0].arguments[0]
            inside = arith.cmpi(arith.CmpIPredicate.sgt, hole, index(0))
            before = memref.load(best, [arith.maxsi(plus(hole, -1), index(0))])
            moves = arith.cmpi(arith.CmpIPredicate.sgt, before, element)
            scf.condition(arith.andi(inside, moves), [hole])
        with ir.InsertionPoint(search.after.blocks.append(type_)):
            hole = search.after.blocks[0].arguments[0]
            previous = plus(hole, -1)
            memref.store(memref.load(best, [previous]), best, [hole])
            scf.yield_([previous])
        memref.store(element, best, [search.results[0]])


def _network(count: int) -> Iterator[tuple[int, int]]:
    """The exchanges that sort `count` elements."""
    size = 2
    while size < 2 * count:
        for block in range(0, count, size):
            pairs = ((block + t, block + size - 1 - t) for t in range(size // 2))
            yield from ((low, high) for low, high in pairs if high < count)
        half = size // 4
        while half:
            yield from _halves(count, half)
            half //= 2
        size *= 2


def _halves(count: int, half: int) -> Iterator[tuple[int, int]]:
    """Exchanges of elements that are `half` apart, in pairs of blocks."""
    for block in range(0, count, 2 * half):
        yield from ((low, low + half) for low in range(block, block + half) if low + half < count)


def _moved(taken: ir.Value, other: ir.Value, is_taken: ir.Value, step: int) -> list[ir.Value]:
    """Both places, that one `step` further which an element was taken from."""
    further, zero = index(step), index(0)
    return [
        arith.addi(taken, arith.select(is_taken, further, zero)),
        arith.addi(other, arith.select(is_taken, zero, further)),
    ]


def _where(condition: ir.Value, then: Callable[[], ir.Value], otherwise: ir.Value) -> ir.Value:
    branch = scf.IfOp(condition, [otherwise.type], has_else=True)
    with ir.InsertionPoint(branch.then_block):
        scf.yield_([then()])
    with ir.InsertionPoint(branch.else_block):
        scf.yield_([otherwise])
    return branch.results[0]


def _shaped(element: ir.Type, lanes: int) -> ir.Type:
    return ir.VectorType.get([lanes], element) if lanes else element


def _constant(type_: ir.Type, value: ir.Attribute | int) -> ir.Value:
    if isinstance(type_, ir.VectorType):
        return arith.constant(type_, ir.DenseElementsAttr.get_splat(type_, value))
    return arith.constant(type_, value)


def _affine(expr: ir.AffineExpr, *values: ir.Value) -> ir.Value:
    return affine.apply(ir.AffineMap.get(len(values), 0, [expr]), list(values))
