"""Depthwise convolutions and poolings on channels-last data: windows unrolled over a small image of accumulators.

scf.for h step 2 { scf.for w step 5 { scf.for c step 16 {
  %sum[i, j] = fill                                           // i = 0 .. 1, j = 0 .. 4: ten registers
  for every input row that the tile's windows reach:
    %x[j] = vector.load X[h + row, w + j, c]                  // each once
    %sum[i, j] += %x[j + kw] * K[row - i, kw, c]
  vector.store %sum[i, j], Y[h + i, w + j, c]
} } }

Channels run innermost: memory is read in the order in which it lies, and weights come from the nearest cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.compiler.affine_access import map_dims
from tilewright.compiler.ir import affine, ir, memref, vector
from tilewright.compiler.kernels.loop_nest import LoopNest
from tilewright.compiler.kernels.reduction import Structure, vectorize_body
from tilewright.compiler.kernels.vector_epilogue import Store
from tilewright.compiler.tuning.register_tile import register_pieces
from tilewright.compiler.tuning.window_tile import WindowTile


@dataclass(frozen=True)
class WindowPlan:
    """The loops of a windowed reduction: `rows_dim` and `columns_dim` of the output, `row_tap` and `column_tap` of
    the window (None where there is none), and how many of the former `tile` takes; `row_step` is how far the input row moves per
    output row and per tap."""

    rows_dim: int | None
    columns_dim: int
    row_tap: int | None
    column_tap: int
    row_step: tuple[int, int]
    vector_dim: int
    tile: WindowTile
    lanes: int


Point = tuple[int, int, int, int]
"""One accumulator: its row and column in the tile, its offset along the vector loop, its lanes."""


class WindowLoops(LoopNest):
    """Writes the loops of one windowed reduction at the current insertion point."""

    def __init__(
        self, reduction: Structure, plan: WindowPlan, fill: ir.Value | None, store: Store | None = None
    ):
        super().__init__(reduction.maps, reduction.extents)
        self.r, self.plan, self.fill = reduction, plan, fill
        self.operands = list(reduction.op.operands)
        self.store = store or (lambda value, place: vector.store(value, self.operands[-1], place))
        self.read = [len(list(argument.uses)) > 0 for argument in reduction.body.arguments]

    def emit(self) -> None:
        plan, tile = self.plan, self.plan.tile
        tiled = {plan.rows_dim, plan.columns_dim, plan.vector_dim}

        def rows() -> None:
            self.tiles(plan.rows_dim, tile.rows, columns)

        def columns(high: int) -> None:
            self.tiles(plan.columns_dim, tile.columns, lambda wide: channels(high, wide))

        def channels(high: int, wide: int) -> None:
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
            for column_tap in range(self.extents[plan.column_tap]):
                taps = {plan.column_tap: column_tap}
                if plan.row_tap is not None:
                    taps[plan.row_tap] = row_tap
                for number, point in enumerate(points):
                    if point[0] == row:
                        sums[number] = self._step(sums[number], point, {**self._moved(point), **taps}, loaded)
        return sums

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
            if self.plan.vector_dim in used:
                loaded[key] = vector.load(type_, self.operands[operand], place)
            else:
                loaded[key] = vector.broadcast(type_, memref.load(self.operands[operand], place))
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
