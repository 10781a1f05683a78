"""lower-fourier: Fourier transforms on buffers as butterflies of registers, as many lines at a time as a vector has lanes.

    "tilewright.fourier"(%x, %y, %roots, %a, %b) {kind = "complex", dimension = 1} : memref<64x512xf32>, ..
      =>
    scf.for %line = 0 to 64 step 16 {
      %x, %y are transposed into scratch, squares of 16 x 16
      scf.for %j = 0 to 32 { transforms of 16 rows, 32 apart, times powers of the root of unity }
      scf.for %k = 0 to 16 { transforms of 32 rows }
      scratch is transposed into %a, %b
    }

Upstream has no such operation. As products with matrices of roots, transforms of 64 to 1024 take five to ten times as many operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.dialects.fourier import FOURIER, Fourier
from tilewright.compiler.errors import PassError
from tilewright.compiler.families.cpu.fourier_lines import FourierLines
from tilewright.compiler.ir import ir, memref, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.buffer_casts import read_through_casts


@dataclass(frozen=True)
class LowerFourier(Pass):
    """Replaces `tilewright.fourier` on buffers; raises PassError where its operands do not fit together, or are of dynamic shape."""

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512

    def run(self, op: ir.Operation) -> None:
        for transform in walk(op, FOURIER):
            if not all(isinstance(value.type, ir.MemRefType) for value in transform.operands):
                continue
            for value in transform.operands:
                if not ir.ShapedType(value.type).has_static_shape:
                    message = f"`{self.name()}`: expected buffers of static shape, found {value.type}; compile for fixed shapes"
                    raise PassError(message, transform.location)
            read_through_casts(transform)
            lines = FourierLines(Fourier.read(transform), self.vector_bits)
            with transform.location:
                with ir.InsertionPoint.at_block_begin(op.regions[0].blocks[0]):
                    scratch = [memref.alloc(type_, [], []) for type_ in lines.scratch]
                with ir.InsertionPoint(transform):
                    if all(lines.shape):
                        lines.emit(scratch)
            transform.erase()
