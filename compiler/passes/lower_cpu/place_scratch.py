"""Places a kernel's temporaries: small ones on the stack, large ones at fixed offsets of its scratch.

`memref.alloc` and `memref.dealloc` disappear, whatever loop they stood in: all extents are static, one rTask
runs at a time per thread, and a temporary that lives across iterations is none. `tilewright.scratch_bytes` on
the function tells how much scratch it needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.dialects.kernel_form import EXPECTED, KernelArguments, is_declaration
from tilewright.compiler.ir import arith, element_bytes, ir, memref, walk
from tilewright.compiler.pipeline.pass_base import Pass

SCRATCH_BYTES = "tilewright.scratch_bytes"


@dataclass(frozen=True)
class PlaceScratch(Pass):
    """Rewrites allocations; `stack_bytes` bounds the sum of what goes on the stack."""

    anchor: ClassVar[str] = "func.func"
    stack_bytes: int = 65536

    def run(self, op: ir.Operation) -> None:
        if is_declaration(op):
            return
        kernel = KernelArguments.of(op)
        if kernel is None:
            raise self.refusal(op, EXPECTED)
        block, scratch = op.regions[0].blocks[0], kernel.scratch
        stack, offset = 0, 0
        for dealloc in walk(op, "memref.dealloc"):
            dealloc.erase()
        for alloc in [*walk(op, "memref.alloc"), *walk(op, "memref.alloca")]:
            type_ = ir.MemRefType(alloc.results[0].type)
            if not type_.has_static_shape:
                raise self.refusal(
                    alloc,
                    f"expected a static shape, found a temporary of type {type_}; tile it to a static one",
                )
            size = -(-_bytes(type_) // 64) * 64
            with ir.InsertionPoint.at_block_begin(block), alloc.location:
                if stack + size <= self.stack_bytes:
                    stack += size
                    value = memref.alloca(type_, [], [], alignment=64)
                else:
                    start = arith.constant(ir.IndexType.get(), offset)
                    value = memref.view(type_, scratch, start, [])
                    offset += size
            alloc.results[0].replace_all_uses_with(value)
            alloc.erase()
        op.attributes[SCRATCH_BYTES] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), offset)


def _bytes(type_: ir.MemRefType) -> int:
    count = 1
    for extent in type_.shape:
        count *= extent
    return count * element_bytes(type_.element_type)
