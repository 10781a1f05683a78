"""Chooses what a schedule leaves open, by writing the kernel."""

from __future__ import annotations

from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.kernel_form import kernel_of
from tilewright.compiler.families.fallback.family import emit
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.targets.target import Target


def complete(function: ir.Operation, wish: Schedule, target: Target) -> Schedule:
    """What the kernel says that it is made of; raises as `emit` does."""
    module = emit(function, wish, target)
    schedule = schedule_attribute.read(kernel_of(module))
    assert schedule is not None, "kernels say what they are made of"
    return schedule
