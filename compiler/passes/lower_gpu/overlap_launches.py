"""Lets a kernel be launched before the one before it has ended, and the next one before it has ended itself.

    gpu.func @k(...) kernel attributes {tilewright.launch = {grid = 4, ...}} { body }
becomes
    gpu.func @k(...) kernel attributes {tilewright.launch = {grid = 4, ..., overlaps = true}} {
      "tilewright.grid_dependency_wait"()
      "tilewright.launch_dependents"()
      body
    }

A kernel that waits already, after what it does without global memory, keeps its own wait. Why results stay the same:

- Every thread waits before it touches global memory, and so before it ends: a kernel ends after the one before it.
  What a wait has seen end is therefore everything that was launched before, and memory may be used again as if
  kernels followed one another.
- The next kernel's blocks start when every block of this one has started, so that blocks which wait never take the
  place of one they wait for. As a block asks for them only after its own wait, no more than two kernels are there.

Source: PTX ISA 8.8, "griddepcontrol"; CUDA programming guide, "Programmatic Dependent Launch and Synchronization".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.gpu.launch import LAUNCH
from tilewright.compiler.gpu.primitives import grid_dependency_wait, launch_dependents
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.pipeline.pass_base import Pass

WAIT = "tilewright.grid_dependency_wait"


@dataclass(frozen=True)
class OverlapLaunches(Pass):
    """Rewrites one kernel; leaves a cooperative one as it is, whose blocks the device starts all at once or not.

    Refuses a wait of the kernel's own that is not in its first block, which is where all threads come.
    """

    anchor: ClassVar[str] = "gpu.func"

    def run(self, op: ir.Operation) -> None:
        fields = {field.name: field.attr for field in ir.DictAttr(op.attributes[LAUNCH])}
        if "cooperative" in fields and ir.BoolAttr(fields["cooperative"]).value:
            return
        entry = op.regions[0].blocks[0]
        waits = walk(op, WAIT)
        for wait in waits:
            if wait.block != entry:
                raise self.refusal(
                    wait, f"`{WAIT}` must be reached by all threads; write it outside of any branch"
                )
        place = ir.InsertionPoint.after(waits[0]) if waits else ir.InsertionPoint.at_block_begin(entry)
        with place, op.location:
            if not waits:
                grid_dependency_wait()
            launch_dependents()
        op.attributes[LAUNCH] = ir.DictAttr.get({**fields, "overlaps": ir.BoolAttr.get(True)})
