"""Depthwise convolutions and poolings: windows unrolled over a small image of accumulators.

scf.for h step 2 { scf.for w step 5 { scf.for c step 16 {
  %sum[i, j] = fill                                           // i = 0 .. 1, j = 0 .. 4: ten registers
  for every input row that the tile's windows reach:
    %x[j] = vector.load X[h + row, w + j, c]                  // each once
    %sum[i, j] += %x[j + kw] * K[row - i, kw, c]              // poolings combine a row of a window once for every i
  vector.store %sum[i, j], Y[h + i, w + j, c]
} } }

Where channels run innermost, memory is read in the order in which it lies, and weights come from the nearest cache.
Where windows slide along the innermost loop, vectors run along that, and every tap has a vector of its own:

    %x[kw] = vector.load X[c, h + row, w + kw]                  // with a stride of 2, every second of 31 elements
    %sum[i] += %x[kw] * broadcast K[c, row - i, kw]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from tilewright.compiler.analysis.affine_access import (
    dims,
    is_dim,
    map_dims,
    packing,
    terms,
)
from tilewright.compiler.families.cpu.loop_nest import LoopNest
from tilewright.compiler.families.cpu.reduction import Combination, Structure, vectorize_body
from tilewright.compiler.families.cpu.strided_load import load_strided
from tilewright.compiler.families.cpu.vector_epilogue import Store
from tilewright.compiler.ir import affine, ir, memref, vector
from tilewright.compiler.nouns.register_tiles import Window, WindowTile, register_pieces

_FEWEST_LANES = 4
_MOST_TAPS = 64
"""Taps of one window that are unrolled: beyond it, code grows and nothing else gains."""
_MOST_STEP = 4
"""Elements between lanes up to which loading all in between costs less than loading them one by one."""


@dataclass(frozen=True)
class Windows:
    """A reduction over windows, as its loops.

    `rows_dim` and `columns_dim` are loops of the output, `row_tap` and `column_tap` of the window (None where there is
    none); `row_step` is how far the input row moves per output row and per tap. `weights`: there is another operand.
    `vector_dim`, of `width` steps, is the channels' loop or that of the columns, whose lanes are then `lane_step` inputs
    apart; `columns` has an extent of one there.
    """

    rows_dim: int | None
    columns_dim: int
    row_tap: int | None
    column_tap: int
    row_step: tuple[int, int]
    vector_dim: int
    rows: Window
    columns: Window
    width: int
    lanes: int
    weights: bool
    lane_step: int = 1
    block: int | None = None

    @classmethod
    def read(cls, reduction: Structure, vector_bits: int) -> Windows | None:
        """None where vectors would not run along memory, operands are packed in blocks, windows have one tap or more
        than 64, and where anything else is reduced over beside the window."""
        output = reduction.maps[-1]
        if not reduction.vectorizable or not all(is_dim(e) for e in output.results) or not output.results:
            return None
        vector_dim = output.results[-1].position
        read = [m for m, a in zip(reduction.maps[:-1], reduction.body.arguments) if len(list(a.uses))]
        moving = [m for m in read if vector_dim in map_dims(m)]
        strides = [s for m, s in zip(reduction.maps, reduction.unit_stride) if vector_dim in map_dims(m)]
        if (
            not all(strides)
            or any(packing(m, d) is not None for m in read for d in range(m.n_dims))
            or reduction.extents[vector_dim] < _FEWEST_LANES
        ):
            return None
        data = [(m, w) for m in moving if (w := _windows(m, reduction)) is not None]
        if len(data) != 1:
            return None
        ((slid, windows),) = data
        taps = [tap for _, tap, _, _ in windows]
        count = math.prod(reduction.extents[tap] for tap in reduction.reduction)
        others = [d for d in reduction.reduction if d not in taps and reduction.extents[d] > 1]
        if others or not 1 < count <= _MOST_TAPS or any(vector_dim == window[0] for window in windows[:-1]):
            return None
        columns_dim, column_tap, stride, dilation = windows[-1]
        lane_step = stride if columns_dim == vector_dim else 1
        if lane_step > _MOST_STEP or not all(
            _lane_step(m, vector_dim) == (lane_step if m == slid else 1) for m in moving
        ):
            return None
        columns = Window(reduction.extents[columns_dim], reduction.extents[column_tap], stride, dilation)
        if columns_dim == vector_dim:
            columns = Window(1, columns.taps)
        rows_dim, row_tap, row_step, rows = None, None, (0, 0), Window(1, 1)
        if len(windows) > 1:
            rows_dim, row_tap, *step = windows[-2]
            row_step = (step[0], step[1])
            rows = Window(reduction.extents[rows_dim], reduction.extents[row_tap], *row_step)
        return cls(
            rows_dim, columns_dim, row_tap, column_tap, row_step, vector_dim, rows, columns,
            reduction.extents[vector_dim], max(1, vector_bits // reduction.accumulator_bits), len(read) > 1, lane_step,
        )  # fmt: skip

    def most(self) -> tuple[int, int, int]:
        """The largest sizes of a tile: beyond, it is what a smaller one is."""
        return self.rows.extent, self.columns.extent, -(-self.width // self.lanes)

    def accumulators(self, sizes: Sequence[int]) -> int:
        """Vector registers that the sums of a tile take."""
        return math.prod(sizes)


Point = tuple[int, int, int, int]
"""One accumulator: its row and column in the tile, its offset along the vector loop, its lanes."""


class WindowLoops(LoopNest):
    """Writes the loops of one windowed reduction at the current insertion point."""

    def __init__(
        self,
        reduction: Structure,
        plan: Windows,
        tile: WindowTile,
        fill: ir.Value | None,
        store: Store | None = None,
    ):
        super().__init__(reduction.maps, reduction.extents)
        self.r, self.plan, self.tile, self.fill = reduction, plan, tile, fill
        self.operands = list(reduction.op.operands)
        self.store = store or (lambda value, place: vector.store(value, self.operands[-1], place))
        self.read = [len(list(argument.uses)) > 0 for argument in reduction.body.arguments]
        self.shared = self._shared()

    def _shared(self) -> Combination | None:
        """How a row of a window is combined once for all windows that it is part of; None where weights differ."""
        combination = Combination.read(self.r.body)
        if combination is None or self.plan.weights or self.plan.row_tap is None:
            return None
        return combination if isinstance(combination.term.owner, ir.Block) else None

    def emit(self) -> None:
        plan, tile = self.plan, self.tile
        tiled = {plan.rows_dim, plan.columns_dim, plan.vector_dim}

        def rows() -> None:
            self.tiles(plan.rows_dim, tile.rows, columns)

        def columns(high: int) -> None:
            if plan.columns_dim == plan.vector_dim:
                vectors(high, 1)
            else:
                self.tiles(plan.columns_dim, tile.columns, lambda wide: vectors(high, wide))

        def vectors(high: int, wide: int) -> None:
            self.tiles(
                plan.vector_dim, tile.vectors * plan.lanes, lambda width: self._tile(high, wide, width)
            )

        self.nest([d for d in self.r.parallel if d not in tiled], rows)

    def tiles(self, dim: int | None, size: int, body: Callable[[int], None]) -> None:
        """Steps of `size`: the last one overlaps where each result is written once, or else is smaller."""
        if dim is not None and self.fill is not None and self.extents[dim] >= size:
            self.overlapping(dim, size, lambda: body(size))
        else:
            self.segments(dim, size, body)

    def _tile(self, high: int, wide: int, width: int) -> None:
        element = ir.ShapedType(self.operands[-1].type).element_type
        points = [
            (row, column, offset, lanes)
            for row in range(high)
            for column in range(wide)
            for offset, lanes in register_pieces(width, self.plan.lanes)
        ]
        types = [ir.VectorType.get([lanes], element) for *_, lanes in points]
        places = [self._place(len(self.maps) - 1, self._moved(point)) for point in points]
        if self.fill is None:
            sums = [vector.load(type_, self.operands[-1], place) for type_, place in zip(types, places)]
        else:
            sums = [vector.broadcast(type_, self.fill) for type_ in types]
        outer = [d for d in self.r.reduction if d not in (self.plan.row_tap, self.plan.column_tap)]
        for value, place in zip(self._reduce(outer, sums, points), places):
            self.store(value, place)

    def _moved(self, point: Point) -> dict[int, int]:
        row, column, offset, _ = point
        moved = {self.plan.columns_dim: column, self.plan.vector_dim: offset}
        if self.plan.rows_dim is not None:
            moved[self.plan.rows_dim] = row
        return moved

    def _reduce(self, loops: list[int], sums: list[ir.Value], points: list[Point]) -> list[ir.Value]:
        if loops:
            first, *rest = loops
            extent = self.extents[first]
            return self.reduce(first, 0, extent, 1, sums, lambda inner: self._reduce(rest, inner, points))
        plan = self.plan
        row_taps = self.extents[plan.row_tap] if plan.row_tap is not None else 1
        steps = [
            (row * plan.row_step[0] + tap * plan.row_step[1], tap, row)
            for tap in range(row_taps)
            for row in sorted({point[0] for point in points})
        ]
        sums, loaded, last = list(sums), {}, None
        # By input row, so that the inputs of one row at a time are in registers; each sum meets its taps in order.
        for input_row, row_tap, row in sorted(steps):
            if input_row != last:
                loaded, last = {key: v for key, v in loaded.items() if key[0] == "weight"}, input_row
            if self.shared is not None:
                self._combine_row(sums, points, row, row_tap, loaded)
                continue
            for column_tap in range(self.extents[plan.column_tap]):
                taps = {plan.column_tap: column_tap}
                if plan.row_tap is not None:
                    taps[plan.row_tap] = row_tap
                for number, point in enumerate(points):
                    if point[0] == row:
                        sums[number] = self._step(sums[number], point, {**self._moved(point), **taps}, loaded)
        return sums

    def _combine_row(
        self, sums: list[ir.Value], points: list[Point], row: int, row_tap: int, loaded: dict
    ) -> None:
        """Adds one row of their windows to the sums of one row of the tile."""
        assert self.shared is not None and self.plan.row_tap is not None
        operand = self.read.index(True)
        for number, point in enumerate(points):
            if point[0] != row:
                continue
            key = ("row", *point[1:])
            if key not in loaded:
                moved = [
                    {**self._moved(point), self.plan.row_tap: row_tap, self.plan.column_tap: tap}
                    for tap in range(self.extents[self.plan.column_tap])
                ]
                taps = [self._load(operand, point, at, loaded) for at in moved]
                loaded[key] = reduce(self.shared.combine, taps)
            sums[number] = self.shared.combine(sums[number], loaded[key])

    def _step(self, total: ir.Value, point: Point, moved: dict[int, int], loaded: dict) -> ir.Value:
        """One tap of one accumulator."""
        values = {}
        for i, argument in enumerate(list(self.r.body.arguments)[:-1]):
            if self.read[i]:
                values[argument] = self._load(i, point, moved, loaded)
        values[self.r.body.arguments[len(self.maps) - 1]] = total
        return vectorize_body(self.r.body, values, point[3])[0]

    def _load(self, operand: int, point: Point, moved: dict[int, int], loaded: dict) -> ir.Value:
        used = map_dims(self.maps[operand])
        kind = "input" if self.plan.columns_dim in used else "weight"
        exprs = self._exprs(operand, moved)
        key = (kind, operand, tuple(map(str, exprs)), point[3])
        if key not in loaded:
            type_ = ir.VectorType.get([point[3]], ir.ShapedType(self.operands[operand].type).element_type)
            place = self._place(operand, moved)
            if self.plan.vector_dim not in used:
                loaded[key] = vector.broadcast(type_, memref.load(self.operands[operand], place))
            elif kind == "input":
                loaded[key] = load_strided(type_, self.operands[operand], place, self.plan.lane_step)
            else:
                loaded[key] = vector.load(type_, self.operands[operand], place)
        return loaded[key]

    def _exprs(self, operand: int, moved: dict[int, int]) -> list[ir.AffineExpr]:
        """The operand's index at the open loops moved on by constants; the window's own loops start at zero."""
        map_ = self.maps[operand]
        taps = (self.plan.row_tap, self.plan.column_tap)
        replaced = [
            ir.AffineExpr.get_constant(moved.get(d, 0))
            if d in taps
            else ir.AffineExpr.get_dim(d) + moved.get(d, 0)
            for d in range(map_.n_dims)
        ]
        inner = ir.AffineMap.get(map_.n_dims, 0, replaced)
        return [ir.AffineExpr.simplify_affine_expr(e.compose(inner), map_.n_dims, 0) for e in map_.results]

    def _place(self, operand: int, moved: dict[int, int]) -> list[ir.Value]:
        n_dims = self.maps[operand].n_dims
        values = [self.ivs.get(d, self.zero) for d in range(n_dims)]
        return [
            affine.apply(ir.AffineMap.get(n_dims, 0, [expr]), values) for expr in self._exprs(operand, moved)
        ]


def _lane_step(map_: ir.AffineMap, vector_dim: int) -> int | None:
    """Elements of the last dimension that one step of the loop moves by; None where it moves any other."""
    *outer, last = map_.results
    factors = _factors(last)
    if factors is None or any(vector_dim in dims(expr) for expr in outer):
        return None
    return factors.get(vector_dim)


def _windows(map_: ir.AffineMap, reduction: Structure) -> list[tuple[int, int, int, int]] | None:
    """(output loop, window loop, stride, dilation) of every dimension that a window slides over, outer first.

    None for an operand without windows, and for one that some dimension of which is neither a window nor a plain loop.
    """
    found = []
    for expr in map_.results:
        if is_dim(expr):
            continue
        factors = _factors(expr)
        parallel = [d for d in dims(expr) if d in reduction.parallel]
        taps = [d for d in dims(expr) if d in reduction.reduction]
        if factors is None or len(parallel) != 1 or len(taps) != 1:
            return None
        found.append((parallel[0], taps[0], factors[parallel[0]], factors[taps[0]]))
    return found or None


def _factors(expr: ir.AffineExpr) -> Mapping[int, int] | None:
    """What each loop is multiplied by in a sum of loops without a constant; None for other expressions."""
    factors: dict[int, int] = {}
    for term in terms(expr):
        if is_dim(term):
            position, factor = term.position, 1
        elif (
            isinstance(term, ir.AffineMulExpr)
            and is_dim(term.lhs)
            and isinstance(term.rhs, ir.AffineConstantExpr)
        ):
            position, factor = term.lhs.position, term.rhs.value
        else:
            return None
        if position in factors or factor < 1:
            return None
        factors[position] = factor
    return factors
