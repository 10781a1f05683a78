"""Scatters on all cores: every block owns a range of keys, copies its part of the target, and applies what hits it.

    target[key(u), j] = f(updates[u, j], target[key(u), j])   for u = 0, 1, ...

    block b: target[lo .. hi) copied ; for chunks of keys in shared memory: for u in the chunk, in order:
        if lo <= key(u) < hi: the thread that owns element (key, j) updates it

An element belongs to one thread, which meets updates in their order: results are those of the loop above, the same
every time, whatever f is. Every block reads all keys, 4 bytes each out of shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.line_operations import line_count
from tilewright.compiler.analysis.structure import producer
from tilewright.compiler.families.elementwise.access import Buffer, load_lanes, store_lanes
from tilewright.compiler.families.elementwise.elements import Element, Elements
from tilewright.compiler.families.elementwise.positions import Flat, Position, loop_digits
from tilewright.compiler.families.elementwise.scalars import Unwritable
from tilewright.compiler.gpu import builder
from tilewright.compiler.ir import arith, ir, static_shape
from tilewright.compiler.nouns.quasi_affine import QuasiAffine

SCATTER = "tm_tensor.scatter"
_KEYS = 1024
"""Keys in shared memory at once."""


@dataclass(frozen=True)
class Scatter:
    """`count` updates of `slice_` elements each at one of `keys` places; a key has one index per leading dimension.

    `dimensions[k]` is the dimension that index k of an update counts. There are `lines` equal parts of updates and of keys, and
    an update counts the keys of its own line.
    """

    op: ir.Operation
    count: int
    keys: int
    slice_: int
    shape: tuple[int, ...]
    dimensions: tuple[int, ...]
    lines: int = 1

    @classmethod
    def read(cls, op: ir.Operation) -> Scatter:
        """Takes a `tm_tensor.scatter` apart; raises Unwritable for one whose slices are no whole rows of the target."""
        updates, indices, target = op.operands
        shape, (count, depth) = static_shape(target.type), static_shape(indices.type)
        window = static_shape(updates.type)[1:]
        dimensions = tuple(ir.DenseI64ArrayAttr(op.attributes["dimension_map"]))[:depth]
        rows = shape[depth:]
        wide = [n for n in window if n != 1]
        if sorted(dimensions) != list(range(depth)) or wide != [n for n in rows if n != 1]:
            raise Unwritable("a scatter of parts of rows")
        keys, slice_ = math.prod(shape[:depth]), math.prod(rows)
        if not keys * slice_ * count or keys * slice_ >= 1 << 31:
            raise Unwritable("a scatter of nothing, or into more than 2^31 elements")
        return cls(op, count, keys, slice_, shape, dimensions, line_count(op))


def scatter_of(function: ir.Operation) -> ir.Operation | None:
    """The scatter whose result the dispatch returns, if that is what it does."""
    *_, terminator = (view.operation for view in function.regions[0].blocks[0].operations)
    owner = producer(terminator.operands[0]) if len(terminator.operands) == 1 else None
    return owner if owner is not None and owner.name == SCATTER else None


def write_scatter(
    scatter: Scatter,
    rtask: builder.Value,
    per_block: int,
    threads: int,
    elements: Elements,
    result: Buffer,
) -> None:
    """The body of the kernel whose rTasks own `per_block` keys each, at the insertion point; `elements` has one lane.

    `threads` are a power of two: which of them owns an element is its number modulo that.
    """
    first_key = rtask * per_block
    thread = builder.thread_id()
    total = scatter.keys * scatter.slice_
    own = per_block * scatter.slice_

    def copy(number: builder.Value) -> None:
        element = first_key * scatter.slice_ + number
        with builder.if_(element < total):
            flat = Flat(0, total)
            elements.bases[0] = element.value
            with elements.scope():
                loops = loop_digits(flat, scatter.shape)
                value = elements.of(scatter.op.operands[2], loops)
                store_lanes(elements, result, loops, elements.values(value, result.element))

    # The barrier after the first keys orders these copies before all updates, too.
    builder.for_(thread, own, threads, [], lambda number: copy(number))
    i32 = ir.IntegerType.get_signless(32)
    keys = builder.shared([_KEYS], i32)

    def chunk(start: builder.Value) -> None:
        def load(slot: builder.Value) -> None:
            update = start + slot
            with builder.if_(update < scatter.count), elements.scope():
                key = _key(scatter, elements, update)
                builder.store(builder.i32(builder.Value(key)), keys, slot)

        builder.for_(thread, _KEYS, threads, [], load)
        builder.barrier()
        end = builder.minimum(scatter.count - start, _KEYS) if scatter.count % _KEYS else _KEYS
        builder.for_(0, end, 1, [], lambda slot: apply_update(start + slot, slot))
        builder.barrier()

    def apply_update(update: builder.Value, slot: builder.Value) -> None:
        key = builder.load(keys, slot).to(ir.IndexType.get())
        with builder.if_(key - first_key < per_block):
            # The first element of the slice whose number is this thread's, modulo the number of threads.
            start = (thread - key * scatter.slice_) & (threads - 1)
            builder.for_(
                start,
                scatter.slice_,
                threads,
                [],
                lambda j: _update(scatter, elements, result, update, key, j),
            )

    builder.for_(0, scatter.count, _KEYS, [], chunk)


def _key(scatter: Scatter, elements: Elements, update: builder.Value) -> ir.Value:
    """The row-major number of an update's place among the leading dimensions; indices are kept inside."""
    at = elements.opaque(update.value, 0, scatter.count - 1, ())
    indices = scatter.op.operands[1]
    type_ = ir.RankedTensorType(indices.type).element_type
    found: dict[int, ir.Value] = {}
    rows = scatter.shape[0] // scatter.lines
    for k, dim in enumerate(scatter.dimensions):
        extent = scatter.shape[dim] if dim else rows
        (value,) = elements.values(elements.of(indices, [at, QuasiAffine((), k)]), type_)
        wide = arith.index_cast(ir.IndexType.get(), value)
        low, high = (elements.constant(ir.IndexType.get(), n) for n in (0, extent - 1))
        found[dim] = arith.maxsi(low, arith.minsi(wide, high))
    total = builder.index(0)
    for dim in range(len(scatter.dimensions)):
        total = total * scatter.shape[dim] + builder.Value(found[dim])
    if scatter.lines > 1:
        total += update // (scatter.count // scatter.lines) * rows
    return total.value


def _update(
    scatter: Scatter,
    elements: Elements,
    result: Buffer,
    update: builder.Value,
    key: builder.Value,
    inside: builder.Value,
) -> None:
    with elements.scope():
        which = elements.opaque(update.value, 0, scatter.count - 1, ())
        j = elements.opaque(inside.value, 0, scatter.slice_ - 1, ())
        place = elements.opaque(
            (key * scatter.slice_ + inside).value, 0, scatter.keys * scatter.slice_ - 1, ()
        )
        updates = scatter.op.operands[0]
        window = static_shape(updates.type)[1:]
        index = [which, *_split(elements, j, window)]
        flat = Buffer(
            result.number, result.memory, (1,), result.element, result.item_bytes, result.alignment_bytes
        )
        old = load_lanes(elements, flat, [place])
        new = _combined(scatter, elements, elements.of(updates, index), old)
        store_lanes(elements, flat, [place], elements.values(new, result.element))


def _split(elements: Elements, position: Position, extents: Sequence[int]) -> list[Position]:
    found: list[Position] = []
    for extent in reversed(extents[1:]):
        position, digit = elements.divided(position, extent)
        found.append(digit)
    return [position, *reversed(found)] if extents else []


def _combined(scatter: Scatter, elements: Elements, update: Element, old: Element) -> Element:
    """What the scatter's body makes of an update and the old element."""
    block = scatter.op.regions[0].blocks[0]
    known: dict[ir.Value, Element] = dict(zip(block.arguments, (update, old)))

    def of(value: ir.Value) -> Element:
        if value not in known:
            op = producer(value)
            known[value] = (
                elements.operation(op, of)
                if op is not None and op.block == block
                else elements.outside(value)
            )
        return known[value]

    *_, terminator = (view.operation for view in block.operations)
    return of(terminator.operands[0])
