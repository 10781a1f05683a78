"""Turns reductions over tiles in memory into register-tiled vector loops.

    linalg.generic (m, n, k) C[m, n] += A[m, k] * B[k, n]        // memrefs, static extents

becomes, for register tile unroll = 12 and vector = 32,

    scf.for n0 step 32 { scf.for m0 step 12 {
      %acc:12 = scf.for k iter_args(12 x vector<32xf32>) {
        %b = vector.load B[k, n0]
        %acc_t += broadcast(A[m0 + t, k]) * %b                   // t = 0 .. 11
      }
      vector.store %acc_t, C[m0 + t, n0]
    } }

The vector dimension is the innermost loop of the output; every input must move along it with unit stride or
not at all, so one rule covers matmul, direct convolution on channels-last data with packed weights, depthwise
convolution, pooling and column sums. Any arith/math body vectorises. Remainders get their own static copies.

Upstream's linalg vectoriser accepts only projected permutations, which strided windows and packed weights
(`n floordiv 32, k, n mod 32`) are not, and its accumulators reach registers only after several rounds of
patterns (60 ms for one matmul against 2 ms here), hence this rewrite.

A short element-wise operation behind the reduction (a bias, a relu, a sum with a shortcut) is computed on the
accumulators before they are stored, see `vector_epilogue.py`.

Where the reduction itself is contiguous (row sums, products with the rows of a matrix), vectors run along it and
hold partial results, see `contiguous_loops.py`; terms are then regrouped, as `docs/numerics.md` allows.

Convolutions of few channels per group, whose weights `pack-contractions` stored for it, fill vectors with several
groups, see `grouped_loops.py`.

Reductions it refuses (booleans, index bodies, dynamic extents) are left to scalar loops, marked so that LLVM may
reassociate and vectorise them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.affine_access import (
    dims,
    is_contiguous_along,
    is_dim,
    map_dims,
    packing,
    stride_along,
)
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.kernels.broadcast_loops import BroadcastLoops, BroadcastPlan
from tilewright.compiler.kernels.contiguous_loops import ContiguousLoops, ContiguousPlan
from tilewright.compiler.kernels.grouped_loops import GroupedLoops, GroupedPlan
from tilewright.compiler.kernels.reduction import Combination, Structure, allow_reassociation, take_fill
from tilewright.compiler.kernels.vector_epilogue import Epilogue
from tilewright.compiler.passes.base import Pass
from tilewright.compiler.tuning.register_tile import (
    choose_dot_tile,
    choose_register_tile,
    packed_widths,
    rows_in_one_set,
)

_FEWEST_LANES = 4


@dataclass(frozen=True)
class VectorizeReductions(Pass):
    """Register-tiles and vectorises reductions on memrefs.

    `unroll` and `vector` fix the register tile; 0 lets `choose_register_tile` take it from `vector_bits` and
    `registers`.
    """

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512
    registers: int = 32
    unroll: int = 0
    vector: int = 0

    def run(self, op: ir.Operation) -> None:
        # Read before the first is rewritten, which takes the operation behind it along.
        structures = [Structure.read(generic) for generic in walk(op, "linalg.generic")]
        for reduction in structures:
            if reduction is None or not reduction.reduction:
                continue
            grouped = GroupedPlan.read(reduction, self.registers)
            if grouped is not None:
                with ir.InsertionPoint(reduction.op), reduction.op.location:
                    GroupedLoops(reduction, grouped, take_fill(reduction.op)).emit()
                reduction.op.erase()
                continue
            plan = self.plan(reduction)
            combination = Combination.read(reduction.body) if plan is None else None
            along = None if combination is None else self.plan_along(reduction)
            if plan is not None:
                _emit(reduction, plan)
            elif combination is not None and along is not None:
                with ir.InsertionPoint(reduction.op), reduction.op.location:
                    ContiguousLoops(reduction, combination, along, take_fill(reduction.op)).emit()
                reduction.op.erase()
            else:
                allow_reassociation(reduction.op)

    def plan(self, reduction: Structure) -> BroadcastPlan | None:
        """The register tile and the loops it spans, or None when the output cannot be vectorised."""
        output = reduction.maps[-1]
        if not reduction.vectorizable or not output.results or not is_dim(output.results[-1]):
            return None
        vector_dim = output.results[-1].position
        if len([r for r in output.results if vector_dim in dims(r)]) != 1:
            return None
        lanes = max(1, self.vector_bits // reduction.accumulator_bits)
        inputs = reduction.maps[:-1]
        moving = [m for m in inputs if vector_dim in map_dims(m)]
        block = next((b for m in moving if (b := packing(m, vector_dim)) is not None), None)
        if not all(is_contiguous_along(m, vector_dim, block or 1) for m in moving):
            return None
        extent = reduction.extents[vector_dim]
        if not moving or extent < _FEWEST_LANES or not all(reduction.unit_stride):
            return None
        # The loop to unroll re-uses the most vector operands; ties go to the inner loop.
        candidates = [
            (sum(d not in map_dims(m) for m in moving), min(reduction.extents[d], 8), d)
            for d in reduction.parallel
            if d != vector_dim
        ]
        unroll_dim = max(candidates)[2] if candidates else None
        unroll_extent = reduction.extents[unroll_dim] if unroll_dim is not None else 1
        if self.vector and block is not None and block % self.vector:
            raise ScheduleError(
                f"`{self.name()}`: vector {self.vector} crosses the blocks of {block} of a packed operand of "
                f"dispatch @{ir.StringAttr(_function(reduction.op).attributes['sym_name']).value}; use a divisor",
                reduction.op.location,
            )
        widths = None if block is None else packed_widths(block, lanes)
        rows = None if unroll_dim is None else _rows_side_by_side(reduction, unroll_dim, vector_dim)
        tile = choose_register_tile(unroll_extent, extent, lanes, self.registers, widths, rows)
        return BroadcastPlan(
            unroll_dim, vector_dim, self.unroll or tile.unroll, self.vector or tile.vector, lanes
        )

    def plan_along(self, reduction: Structure) -> ContiguousPlan | None:
        """The loops of a reduction whose inputs are contiguous along it, or None when there is no such loop."""
        if not reduction.vectorizable:
            return None
        inputs = reduction.maps[:-1]
        lanes = max(1, self.vector_bits // reduction.accumulator_bits)
        fitting = []
        for loop in reduction.reduction:
            moving = [i for i, m in enumerate(inputs) if loop in map_dims(m)]
            extent = reduction.extents[loop]
            contiguous = all(
                is_contiguous_along(inputs[i], loop, 1) and reduction.unit_stride[i] for i in moving
            )
            if contiguous and moving and extent >= _FEWEST_LANES and loop not in map_dims(reduction.maps[-1]):
                fitting.append((extent, loop))
        if not fitting:
            return None
        extent, inner = max(fitting)
        lanes = min(lanes, 1 << (extent.bit_length() - 1))
        moving = [m for m in inputs if inner in map_dims(m)]
        # Loops along which some vector operand stays the same, those that re-use most first; two re-use different ones.
        reusing = sorted(
            (
                (sum(d not in map_dims(m) for m in moving), reduction.extents[d], d)
                for d in reduction.parallel
            ),
            reverse=True,
        )
        tiled = [d for reuse, size, d in reusing if reuse and size > 1][:2]
        if len(tiled) == 2 and not any(
            tiled[0] in map_dims(m) and tiled[1] not in map_dims(m) for m in moving
        ):
            tiled = tiled[:1]
        rows_dim, columns_dim = min(tiled, default=None), max(tiled) if len(tiled) == 2 else None
        if rows_dim is None:
            rows_dim = max((d for d in reduction.parallel if reduction.extents[d] > 1), default=None)
        tile = choose_dot_tile(
            1 if rows_dim is None else reduction.extents[rows_dim],
            1 if columns_dim is None else reduction.extents[columns_dim],
            extent // lanes,
            self.registers,
            bool(tiled),
        )
        return ContiguousPlan(inner, rows_dim, columns_dim, tile.rows, tile.columns, tile.chains, lanes)


def _rows_side_by_side(reduction: Structure, unroll_dim: int, vector_dim: int) -> int | None:
    """How many steps of the unrolled loop keep what is broadcast in L1 side by side; None when any number does."""
    bounds = []
    for i, map_ in enumerate(reduction.maps[:-1]):
        if unroll_dim in map_dims(map_) and vector_dim not in map_dims(map_):
            strides, _ = ir.MemRefType(reduction.op.operands[i].type).get_strides_and_offset()
            stride = stride_along(map_, unroll_dim, strides)
            bounds.append(rows_in_one_set(stride * reduction.element_bits[i] // 8))
    return min((bound for bound in bounds if bound is not None), default=None)


def _emit(reduction: Structure, plan: BroadcastPlan) -> None:
    """Writes the loops in place of the reduction, and of what follows it element by element."""
    epilogue = Epilogue.after(reduction.op)
    if epilogue is not None and not epilogue.is_short:
        epilogue = None
    unroll = 1 if plan.unroll_dim is None else plan.unroll
    schedule_attribute.write_register_tile(_function(reduction.op), unroll, plan.vector)
    last = epilogue.op if epilogue else reduction.op
    with ir.InsertionPoint(last), last.location:
        store = epilogue.store if epilogue else None
        BroadcastLoops(reduction, plan, take_fill(reduction.op), store).emit()
    if epilogue:
        epilogue.op.erase()
    reduction.op.erase()


def _function(op: ir.Operation) -> ir.Operation:
    while op.name != "func.func":
        op = op.parent.operation
    return op
