"""Which emitter writes a dispatch's kernel: the first family, in order, that takes it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from tilewright.compiler import debug
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.ir import ir
from tilewright.compiler.schedule import Schedule
from tilewright.compiler.target import Target

FAMILIES = ("hopper_gemm", "contraction", "attention", "parallel", "rows", "fallback")
"""Modules of `compiler/gpu/kernels`, the most specialised first; the last one takes every dispatch."""

Emit = Callable[[ir.Operation, Schedule, Target], "ir.Module | None"]


def emit(function: ir.Operation, target: Target) -> tuple[ir.Module, str]:
    """A dispatch's kernel in gpu-level IR, and the family that wrote it.

    Raises ScheduleError for a schedule that its family refuses, PassError for what no kernel can compute.
    """
    schedule = schedule_attribute.read(function) or Schedule()
    name = ir.StringAttr(function.attributes["sym_name"]).value
    for family in FAMILIES:
        written = _emitter(family)(function, schedule, target)
        if written is not None:
            debug.log(2, f"{name}: a kernel of family {family}")
            return written, family
    raise AssertionError("the last family takes every dispatch")


def _emitter(family: str) -> Emit:
    return import_module(f"tilewright.compiler.gpu.kernels.{family}").emit
