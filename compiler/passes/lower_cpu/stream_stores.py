"""stream-stores: results that the schedule says so of are stored past the caches, which saves reading what is overwritten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.dialects.reduction_attribute import STREAM
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.cpu.reduction import Structure
from tilewright.compiler.families.cpu.streamed_loops import Streamed, StreamedLoops
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.pipeline.pass_base import Pass

FENCE = "tilewright.fence"
"""Marks a kernel whose stores the machine may show to other threads later than what follows them."""


@dataclass(frozen=True)
class StreamStores(Pass):
    """Vectorises element-wise operations that are marked `tilewright.stream`, with stores past the caches.

    Before: linalg.generic {(i) -> (i), (i) -> (i)} ins(%x) outs(%y : memref<16777216xf32>) attrs = {tilewright.stream} { negf }
    After:  scf.for %i from the first aligned element { vector.store ... {nontemporal, alignment = 64} }
            // and the function is marked `tilewright.fence`: a fence stands behind all rTasks of a call

    Raises ScheduleError for one that has no dense rows of 16 vectors or more.
    """

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            if STREAM not in generic.attributes:
                continue
            structure = Structure.read(generic)
            plan = Streamed.read(structure, self.vector_bits) if structure is not None else None
            if structure is None or plan is None:
                raise ScheduleError(
                    f"dispatch @{ir.StringAttr(op.attributes['sym_name']).value}: illegal schedule: stream is true, but "
                    "an rTask's results are no dense rows of 16 vectors or more, each written once; leave stream out",
                    generic.location,
                )
            with ir.InsertionPoint(generic), generic.location:
                StreamedLoops(structure, plan, self.vector_bits).emit()
            generic.erase()
            op.attributes[FENCE] = ir.UnitAttr.get()
