"""attach-loop-annotations: what was said of loops is said of the branches that they became, where LLVM reads it."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.ir import ir, walk
from tilewright.compiler.pipeline.pass_base import Pass

ANNOTATION = "llvm.loop_annotation"
"""The attribute by which `convert-scf-to-cf` carries what a loop of scf says to LLVM."""


@dataclass(frozen=True)
class AttachLoopAnnotations(Pass):
    """Makes the attribute `llvm.loop_annotation` of a branch its property `loop_annotation`.

    Before: llvm.br ^bb1(%next : i64) {llvm.loop_annotation = #unroll_disabled}
    After:  llvm.br ^bb1(%next : i64) {loop_annotation = #unroll_disabled}

    `convert-scf-to-cf` and `convert-cf-to-llvm` carry the attribute as it is, and the translation to LLVM IR reads
    nothing but the property.
    """

    def run(self, op: ir.Operation) -> None:
        for branch in walk(op, "llvm.br"):
            if ANNOTATION in branch.attributes:
                branch.attributes["loop_annotation"] = branch.attributes[ANNOTATION]
                del branch.attributes[ANNOTATION]
