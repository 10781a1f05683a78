"""Fuses element-wise operations of a dispatch into each other and into reductions, but no padding into windows.

    %p = linalg.generic { yield select(%in, tensor.extract %x[..], %zero) }        // padding of one input
    %y = linalg.generic ins(%p) ; %z = linalg.generic ins(%y), relu          =>    %p and %y as they were, %z with what followed it

Upstream's fusion would pull the gather into the windows, which compute it once for every tap and read no memory in
vectors then; an rTask pads for itself instead (`split-pads`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.padding import slid_padding
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import bufferization, ir, run_upstream, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class FuseElementwise(Pass):
    """Runs `linalg-fuse-elementwise-ops`, which leaves what has a second reader: padding is given one for that time."""

    def run(self, op: ir.Operation) -> None:
        readers = []
        for generic in walk(op, "linalg.generic"):
            if slid_padding(generic) is not None or _read_by_contraction(generic):
                with ir.InsertionPoint.after(generic), generic.location:
                    readers.append(bufferization.DeallocTensorOp(generic.results[0]).operation)
        run_upstream(op, f"{op.name}(linalg-fuse-elementwise-ops)")
        for reader in readers:
            reader.erase()


def _read_by_contraction(generic: ir.Operation) -> bool:
    """Whether a contraction reads what an element-wise operation gives."""
    readers = (Structured.read(use.owner.operation) for result in generic.results for use in result.uses)
    return any(reader is not None and reader.is_contraction for reader in readers)
