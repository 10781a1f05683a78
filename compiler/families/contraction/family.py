"""The family of contractions: matrix products and convolutions with what lies behind them, one kernel per dispatch."""

from __future__ import annotations

from tilewright.compiler.families.contraction import mma_gemm, simt_gemm, skinny_gemm, volta_gemm
from tilewright.compiler.families.contraction.mma_gemm import MmaTile
from tilewright.compiler.families.contraction.problem import Contraction, read_contraction
from tilewright.compiler.families.contraction.rules import tile_of
from tilewright.compiler.families.contraction.skinny_gemm import SkinnyTile
from tilewright.compiler.families.contraction.tiles import KernelTile
from tilewright.compiler.families.contraction.volta_gemm import VoltaTile
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.target import Target


def match(function: ir.Operation, target: Target) -> Contraction:
    """The product that a dispatch is; raises NotContraction for one that is none."""
    return read_contraction(function)


def emit(contraction: Contraction, schedule: Schedule, target: Target) -> ir.Module:
    """The kernel that a complete schedule describes; raises ScheduleError for one that no kernel has."""
    return written(contraction, tile_of(contraction, schedule.gpu or GpuTile(), target))


def written(contraction: Contraction, tile: KernelTile) -> ir.Module:
    """The kernel's gpu-level IR."""
    if isinstance(tile, SkinnyTile):
        return skinny_gemm.emit_skinny(contraction, tile)
    if isinstance(tile, MmaTile):
        return mma_gemm.emit_mma(contraction, tile)
    if isinstance(tile, VoltaTile):
        return volta_gemm.emit_volta(contraction, tile)
    return simt_gemm.emit_simt(contraction, tile)
