"""Writes what a block does with one box of results: computes it in the order of its operands, stores it in its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.compiler.families.elementwise.access import Buffer, store_lanes
from tilewright.compiler.families.elementwise.elements import Elements
from tilewright.compiler.families.elementwise.positions import Flat, Position, at_lane, loop_digits
from tilewright.compiler.families.elementwise.transpose import Boxes
from tilewright.compiler.gpu import builder
from tilewright.compiler.ir import arith, ir
from tilewright.compiler.nouns.quasi_affine import QuasiAffine


@dataclass(frozen=True)
class Box:
    """The box of number `number`, an rTask: `starts[i]` is where it starts along axis i."""

    boxes: Boxes
    number: builder.Value

    def starts(self, elements: Elements) -> list[Position]:
        """Where the box starts along every axis; the last box of an axis ends where the axis does."""
        found, divisor = [], self.boxes.blocks
        for extent, size, count in zip(self.boxes.axes, self.boxes.box, self.boxes.counts):
            divisor //= count
            if count == 1:
                found.append(QuasiAffine())
                continue
            last = extent - size
            start = (self.number // divisor % count) * size
            if last % size:
                start = builder.minimum(start, last)
            multiple = math.gcd(size, last)
            found.append(elements.opaque(builder.raw(start), 0, last, (), multiple))
        return found

    def loops(self, starts: Sequence[Position], local: Sequence[Position]) -> list[Position]:
        """The loops of a point given by its position in the box along every axis."""
        found = []
        for own in self.boxes.loops:
            total = QuasiAffine()
            for axis in own:
                total = total.scaled(self.boxes.axes[axis]) + starts[axis] + local[axis]
            found.append(total)
        return found


def write_box(
    box: Box,
    threads: int,
    results: Sequence[tuple[ir.Value, Buffer]],
    make_elements: Callable[[int], Elements],
) -> None:
    """Writes the box of this block; `results` are tensors and their buffers, `make_elements(lanes)` computes."""
    boxes, points = box.boxes, box.boxes.points
    staged = []
    for _, buffer in results:
        stored = ir.MemRefType(buffer.memory.type).element_type
        strides, size = boxes.shared_strides(buffer.item_bytes)
        staged.append((builder.shared([size], stored), strides, stored))
    elements = make_elements(boxes.read_lanes)
    starts = box.starts(elements)
    for number in range(-(-points // (threads * boxes.read_lanes))):
        with _turn(elements, number, threads, points):
            digits = loop_digits(
                Flat(number, points, boxes.read_lanes), tuple(boxes.box[i] for i in boxes.order)
            )
            local = [digits[boxes.order.index(axis)] for axis in range(len(boxes.axes))]
            loops = box.loops(starts, local)
            for (tensor, buffer), (memory, strides, stored) in zip(results, staged):
                values = elements.all_lanes(elements.of(tensor, loops), buffer.element)
                place = _dot(local, strides)
                for lane, value in enumerate(values):
                    own = arith.extui(stored, value) if buffer.is_boolean else value
                    at = elements.scalar(at_lane(place, lane))
                    builder.store(builder.Value(own), memory, builder.Value(at))
    builder.barrier()
    elements = make_elements(boxes.write_lanes)
    starts = box.starts(elements)
    for number in range(-(-points // (threads * boxes.write_lanes))):
        with _turn(elements, number, threads, points):
            local = loop_digits(Flat(number, points, boxes.write_lanes), boxes.box)
            loops = box.loops(starts, local)
            for (_, buffer), (memory, strides, _) in zip(results, staged):
                place = _dot(local, strides)
                lanes = [elements.scalar(at_lane(place, lane)) for lane in range(boxes.write_lanes)]
                values = [builder.load(memory, builder.Value(at)).value for at in lanes]
                if buffer.is_boolean:
                    values = [arith.trunci(buffer.element, value) for value in values]
                store_lanes(elements, buffer, loops, values)


class _turn:
    """What the threads do in their turn `number`: the points they take, as base `number` of the elements."""

    def __init__(self, elements: Elements, number: int, threads: int, points: int):
        lanes = elements.lanes
        group = builder.thread_id() + number * threads
        elements.bases[number] = builder.raw(group * lanes)
        whole = (number + 1) * threads * lanes <= points
        self._branch = builder.if_(True if whole else group < points // lanes)
        self._scope = elements.scope()

    def __enter__(self) -> None:
        self._branch.__enter__()
        self._scope.__enter__()

    def __exit__(self, *error: object) -> None:
        self._scope.__exit__(*error)
        self._branch.__exit__(*error)


def _dot(local: Sequence[Position], strides: Sequence[int]) -> Position:
    total = QuasiAffine()
    for position, stride in zip(local, strides):
        total += position.scaled(stride)
    return total
