"""What a family of GPU kernels offers: it reads a dispatch, completes a schedule for it, and writes that schedule's kernel.

    family.match(function, target)                -> problem     what the kernel is about, or why it is none of the family's
    choice.complete(problem, request, target)     -> Schedule    every choice made; nothing is written
    space.space(problem, constructed, target)     -> Space       all schedules of the kernel that `constructed` is one of
    family.emit(problem, schedule, target)        -> module      exactly that kernel, or an error that names field and rule

`family`, `choice` and `space` are modules of the family's folder. What `family` and `space` import imports no `choice`, and
nothing of tuning. Both read the same rules (`families/tile_space.py`): what a space calls legal is what is emitted.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Protocol

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.nouns.space import Space
from tilewright.compiler.targets.target import Target


class Declined(Exception):
    """A dispatch is none of a family's; the message says why."""


class Family(Protocol):
    """The module `family` of a family's folder."""

    def match(self, function: ir.Operation, target: Target) -> Any:
        """The dispatch as the family's kernels compute it; raises Declined."""
        ...

    def emit(self, problem: Any, schedule: Schedule, target: Target) -> ir.Module:
        """The kernel that a complete schedule describes; raises ScheduleError for a schedule that no kernel has."""
        ...


class Spaces(Protocol):
    """The module `space` of a family's folder."""

    def space(self, problem: Any, constructed: Schedule, target: Target) -> Space:
        """All schedules of the kernel that a complete one names, which is the space's default."""
        ...


class Chooser(Protocol):
    """The module `choice` of a family's folder."""

    def complete(self, problem: Any, request: Schedule, target: Target) -> Schedule:
        """The schedule with all that a request leaves open; raises ScheduleError for one that no kernel has.

        Raises Declined where the request names no kernel and those of other families are expected to be faster.
        """
        ...


def require(said: GpuTile, *names: str) -> None:
    """Raises ScheduleError for a field that a kernel is made of and that a schedule leaves open."""
    for name in names:
        if not getattr(said, name):
            raise ScheduleError(f"gpu.{name} is open; kernels of family {said.kernel} are written from it")


def broken(asked: Schedule, made: Schedule) -> str | None:
    """The first rule that a kernel breaks of the schedule that it was asked for; None where it keeps all."""
    for field in ("reductions", "prefetch", "stream", "unroll", "vector"):
        if getattr(asked, field):
            return f"{field} is of kernels for CPUs; leave it out, gpu says how this one is built"
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


def inexact(said: Schedule, made: Schedule) -> str | None:
    """Where a kernel is something else than its complete schedule says, or more; None where it is exactly that."""
    if (any(said.tile) or any(made.tile)) and said.tile != made.tile:
        return f"tile is {list(said.tile)}, the kernel's is {list(made.tile)}"
    wanted, found = said.gpu or GpuTile(), made.gpu or GpuTile()
    for field in fields(GpuTile):
        own, has = getattr(wanted, field.name), getattr(found, field.name)
        if own != has:
            state = f"is {list(own) if isinstance(own, tuple) else own}" if own else "is open"
            return (
                f"gpu.{field.name} {state}, the kernel of family {found.kernel} for this dispatch has "
                f"{list(has) if isinstance(has, tuple) else has or 'none'}"
            )
    return None
