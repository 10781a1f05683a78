"""The family of contractions: matrix products and convolutions with what lies behind them, one kernel per dispatch."""

from __future__ import annotations

from tilewright.compiler import debug
from tilewright.compiler.gpu.kernels import contraction_tiles
from tilewright.compiler.gpu.kernels.contraction_problem import NotContraction, read_contraction
from tilewright.compiler.ir import ir
from tilewright.compiler.schedule import Schedule
from tilewright.compiler.target import Target


def emit(function: ir.Operation, schedule: Schedule, target: Target) -> ir.Module | None:
    """The dispatch's kernel in gpu-level IR; None, with the reason in the debug log, for one that is no contraction.

    Raises ScheduleError for a schedule of a contraction that no kernel can follow.
    """
    name = ir.StringAttr(function.attributes["sym_name"]).value
    asked = schedule.gpu
    if asked is not None and asked.kernel not in ("", "simt", "mma", "wgmma", "skinny"):
        debug.log(2, f"{name}: its schedule asks for kernel {asked.kernel}, no contraction")
        return None
    with function.context, ir.Location.unknown(function.context):
        try:
            contraction = read_contraction(function)
        except NotContraction as reason:
            debug.log(2, f"{name} is no contraction: {reason}")
            return None
        tile = contraction_tiles.choose(contraction, asked, target)
        debug.log(2, f"{name}: {tile}")
        return contraction_tiles.emit(contraction, tile)
