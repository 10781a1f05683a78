"""Loop nests of single statements, for arrays of schedules: the register tile, the loops around it, instructions issued.

One `Nest` describes how one rTask computes one statement by one kind of loops, as `families/cpu` writes these. Counts are
those of one rTask, in vector instructions, lanes that nobody needs included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.nouns.reduction_blocks import ORDERS
from tilewright.compiler.nouns.register_tiles import register_count
from tilewright.compiler.nouns.workload import BITS
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.arithmetic import IN_FLIGHT, instructions, waiting
from tilewright.compiler.tuning.model.roles import (
    Along,
    Groups,
    Products,
    Windows,
    column_operand,
    is_contiguous,
    lanes_of,
)
from tilewright.compiler.tuning.model.statements import Statement, axes_of


@dataclass
class Nest:
    """Of n schedules: `inner` [n, axes] is the tile in registers, `order` the loops around it, inner first.

    An axis that `order` has twice is cut in blocks: to `blocks` [n, axes] by its first loop, and whole by its second.
    `arithmetic`, `stalled`, `loads`, `stores`, `spilled` and `shuffles` count instructions [n]: `stalled` are multiply-adds
    that could have been started while sums were waited for, `spilled` loads and as many stores of sums that no register
    is left for. `starts` counts innermost loops begun, `registers` what a tile takes, `useful` the lanes that are needed
    of the arithmetic.
    """

    inner: np.ndarray
    order: tuple[int, ...]
    arithmetic: np.ndarray
    stalled: np.ndarray
    loads: np.ndarray
    stores: np.ndarray
    spilled: np.ndarray
    shuffles: np.ndarray
    starts: np.ndarray
    registers: np.ndarray
    useful: np.ndarray
    blocks: np.ndarray | None = None

    def reached(self, task: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Each loop's axis, inner first, and what its steps together have of that of a task [n, axes]: [n]."""
        met: set[int] = set()
        for axis in self.order:
            first = axis not in met and self.blocks is not None
            met.add(axis)
            yield axis, (self.blocks if first and self.blocks is not None else task)[:, axis]

    @classmethod
    def empty(cls, axes: int, count: int, order: Sequence[int]) -> Nest:
        """All counts 0, a tile of one point."""
        zero = [np.zeros(count) for _ in COUNTS]
        return cls(np.ones((count, axes), dtype=np.int64), tuple(order), *zero)


COUNTS = (
    *("arithmetic", "stalled", "loads", "stores", "spilled", "shuffles"),
    *("starts", "registers", "useful"),
)


@dataclass(frozen=True)
class Cut:
    """One statement under many schedules: `extents` [n, axes] of one rTask, and the sizes of its loops [n, sizes].

    `blocks` [n, axes] are what blocks of its reduction's steps have of every axis, None where all are summed at once;
    register tiles of all of them are in one `order`.
    """

    statement: Statement
    extents: np.ndarray
    sizes: np.ndarray
    target: Target
    blocks: np.ndarray | None = None
    order: str = ORDERS[0]

    def __len__(self) -> int:
        return len(self.extents)

    @property
    def lanes(self) -> int:
        return lanes_of(self.statement, self.target)

    def extent(self, axis: int | None) -> np.ndarray:
        """Of one axis [n]; 1 where there is none."""
        return np.ones(len(self), dtype=np.int64) if axis is None else self.extents[:, axis]

    def product(self, axes: Sequence[int]) -> np.ndarray:
        """Of several axes [n]."""
        return self.extents[:, list(axes)].astype(float).prod(axis=1)


def _segments(extent: np.ndarray, size: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(size, how many) of the whole steps of a loop, and of what is left."""
    yield size, extent // size
    yield extent % size, (extent % size > 0).astype(np.int64)


def products(cut: Cut, roles: Products) -> Nest:
    """A register tile of unroll x vector sums: one operand is broadcast, one loaded along the vectors."""
    s, count = cut.statement, len(cut)
    nest = _tile_nest(cut, roles.unroll, roles.vector)
    unroll, vector = (
        np.minimum(cut.sizes[:, i], cut.extent(a)) for i, a in enumerate((roles.unroll, roles.vector))
    )
    again = _in_blocks(cut, nest, roles)
    steps = cut.product(s.reduction) / again
    others = [a for a in s.parallel if a not in (roles.unroll, roles.vector)]
    outer, each = cut.product(others) * again, instructions(s, roles.vector)
    for rows, many in _segments(cut.extent(roles.unroll), unroll):
        for width, wide in _segments(cut.extent(roles.vector), vector):
            vectors = register_count(width, cut.lanes)
            tiles, sums = outer * many * wide, rows * vectors
            streams = np.zeros(count)
            for o in s.reads:
                along = vectors if roles.vector in o.axes else 1
                streams = streams + along * (rows if roles.unroll in o.axes else 1)
            held = sums + np.where(rows < vectors, rows, vectors) + 1
            _add_tiles(nest, tiles, steps, sums * each, sums, streams, held, cut.target)
            # Sums of all blocks but the first come from memory.
            nest.loads = nest.loads + tiles * sums * (1 - 1 / again)
    nest.useful = cut.product(s.loops) * each / cut.lanes
    return nest


def _in_blocks(cut: Cut, nest: Nest, roles: Products) -> np.ndarray:
    """Puts the loop over blocks of the reduction's steps around a nest, where there are any, but inside of loops that all operands
    follow; how many there are: [n]."""
    if cut.blocks is None:
        return np.ones(len(cut))
    s, tiled = cut.statement, (roles.unroll, roles.vector)
    batch = [a for a in nest.order if a not in tiled and all(a in o.axes for o in (*s.reads, s.result))]
    inside = [axis for axis in nest.order if axis not in batch]
    nest.blocks, nest.order = cut.blocks, (*inside, *reversed(s.reduction), *batch)
    return (-(-cut.extents // cut.blocks)).astype(float).prod(axis=1)


def _tile_nest(cut: Cut, unroll: int | None, vector: int) -> Nest:
    """Around a register tile: the reductions, the unrolled loop, that of vectors, and the others, or in another order."""
    s = cut.statement
    order = list(reversed(s.reduction))
    if cut.order == "columns":
        order += [axis for axis in (vector, unroll) if axis is not None]
    else:
        order += [unroll] if unroll is not None else []
        if cut.order == "panels":
            panel = frozenset(a for o in s.reads if vector in o.axes for a in o.axes)
            order += [axis for axis in reversed(s.parallel) if axis not in (*order, vector, *panel)]
        order.append(vector)
    order += [axis for axis in reversed(s.parallel) if axis not in order]
    nest = Nest.empty(cut.extents.shape[1], len(cut), order)
    for column, axis in enumerate((unroll, vector)):
        if axis is not None:
            nest.inner[:, axis] = np.minimum(cut.sizes[:, column], cut.extent(axis))
    return nest


def _add_tiles(
    nest: Nest,
    tiles: np.ndarray,
    steps: np.ndarray,
    arithmetic: np.ndarray,
    sums: np.ndarray,
    loads: np.ndarray,
    held: np.ndarray,
    target: Target,
    chain: np.ndarray | float = IN_FLIGHT,
) -> None:
    """Adds `tiles` register tiles, each of `steps` of so much `arithmetic` and so many `loads` on `sums`.

    Each step of a tile waits for the one before by as long as `chain` multiply-adds take.
    """
    spilled = np.where(tiles > 0, np.clip(held - target.registers_per_thread, 0, sums), 0)
    nest.arithmetic = nest.arithmetic + tiles * steps * arithmetic
    nest.stalled = nest.stalled + tiles * waiting(steps * chain, steps * arithmetic, steps * loads)
    nest.loads = nest.loads + tiles * steps * loads
    nest.spilled = nest.spilled + tiles * steps * spilled
    nest.stores = nest.stores + tiles * sums
    nest.starts = nest.starts + tiles
    nest.registers = np.maximum(nest.registers, np.where(tiles > 0, held, 0))


def dots(cut: Cut, roles: Products, group: int) -> Nest:
    """The same of pairs of bf16 and quads of bytes: a step takes a group of the reduction."""
    s = cut.statement
    nest = _tile_nest(cut, roles.unroll, roles.vector)
    lanes = max(1, cut.target.vector_bits // 32)
    unroll, vector = (
        np.minimum(cut.sizes[:, i], cut.extent(a)) for i, a in enumerate((roles.unroll, roles.vector))
    )
    again = _in_blocks(cut, nest, roles)
    steps = np.ceil(cut.product(s.reduction) / again / group)
    outer = cut.product([a for a in s.parallel if a not in (roles.unroll, roles.vector)]) * again
    column = column_operand(s, roles.vector)
    peak = cut.target.peak_gflops
    # Where tiles have the peak, dot products are at best as fast as multiply-adds.
    slots = max(1.0, peak["f32"] * group / peak.get(s.reads[0].dtype, peak["f32"]))
    packed = column is not None and column.is_packed
    for rows, many in _segments(cut.extent(roles.unroll), unroll):
        for width, wide in _segments(cut.extent(roles.vector), vector):
            vectors = register_count(width, lanes)
            tiles, sums = outer * many * wide, rows * vectors
            _add_tiles(nest, tiles, steps, sums * slots, sums, rows + vectors, sums + vectors + 1, cut.target)
            nest.loads = nest.loads + tiles * sums * (1 - 1 / again)
            if not packed:
                # Rows of a pair are interleaved on the way: two shuffles for every two vectors.
                nest.shuffles = nest.shuffles + tiles * steps * 2 * vectors
    nest.useful = cut.product(s.loops) / lanes / group
    return nest


def tiles(cut: Cut, roles: Products, group: int) -> Nest:
    """Tile instructions on 16 rows of 64 B, two by two: their sizes are the unit's, whatever is asked."""
    s, side = cut.statement, 16
    fixed = np.full((len(cut), 2), 2 * side)
    nest = _tile_nest(Cut(s, cut.extents, fixed, cut.target), roles.unroll, roles.vector)
    again = _in_blocks(cut, nest, roles)
    rows, columns = (np.ceil(cut.extent(a) / side) for a in (roles.unroll, roles.vector))
    steps = np.ceil(cut.product(s.reduction) / again / (side * group))
    outer = cut.product([a for a in s.parallel if a not in (roles.unroll, roles.vector)]) * again
    count = outer * rows * columns * steps
    lanes = cut.target.vector_bits // 32
    slots = cut.target.peak_gflops["f32"] / cut.target.peak_gflops.get(s.reads[0].dtype, 1.0) / lanes
    nest.arithmetic = count * side**3 * group * slots
    nest.stores = outer * rows * columns * side
    nest.loads = count * side + nest.stores * (1 - 1 / again)
    nest.starts = outer * rows * columns / 4
    nest.useful = cut.product(s.loops) * slots
    return nest


def windows(cut: Cut, roles: Windows) -> Nest:
    """An image of rows x columns sums of several vectors, over windows that are unrolled."""
    s = cut.statement
    shared = [a for a in s.parallel if a not in (roles.rows, roles.columns, roles.vector)]
    order = [
        *reversed(s.reduction),
        roles.vector,
        roles.columns,
        *([] if roles.rows is None else [roles.rows]),
    ]
    order = [*dict.fromkeys(order), *reversed(shared)]
    nest = Nest.empty(cut.extents.shape[1], len(cut), order)
    high, wide, vectors = (cut.sizes[:, i] for i in range(3))
    high = np.minimum(high, cut.extent(roles.rows))
    along = roles.columns == roles.vector
    wide = np.ones_like(wide) if along else np.minimum(wide, cut.extent(roles.columns))
    width = np.minimum(vectors * cut.lanes, cut.extent(roles.vector))
    nest.inner[:, roles.vector] = width
    if not along:
        nest.inner[:, roles.columns] = wide
    if roles.rows is not None:
        nest.inner[:, roles.rows] = high
    nest.inner[:, [roles.column_tap]] = cut.extents[:, [roles.column_tap]]
    if roles.row_tap is not None:
        nest.inner[:, roles.row_tap] = cut.extents[:, roles.row_tap]
    vectors = register_count(width, cut.lanes)
    sums = high * wide * vectors
    rows, columns = roles.row_window, roles.column_window
    image = (wide - 1) * columns.stride + (columns.taps - 1) * columns.dilation + 1
    if along:
        image = np.full(len(cut), columns.taps)
    lines = (high - 1) * rows.stride + (rows.taps - 1) * rows.dilation + 1
    taps, each = rows.taps * columns.taps, instructions(s, roles.vector)
    # Strided lanes are picked out of all that lie in between: a load and a shuffle more for every further element.
    loads = lines * image * vectors * roles.lane_step
    nest_shuffles = lines * image * vectors * (roles.lane_step - 1)
    if roles.weights:
        loads = loads + taps * (1 if along else vectors)
    work = taps * sums * each
    if not roles.weights and roles.row_tap is not None:
        # A row of a window is combined once for all windows that it is part of.
        work = lines * wide * vectors * (columns.taps - 1) + rows.taps * sums
    count = np.ceil(cut.extent(roles.rows) / high) * np.ceil(cut.extent(roles.vector) / width)
    count = count * (1 if along else np.ceil(cut.extent(roles.columns) / wide)) * cut.product(shared)
    outer = cut.product([a for a in s.reduction if a not in (roles.row_tap, roles.column_tap)])
    held = sums + image * vectors + 1
    _add_tiles(nest, count, outer, work, sums, loads, held, cut.target, IN_FLIGHT * float(taps))
    nest.spilled = count * outer * np.clip(held - cut.target.registers_per_thread, 0, None)
    nest.shuffles = count * outer * nest_shuffles
    # Rows of windows that are combined once are needed once.
    nest.useful = np.minimum(cut.product(s.loops) * each / cut.lanes, nest.arithmetic)
    return nest


def along(cut: Cut, roles: Along) -> Nest:
    """Sums whose vectors run along the reduction: rows x columns of them, each in several chains."""
    s = cut.statement
    outer_loops = [a for a in s.reduction if a != roles.inner]
    tiled = [a for a in (roles.columns, roles.rows) if a is not None]
    order = [roles.inner, *reversed(outer_loops), *tiled]
    order += [a for a in reversed(s.parallel) if a not in order]
    nest = Nest.empty(cut.extents.shape[1], len(cut), order)
    lanes = np.minimum(cut.lanes, 1 << np.frexp(cut.extent(roles.inner))[1].astype(np.int64) - 1)
    chains, each = cut.sizes[:, 2], instructions(s, roles.inner)
    extent = cut.extent(roles.inner)
    nest.inner[:, roles.inner] = np.minimum(extent, lanes * chains)
    high = np.minimum(cut.sizes[:, 0], cut.extent(roles.rows))
    wide = np.minimum(cut.sizes[:, 1], cut.extent(roles.columns))
    for axis, size in ((roles.rows, high), (roles.columns, wide)):
        if axis is not None:
            nest.inner[:, axis] = size
    outer = cut.product([a for a in s.parallel if a not in tiled])
    again = cut.product(outer_loops)
    steps = np.ceil(extent / lanes)
    for rows, many in _segments(cut.extent(roles.rows), high):
        for columns, wides in _segments(cut.extent(roles.columns), wide):
            tiles, results = outer * many * wides, rows * columns
            loads = np.zeros(len(cut))
            for o in s.reads:
                size = (rows if roles.rows in o.axes else 1) * (columns if roles.columns in o.axes else 1)
                loads = loads + size
            # Chains take turns, and what is left after their last round has only one.
            rounds = np.ceil(steps / chains)
            sums = results * np.minimum(chains, np.maximum(steps, 1))
            work = steps * results * each
            nest.arithmetic = nest.arithmetic + tiles * again * work
            nest.loads = nest.loads + tiles * again * steps * loads
            held = sums + np.minimum(rows, columns) + 1
            over = np.clip(held - cut.target.registers_per_thread, 0, sums)
            nest.spilled = nest.spilled + tiles * again * rounds * over
            # Lanes are added up by halving: of a group of results together, then of what is left of one vector.
            together = np.minimum(
                lanes, 1 << np.maximum(0, np.frexp(np.maximum(results, 1))[1] - 1).astype(np.int64)
            )
            halvings = np.log2(lanes / together)
            adding = 3 * (together - 1) + 2 * halvings
            groups = np.ceil(results / np.maximum(together, 1)) * (results > 0)
            nest.shuffles = nest.shuffles + tiles * groups * adding
            nest.arithmetic = nest.arithmetic + tiles * (sums - results)
            # One sum after another of what is left waits for the one before.
            chain = again * rounds * IN_FLIGHT + groups * (halvings + np.log2(together)) * IN_FLIGHT
            idle = waiting(chain, again * work + groups * adding, again * steps * loads)
            nest.stalled = nest.stalled + tiles * idle
            nest.stores = nest.stores + tiles * groups
            nest.starts = nest.starts + tiles
            nest.registers = np.maximum(nest.registers, np.where(tiles > 0, held, 0))
    nest.useful = cut.product(s.loops) * each / cut.lanes
    return nest


def groups(cut: Cut, roles: Groups) -> Nest:
    """Sums of several groups side by side in each vector: steps of one loop share shuffled inputs and weights."""
    s = cut.statement
    rest = [a for a in s.reduction if a not in (roles.inner, roles.window)]
    order = [*reversed(s.reduction), roles.row, roles.group, roles.result]
    order += [a for a in reversed(s.parallel) if a not in order]
    nest = Nest.empty(cut.extents.shape[1], len(cut), order)
    size = np.minimum(cut.sizes[:, 0], cut.extent(roles.row))
    nest.inner[:, roles.row] = size
    nest.inner[:, roles.result] = cut.extent(roles.result)
    block = np.maximum(1, cut.lanes // cut.extent(roles.result))
    nest.inner[:, roles.group] = np.minimum(block, cut.extent(roles.group))
    taps, channels = cut.extent(roles.window), cut.extent(roles.inner)
    others = [a for a in s.parallel if a not in (roles.row, roles.group, roles.result)]
    outer = cut.product(others) * np.ceil(cut.extent(roles.group) / block)
    steps = cut.product(rest)
    for rows, many in _segments(cut.extent(roles.row), size):
        columns = np.where(rows > 0, rows + taps - 1, 0)
        tiles, work = outer * many, channels * rows * taps
        loads = channels * (taps + columns)
        held = rows + taps + 2
        _add_tiles(nest, tiles, steps, work, rows, loads, held, cut.target)
        nest.shuffles = nest.shuffles + tiles * steps * channels * columns
        over = np.clip(held - cut.target.registers_per_thread, 0, None) * (tiles > 0)
        nest.spilled = nest.spilled + tiles * steps * channels * over
    nest.useful = cut.product(s.loops) / cut.lanes
    return nest


def scalar(cut: Cut) -> Nest:
    """Loops that LLVM is left with: vectors along the innermost where operands lie along it, else one point at a time."""
    s = cut.statement
    order = list(reversed(_written_order(s)))
    each = instructions(s, order[0] if order else None)
    nest = Nest.empty(cut.extents.shape[1], len(cut), order)
    points = cut.product(s.loops)
    last = order[0] if order else None
    moving = [o for o in (*s.reads, s.result) if last in o.axes]
    vectors = bool(s.reads) and all(is_contiguous(o, last) for o in moving if last is not None)
    extent = cut.extent(last)
    lanes = np.minimum(cut.lanes if vectors else 1, extent)
    count = points / extent * np.ceil(extent / lanes)
    nest.arithmetic = count * each
    # Each sum waits for the one before it, unless the innermost loop goes from one to the next.
    chained = last in s.reduction
    nest.stalled = count * max(0.0, IN_FLIGHT - each) if chained else np.zeros(len(cut))
    nest.loads = count * (len(s.reads) + (not chained))
    nest.stores = count / np.maximum(1, cut.product(s.reduction)) if chained else count
    nest.starts = points / extent
    nest.registers = np.full(len(cut), float(len(s.reads) + 2))
    nest.useful = points * each / cut.lanes
    return nest


def _written_order(statement: Statement) -> tuple[int, ...]:
    """The loops of an operation, outer first: as its first operand lies in memory where that says all of them."""
    for o in statement.reads[:1]:
        if all(len(index.terms) <= 1 for index in o.index_map) and set(axes_of(o)) == set(statement.loops):
            return axes_of(o)
    return statement.loops


def elementwise(cut: Cut) -> Nest:
    """Vectors along the innermost loop of the result; squares of registers where an operand lies along another loop."""
    s = cut.statement
    order = list(reversed(s.parallel))
    each = instructions(s, order[0] if order else None)
    nest = Nest.empty(cut.extents.shape[1], len(cut), order)
    last = order[0] if order else None
    extent, points = cut.extent(last), cut.product(s.loops)
    narrow = min((BITS[o.dtype] for o in (*s.reads, s.result)), default=32)
    lanes = max(1, cut.target.vector_bits // max(32, narrow)) if s.reads else cut.lanes
    turned = _turned(s, last)
    contiguous = last is not None and is_contiguous(s.result, last)
    square = np.zeros(len(cut), dtype=bool)
    if turned is not None and last is not None and contiguous:
        rows = np.minimum(lanes, _power_below(cut.extent(turned)))
        columns = np.minimum(lanes, _power_below(extent))
        square = (rows >= 4) & (columns >= 4)
        blocks = points / (cut.extent(turned) * extent)
        blocks = blocks * np.ceil(cut.extent(turned) / rows) * np.ceil(extent / columns)
        nest.inner[:, last] = np.where(square, columns, 1)
        nest.inner[:, turned] = np.where(square, rows, 1)
        nest.loads = np.where(square, blocks * (columns + rows * (len(s.reads) - 1)), 0)
        nest.stores = np.where(square, blocks * rows, 0)
        side = np.maximum(rows, columns)
        nest.shuffles = np.where(square, blocks * side * np.log2(side), 0)
        nest.arithmetic = np.where(square, blocks * rows * each, 0)
        nest.starts = np.where(
            square, points / (cut.extent(turned) * extent) * np.ceil(cut.extent(turned) / rows), 0
        )
    gathers = bool(s.gathers) or not contiguous or _scattered(s, last)
    whole = register_count(extent, lanes) if not gathers else extent
    count = points / extent * whole
    if not gathers and turned is None and last is not None:
        nest.inner[:, last] = np.minimum(extent, lanes)
    plain = ~square
    for name, value in (
        ("loads", count * max(1, len(s.reads)) if s.reads else 0 * count),
        ("stores", count),
        ("arithmetic", count * each),
        ("starts", points / extent),
    ):
        setattr(nest, name, np.where(plain, value, getattr(nest, name)))
    nest.registers = np.where(square, 2.0 * lanes, float(len(s.reads) + 2))
    nest.useful = points * each / lanes
    return nest


def part(cut: Cut) -> Nest:
    """The part of a padded tensor that windows slide over, turned around on the way where it lies otherwise."""
    s = cut.statement
    nest = Nest.empty(cut.extents.shape[1], len(cut), ())
    nest.inner = cut.extents.copy()
    vectors = s.result.tile_shape(cut.extents).astype(float).prod(axis=1) / cut.lanes
    nest.loads, nest.stores = vectors * 2, vectors
    nest.shuffles = vectors * np.log2(max(2, cut.lanes))
    nest.arithmetic = nest.useful = vectors * 2
    nest.registers = np.full(len(cut), float(cut.lanes))
    return nest


def _turned(statement: Statement, last: int | None) -> int | None:
    """The axis that a read operand lies along instead of the result's innermost one."""
    for o in statement.reads:
        if last is None or last not in o.axes or is_contiguous(o, last):
            continue
        along = [a for a in statement.parallel if a != last and a in o.axes and is_contiguous(o, a)]
        if along:
            return along[-1]
    return None


def _scattered(statement: Statement, last: int | None) -> bool:
    """Whether an operand has to be read one element at a time along the innermost loop."""
    return any(last in o.axes and not is_contiguous(o, last) for o in statement.reads if last is not None)


def _power_below(extent: np.ndarray) -> np.ndarray:
    return 1 << np.maximum(0, np.frexp(np.maximum(extent, 1))[1] - 1).astype(np.int64)
