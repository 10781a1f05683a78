"""Kernels whose operands lie across their results in memory: boxes of results go through shared memory.

    y[c, p] = x[p, c]     a block takes a box of 64 p x 64 c
      reads x along c, 16 bytes per thread, computes, and writes results into shared memory, a bank apart per row
      barrier
      reads shared memory along p and writes y, 16 bytes per thread

Both sides of memory see whole lines. Boxes that do not divide an axis overlap at its end: some results are computed
twice, none is computed out of bounds. Source: Harris, "An Efficient Matrix Transpose in CUDA C/C++", 2013.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tilewright.compiler.families.elementwise.access import Access, Buffer
from tilewright.compiler.families.elementwise.positions import Flat, digits_of
from tilewright.compiler.gpu.alignment import FULL_BYTES

LINE_BYTES = 128
"""What one read of memory brings, and how long the runs of a box are in bytes at least."""
_BANK_BYTES = 4


@dataclass(frozen=True)
class Boxes:
    """How results are cut into boxes.

    `axes` are extents of the loops, split where an operand's index takes them apart, in the order of the results'
    memory; `loops[l]` says which axes loop l is made of. `box` are extents of a box, `order` the axes from the outermost to
    the innermost in the order in which operands are read. Threads read `read_lanes` points at once, and write
    `write_lanes`.
    """

    axes: tuple[int, ...]
    loops: tuple[tuple[int, ...], ...]
    box: tuple[int, ...]
    order: tuple[int, ...]
    read_lanes: int
    write_lanes: int

    @property
    def counts(self) -> tuple[int, ...]:
        """Boxes along every axis."""
        return tuple(-(-n // b) for n, b in zip(self.axes, self.box))

    @property
    def blocks(self) -> int:
        return math.prod(self.counts)

    @property
    def points(self) -> int:
        """Points of a box."""
        return math.prod(self.box)

    def shared_strides(self, item_bytes: int) -> tuple[tuple[int, ...], int]:
        """Strides of the axes of a box in shared memory, and its elements: rows of a line or more end in a gap of a bank."""
        strides, size, padded = [0] * len(self.box), 1, False
        for axis in reversed(range(len(self.box))):
            if not padded and size * item_bytes >= LINE_BYTES:
                size, padded = size + max(1, _BANK_BYTES // item_bytes), True
            strides[axis] = size
            size *= self.box[axis]
        return tuple(strides), size


@dataclass(frozen=True)
class Crossing:
    """Results and the operand that runs through memory across them: what boxes are cut from.

    `axes` and `loops` are those of `Boxes`; `order` is that of the operand's memory, `reads` and `writes` what its and
    the results' positions move by along every axis. `is_along` whether another operand runs along the results.
    """

    axes: tuple[int, ...]
    loops: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    source: Buffer
    result: Buffer
    is_along: bool


def crossing(extents: Sequence[int], accesses: Sequence[Access], result: Buffer) -> Crossing | None:
    """How results of these extents cross their operands; None where all are read in the order of the results' memory."""
    if any(n == 0 for n in extents):
        return None
    axes, loops = _axes(extents, accesses) or (None, None)
    if axes is None or loops is None:
        return None
    reads = [own for a in accesses if not a.writes and (own := _strides(a, axes)) is not None]
    across = [(a, s) for a, s in reads if _crosses(a, s, axes)]
    if not across:
        return None
    main, strides = max(across, key=lambda own: (own[0].buffer.item_bytes, math.prod(_moved(own[1], axes))))
    along = any(_is_along(a, s, axes) and math.prod(_moved(s, axes)) > math.prod(axes) // 2 for a, s in reads)
    # Axes that the operand does not move along stay outermost.
    order = tuple(sorted(range(len(axes)), key=lambda i: (-strides[i] if strides[i] else -(1 << 62), i)))
    written = _result_strides(extents, loops, axes, result)
    return Crossing(axes, loops, order, strides, written, main.buffer, result, along)


def boxes_of(across: Crossing, box: tuple[int, ...]) -> Boxes:
    """Results in boxes of these extents, one for each axis."""
    axes = across.axes
    read_lanes = _lanes(list(reversed(across.order)), axes, box, across.reads, across.source)
    write_lanes = _lanes(list(reversed(range(len(axes)))), axes, box, across.writes, across.result)
    return Boxes(axes, across.loops, box, across.order, read_lanes, write_lanes)


def _axes(
    extents: Sequence[int], accesses: Sequence[Access]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]] | None:
    """Extents of axes, outermost first, and the axes of every loop; None where indices cut loops at odd places."""
    cuts = {1}
    for extent in reversed(extents):
        cuts.add(max(cuts) * extent)
    for access in accesses:
        for digit in digits_of([access.position]):
            cuts |= {digit.divisor, digit.divisor * digit.modulus}
    chain = sorted(cuts)
    if any(b % a for a, b in pairwise(chain)) or chain[-1] != math.prod(extents):
        return None
    axes = [b // a for a, b in pairwise(chain)][::-1]
    loops, at = [], 0
    for extent in extents:
        own: list[int] = []
        while math.prod(axes[i] for i in own) < extent:
            own.append(at)
            at += 1
        if math.prod(axes[i] for i in own) != extent:
            return None
        loops.append(tuple(own))
    return tuple(axes), tuple(loops)


def _strides(access: Access, axes: Sequence[int]) -> tuple[Access, tuple[int, ...]] | None:
    """Elements that an access moves by along every axis; None where part of its position is known at run time only."""
    found = []
    if not all(isinstance(term.variable, Flat) for term in access.position.terms):
        return None
    divisor = math.prod(axes)
    for extent in axes:
        divisor //= extent
        stride = 0
        for term in access.position.terms:
            if term.divisor <= divisor < term.divisor * term.modulus:
                stride += term.scale * (divisor // term.divisor)
        found.append(stride if extent > 1 else 0)
    return access, tuple(found)


def _result_strides(
    extents: Sequence[int], loops: Sequence[Sequence[int]], axes: Sequence[int], result: Buffer
) -> tuple[int, ...]:
    found = [0] * len(axes)
    for own, stride in zip(loops, result.strides):
        for axis in reversed(own):
            found[axis] = stride
            stride *= axes[axis]
    return tuple(found)


def _crosses(access: Access, strides: Sequence[int], axes: Sequence[int]) -> bool:
    """Whether an access runs through memory along another axis than the results do, which it jumps along."""
    moved = [(s, i) for i, (s, n) in enumerate(zip(strides, axes)) if s and n > 1]
    if not moved or min(moved)[0] < 0:
        return False
    (shortest, own), last = min(moved), max(i for i, n in enumerate(axes) if n > 1)
    item = access.buffer.item_bytes
    return own != last and shortest * item < FULL_BYTES <= abs(strides[last]) * item


def _is_along(access: Access, strides: Sequence[int], axes: Sequence[int]) -> bool:
    last = max((i for i, n in enumerate(axes) if n > 1), default=0)
    return abs(strides[last]) == 1


def _moved(strides: Sequence[int], axes: Sequence[int]) -> list[int]:
    """Extents of the axes that an access moves along."""
    return [n for s, n in zip(strides, axes) if s]


def _lanes(
    inner_first: Sequence[int],
    axes: Sequence[int],
    box: Sequence[int],
    strides: Sequence[int],
    buffer: Buffer,
) -> int:
    """Elements of the vectors along a box's runs: 16 bytes, or what divides everything that moves them."""
    run, inside = 1, True
    sizes = [FULL_BYTES // buffer.item_bytes, max(1, buffer.alignment_bytes // buffer.item_bytes)]
    for axis in inner_first:
        if axes[axis] == 1:
            continue
        if inside and strides[axis] == run:
            sizes.append(strides[axis] * (axes[axis] - box[axis]))
            run *= box[axis]
            # Where a box ends inside of an axis, what lies beyond belongs to another run.
            inside = box[axis] == axes[axis]
        else:
            inside = False
            sizes.append(strides[axis])
    return math.gcd(run, *sizes)
