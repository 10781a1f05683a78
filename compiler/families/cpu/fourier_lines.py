"""Fourier transforms of a vector of lines at a time: a lane has a line, and all that is added and multiplied is vectors.

    n = a b:    for j2 < b:  rows j2, b + j2, 2 b + j2, ..  a transform of a in registers, times w_n^(j2 k1)  -> scratch
                for k1 < a:  the b rows of k1 of scratch    a transform of b in registers                     -> rows k1, a + k1, ..

Lines along the last dimension are transposed into scratch and out of it, squares of registers at a time. Of real lines, elements
are taken in pairs as complex numbers z of half the length:

    E = (Z[k] + conj Z[m - k]) / 2     O = -i (Z[k] - conj Z[m - k]) / 2     X[k] = E + w_n^k O     X[m - k] = conj (E - w_n^k O)

and what becomes real is put together into such pairs the other way round. An inverse transform is one with real and imaginary
parts exchanged, before and after.

Sources: Cooley and Tukey (butterflies.py); H. V. Sorensen et al., "Real-valued fast Fourier transform algorithms", 1987.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.compiler.dialects.fourier import COMPLEX, OF_REAL, Fourier
from tilewright.compiler.families.cpu.butterflies import Number, splat, transformed
from tilewright.compiler.families.cpu.index_loops import index, loop, plus, scaled
from tilewright.compiler.families.cpu.vector_transpose import transpose_square
from tilewright.compiler.ir import arith, ir, memref, static_shape, vector
from tilewright.compiler.nouns.fourier_factors import factors


@dataclass(frozen=True)
class FourierLines:
    """A `tilewright.fourier` on buffers, and vectors of at most `vector_bits`."""

    fourier: Fourier
    vector_bits: int

    @property
    def shape(self) -> tuple[int, ...]:
        return static_shape(self.fourier.op.operands[0].type)

    @property
    def is_along_memory(self) -> bool:
        """Whether a line is the last dimension, so that lanes are lines of the dimension before."""
        return self.fourier.dimension == len(self.shape) - 1

    @property
    def across(self) -> int | None:
        """The dimension whose steps are lanes; None for a single line."""
        last = len(self.shape) - 1
        if not self.is_along_memory:
            return last
        return last - 1 if last else None

    @property
    def lanes(self) -> int:
        """Lines of a vector: as many as there are and fit, a power of two."""
        most = self.vector_bits // self.fourier.element.width
        lines = 1 if self.across is None else self.shape[self.across]
        return min(most, 1 << (lines.bit_length() - 1))

    @property
    def apart(self) -> int:
        """Rows of scratch between the parts of a number."""
        return self.fourier.inner + 1

    @property
    def scratch(self) -> tuple[ir.MemRefType, ir.MemRefType]:
        """The buffers that all vectors of lines take in turn."""
        type_ = ir.MemRefType.get([2 * self.apart, self.lanes], self.fourier.element)
        return type_, type_

    def emit(self, scratch: Sequence[ir.Value]) -> None:
        """The loops over all lines, at the insertion point."""
        around = [d for d in range(len(self.shape)) if d not in (self.fourier.dimension, self.across)]
        steps = dict.fromkeys(around, 1) | ({} if self.across is None else {self.across: self.lanes})

        def nest(at: dict[int, ir.Value], dims: Sequence[int]) -> None:
            if not dims:
                _Vector(self, at, scratch).emit()
                return
            dim, step = dims[0], steps[dims[0]]

            def one(place: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
                # A last vector that would not fit is moved back: what it repeats comes out the same.
                last = self.shape[dim] - step
                nest({**at, dim: arith.minsi(place, index(last)) if last % step else place}, dims[1:])
                return []

            loop(0, -(-self.shape[dim] // step) * step, step, one)

        nest({}, list(steps))


@dataclass(frozen=True)
class _Rows:
    """Complex numbers by row. `load` gives a part of a row, 0 the real and 1 the imaginary one, and `store` takes one."""

    load: Callable[[int, ir.Value], ir.Value | None]
    store: Callable[[int, ir.Value, ir.Value], None]

    def get(self, row: ir.Value) -> Number:
        return Number(self.load(0, row), self.load(1, row))

    def put(self, row: ir.Value, value: Number) -> None:
        assert value.re is not None
        zero = splat(ir.VectorType(value.re.type), 0.0) if value.im is None else value.im
        self.store(0, row, value.re)
        self.store(1, row, zero)

    def exchanged(self) -> _Rows:
        """The same with real and imaginary parts exchanged."""
        return _Rows(
            lambda part, row: self.load(1 - part, row),
            lambda part, row, value: self.store(1 - part, row, value),
        )

    def pairs(self) -> _Rows:
        """Of real rows every two, one after the other, as a number's parts."""

        def real(part: int, row: ir.Value) -> ir.Value:
            return plus(scaled(row, 2), part)

        return _Rows(
            lambda part, row: self.load(0, real(part, row)),
            lambda part, row, value: self.store(0, real(part, row), value),
        )

    def real(self) -> _Rows:
        """Of real rows each as a number without an imaginary part."""
        return _Rows(
            lambda part, row: self.load(0, row) if part == 0 else None,
            lambda part, row, value: self.store(0, row, value) if part == 0 else None,
        )


class _Vector:
    """The transforms of one vector of lines, which begins at the indices `at`."""

    def __init__(self, lines: FourierLines, at: dict[int, ir.Value], scratch: Sequence[ir.Value]):
        self.lines, self.fourier, self.at = lines, lines.fourier, at
        self.buffers = list(scratch)
        self.type = ir.VectorType.get([lines.lanes], lines.fourier.element)

    def emit(self) -> None:
        f, is_even = self.fourier, self.fourier.extent % 2 == 0
        first, second = map(self._in_scratch, self.buffers)
        # What is transposed into scratch lies where the first step reads it, what is transposed out of it where the last writes.
        begin, end = {COMPLEX: (0, 0), OF_REAL: (0, 1)}.get(f.kind, (1, 0))
        source, target = self._in_memory(f.sources), self._in_memory(f.places)
        if self.lines.is_along_memory:
            source, target = (first, second)[begin], (first, second)[end]
            self._transpose_in(f.sources, self.buffers[begin])
        if f.kind == COMPLEX:
            self._transform(source, target, second)
        elif f.kind == OF_REAL:
            self._transform(source.pairs() if is_even else source.real(), first, second)
            self._take_apart(first, target)
        else:
            self._put_together(source, first.exchanged())
            self._transform(first, (target.pairs() if is_even else target.real()).exchanged(), second)
        if self.lines.is_along_memory:
            self._transpose_out(self.buffers[end], f.places)

    def _transform(self, source: _Rows, target: _Rows, spare: _Rows) -> None:
        """The complex transform; `source` and `target` may be the same rows, `spare` are others."""
        n = self.fourier.inner
        found = factors(n)
        assert found is not None
        columns, rows = found

        def column(j: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            values = transformed([source.get(plus(j, rows * j1)) for j1 in range(columns)])
            for k1, value in enumerate(values):
                turned = value.times(*self._root(scaled(j, k1 * (self.fourier.extent // n)))) if k1 else value
                spare.put(plus(j, rows * k1), turned)
            return []

        def row(k: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            values = [read.get(plus(scaled(k, rows), j2)) for j2 in range(rows)]
            for k2, value in enumerate(transformed(values)):
                target.put(plus(k, columns * k2), value)
            return []

        read = source if columns == 1 else spare
        if columns > 1:
            loop(0, rows, 1, column)
        loop(0, columns, 1, row)

    def _root(self, power: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The parts of a power of the root of unity, in all lanes."""
        parts = [memref.load(self.fourier.roots, [power, index(part)]) for part in range(2)]
        re, im = (vector.broadcast(self.type, part) for part in parts)
        return re, im

    # Real lines.

    def _take_apart(self, z: _Rows, x: _Rows) -> None:
        """The transform of real lines, of that of their pairs."""
        n, m = self.fourier.extent, self.fourier.inner
        if n % 2:
            self._each(0, n // 2 + 1, lambda k: x.put(k, z.get(k)))
            return
        half = splat(self.type, 0.5)
        re, im = _parts(z.get(index(0)))
        middle = _parts(z.get(index(m // 2)))

        def both(k: ir.Value) -> None:
            mirrored = self._mirrored(k)
            (a, b), (c, d) = (_parts(z.get(row)) for row in (k, mirrored))
            even = arith.mulf(half, arith.addf(a, c)), arith.mulf(half, arith.subf(b, d))
            odd = Number(arith.mulf(half, arith.addf(b, d)), arith.mulf(half, arith.subf(c, a)))
            turned = _parts(odd.times(*self._root(k)))
            x.put(k, Number(arith.addf(even[0], turned[0]), arith.addf(even[1], turned[1])))
            x.put(mirrored, Number(arith.subf(even[0], turned[0]), arith.subf(turned[1], even[1])))

        self._each(1, (m + 1) // 2, both)
        if m % 2 == 0:
            x.put(index(m // 2), Number(middle[0], arith.negf(middle[1])))
        x.put(index(0), Number(arith.addf(re, im), None))
        x.put(index(m), Number(arith.subf(re, im), None))

    def _put_together(self, x: _Rows, z: _Rows) -> None:
        """The transform of the pairs of real lines, twice, of that of the lines."""
        n, m = self.fourier.extent, self.fourier.inner
        first, _ = _parts(x.get(index(0)))
        if n % 2:

            def conjugates(k: ir.Value) -> None:
                a, b = _parts(x.get(k))
                z.put(k, Number(a, b))
                z.put(self._mirrored(k), Number(a, arith.negf(b)))

            z.put(index(0), Number(first, None))
            self._each(1, n // 2 + 1, conjugates)
            return
        last, _ = _parts(x.get(index(m)))
        z.put(index(0), Number(arith.addf(first, last), arith.subf(first, last)))

        def both(k: ir.Value) -> None:
            mirrored = self._mirrored(k)
            (a, b), (c, d) = (_parts(x.get(row)) for row in (k, mirrored))
            even = arith.addf(a, c), arith.subf(b, d)
            re, im = self._root(k)
            odd = _parts(Number(arith.subf(a, c), arith.addf(b, d)).times(re, arith.negf(im)))
            z.put(k, Number(arith.subf(even[0], odd[1]), arith.addf(even[1], odd[0])))
            z.put(mirrored, Number(arith.addf(even[0], odd[1]), arith.subf(odd[0], even[1])))

        self._each(1, (m + 1) // 2, both)
        if m % 2 == 0:
            a, b = _parts(x.get(index(m // 2)))
            z.put(index(m // 2), Number(arith.addf(a, a), arith.negf(arith.addf(b, b))))

    def _mirrored(self, row: ir.Value) -> ir.Value:
        return arith.subi(index(self.fourier.inner), row)

    def _each(self, start: int, end: int, body: Callable[[ir.Value], None]) -> None:
        def one(row: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            body(row)
            return []

        if end > start:
            loop(start, end, 1, one)

    # Memory.

    def _in_scratch(self, buffer: ir.Value) -> _Rows:
        apart = self.lines.apart
        return _Rows(
            lambda part, row: vector.load(self.type, buffer, [plus(row, part * apart), index(0)]),
            lambda part, row, value: vector.store(value, buffer, [plus(row, part * apart), index(0)]),
        )

    def _in_memory(self, parts: Sequence[ir.Value]) -> _Rows:
        """Rows whose lanes are steps along the last dimension."""
        return _Rows(
            lambda part, row: self._load(parts[part], row),
            lambda part, row, value: self._store(parts[part], row, value),
        )

    def _load(self, buffer: ir.Value, row: ir.Value) -> ir.Value:
        if not self.lines.is_along_memory and _is_dense(buffer):
            return vector.load(self.type, buffer, self._place(row, 0))
        lanes = [memref.load(buffer, self._place(row, lane)) for lane in range(self.lines.lanes)]
        return vector.from_elements(self.type, lanes)

    def _store(self, buffer: ir.Value, row: ir.Value, value: ir.Value) -> None:
        if not self.lines.is_along_memory and _is_dense(buffer):
            vector.store(value, buffer, self._place(row, 0))
            return
        for lane in range(self.lines.lanes):
            element = vector.extract(value, [], [lane])
            memref.store(element, buffer, self._place(row, lane))

    def _place(self, row: ir.Value, lane: int) -> list[ir.Value]:
        """The indices of an element."""
        found = {**self.at, self.fourier.dimension: row}
        if self.lines.across is not None:
            found[self.lines.across] = plus(found[self.lines.across], lane)
        return [found[d] for d in range(len(found))]

    def _transpose_in(self, parts: Sequence[ir.Value], buffer: ir.Value) -> None:
        lanes = self.lines.lanes
        for number, part in enumerate(parts):
            first = number * self.lines.apart

            def square(start: ir.Value, part=part, first=first) -> None:
                lines = [vector.load(self.type, part, self._place(start, lane)) for lane in range(lanes)]
                for row, value in enumerate(transpose_square(lines)):
                    vector.store(value, buffer, [plus(start, first + row), index(0)])

            def row(place: ir.Value, part=part, first=first) -> None:
                vector.store(self._load(part, place), buffer, [plus(place, first), index(0)])

            self._squares(part, square, row)

    def _transpose_out(self, buffer: ir.Value, parts: Sequence[ir.Value]) -> None:
        lanes = self.lines.lanes
        for number, part in enumerate(parts):
            first = number * self.lines.apart

            def loaded(row: ir.Value, first=first) -> ir.Value:
                return vector.load(self.type, buffer, [plus(row, first), index(0)])

            def square(start: ir.Value, part=part, loaded=loaded) -> None:
                rows = [loaded(plus(start, row)) for row in range(lanes)]
                for lane, value in enumerate(transpose_square(rows)):
                    vector.store(value, part, self._place(start, lane))

            def row(place: ir.Value, part=part, loaded=loaded) -> None:
                self._store(part, place, loaded(place))

            self._squares(part, square, row)

    def _squares(
        self, buffer: ir.Value, square: Callable[[ir.Value], None], row: Callable[[ir.Value], None]
    ) -> None:
        """All of a line in squares of as many elements as there are lanes, the last one moved back; few elements row by row."""
        length, lanes = static_shape(buffer.type)[self.fourier.dimension], self.lines.lanes
        rest = length % lanes
        if length < lanes or not _is_dense(buffer):
            rest = length
        elif rest > lanes // 4:
            rest = 0

        def one(start: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
            square(arith.minsi(start, index(length - lanes)) if length % lanes else start)
            return []

        whole = length - rest
        if whole:
            loop(0, -(-whole // lanes) * lanes, lanes, one)
        self._each(whole, length, row)


def _parts(value: Number) -> tuple[ir.Value, ir.Value]:
    assert value.re is not None and value.im is not None
    return value.re, value.im


def _is_dense(buffer: ir.Value) -> bool:
    """Whether elements along the last dimension lie one after the other."""
    strides, _ = ir.MemRefType(buffer.type).get_strides_and_offset()
    return strides[-1] == 1
