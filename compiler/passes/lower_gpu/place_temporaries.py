"""Places a GPU kernel's temporaries: small ones in shared memory, the others at fixed offsets of the block's scratch.

    %t = memref.alloc() : memref<8x64xf32>  =>  %t = memref.alloc() : memref<8x64xf32, #gpu.address_space<workgroup>>
    %u = memref.alloc() : memref<1048576xf32>  =>  %u = memref.view %scratch[0]

Whatever loop they stood in, temporaries are placed once: all extents are static, and one that lives across
iterations is none. `tilewright.scratch_bytes` tells how much scratch each block needs; `form-gpu-kernels` gives it a part
of the workspace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.dialects.kernel_form import EXPECTED, KernelArguments, is_declaration
from tilewright.compiler.gpu.builder import SHARED
from tilewright.compiler.ir import arith, element_bytes, ir, memref, walk
from tilewright.compiler.passes.lower_cpu.place_scratch import SCRATCH_BYTES
from tilewright.compiler.pipeline.pass_base import Pass

_ALIGNMENT = 16
_VIEWS = (
    "memref.subview",
    "memref.cast",
    "memref.expand_shape",
    "memref.collapse_shape",
    "memref.reinterpret_cast",
)


@dataclass(frozen=True)
class PlaceTemporaries(Pass):
    """Rewrites allocations; `shared_bytes` bounds the sum of those in shared memory, the smallest of which go first.

    Raises PassError for temporaries of dynamic shape.
    """

    anchor: ClassVar[str] = "func.func"
    shared_bytes: int = 49152

    def run(self, op: ir.Operation) -> None:
        if is_declaration(op):
            return
        kernel = KernelArguments.of(op)
        if kernel is None:
            raise self.refusal(op, EXPECTED)
        for dealloc in walk(op, "memref.dealloc"):
            dealloc.erase()
        allocs = [alloc for alloc in walk(op, "memref.alloc") if not is_shared(alloc.results[0].type)]
        left, shared, far = self.shared_bytes, [], []
        for size, alloc in sorted(((self.size(a), a) for a in allocs), key=lambda entry: entry[0]):
            near = size <= left and all(_can_move(use) for use in _uses(alloc.results[0]))
            left -= size if near else 0
            (shared if near else far).append((size, alloc))
        block = op.regions[0].blocks[0]
        for _, alloc in shared:
            alloc.move_before(next(iter(block.operations)).operation)
            _set_space(alloc.results[0], ir.Attribute.parse(SHARED))
            alloc.attributes["alignment"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), _ALIGNMENT)
        total, offset = sum(size for size, _ in far), 0
        for size, alloc in far:
            with ir.InsertionPoint.at_block_begin(block), alloc.location:
                start = arith.constant(ir.IndexType.get(), offset)
                view = memref.view(alloc.results[0].type, kernel.scratch, start, [])
            alloc.results[0].replace_all_uses_with(view)
            alloc.erase()
            offset += size
        op.attributes[SCRATCH_BYTES] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), total)

    def size(self, alloc: ir.Operation) -> int:
        """Bytes of an allocation, a multiple of the alignment."""
        type_ = ir.MemRefType(alloc.results[0].type)
        if not type_.has_static_shape:
            found = f"expected a static shape, found a temporary of type {type_}"
            raise self.refusal(alloc, f"{found}; tile it to a static one")
        count = element_bytes(type_.element_type)
        for extent in type_.shape:
            count *= extent
        return -(-count // _ALIGNMENT) * _ALIGNMENT


def is_shared(type_: ir.Type) -> bool:
    """Whether a buffer of this type lies in shared memory."""
    space = ir.MemRefType(type_).memory_space
    return space is not None and space == ir.Attribute.parse(SHARED)


def _uses(value: ir.Value) -> list[ir.Operation]:
    """Operations that use a buffer, also through its views."""
    found = []
    for use in value.uses:
        user = use.owner.operation
        found.append(user)
        if user.name in _VIEWS:
            found += _uses(user.results[0])
    return found


def _can_move(user: ir.Operation) -> bool:
    return user.name in (*_VIEWS, "memref.load", "memref.store", "vector.load", "vector.store")


def _set_space(value: ir.Value, space: ir.Attribute) -> None:
    type_ = ir.MemRefType(value.type)
    value.set_type(ir.MemRefType.get(type_.shape, type_.element_type, type_.layout, space))
    for use in value.uses:
        user = use.owner.operation
        if user.name in _VIEWS:
            _set_space(user.results[0], space)
