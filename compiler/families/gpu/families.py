"""Families of kernels: the one that a schedule names writes the dispatch's kernel, as the schedule says, or it is refused.

A kernel says what it is made of (`builder.kernel(made=...)`); whatever a schedule asks for must be among that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from importlib import import_module

from tilewright.compiler import debug
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.decision import Decision, Declined
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
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


def emit(function: ir.Operation, target: Target) -> tuple[ir.Module, str]:
    """A dispatch's kernel in gpu-level IR as its schedule says, and the name of its family.

    Where the schedule names no kernel, the first family that takes the dispatch decides. Raises ScheduleError for a
    schedule that no kernel has, PassError for what no kernel can compute.
    """
    schedule = schedule_attribute.read(function) or Schedule()
    name = ir.StringAttr(function.attributes["sym_name"]).value
    wanted = schedule.gpu.kernel if schedule.gpu is not None else ""
    writers = [family for family, kernels in FAMILIES.items() if not wanted or wanted in kernels]
    decided, reasons = _first(function, schedule, target, writers)
    if decided is None:
        raise ScheduleError(
            f"dispatch @{name} on {target.name}: gpu.kernel is `{wanted}`, which does not compute it: "
            f"{'; '.join(reasons)}; name another kernel, or none",
            function.location,
        )
    rule = broken(schedule, decided.schedule)
    if rule is not None:
        raise ScheduleError(f"dispatch @{name} on {target.name}: {rule}", function.location)
    family = decided.schedule.gpu.kernel if decided.schedule.gpu is not None else ""
    debug.log(2, f"{name}: a kernel of family {family}")
    return decided.write(), family


def complete(function: ir.Operation, wish: Schedule, target: Target) -> Schedule:
    """The schedule of the kernel that the first family to take the dispatch makes of a wish, every field of it.

    Raises PassError for what no kernel can compute.
    """
    order = list(FAMILIES)
    if wish.gpu is not None and wish.gpu.kernel in FAMILIES["elementwise"]:
        # That family knows best which of its kernels it is.
        wish = replace(wish, gpu=replace(wish.gpu, kernel=""))
        order.sort(key=lambda family: family != "elementwise")
    try:
        decided, _ = _first(function, wish, target, order)
    except ScheduleError as refusal:
        debug.log(1, f"{function.attributes['sym_name']}: {refusal}")
        decided, _ = _first(function, Schedule(), target, list(FAMILIES))
    assert decided is not None  # the last family takes every dispatch
    return replace(decided.schedule, levels=wish.levels)


def broken(asked: Schedule, made: Schedule) -> str | None:
    """The first rule that a kernel breaks of the schedule that it was asked for; None where it keeps all."""
    if any(asked.tile) and asked.tile != made.tile:
        if not any(made.tile):
            return f"tile is {list(asked.tile)}; only kernels of family fallback are cut so, others say gpu.block"
        return f"tile is {list(asked.tile)}, the kernel's is {list(made.tile)}"
    wanted, found = asked.gpu or GpuTile(), made.gpu or GpuTile()
    for field in fields(GpuTile):
        own, has = getattr(wanted, field.name), getattr(found, field.name)
        shown = list(own) if isinstance(own, tuple) else own
        if field.name == "instruction" and has.startswith(own):
            continue
        if own and own != has:
            if not has:
                return f"gpu.{field.name} is {shown}, which kernels of family {found.kernel} do not have; leave it out"
            return (
                f"gpu.{field.name} is {shown}, the kernel of family {found.kernel} for this dispatch has "
                f"{list(has) if isinstance(has, tuple) else has}"
            )
    return None


def _first(
    function: ir.Operation, schedule: Schedule, target: Target, order: Sequence[str]
) -> tuple[Decision | None, list[str]]:
    """What the first family to take the dispatch decides, and why those before it did not take it."""
    reasons = []
    for family in order:
        decide = import_module(f"tilewright.compiler.families.{family}.family").decide
        try:
            return decide(function, schedule, target), reasons
        except Declined as reason:
            reasons.append(str(reason))
            debug.log(3, f"{function.attributes['sym_name']}: not of family {family}: {reason}")
    return None, reasons
