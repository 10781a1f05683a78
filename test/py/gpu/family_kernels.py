"""Kernels of one family of a test's choosing: the dispatch is read, its schedule completed, and its kernel written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

from tilewright.compiler.families.gpu.families import FAMILIES
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import Target

Emit = Callable[[ir.Operation, Schedule | None, Target], ir.Module]


def completed(family: str, function: ir.Operation, asked: Schedule | None, target: Target) -> Schedule:
    """The schedule that the family makes of what is asked; of one for another family's kernel, without that. Raises Declined."""
    with function.context, function.location:
        problem = _module(family, "family").match(function, target)
        return _module(family, "choice").complete(problem, _own(family, asked), target)


def emitter(family: str) -> Emit:
    """Writes kernels of one family; raises Declined for what the family does not compute."""

    def emit(function: ir.Operation, asked: Schedule | None, target: Target) -> ir.Module:
        with function.context, function.location:
            problem = _module(family, "family").match(function, target)
            schedule = _module(family, "choice").complete(problem, _own(family, asked), target)
            return _module(family, "family").emit(problem, schedule, target)

    return emit


def _module(family: str, name: str):
    return import_module(f"tilewright.compiler.families.{family}.{name}")


def _own(family: str, asked: Schedule | None) -> Schedule:
    if asked is None or asked.gpu is None or asked.gpu.kernel in FAMILIES[family]:
        return asked or Schedule()
    return replace(asked, gpu=replace(asked.gpu, kernel=""))
