"""What a family of kernels says of a dispatch: it declines, or it knows what its kernel is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.kernel_form import kernel_of
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.schedule import Schedule


class Declined(Exception):
    """A dispatch is none of a family's; the message says why."""


@dataclass(frozen=True)
class Decision:
    """A kernel: the schedule that it has, every field of it, and how to write its module."""

    schedule: Schedule
    write: Callable[[], ir.Module]

    @classmethod
    def of(cls, module: ir.Module) -> Decision:
        """The decision of a kernel that is written already."""
        schedule = schedule_attribute.read(kernel_of(module))
        assert schedule is not None, "kernels say what they are made of"
        return cls(schedule, lambda: module)
