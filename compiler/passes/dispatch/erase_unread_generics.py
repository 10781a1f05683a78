"""Erases linalg operations that nobody reads, run-time checks inside them included.

Fusion leaves the original of a producer behind when its body holds a `cf.assert`: the check has moved into the
consumers with the rest of the body, but keeps the original alive, of numbers without operands and results even.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.ir import ir, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class EraseUnreadGenerics(Pass):
    """Erases unread `linalg.generic` ops of a module, consumers first."""

    def run(self, op: ir.Operation) -> None:
        for generic in reversed(walk(op, "linalg.generic")):
            writes = any(isinstance(value.type, ir.MemRefType) for value in generic.operands)
            if not writes and not any(len(list(result.uses)) for result in generic.results):
                generic.erase()
