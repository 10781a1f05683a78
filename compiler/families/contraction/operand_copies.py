"""Copies of a factor's tiles from global to shared memory, in vectors as wide as addresses prove possible.

A tile of a [M, K] (b [K, N] alike) lies in shared memory as it lies in global memory: rows of k where k is contiguous
there, else rows of m. What is outside of the product is zero, so that sums need no bounds. Positions along m and n
are worked out once per thread, positions along k once per step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.compiler.families.contraction.addresses import Addresses, Position
from tilewright.compiler.families.contraction.element_values import Element
from tilewright.compiler.families.contraction.epilogue import converted
from tilewright.compiler.families.contraction.problem import Contraction, element_bytes, vector_limit
from tilewright.compiler.gpu.builder import (
    Value,
    both,
    constant,
    from_elements,
    if_,
    index,
    load,
    load_vector,
    raw,
    select,
    store,
    store_vector,
    vector_type,
)
from tilewright.compiler.ir import ir, nvgpu

ASYNC_BYTES = (4, 8, 16)
"""Sizes of an asynchronous copy. Source: PTX ISA, cp.async."""


@dataclass(frozen=True)
class Layout:
    """Where element (row, column) of a tile lies: rows `pitch` elements apart, with `swizzle` pieces of 16 bytes shuffled.

    Rows of 2^n pieces: piece c of row r lies at c xor (r mod 8), or where a row has fewer than 8 pieces at
    c xor (r / (8 / pieces)), so that 8 rows' pieces at one column lie in 8 different groups of banks.
    """

    rows: int
    columns: int
    pitch: int
    swizzled: bool = False
    piece: int = 0

    @property
    def elements(self) -> int:
        return self.rows * self.pitch

    def place(self, row: Position, column: Position) -> Position:
        """The element's position; columns of one piece stay side by side."""
        if not self.swizzled:
            return row * self.pitch + column
        pieces = self.columns // self.piece
        by = row % 8 if pieces >= 8 else row // (8 // pieces) % pieces
        return row * self.pitch + (_xor(column // self.piece, by)) * self.piece + column % self.piece


def _xor(left: Position, right: Position) -> Position:
    if isinstance(right, Value) and not isinstance(left, Value):
        left, right = right, left
    return left ^ right


@dataclass(frozen=True)
class Copies:
    """How the tiles of factor 0 (a) or 1 (b) are copied by `threads` threads.

    `across` is how many rows or columns a tile has and `deep` how many steps of K, `dtype` what shared memory holds.
    `lanes` are elements per load, neighbours along K where the factor is contiguous along it. Shared memory has them
    side by side too, in rows of `layout`, unless they are `transposed`. `deferred` copies are asynchronous; others
    go through registers, where they are converted.
    """

    contraction: Contraction
    factor: int
    across: int
    deep: int
    threads: int
    dtype: str
    layout: Layout
    lanes: int
    deferred: bool
    transposed: bool = False

    @property
    def group(self) -> str:
        return "mn"[self.factor]

    @property
    def k_lanes(self) -> bool:
        """Whether loads run along K."""
        return k_contiguous(self.contraction, self.factor)

    @property
    def k_rows(self) -> bool:
        """Whether rows of shared memory are rows of the factor, columns steps along K."""
        return self.k_lanes != self.transposed

    @property
    def convert(self) -> Element | None:
        return (self.contraction.convert_a, self.contraction.convert_b)[self.factor]

    @property
    def elements(self) -> int:
        """Elements of one tile in shared memory."""
        return self.layout.elements

    @property
    def loads(self) -> int:
        """Loads of all threads together."""
        return self.across * self.deep // self.lanes

    @cached_property
    def count(self) -> int:
        """Loads per thread."""
        return -(-self.loads // self.threads)

    @property
    def source_dtype(self) -> str:
        return self.contraction.buffers[self.contraction.accesses[self.factor].buffer].dtype

    def place(self, across: Position, depth: Position) -> Position:
        """Where an element of the factor is in its tile."""
        return self.layout.place(across, depth) if self.k_rows else self.layout.place(depth, across)


def k_contiguous(contraction: Contraction, factor: int) -> bool:
    """Whether elements of a factor lie side by side along K; else they do along its rows or columns, or nowhere."""
    strides = contraction.accesses[factor].strides
    inner = contraction.group("k")
    across = contraction.group("mn"[factor])
    if inner and strides[inner[-1]] == 1:
        return True
    return not (across and strides[across[-1]] == 1)


def widest(contraction: Contraction, factor: int, limit: int = 16) -> int:
    """The most elements of a factor that one access loads: along K or across it, whichever is contiguous."""
    group = contraction.group("k" if k_contiguous(contraction, factor) else "mn"[factor])
    return contraction.vector(factor, group[-1] if group else None, limit)


def can_defer(
    contraction: Contraction, factor: int, lanes: int, dtype: str, elements: int, threads: int
) -> bool:
    """Whether tiles of `elements` can be copied without passing through registers.

    There must be nothing to convert, 4 bytes or more side by side, and a copy for every thread.
    """
    if elements // lanes < threads:
        return False
    convert = (contraction.convert_a, contraction.convert_b)[factor]
    source = contraction.buffers[contraction.accesses[factor].buffer].dtype
    return convert is None and source == dtype and lanes * element_bytes(dtype) in ASYNC_BYTES


@dataclass(frozen=True)
class _Spot:
    """One of a thread's loads: where in the tile, its address but for K, whether it is in the factor and in the tile."""

    across: Value
    depth: Value
    offset: Position
    valid: Value | bool
    inside: Value | bool


class Copier:
    """One thread's copies of the tiles of one factor into `buffer`, shared memory that holds several."""

    def __init__(
        self,
        plan: Copies,
        addresses: Addresses,
        buffer: ir.Value,
        thread: Value,
        batch: Position,
        first: Value,
    ):
        """`first` is the tile's first row or column."""
        self.plan, self.addresses, self.buffer = plan, addresses, buffer
        length = plan.deep if plan.k_lanes else plan.across
        per_line, lanes = length // plan.lanes, plan.lanes
        self.same_depth = plan.k_lanes and plan.threads % per_line == 0
        base = addresses.group_offset(plan.factor, "batch", batch) + addresses.start(plan.factor)
        extent = plan.contraction.extent(plan.group)
        self.spots: list[_Spot] = []
        for i in range(plan.count):
            number = thread + i * plan.threads
            if plan.threads % per_line:
                line, within = number // per_line, number % per_line * lanes
            else:
                line = thread // per_line + i * (plan.threads // per_line)
                within = thread % per_line * lanes
            across, depth = (line, within) if plan.k_lanes else (within, line)
            position = first + across
            self.spots.append(
                _Spot(
                    across,
                    depth,
                    addresses.group_offset(plan.factor, plan.group, position) + base,
                    True if extent % plan.across == 0 else position < extent,
                    True if (i + 1) * plan.threads <= plan.loads else number < plan.loads,
                )
            )
        self.presence: list[Value | bool] = []

    def issue(self, k: Position, slot: Position, wanted: Value | bool) -> list[ir.Value]:
        """Starts the asynchronous copies of the tile whose first step along K is `k`, into tile `slot` of the buffer.

        Where it is not `wanted`, zeros are written and nothing is read. Gives the tokens of the copies that every
        thread makes.
        """
        plan = self.plan
        source = self.addresses.buffer(plan.factor)
        wide = plan.lanes * element_bytes(plan.dtype) == 16
        tokens = []
        for spot, (offset, valid) in zip(self.spots, self.sources(k)):
            place = plan.place(spot.across, spot.depth) + slot * plan.elements
            there = both(wanted, valid)
            count = None
            if not isinstance(there, bool):
                offset, count = select(there, offset, 0), select(there, index(plan.lanes), 0)
            with if_(spot.inside):
                token = nvgpu.device_async_copy(
                    self.buffer,
                    [raw(place)],
                    source,
                    [raw(offset)],
                    plan.lanes,
                    src_elements=None if count is None else raw(count),
                    bypass_l1=wide,
                )
            if isinstance(spot.inside, bool):
                tokens.append(token)
        return tokens

    def fetch(self, k: Position) -> list[Value]:
        """Loads this thread's part of the tile at `k` into registers, zeros where it lies outside."""
        plan = self.plan
        source = self.addresses.buffer(plan.factor)
        element = ir.Type.parse(plan.source_dtype)
        found = []
        for spot, (offset, valid) in zip(self.spots, self.sources(k)):
            there = both(valid, spot.inside)
            if not isinstance(there, bool):
                offset = select(there, offset, 0)
            if plan.lanes == 1:
                value = load(source, offset)
                zero = constant(element, 0)
            else:
                width = plan.lanes * element_bytes(plan.source_dtype)
                value = load_vector(source, [offset], plan.lanes, width)
                zero = constant(vector_type(plan.lanes, element), 0)
            found.append(select(there, value, zero))
        return found

    def put(self, values: Sequence[Value], slot: Position) -> None:
        """Converts what `fetch` gave and stores it as tile `slot`; where the factor ends, zero stands for it."""
        for spot, value, valid in zip(self.spots, values, self.presence):
            with if_(spot.inside):
                self.store(value, valid, spot, slot)

    def store(self, value: Value, valid: Value | bool, spot: _Spot, slot: Position) -> None:
        plan, start = self.plan, slot * self.plan.elements
        lanes = [value] if plan.lanes == 1 else [value[i] for i in range(plan.lanes)]
        if plan.convert is not None or plan.source_dtype != plan.dtype:
            lanes = [converted(plan.convert, lane, plan.dtype) for lane in lanes]
            if plan.convert is not None and not isinstance(valid, bool):
                lanes = [select(valid, lane, constant(lane.type, 0)) for lane in lanes]
        width = 1 if plan.transposed else min(plan.lanes, vector_limit(plan.dtype))
        for i in range(0, plan.lanes, width):
            across, depth = (spot.across, spot.depth + i) if plan.k_lanes else (spot.across + i, spot.depth)
            place = plan.place(across, depth) + start
            if width == 1:
                store(lanes[i], self.buffer, place)
            else:
                vector = from_elements(lanes[i : i + width])
                store_vector(vector, self.buffer, [place], width * element_bytes(plan.dtype))

    def sources(self, k: Position) -> list[tuple[Position, Value | bool]]:
        """(offset, whether it is inside of the factor) of each load at step `k`; `put` needs what this last found."""
        plan = self.plan
        extent = plan.contraction.extent("k")
        found = []
        known: dict[int, tuple[Position, Value | bool]] = {}
        for i, spot in enumerate(self.spots):
            key = 0 if self.same_depth else i
            if key not in known:
                position = spot.depth + k
                inside = True if extent % plan.deep == 0 else position < extent
                known[key] = (self.addresses.group_offset(plan.factor, "k", position), inside)
            offset, deep = known[key]
            found.append((spot.offset + offset, both(spot.valid, deep)))
        self.presence = [valid for _, valid in found]
        return found
