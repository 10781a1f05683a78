"""Puts a schedule on every dispatch that has none, from the sizes of its loops and the target's vectors.

    func private @matmul_128x768x3072(...) {tilewright.operator = "matmul"}
      =>
    func private @matmul_128x768x3072(...) {tilewright.schedule = {tile = [64, 128], unroll = 0, vector = 0}, ...}

The sink's loops that can be cut without recomputation are cut, outer ones first, until there are tasks for all
workers to balance over. A hand-written schedule is left as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.passes.apply_schedule import sink_of
from tilewright.compiler.passes.base import Pass
from tilewright.compiler.schedule import Schedule
from tilewright.compiler.structure import Structured, tileable_loops
from tilewright.compiler.tuning.cut import Cuttable, cut


@dataclass(frozen=True)
class AssignSchedules(Pass):
    """`tasks` is the number of rTasks to aim at, `minimum_work` the scalar operations worth one rTask."""

    tasks: int = 16
    minimum_work: int = 100_000

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview):
            if "tilewright.operator" in function.attributes and schedule_attribute.read(function) is None:
                schedule_attribute.write(function, self.decide(function))

    def decide(self, function: ir.Operation) -> Schedule:
        """The schedule for one dispatch."""
        sink = sink_of(function)
        group = [s for s in map(Structured.read, _operations(function)) if s is not None]
        if sink is None or not group or group[-1].op != sink:
            return Schedule()
        root = group[-1]
        work = sum(s.points * max(1, s.body_ops) for s in group)
        loops = tileable_loops(root, group)
        accumulates = root.accumulates
        main = next((s for s in group if s.is_contraction), None)
        steps = [1] * len(root.extents)
        if main is not None:
            vector_loop = len(root.extents) - 1
            steps[vector_loop] = _packing(main) or 64
            if loops and loops[-1] == vector_loop and len(loops) > 1:
                # Rows first, unless there are too few of them to keep a register tile busy.
                rows = root.extents[loops[-2]]
                steps[loops[-2]] = min(rows, 8) if len(loops) == 2 else rows
                if rows < 64 and len(loops) == 2:
                    loops = (vector_loop, *loops[:-1])
        cuttable = Cuttable(
            root.extents,
            loops,
            tuple(steps),
            accumulates,
            work / (1 if main is None else 8),
            self.minimum_work,
        )
        return Schedule(cut(cuttable, self.tasks))


def _operations(function: ir.Operation) -> list[ir.Operation]:
    return [view.operation for view in function.regions[0].blocks[0].operations]


def _packing(main: Structured) -> int | None:
    """The block `p` that a contraction's operand is stored in, read off `d floordiv p`; None when it is not packed."""
    for map_ in main.maps[:2]:
        for expr in map_.results:
            if isinstance(expr, ir.AffineFloorDivExpr):
                return expr.rhs.value
    return None
