"""Which axis plays which part in the loops of a statement: that of vectors, the unrolled one, windows, what runs along memory.

The generated loops choose the same of a cut reduction: `families/cpu` has the kinds of loops by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.nouns.register_tiles import Window, power_below
from tilewright.compiler.nouns.workload import BITS, Operand
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.statements import Statement, axes_of

Extents = Sequence[int]
"""Of every axis of the workload, what one rTask has of it."""


def element_strides(operand: Operand) -> tuple[int, ...]:
    """Elements between neighbours along every dimension."""
    if operand.strides:
        return operand.strides
    strides, step = [], 1
    for size in reversed(operand.shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))


def axis_stride(operand: Operand, axis: int) -> int:
    """Elements that one step of an axis moves an operand by, inside of a block of what is packed along it."""
    steps = element_strides(operand)
    return sum(
        step * term.scale
        for index, step in zip(operand.index_map, steps)
        for term in index.terms
        if term.variable == axis and term.divisor == 1
    )


def is_contiguous(operand: Operand, axis: int) -> bool:
    """Whether vectors along an axis are loads of neighbours."""
    return axis_stride(operand, axis) == 1


def packed_block(operand: Operand, axis: int) -> int:
    """What an operand is stored in blocks of along an axis; 0 where it is not."""
    terms = (term for index in operand.index_map for term in index.terms if term.variable == axis)
    return max((term.modulus for term in terms), default=0)


def lanes_of(statement: Statement, target: Target) -> int:
    """Elements of the result in one vector register."""
    return max(1, target.vector_bits // BITS[statement.result.dtype])


@dataclass(frozen=True)
class Products:
    """Vectors along the result: steps of `unroll` and elements of `vector` are in registers; None for no such axis."""

    unroll: int | None
    vector: int

    @classmethod
    def of(cls, statement: Statement, extents: Extents, columns: Operand | None = None) -> Products | None:
        """The loop to unroll re-uses the most vector operands, those that `columns` do not follow; ties go to the inner."""
        vector = _vector_axis(statement)
        if vector is None:
            return None
        moving = [columns] if columns else [o for o in statement.reads if vector in o.axes]
        found = [
            (sum(axis not in o.axes for o in moving), min(extents[axis], 8), place, axis)
            for place, axis in enumerate(statement.parallel)
            if axis != vector and (columns is None or axis not in columns.axes)
        ]
        return cls(max(found)[3] if found else None, vector)


def _vector_axis(statement: Statement) -> int | None:
    """The axis that the innermost dimension of the result moves along."""
    for index in reversed(statement.result.index_map):
        if index.terms:
            return index.terms[-1].variable
    return None


def column_operand(statement: Statement, vector: int) -> Operand | None:
    """Of two factors the one that moves along the vectors, packed or in rows."""
    found = [o for o in statement.reads if vector in o.axes]
    return max(found, key=lambda o: packed_block(o, vector), default=None)


@dataclass(frozen=True)
class Along:
    """Vectors along the reduction `inner`; steps of `rows` and `columns` share what they load where `reuses`."""

    inner: int
    rows: int | None
    columns: int | None
    reuses: bool

    @classmethod
    def of(cls, statement: Statement, extents: Extents) -> Along | None:
        fitting = []
        for place, axis in enumerate(statement.reduction):
            moving = [o for o in statement.reads if axis in o.axes]
            if moving and all(is_contiguous(o, axis) for o in moving):
                fitting.append((extents[axis], place, axis))
        if not fitting:
            return None
        *_, inner = max(fitting)
        moving = [o for o in statement.reads if inner in o.axes]
        order = {axis: place for place, axis in enumerate(statement.parallel)}
        reusing = sorted(
            ((sum(a not in o.axes for o in moving), extents[a], order[a], a) for a in statement.parallel),
            reverse=True,
        )
        tiled = [axis for reuse, size, _, axis in reusing if reuse and size > 1][:2]
        if len(tiled) == 2 and not any(tiled[0] in o.axes and tiled[1] not in o.axes for o in moving):
            tiled = tiled[:1]
        by_place = sorted(tiled, key=order.__getitem__)
        rows = by_place[0] if by_place else None
        columns = by_place[1] if len(by_place) == 2 else None
        if rows is None:
            rows = next((a for a in reversed(statement.parallel) if extents[a] > 1), None)
        return cls(inner, rows, columns, bool(tiled))


@dataclass(frozen=True)
class Windows:
    """Windows over an image: axes of the result's rows and columns, of their taps, and that of the vectors."""

    rows: int | None
    columns: int
    row_tap: int | None
    column_tap: int
    vector: int
    row_window: Window
    column_window: Window
    lane_step: int
    weights: bool

    @classmethod
    def of(cls, statement: Statement, extents: Extents) -> Windows | None:
        vector = _vector_axis(statement)
        slid = next((w for o in statement.reads if (w := slid_axes(o, statement))), None)
        if vector is None or not slid:
            return None
        column, column_tap, stride, dilation = slid[-1]
        along = column == vector
        columns = Window(1, extents[column_tap], stride, dilation)
        rows, row_tap, row_window = None, None, Window(1, 1)
        if len(slid) > 1:
            rows, row_tap, *step = slid[-2]
            row_window = Window(1, extents[row_tap], *step)
        weights = sum(bool(o.axes & frozenset(statement.loops)) for o in _used(statement)) > 1
        step = stride if along else 1
        return cls(rows, column, row_tap, column_tap, vector, row_window, columns, step, weights)


def _used(statement: Statement) -> list[Operand]:
    """The reads whose elements the arithmetic takes: a pooling's window is none."""
    if not statement.text:
        return list(statement.reads)
    return [
        o for n, o in enumerate(statement.reads) if f"x{n}," in statement.text or f"x{n})" in statement.text
    ]


def slid_axes(operand: Operand, statement: Statement) -> list[tuple[int, int, int, int]]:
    """(axis of the result, axis of the window, stride, dilation) of every dimension that a window slides over."""
    found = []
    for index in operand.index_map:
        results = [t for t in index.terms if t.variable in statement.parallel]
        taps = [t for t in index.terms if t.variable in statement.reduction]
        if len(results) == 1 and len(taps) == 1:
            found.append((results[0].variable, taps[0].variable, results[0].scale, taps[0].scale))
    return found


def steps_of(statement: Statement, loops: str) -> list[int]:
    """The axes of the reduction, outer first, whose steps blocks are runs of: all of them; channels, in Winograd's products."""
    if loops != "winograd":
        return list(statement.reduction)
    taps = {tap for operand in statement.reads for _, tap, *_ in slid_axes(operand, statement)}
    return [axis for axis in statement.reduction if axis not in taps]


@dataclass(frozen=True)
class Groups:
    """Vectors over several groups of few channels: steps of `row` are in registers, `window` its taps, if any."""

    group: int
    result: int
    inner: int
    row: int
    window: int | None

    @classmethod
    def of(cls, statement: Statement, extents: Extents) -> Groups | None:
        last = [index.terms[0].variable for index in statement.result.index_map if index.terms]
        if len(last) < 3 or len(statement.reads) < 2:
            return None
        group, result = last[-2:]
        for weight in statement.reads:
            if not packed_block(weight, group):
                continue
            data = next(o for o in statement.reads if o is not weight)
            inner = axes_of(data)[-1]
            rows = [a for a in statement.parallel if a not in weight.axes]
            if not rows:
                return None
            row = max(rows, key=lambda a: (min(extents[a], 8), statement.parallel.index(a)))
            slid = {axis: tap for axis, tap, *_ in slid_axes(data, statement)}
            return cls(group, result, inner, row, slid.get(row))
        return None


def attention_loops(statement: Statement) -> tuple[int, int, int, int, int]:
    """Heads, queries, keys, the products' length and the values' of an attention."""
    before, _, after = statement.text.partition("loops = [")
    if not after:
        raise ValueError(f"an attention says its loops, found `{before[:60]}`")
    *heads, queries, keys, inner, width = (int(size) for size in after.partition("]")[0].split(","))
    count = 1
    for size in heads:
        count *= size
    return count, queries, keys, inner, width


def lanes_along(extent: int, lanes: int) -> int:
    """Lanes of vectors along a reduction: no more than it fills."""
    return min(lanes, power_below(max(1, extent)))
