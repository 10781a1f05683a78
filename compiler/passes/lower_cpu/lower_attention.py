"""Writes the kernels of attention: one grid of rTasks over heads and pieces of the queries, on buffers.

    %t = bufferization.to_tensor %q
    %r = "tilewright.attention"(%t, ...) {tilewright.loops = {attention = [64, 4, 128, 29]}}
    bufferization.materialize_in_destination %r in %out
      =>
    scf.forall (%h, %piece) in (H, M / rows) { online softmax over blocks of keys, into %out }

Runs between `form-kernels` and bufferization, which knows nothing of the op: it must read arguments of the kernel
and be written to one, as it does when `outline-dispatches` has given it a dispatch of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.structure import producer
from tilewright.compiler.dialects import reduction_attribute
from tilewright.compiler.dialects.attention import ATTENTION, Attention
from tilewright.compiler.families.cpu.attention_loops import AttentionKernel, attention_loops
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.nouns.attention_cut import AttentionCut
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.targets.target import Target


@dataclass(frozen=True)
class LowerAttention(Pass):
    """Cuts as each operation is marked, for `registers` vector registers of `vector_bits`.

    Raises PassError for an operation that is malformed, or reads or writes other than the kernel's buffers, and
    ScheduleError for one that is not marked or has no such cut.
    """

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512
    registers: int = 32

    @classmethod
    def for_target(cls, target: Target) -> LowerAttention:
        """The pass with a target's numbers."""
        return cls(target.vector_bits, target.registers_per_thread)

    def run(self, op: ir.Operation) -> None:
        for attention in walk(op, ATTENTION):
            self.lower(Attention.read(attention))

    def lower(self, attention: Attention) -> None:
        op = attention.op
        write = next((use.owner.operation for use in op.results[0].uses), None)
        sources = [producer(value) for value in op.operands]
        if write is None or write.name != "bufferization.materialize_in_destination":
            raise self.refusal(op, "the result is not written to a buffer; run `form-kernels` first")
        if any(source is None or source.name != "bufferization.to_tensor" for source in sources):
            raise self.refusal(op, "an operand is no buffer's tensor; give attention a dispatch of its own")
        buffers = [source.operands[0] for source in sources if source is not None]
        lanes = max(1, self.vector_bits // attention.element.width)
        if not reduction_attribute.is_for(op, "attention"):
            raise reduction_attribute.refusal(op, "attention has loops of its own; say its cut")
        loops = attention_loops(attention, self.vector_bits, self.registers)
        cut = AttentionCut(*reduction_attribute.check(op, loops, self.registers).sizes)
        kernel = AttentionKernel(attention, [*buffers, write.operands[1]], cut, lanes)
        with ir.InsertionPoint(write), op.location:
            kernel.emit()
        write.erase()
        op.erase()
