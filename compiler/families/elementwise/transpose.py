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
from tilewright.compiler.families.elementwise.positions import Digit
from tilewright.compiler.gpu.alignment import FULL_BYTES

LINE_BYTES = 128
"""What one read of memory brings, and how long the runs of a box are in bytes at least."""
_MOST_ELEMENTS = 8192
_MOST_BYTES = 16 * 1024
"""Results of a box: many blocks of them fit into a multiprocessor's shared memory at once."""
_FEWEST_POINTS = 2048
"""Fewer points lie in the nearest cache anyway."""
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


def boxes(extents: Sequence[int], accesses: Sequence[Access], result: Buffer, cores: int) -> Boxes | None:
    """The boxes of results of these extents; None where operands are read well in the order of the results' memory.

    Boxes are as large as they may be, but not so large that one of the `cores` has less than two.
    """
    if math.prod(extents) < _FEWEST_POINTS or any(n == 0 for n in extents):
        return None
    axes, loops = _axes(extents, accesses) or (None, None)
    if axes is None or loops is None:
        return None
    reads = [own for a in accesses if not a.writes and (own := _strides(a, axes)) is not None]
    crossing = [(a, s) for a, s in reads if _crosses(a, s, axes)]
    if not crossing:
        return None
    main, strides = max(crossing, key=lambda own: (own[0].buffer.item_bytes, math.prod(_moved(own[1], axes))))
    if any(_is_along(a, s, axes) and math.prod(_moved(s, axes)) > math.prod(axes) // 2 for a, s in reads):
        return None  # As much is read in the order of the results: the nearest cache serves the rest.
    # Axes that the operand does not move along stay outermost.
    order = tuple(sorted(range(len(axes)), key=lambda i: (-strides[i] if strides[i] else -(1 << 62), i)))
    written = _result_strides(extents, loops, axes, result)
    box = _box(axes, order, strides, main.buffer.item_bytes, written, result.item_bytes)
    if box is None:
        return None
    box = _grown(box, axes, cores)
    read_lanes = _lanes(list(reversed(order)), axes, box, strides, main.buffer)
    write_lanes = _lanes(list(reversed(range(len(axes)))), axes, box, written, result)
    return Boxes(axes, loops, box, order, read_lanes, write_lanes)


def _box(
    axes: Sequence[int],
    order: Sequence[int],
    strides: Sequence[int],
    item_bytes: int,
    written: Sequence[int],
    written_bytes: int,
) -> tuple[int, ...] | None:
    """The largest box whose runs are two lines, one, or a half or quarter of one long and that fits; None where none does."""
    for run_bytes in (2 * LINE_BYTES, LINE_BYTES, LINE_BYTES // 2, LINE_BYTES // 4):
        box = [1] * len(axes)
        _extend(box, axes, list(reversed(order)), strides, run_bytes // item_bytes)
        _extend(box, axes, list(reversed(range(len(axes)))), written, run_bytes // written_bytes)
        if math.prod(box) <= _MOST_ELEMENTS and math.prod(box) * written_bytes <= _MOST_BYTES:
            return tuple(box)
    return None


def _axes(
    extents: Sequence[int], accesses: Sequence[Access]
) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]] | None:
    """Extents of axes, outermost first, and the axes of every loop; None where indices cut loops at odd places."""
    cuts = {1}
    for extent in reversed(extents):
        cuts.add(max(cuts) * extent)
    for access in accesses:
        for digit in access.position.digits():
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
    if any(not isinstance(atom, Digit) for atom, _ in access.position.terms):
        return None
    divisor = math.prod(axes)
    for extent in axes:
        divisor //= extent
        stride = 0
        for atom, coefficient in access.position.terms:
            if isinstance(atom, Digit) and atom.divisor <= divisor < atom.divisor * atom.modulus:
                stride += coefficient * (divisor // atom.divisor)
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


def _extend(
    box: list[int], axes: Sequence[int], inner_first: Sequence[int], strides: Sequence[int], run: int
) -> None:
    """Grows a box along axes that follow each other in memory, all with the same gaps, until runs have `run` elements."""
    gap, length = 0, 1
    for axis in inner_first:
        gap = gap or strides[axis]
        if strides[axis] != gap * length or length >= run:
            break
        size = _share(axes[axis], -(-run // length))
        box[axis] = max(box[axis], size)
        length *= axes[axis]
        if size != axes[axis]:
            break


def _share(extent: int, wanted: int) -> int:
    """How much of an axis a box takes: all of a short one, a divisor of at least `wanted`, or just that."""
    if extent < 2 * wanted:
        return extent
    return next((size for size in range(wanted, 2 * wanted) if extent % size == 0), wanted)


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


def _grown(box: tuple[int, ...], axes: Sequence[int], cores: int) -> tuple[int, ...]:
    """Doubles a box, inner axes first, as long as it stays small and twice as many remain as there are cores."""
    found = list(box)
    for axis in reversed(range(len(axes))):
        while (
            2 * found[axis] <= axes[axis]
            and 2 * math.prod(found) <= _MOST_ELEMENTS // 4
            and math.prod(axes) >= 4 * cores * math.prod(found)
        ):
            found[axis] *= 2
    return tuple(found)
