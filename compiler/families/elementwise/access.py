"""Reads and writes of buffers by all lanes of a thread at once: vectors of up to 16 bytes where addresses allow them.

lanes at p, p + 1, p + 2, p + 3, p a multiple of 4 elements    one vector.load of 16 bytes, extracts
all lanes at p                                                 one memref.load
anything else                                                  one memref.load per lane
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.compiler.families.elementwise.positions import (
    Flat,
    Opaque,
    Position,
    at_lane,
    bounds,
    digits_of,
    is_uniform,
    lane_steps,
    with_lanes,
)
from tilewright.compiler.gpu.alignment import FULL_BYTES
from tilewright.compiler.ir import arith, ir, memref, vector
from tilewright.compiler.nouns.quasi_affine import QuasiAffine

_SCATTERED = 8.5
"""The cost of an access at places that are read from memory: a sector of 32 bytes per element."""

if TYPE_CHECKING:
    from tilewright.compiler.families.elementwise.elements import Elements


@dataclass(frozen=True)
class Buffer:
    """A buffer as one dimension in memory: `strides` in elements of the tensor that it holds, `alignment` of its start.

    `memory` is a memref of one dimension; booleans lie in bytes.
    """

    number: int
    memory: ir.Value
    strides: tuple[int, ...]
    element: ir.Type
    item_bytes: int
    alignment_bytes: int

    def position(self, index: Sequence[Position]) -> Position:
        """The element's position in memory."""
        total = QuasiAffine()
        for own, stride in zip(index, self.strides):
            total += own.scaled(stride)
        return total.merged()

    @property
    def is_boolean(self) -> bool:
        return isinstance(self.element, ir.IntegerType) and self.element.width == 1


@dataclass(frozen=True)
class Access:
    """How a thread's lanes touch a buffer: where, and whether they write."""

    buffer: Buffer
    position: Position
    writes: bool = False


def piece(buffer: Buffer, first: Position, lanes: int) -> int:
    """Elements of the vectors by which consecutive lanes from `first` on can be accessed; 1 where none can."""
    aligned = math.gcd(bounds(first).multiple, max(1, buffer.alignment_bytes // buffer.item_bytes), lanes)
    return max(1, min(aligned, FULL_BYTES // buffer.item_bytes))


def load_lanes(elements: Elements, buffer: Buffer, index: Sequence[Position]) -> list[ir.Value]:
    """The elements of all lanes; one value where they are the same element."""
    position = buffer.position(index)
    elements.accesses.append(Access(buffer, position))
    lanes, steps = elements.lanes, lane_steps(position, elements.lanes)
    if steps is None:
        found = [_load(elements, buffer, at_lane(position, lane)) for lane in range(lanes)]
    elif not any(steps):
        found = [_load(elements, buffer, at_lane(position, 0))]
    elif steps == tuple(range(lanes)):
        found = _load_vectors(elements, buffer, at_lane(position, 0))
    elif steps == tuple(range(0, -lanes, -1)):
        found = _load_vectors(elements, buffer, at_lane(position, lanes - 1))[::-1]
    else:
        first = at_lane(position, 0)
        found = [_load(elements, buffer, first.shifted(step)) for step in steps]
    digits = digits_of([position])
    for value in found:
        elements.depends[value] = digits
    return found


def _load(elements: Elements, buffer: Buffer, position: Position) -> ir.Value:
    if elements.reads_neighbours:
        size = FULL_BYTES // buffer.item_bytes
        lane = position.offset % size
        first = position.shifted(-lane)
        whole = ir.MemRefType(buffer.memory.type).shape[0] % size == 0
        if whole and size > 1 and piece(buffer, first, size) == size:
            return _load_vector(elements, buffer, first, size)[lane]

    def make() -> ir.Value:
        value = memref.load(buffer.memory, [elements.scalar(position)])
        return arith.trunci(buffer.element, value) if buffer.is_boolean else value

    return elements.remembered(("load", buffer.number, position.merged()), make)


def _load_vectors(elements: Elements, buffer: Buffer, first: Position) -> list[ir.Value]:
    size = piece(buffer, first, elements.lanes)
    if size == 1:
        return [_load(elements, buffer, first.shifted(lane)) for lane in range(elements.lanes)]
    found: list[ir.Value] = []
    for start in range(0, elements.lanes, size):
        found += _load_vector(elements, buffer, first.shifted(start), size)
    return found


def _load_vector(elements: Elements, buffer: Buffer, first: Position, size: int) -> list[ir.Value]:
    def make() -> list[ir.Value]:
        stored = ir.MemRefType(buffer.memory.type).element_type
        value = vector.load(
            ir.VectorType.get([size], stored),
            buffer.memory,
            [elements.scalar(first)],
            alignment=size * buffer.item_bytes,
        )
        if buffer.item_bytes == 1 and size % 4 == 0:
            lanes = _bytes_of(elements, value, stored, size)
        else:
            lanes = [vector.extract(value, [], [lane]) for lane in range(size)]
        return [arith.trunci(buffer.element, lane) for lane in lanes] if buffer.is_boolean else lanes

    return elements.remembered(("vector", buffer.number, first.merged(), size), make)


def _bytes_of(elements: Elements, value: ir.Value, stored: ir.Type, size: int) -> list[ir.Value]:
    """The lanes of a vector of bytes, out of words: LLVM would take a vector of bytes apart into loads of single ones."""
    i32 = ir.IntegerType.get_signless(32)
    words = vector.bitcast(ir.VectorType.get([size // 4], i32), value)
    found = []
    for lane in range(size):
        word = vector.extract(words, [], [lane // 4])
        if lane % 4:
            word = arith.shrui(word, elements.constant(i32, 8 * (lane % 4)))
        found.append(arith.trunci(stored, word))
    return found


def store_lanes(
    elements: Elements, buffer: Buffer, index: Sequence[Position], values: Sequence[ir.Value]
) -> None:
    """Writes one value per lane."""
    position = buffer.position(index)
    elements.accesses.append(Access(buffer, position, writes=True))
    stored = ir.MemRefType(buffer.memory.type).element_type
    if buffer.is_boolean:
        values = [arith.extui(stored, value) for value in values]
    steps = lane_steps(position, elements.lanes)
    first = at_lane(position, 0)
    size = piece(buffer, first, elements.lanes) if steps == tuple(range(elements.lanes)) else 1
    if size == 1:
        for lane, value in enumerate(values):
            memref.store(value, buffer.memory, [elements.scalar(at_lane(position, lane))])
        return
    type_ = ir.VectorType.get([size], stored)
    for start in range(0, elements.lanes, size):
        whole = vector.from_elements(type_, list(values[start : start + size]))
        place = [elements.scalar(first.shifted(start))]
        vector.store(whole, buffer.memory, place, alignment=size * buffer.item_bytes)


def cost(access: Access, lanes: int) -> float:
    """What an access costs per point with that many lanes, in reads of full 16-byte vectors by a warp per element.

    Lines of 128 bytes that a warp touches, times how often it does, and half an instruction.
    """
    buffer, position = access.buffer, with_lanes(access.position, lanes)
    opaque = digits_of(QuasiAffine((t,)) for t in position.terms if isinstance(t.variable, Opaque))
    if not all(map(is_uniform, with_lanes(QuasiAffine(opaque), max(2, lanes)).terms)):
        return _SCATTERED
    # How far the next point is: the scale of the innermost digit.
    stride = next(
        (abs(t.scale) for t in position.terms if isinstance(t.variable, Flat) and t.divisor == 1), 0
    )
    steps = lane_steps(position, lanes)
    if not stride and steps is not None and not any(steps):
        return 0.25 / lanes
    pieces = lanes
    if steps is not None and stride == 1 and steps[-1] in (lanes - 1, 1 - lanes):
        pieces = lanes // piece(buffer, at_lane(position, 0 if steps[-1] > 0 else lanes - 1), lanes)
    width = min(32.0, lanes * max(1, stride) * buffer.item_bytes / 4)
    return pieces * (width + 0.5) / lanes
