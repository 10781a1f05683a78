"""Writes scans, sorts and scatters on buffers for the threads of one block.

Rows, the points of all other dimensions, are dealt out to the threads; a sort takes all threads for one row, in a
network of comparisons that also works where the length is no power of two.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.compiler.analysis.sort_order import stays_before
from tilewright.compiler.families.block_loops import (
    Position,
    Threads,
    apply_region,
    below,
    deal,
    index,
    sequence,
    unravel,
    when,
)
from tilewright.compiler.ir import arith, gpu, ir, memref, scf, static_shape


def _at(row: Position, dim: int, place: ir.Value) -> Position:
    return [*row[:dim], place, *row[dim:]]


def write_scan(op: ir.Operation, threads: Threads) -> None:
    """One thread goes along each row with the running value in a register.

    Inclusive: out[0] = in[0], out[i] = f(out[i - 1], in[i]). Exclusive: out[0] = start, out[i] = f(out[i - 1], in[i - 1]).
    """
    source, target, total = op.operands
    shape = static_shape(source.type)
    dim = ir.IntegerAttr(op.attributes["dimension"]).value
    inclusive = ir.BoolAttr(op.attributes["inclusive"]).value
    body = op.regions[0].blocks[0]
    others = [extent for d, extent in enumerate(shape) if d != dim]
    if 0 in shape:
        return

    def one(row: Position) -> None:
        first = memref.load(source, _at(row, dim, index(0))) if inclusive else memref.load(total, row)
        memref.store(first, target, _at(row, dim, index(0)))

        def step(position: Position, carried: list[ir.Value]) -> list[ir.Value]:
            place = arith.addi(position[0], index(1))
            value = memref.load(source, _at(row, dim, place if inclusive else position[0]))
            (following,) = apply_region(body, [carried[0], value])
            memref.store(following, target, _at(row, dim, place))
            return [following]

        last = sequence([shape[dim] - 1], [first], step) if shape[dim] > 1 else [first]
        memref.store(last[0], total, row)

    deal(threads, others, one)


def write_scatter(op: ir.Operation, threads: Threads) -> None:
    """Updates follow each other in their order, as far as they can meet: each thread takes elements of its own.

    Where a whole slice is written per index, threads share the slice. Where single elements are, a thread does
    those updates whose element has its number, modulo the number of threads.
    """
    updates, indices, target = op.operands
    count, depth = static_shape(indices.type)
    window = static_shape(updates.type)[1:]
    shape = static_shape(target.type)
    body = op.regions[0].blocks[0]
    places = list(ir.DenseI64ArrayAttr(op.attributes["dimension_map"]))
    if 0 in shape or 0 in window or count == 0:
        return
    leading = len(shape) - len(window)

    def position(number: ir.Value, inside: Position) -> Position:
        found: list[ir.Value | None] = [None] * leading + list(inside)
        for k, dim in enumerate(places[:depth]):
            start = arith.index_cast(ir.IndexType.get(), memref.load(indices, [number, index(k)]))
            offset = found[dim]
            found[dim] = start if offset is None else arith.addi(start, offset)
        return [index(0) if value is None else value for value in found]

    def update(number: ir.Value, inside: Position, at: Position) -> None:
        old = memref.load(target, at)
        (new,) = apply_region(body, [memref.load(updates, [number, *inside]), old])
        memref.store(new, target, at)

    wide = [extent for extent in window if extent > 1]
    if wide:
        deal(
            threads,
            window,
            lambda inside: _each(count, lambda number: update(number, inside, position(number, inside))),
        )
        return

    def owned(number: ir.Value) -> None:
        inside = [index(0)] * len(window)
        at = position(number, inside)
        flat = index(0)
        for value, extent in zip(at, shape):
            flat = arith.addi(arith.muli(flat, index(extent)), value)
        owner = arith.remui(flat, index(threads.count))
        when(
            arith.cmpi(arith.CmpIPredicate.eq, owner, threads.id),
            lambda: update(number, inside, at),
        )

    _each(count, owned)


def _each(count: int, body: Callable[[ir.Value], None]) -> None:
    def step(position: Position, _: list[ir.Value]) -> list[ir.Value]:
        body(position[0])
        return []

    sequence([count], [], step)


def write_sort(op: ir.Operation, threads: Threads, positions: ir.Value) -> bool:
    """Sorts rows one after the other by a bitonic network whose comparisons all point the same way.

    True when it wrote anything: then a barrier comes before the first access to the buffers, and one is the end.

    `positions` is a buffer of i32 as long as a row: where an element came from orders equal ones, so the sort is
    stable. Elements past the end count as greatest: a comparison with one of them changes nothing and is left out.
    """
    buffers = list(op.operands)
    shape = static_shape(buffers[0].type)
    dim = ir.IntegerAttr(op.attributes["dimension"]).value
    length = shape[dim]
    if 0 in shape or length == 1:
        return False
    others = [extent for d, extent in enumerate(shape) if d != dim]
    rows = 1
    for extent in others:
        rows *= extent
    i32 = ir.IntegerType.get_signless(32)

    def row(number: ir.Value) -> None:
        at = unravel(number, others)

        def number_elements(place: Position) -> None:
            memref.store(arith.index_cast(i32, place[0]), positions, place)

        def exchange(_: ir.Value, low: ir.Value, high: ir.Value) -> None:
            lefts = [memref.load(b, _at(at, dim, low)) for b in buffers]
            rights = [memref.load(b, _at(at, dim, high)) for b in buffers]
            left, right = memref.load(positions, [low]), memref.load(positions, [high])

            def swap() -> None:
                for b, x, y in zip(buffers, lefts, rights):
                    memref.store(y, b, _at(at, dim, low))
                    memref.store(x, b, _at(at, dim, high))
                memref.store(right, positions, [low])
                memref.store(left, positions, [high])

            when(out_of_order(op, lefts, rights, left, right), swap)

        deal(threads, [length], number_elements)
        gpu.barrier()
        network(threads, 1, length, exchange)

    _each(rows, row)
    return True


def out_of_order(
    op: ir.Operation, lefts: list[ir.Value], rights: list[ir.Value], left: ir.Value, right: ir.Value
) -> ir.Value:
    """Whether the right element belongs before the left one; `left` and `right` are where they came from."""
    forth = stays_before(op, lefts, rights)
    back = stays_before(op, rights, lefts)
    later = arith.cmpi(arith.CmpIPredicate.ugt, left, right)
    same = arith.cmpi(arith.CmpIPredicate.eq, forth, back)
    return arith.select(same, later, back)


def network(
    threads: Threads, rows: int, length: int, exchange: Callable[[ir.Value, ir.Value, ir.Value], None]
) -> None:
    """Bitonic sorting networks over `rows` times `length` elements; a barrier after each layer.

    `exchange(row, low, high)` compares two places. Layers that merge runs of 2^s: the first compares each place with the
    mirrored one in its pair of runs, the others compare i with i + 2^k for k = s - 1, ..., 0.
    """
    levels = max(1, (length - 1).bit_length())
    pairs = 1 << (levels - 1)

    def layer(log: ir.Value, mirrored: bool) -> None:
        half = arith.shli(index(1), log)

        def one(position: Position) -> None:
            row, number = position
            inside = arith.andi(number, arith.subi(half, index(1)))
            base = arith.shli(arith.shrui(number, log), arith.addi(log, index(1)))
            low = arith.addi(base, inside)
            if mirrored:
                width = arith.shli(index(2), log)
                high = arith.subi(arith.subi(arith.addi(base, width), index(1)), inside)
            else:
                high = arith.addi(low, half)
            if length == 2 * pairs:
                exchange(row, low, high)
            else:
                when(below(high, index(length)), lambda: exchange(row, low, high))

        deal(threads, [rows, pairs], one)
        gpu.barrier()

    outer = scf.ForOp(index(0), index(levels), index(1))
    with ir.InsertionPoint(outer.body):
        level = outer.induction_variable
        layer(level, True)
        inner = scf.ForOp(index(0), level, index(1))
        with ir.InsertionPoint(inner.body):
            layer(arith.subi(arith.subi(level, index(1)), inner.induction_variable), False)
            scf.yield_([])
        scf.yield_([])


def write_topk(op: ir.Operation, threads: Threads, values: ir.Value, places: ir.Value) -> bool:
    """Sorts each row in the buffers `values` and `places` (i32, of one row), and keeps its beginning.

    Rows take turns: the buffers hold one row. Without given indices an element's index is its place. True when it
    wrote anything: then a barrier comes before the first access to the results, and one is the end.
    """
    source, *given = list(op.operands)[: len(op.operands) - 2]
    kept, kept_places = list(op.operands)[-2:]
    shape = static_shape(source.type)
    dim = ir.IntegerAttr(op.attributes["dimension"]).value
    count = static_shape(kept.type)[dim]
    length = shape[dim]
    if 0 in shape or count == 0:
        return False
    others = [extent for d, extent in enumerate(shape) if d != dim]
    element = ir.MemRefType(kept_places.type).element_type

    def row(number: ir.Value) -> None:
        at = unravel(number, others)

        def fetch(place: Position) -> None:
            memref.store(memref.load(source, _at(at, dim, place[0])), values, place)
            memref.store(arith.index_cast(ir.IntegerType.get_signless(32), place[0]), places, place)

        def exchange(_: ir.Value, low: ir.Value, high: ir.Value) -> None:
            left, right = memref.load(values, [low]), memref.load(values, [high])
            first, second = memref.load(places, [low]), memref.load(places, [high])

            def swap() -> None:
                for buffer, x, y in ((values, left, right), (places, first, second)):
                    memref.store(y, buffer, [low])
                    memref.store(x, buffer, [high])

            when(out_of_order(op, [left], [right], first, second), swap)

        def keep(place: Position) -> None:
            memref.store(memref.load(values, place), kept, _at(at, dim, place[0]))
            origin = memref.load(places, place)
            if given:
                where = arith.index_cast(ir.IndexType.get(), origin)
                number = memref.load(given[0], _at(at, dim, where))
            elif element == origin.type:
                number = origin
            else:
                number = arith.extsi(element, origin)
            memref.store(number, kept_places, _at(at, dim, place[0]))

        deal(threads, [length], fetch)
        gpu.barrier()
        network(threads, 1, length, exchange)
        deal(threads, [count], keep)
        gpu.barrier()

    rows = 1
    for extent in others:
        rows *= extent
    _each(rows, row)
    return True
