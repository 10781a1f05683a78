"""The family of contractions: matrix products and convolutions with what lies behind them, one kernel per dispatch."""

from __future__ import annotations

from tilewright.compiler.families.contraction import tiles as contraction_tiles
from tilewright.compiler.families.contraction.problem import NotContraction, read_contraction
from tilewright.compiler.families.decision import Decision
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import Target

KERNELS = ("simt", "mma", "skinny")
"""What the family writes."""


def emit(function: ir.Operation, schedule: Schedule, target: Target) -> ir.Module:
    """The dispatch's kernel in gpu-level IR; raises as `decide` does."""
    return decide(function, schedule, target).write()


def decide(function: ir.Operation, schedule: Schedule, target: Target) -> Decision:
    """The tile of the dispatch's kernel; raises NotContraction for a dispatch that is none.

    Raises ScheduleError for a schedule of a contraction that no kernel can follow.
    """
    asked = schedule.gpu
    if asked is not None and asked.kernel not in ("", *KERNELS):
        raise NotContraction(f"its schedule asks for kernel {asked.kernel}")
    with function.context, ir.Location.unknown(function.context):
        contraction = read_contraction(function)
        tile = contraction_tiles.choose(contraction, asked, target)

    def write() -> ir.Module:
        with function.context, ir.Location.unknown(function.context):
            return contraction_tiles.emit(contraction, tile)

    return Decision(Schedule(gpu=tile.gpu), write)
