"""Makes a kernel compute one rTask: the grid of its `scf.forall` becomes the task id.

scf.forall (%i, %j) = (0, 0) to (128, 64) step (32, 64) { body }
  =>
%i = (%task floordiv 1) mod 4 * 32, %j = 0 ; body                   tilewright.tasks = 4

A kernel that `tilewright.replaces` an argument reads it where it writes its result from here on: LLVM knows then that every
element is read and written in one place, and not that two buffers may overlap in any way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.placement import OVERWRITES, REPLACES, overwritten
from tilewright.compiler.dialects.kernel_form import is_declaration
from tilewright.compiler.ir import affine, arith, ir
from tilewright.compiler.pipeline.pass_base import Pass

TASKS = "tilewright.tasks"


@dataclass(frozen=True)
class MapTasks(Pass):
    """Replaces the function's top-level `scf.forall` by its body at the task given as first argument."""

    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation) -> None:
        if is_declaration(op):
            return
        block = op.regions[0].blocks[0]
        if not len(block.arguments) or not isinstance(block.arguments[0].type, ir.IndexType):
            raise self.refusal(op, "expected an rTask index as first argument; run `form-kernels` first")
        if REPLACES in op.attributes:
            self.read_in_place(op, list(block.arguments)[1:-2])
        foralls = [o.operation for o in block.operations if o.operation.name == "scf.forall"]
        if len(foralls) > 1:
            raise self.refusal(
                foralls[1],
                f"expected one top-level scf.forall, found {len(foralls)}; fuse them into one grid",
            )
        if foralls:
            self.check_outside(block)
        tasks = _inline(foralls[0], block.arguments[0]) if foralls else 1
        op.attributes[TASKS] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), tasks)

    def read_in_place(self, op: ir.Operation, buffers: list[ir.Value]) -> None:
        """Reads the argument that is written over where the result, the last of the buffers, lies."""
        number = overwritten(op)
        if number >= len(buffers) - 1 or buffers[number].type != buffers[-1].type:
            expected = "the number of an argument of the result's type"
            raise self.refusal(op, f"`{OVERWRITES}`: expected {expected}, found {number}")
        buffers[number].replace_all_uses_with(buffers[-1])

    def check_outside(self, block: ir.Block) -> None:
        """Raises PassError when anything beside the grid writes memory: every rTask would repeat it."""
        for view in block.operations:
            op = view.operation
            if not op.name.startswith(_HARMLESS):
                raise self.refusal(
                    op,
                    f"`{op.name}` stands outside of the grid of rTasks; "
                    "the schedule has to leave the dispatch whole, with tile = []",
                )


_HARMLESS = (
    "arith.",
    "affine.",
    "memref.alloc",
    "memref.subview",
    "memref.cast",
    "memref.expand_shape",
    "memref.collapse_shape",
    "memref.reinterpret_cast",
    "memref.get_global",
    "memref.dealloc",
    "func.return",
    "scf.forall",
    "math.",
    "complex.",
    "ub.",
    "index.",
)


def _inline(forall: ir.Operation, task: ir.Value) -> int:
    lowers, uppers, steps = (
        list(forall.attributes[name]) for name in ("staticLowerBound", "staticUpperBound", "staticStep")
    )
    counts = [-(-(upper - lower) // step) for lower, upper, step in zip(lowers, uppers, steps)]
    body = forall.regions[0].blocks[0]
    with ir.InsertionPoint(forall), forall.location:
        inner = 1
        for position in reversed(range(len(counts))):
            d0 = ir.AffineExpr.get_dim(0)
            number = ir.AffineExpr.get_mod(ir.AffineExpr.get_floor_div(d0, inner), counts[position])
            start = number * steps[position] + lowers[position]
            value = (
                affine.apply(ir.AffineMap.get(1, 0, [start]), [task])
                if counts[position] > 1
                else arith.constant(ir.IndexType.get(), lowers[position])
            )
            body.arguments[position].replace_all_uses_with(value)
            inner *= counts[position]
    for op in list(body.operations)[:-1]:
        op.operation.move_before(forall)
    forall.erase()
    return math.prod(counts)
