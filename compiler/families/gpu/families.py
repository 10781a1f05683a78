"""Families of kernels: the one that a schedule names writes the dispatch's kernel, as the schedule says, or it is refused.

What a family offers says `families/contract.py`. A schedule that leaves something open is completed here, by the chooser of
its family; what a kernel is made of is what its complete schedule says, no more and no less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from tilewright.compiler import debug
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.kernel_form import kernel_of
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.contract import Chooser, Declined, Family, Spaces, broken, inexact
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import Space
from tilewright.compiler.targets.target import Target

FAMILIES = {
    "wgmma": ("wgmma",),
    "contraction": ("simt", "mma", "skinny"),
    "attention": ("attention", "wgmma"),
    "elementwise": ("elementwise", "windows", "transpose", "scatter"),
    "rows": ("rows", "sort", "scan"),
    "fallback": ("fallback",),
}
"""Folders of `compiler/families` and the kernels that they write, the most specialised first; the last one takes
every dispatch."""
_PRODUCTS = ("wgmma", "contraction")
"""Families that are not asked for dispatches whose schedules were constructed for kernels that are none of theirs."""


@dataclass(frozen=True)
class Completed:
    """A dispatch as its family reads it, and a schedule that says all that its kernel is made of."""

    function: ir.Operation
    family: str
    problem: Any
    schedule: Schedule

    @property
    def kernel(self) -> str:
        """The name of the kernel."""
        assert self.schedule.gpu is not None
        return self.schedule.gpu.kernel


def complete(function: ir.Operation, request: Schedule, target: Target) -> Completed:
    """The first family that takes a dispatch, among those that have the kernel that a request names, with every choice made.

    What the request says stays as it is. Raises ScheduleError for a schedule that no kernel has, PassError for what no
    kernel can compute.
    """
    wanted = request.gpu.kernel if request.gpu is not None else ""
    order = [name for name, kernels in FAMILIES.items() if not wanted or wanted in kernels]
    found, reasons = _first(function, request, target, order)
    if found is None:
        raise ScheduleError(
            f"{_place(function, target)}: gpu.kernel is `{wanted}`, which does not compute it: "
            f"{'; '.join(reasons)}; name another kernel, or none",
            function.location,
        )
    if (rule := broken(request, found.schedule)) is not None:
        raise ScheduleError(f"{_place(function, target)}: {rule}", function.location)
    return found


def emit(completed: Completed, target: Target) -> ir.Module:
    """The kernel of a complete schedule in gpu-level IR.

    Raises ScheduleError for a field that is open, for a rule that is broken, and for what kernels of the family do not have.
    """
    function = completed.function
    with function.context, function.location:
        try:
            module = _family(completed.family).emit(completed.problem, completed.schedule, target)
        except Declined as reason:
            raise ScheduleError(
                f"{_place(function, target)}: [{completed.schedule.text()}]: {reason}", function.location
            ) from None
        made = schedule_attribute.read(kernel_of(module))
    assert made is not None, "kernels say what they are made of"
    if (rule := inexact(completed.schedule, made)) is not None:
        raise ScheduleError(f"{_place(function, target)}: {rule}", function.location)
    debug.log(2, f"{_name(function)}: a kernel of family {completed.kernel}")
    return module


def space_of(completed: Completed, target: Target) -> Space:
    """All schedules of a dispatch's kernel; the complete one is what to use without a search."""
    function = completed.function
    with function.context, function.location:
        return _spaces(completed.family).space(completed.problem, completed.schedule, target)


def constructed(function: ir.Operation, request: Schedule, target: Target) -> Schedule:
    """The complete schedule that comes nearest to a request: the first family that takes the dispatch has the last word.

    Raises PassError for what no kernel can compute.
    """
    wanted = request.gpu.kernel if request.gpu is not None else ""
    order = [name for name in FAMILIES if not wanted or wanted in FAMILIES[name] or name not in _PRODUCTS]
    if request.gpu is not None and wanted in FAMILIES["elementwise"]:
        # That family knows best which of its kernels it is.
        request = replace(request, gpu=replace(request.gpu, kernel=""))
        order.sort(key=lambda family: family != "elementwise")
    try:
        found, _ = _first(function, request, target, order)
    except ScheduleError as refusal:
        debug.log(1, f"{_name(function)}: {refusal}")
        found, _ = _first(function, Schedule(), target, list(FAMILIES))
    assert found is not None  # the last family takes every dispatch
    return replace(found.schedule, levels=request.levels)


def _first(
    function: ir.Operation, request: Schedule, target: Target, order: Sequence[str]
) -> tuple[Completed | None, list[str]]:
    """The first family to take the dispatch, and why those before it did not take it.

    A family that has not the kernel that a request names is asked for any of its own.
    """
    wanted = request.gpu.kernel if request.gpu is not None else ""
    reasons = []
    for name in order:
        own = request
        if request.gpu is not None and wanted not in FAMILIES[name]:
            own = replace(request, gpu=replace(request.gpu, kernel=""))
        try:
            with function.context, function.location:
                problem = _family(name).match(function, target)
                schedule = _chooser(name).complete(problem, own, target)
                return Completed(function, name, problem, schedule), reasons
        except Declined as reason:
            reasons.append(str(reason))
            debug.log(3, f"{_name(function)}: not of family {name}: {reason}")
    return None, reasons


def _family(name: str) -> Family:
    return import_module(f"tilewright.compiler.families.{name}.family")  # type: ignore[return-value]


def _chooser(name: str) -> Chooser:
    return import_module(f"tilewright.compiler.families.{name}.choice")  # type: ignore[return-value]


def _spaces(name: str) -> Spaces:
    return import_module(f"tilewright.compiler.families.{name}.space")  # type: ignore[return-value]


def _name(function: ir.Operation) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value


def _place(function: ir.Operation, target: Target) -> str:
    return f"dispatch @{_name(function)} on {target.name}"
