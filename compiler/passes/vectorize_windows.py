"""Turns depthwise convolutions and poolings into vector loops that read each input once per tile of outputs.

    linalg.generic (h, w, c, kh, kw) Y[h, w, c] += X[h + kh, w + kw, c] * K[kh, kw, c]     // memrefs, static

becomes the nest that `window_loops.py` shows, for a tile of rows x columns x registers of channels that
`choose_window_tile` takes. `vectorize-reductions` would do it too, one output row at a time and with a load for
every multiply-add, which halves its speed: a depthwise convolution has no other re-use than that of its windows.
What follows element by element is computed before the results leave their registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.affine_access import dims, is_contiguous_along, is_dim, map_dims, packing, terms
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.kernels.reduction import Structure, take_fill
from tilewright.compiler.kernels.vector_epilogue import Epilogue
from tilewright.compiler.kernels.window_loops import WindowLoops, WindowPlan
from tilewright.compiler.passes.base import Pass
from tilewright.compiler.tuning.window_tile import Window, choose_window_tile

_FEWEST_LANES = 4
_MOST_TAPS = 64
"""Taps of one window that are unrolled: beyond it, code grows and nothing else gains."""


@dataclass(frozen=True)
class VectorizeWindows(Pass):
    """Rewrites reductions over windows on memrefs; `vector_bits` and `registers` describe the target.

    Left to `vectorize-reductions`: windows whose channels do not run innermost, operands packed in blocks, more than
    64 taps, windows of one tap, and reductions over anything else beside the window.
    """

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512
    registers: int = 32

    def run(self, op: ir.Operation) -> None:
        # Decided for all before the first is rewritten, which takes other operations with it.
        planned = []
        for generic in walk(op, "linalg.generic"):
            reduction = Structure.read(generic)
            plan = self.plan(reduction) if reduction is not None and reduction.reduction else None
            if reduction is not None and plan is not None:
                planned.append((reduction, plan))
        for reduction, plan in planned:
            epilogue = Epilogue.after(reduction.op)
            last = epilogue.op if epilogue else reduction.op
            with ir.InsertionPoint(last), last.location:
                store = epilogue.store if epilogue else None
                WindowLoops(reduction, plan, take_fill(reduction.op), store).emit()
            if epilogue:
                epilogue.op.erase()
            reduction.op.erase()

    def plan(self, reduction: Structure) -> WindowPlan | None:
        """The loops and the tile, None where the reduction is not over windows of channels-last data."""
        output = reduction.maps[-1]
        if not reduction.vectorizable or not all(is_dim(e) for e in output.results) or not output.results:
            return None
        vector_dim = output.results[-1].position
        read = [m for m, a in zip(reduction.maps[:-1], reduction.body.arguments) if len(list(a.uses))]
        moving = [m for m in read if vector_dim in map_dims(m)]
        strides = [s for m, s in zip(reduction.maps, reduction.unit_stride) if vector_dim in map_dims(m)]
        if (
            not all(strides)
            or not all(is_contiguous_along(m, vector_dim, 1) for m in moving)
            or any(packing(m, d) is not None for m in read for d in range(m.n_dims))
            or reduction.extents[vector_dim] < _FEWEST_LANES
        ):
            return None
        data = [w for m in moving if (w := _windows(m, reduction)) is not None]
        if len(data) != 1:
            return None
        (windows,) = data
        taps = [tap for _, tap, _, _ in windows]
        count = 1
        for tap in reduction.reduction:
            count *= reduction.extents[tap]
        others = [d for d in reduction.reduction if d not in taps and reduction.extents[d] > 1]
        if others or not 1 < count <= _MOST_TAPS or any(vector_dim == window[0] for window in windows):
            return None
        columns_dim, column_tap, stride, dilation = windows[-1]
        columns = Window(reduction.extents[columns_dim], reduction.extents[column_tap], stride, dilation)
        rows_dim, row_tap, row_step, rows = None, None, (0, 0), Window(1, 1)
        if len(windows) > 1:
            rows_dim, row_tap, *row_step = windows[-2]
            rows = Window(reduction.extents[rows_dim], reduction.extents[row_tap], *row_step)
        lanes = max(1, self.vector_bits // reduction.accumulator_bits)
        tile = choose_window_tile(
            rows, columns, reduction.extents[vector_dim], lanes, self.registers, len(read) > 1
        )
        return WindowPlan(
            rows_dim, columns_dim, row_tap, column_tap, tuple(row_step), vector_dim, tile, lanes
        )


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
