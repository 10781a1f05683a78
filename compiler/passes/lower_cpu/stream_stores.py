"""stream-stores: results larger than the last cache are stored past it, which saves reading what is overwritten."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.affine_access import is_dim
from tilewright.compiler.families.cpu.loop_nest import index
from tilewright.compiler.families.cpu.reduction import Structure, vectorize_body
from tilewright.compiler.ir import arith, ir, memref, scf, vector, walk
from tilewright.compiler.pipeline.pass_base import Pass

_FEWEST_VECTORS = 16
"""Vectors of an rTask from which a loop with aligned stores pays for its first and last vector being stored twice."""


@dataclass(frozen=True)
class StreamStores(Pass):
    """Vectorises element-wise operations on one loop whose whole result has `least_bytes` or more; 0 does nothing.

    Before: linalg.generic {(i) -> (i), (i) -> (i)} ins(%x) outs(%y : memref<16777216xf32>) { negf }
    After:  vector.store of the first 16 elements
            scf.for %i from the first aligned element { vector.store ... {nontemporal, alignment = 64} }
            vector.store of the last 16 elements
            llvm.call_intrinsic "llvm.x86.sse.sfence"

    An ordinary store reads its cache line first: a copy of 64 MiB moves 3 bytes for every 2 that count. Results that
    fit the last cache are stored into it, for whoever reads them next. The fence orders the stores before the word
    that tells other threads that the rTask is done.
    """

    anchor: ClassVar[str] = "func.func"
    vector_bits: int = 512
    least_bytes: int = 0

    def run(self, op: ir.Operation) -> None:
        if not self.least_bytes:
            return
        for generic in walk(op, "linalg.generic"):
            structure = Structure.read(generic)
            if structure is not None and self.streams(structure):
                with ir.InsertionPoint(generic), generic.location:
                    self.emit(structure)
                generic.erase()

    def streams(self, s: Structure) -> bool:
        """Whether the operation runs along dense vectors and its whole result is large enough."""
        if s.reduction or len(s.parallel) != 1 or not s.vectorizable or not all(s.unit_stride):
            return False
        if any(m.results and not (len(m.results) == 1 and is_dim(m.results[0])) for m in s.maps):
            return False
        lanes = self.vector_bits // s.accumulator_bits
        written = any(True for _ in list(s.body.arguments)[-1].uses)
        whole = _root(s.op.operands[len(s.maps) - 1])
        nbytes = math.prod(ir.MemRefType(whole.type).shape) * s.accumulator_bits // 8
        return (
            bool(s.maps[-1].results)
            and not written
            and isinstance(whole.owner, ir.Block)
            and nbytes >= self.least_bytes
            and s.extents[0] >= _FEWEST_VECTORS * lanes
        )

    def emit(self, s: Structure) -> None:
        """Writes the loop at the current insertion point."""
        lanes, item = self.vector_bits // s.accumulator_bits, s.accumulator_bits // 8
        vector_bytes, extent = self.vector_bits // 8, s.extents[0]
        output = s.op.operands[len(s.maps) - 1]

        def store(at: ir.Value, **streaming) -> None:
            values = {}
            for operand, map_, argument in zip(s.op.operands, s.maps[:-1], s.body.arguments):
                type_ = ir.VectorType.get([lanes], ir.ShapedType(operand.type).element_type)
                if map_.results:
                    values[argument] = vector.load(type_, operand, [at])
                else:
                    values[argument] = vector.broadcast(type_, memref.load(operand, []))
            (result,) = vectorize_body(s.body, values, lanes)
            vector.store(result, output, [at], **streaming)

        metadata = memref.ExtractStridedMetadataOp(output)
        pointer = memref.extract_aligned_pointer_as_index(output)
        start = arith.addi(pointer, arith.muli(metadata.offset, index(item)))
        beyond = arith.andi(start, index(vector_bytes - 1))
        missing = arith.andi(arith.subi(index(vector_bytes), beyond), index(vector_bytes - 1))
        store(index(0))
        loop = scf.ForOp(arith.divui(missing, index(item)), index(extent - lanes + 1), index(lanes))
        with ir.InsertionPoint(loop.body):
            store(loop.induction_variable, nontemporal=True, alignment=vector_bytes)
            scf.yield_([])
        store(index(extent - lanes))
        ir.Operation.create(
            "llvm.call_intrinsic",
            attributes={
                "intrin": ir.StringAttr.get("llvm.x86.sse.sfence"),
                "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0]),
            },
        )


def _root(value: ir.Value) -> ir.Value:
    """The buffer that `value` is a view of."""
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name in (
        "memref.subview",
        "memref.cast",
    ):
        value = value.owner.operands[0]
    return value
