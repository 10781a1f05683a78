"""restrict-tensors: tensors read back from buffers of their own may be bufferized again, and what is read as one has its own memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.ir import ir, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.own_memory import give_each_its_own


@dataclass(frozen=True)
class RestrictTensors(Pass):
    """Marks every `bufferization.to_tensor` of a fresh allocation as its only alias.

    `tm-tensor-bufferize` turns scans, sorts and scatters into ops on new buffers and reads the results back;
    one-shot bufferization takes such reads only when they promise that nothing else writes the buffer.

    Before: %t = bufferization.to_tensor %alloc : memref<8xf32> to tensor<8xf32>
    After:  %t = bufferization.to_tensor %alloc restrict : memref<8xf32> to tensor<8xf32>

    Reads of buffers that are not allocated here, or read back twice, stay unmarked.

    The buffer of a tensor that these ops read is read later than bufferization sees. So that nothing is written into it
    meanwhile, every operation that writes begins with an empty tensor of its own:

    Before: %0 = tensor.empty() ; %1 = linalg.fill outs(%0) ; %b = bufferization.to_buffer %1 ; %2 = linalg.fill outs(%0)
    After:  %0 = tensor.empty() ; %1 = linalg.fill outs(%0) ; %b = bufferization.to_buffer %1
            %3 = tensor.empty() ; %2 = linalg.fill outs(%3)
    """

    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation) -> None:
        reads = walk(op, "bufferization.to_tensor")
        for read in reads:
            buffer = read.operands[0]
            fresh = not isinstance(buffer.owner, ir.Block) and buffer.owner.operation.name == "memref.alloc"
            if fresh and sum(use.owner.operation.name == read.name for use in buffer.uses) == 1:
                read.attributes["restrict"] = ir.UnitAttr.get()
        if walk(op, "bufferization.to_buffer"):
            for empty in walk(op, "tensor.empty"):
                give_each_its_own(empty)
