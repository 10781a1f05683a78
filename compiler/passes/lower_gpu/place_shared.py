"""Gives a kernel's allocations in shared memory offsets in the block's one dynamic array.

    %a = memref.alloc() {alignment = 1024 : i64} : memref<64x64xf16, #gpu.address_space<workgroup>>
becomes
    %all = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
    %a = memref.view %all[%c0][] : ... to memref<64x64xf16, #gpu.address_space<workgroup>>

The array's first byte is aligned to 1,024. `shared_bytes` of the kernel's `tilewright.launch` tells its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.gpu.launch import LAUNCH
from tilewright.compiler.ir import arith, element_bytes, gpu, ir, memref, walk
from tilewright.compiler.pipeline.pass_base import Pass

BASE_ALIGNMENT = 1024
"""Bytes that the dynamic array's start is a multiple of: what 128-byte swizzles of tensor maps need."""
_ALIASES = {
    "memref.subview", "memref.view", "memref.reinterpret_cast", "memref.cast", "memref.expand_shape",
    "memref.collapse_shape", "memref.memory_space_cast",
}  # fmt: skip
_READERS = {
    "memref.load", "memref.store", "vector.load", "vector.store", "vector.transfer_read", "vector.transfer_write",
    "memref.atomic_rmw", "memref.generic_atomic_rmw", "nvgpu.ldmatrix", "nvgpu.device_async_copy",
    "memref.copy",
}  # fmt: skip
"""Operations that are done with shared memory when they have run, asynchronous copies once they are waited for."""


@dataclass(frozen=True)
class PlaceShared(Pass):
    """Rewrites allocations of one `gpu.func`; refuses more than `max_bytes` in all, unless that is 0.

    Two allocations share bytes only where all uses of one lie before, and all of the other after, a `gpu.barrier` of
    the entry block, both are used by synchronous operations or waited-for copies alone, and control flow is structured.
    """

    anchor: ClassVar[str] = "gpu.func"
    max_bytes: int = 0

    def run(self, op: ir.Operation) -> None:
        allocs = [a for a in walk(op, "memref.alloc") if _is_shared(a.results[0].type)]
        name = ir.StringAttr(op.attributes["sym_name"]).value
        if "workgroup_attributions" in op.attributes:
            raise self.refusal(
                op, f"@{name} has workgroup attributions; allocate shared memory by memref.alloc instead"
            )
        wanted = [self._wanted(alloc, op) for alloc in allocs]
        offsets, total = place(wanted)
        if self.max_bytes and total > self.max_bytes:
            raise self.refusal(
                op,
                f"@{name} needs {total:,} B of shared memory per block, the limit is {self.max_bytes:,} B; "
                "use fewer stages or a smaller tile",
            )
        self._rewrite(op, allocs, offsets)
        launch = op.attributes[LAUNCH] if LAUNCH in op.attributes else ir.DictAttr.get({})
        fields = {field.name: field.attr for field in ir.DictAttr(launch)}
        fields["shared_bytes"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), total)
        op.attributes[LAUNCH] = ir.DictAttr.get(fields)

    def _wanted(self, alloc: ir.Operation, function: ir.Operation) -> Wanted:
        type_ = ir.MemRefType(alloc.results[0].type)
        if not type_.has_static_shape or not _is_identity(type_):
            raise self.refusal(
                alloc,
                f"expected a static shape and the identity layout, found {type_}; allocate it whole and take a "
                "subview for padding",
            )
        alignment = (
            ir.IntegerAttr(alloc.attributes["alignment"]).value if "alignment" in alloc.attributes else 16
        )
        if alignment > BASE_ALIGNMENT:
            raise self.refusal(
                alloc, f"expected an alignment of at most {BASE_ALIGNMENT} B, found {alignment}; ask for less"
            )
        count = 1
        for extent in type_.shape:
            count *= extent
        return Wanted(count * element_bytes(type_.element_type), max(alignment, 16), _life(alloc, function))

    def _rewrite(self, op: ir.Operation, allocs: list[ir.Operation], offsets: list[int]) -> None:
        for dealloc in walk(op, "memref.dealloc"):
            if _is_shared(dealloc.operands[0].type):
                dealloc.erase()
        if not allocs:
            return
        i8 = ir.IntegerType.get_signless(8)
        with ir.InsertionPoint.at_block_begin(op.regions[0].blocks[0]), op.location:
            space = ir.MemRefType(allocs[0].results[0].type).memory_space
            type_ = ir.MemRefType.get([ir.ShapedType.get_dynamic_size()], i8, memory_space=space)
            array = gpu.dynamic_shared_memory(type_)
            for alloc, offset in zip(allocs, offsets):
                start = arith.constant(ir.IndexType.get(), offset)
                alloc.results[0].replace_all_uses_with(memref.view(alloc.results[0].type, array, start, []))
        for alloc in allocs:
            alloc.erase()


@dataclass(frozen=True)
class Wanted:
    """One allocation: its size, alignment, and the range of epochs (stretches between barriers) it is used in.

    `life` is None for one that may be used at any time.
    """

    size_bytes: int
    alignment: int
    life: tuple[int, int] | None

    def meets(self, other: Wanted) -> bool:
        """Whether the two may be in use in one epoch."""
        if self.life is None or other.life is None:
            return True
        return self.life[0] <= other.life[1] and other.life[0] <= self.life[1]


def place(wanted: list[Wanted]) -> tuple[list[int], int]:
    """Offsets in bytes, and the bytes they take in all: strictest alignment first, then largest, each as low as it goes."""
    order = sorted(range(len(wanted)), key=lambda i: (-wanted[i].alignment, -wanted[i].size_bytes, i))
    offsets = [0] * len(wanted)
    placed: list[int] = []
    for i in order:
        taken = sorted(
            (offsets[j], offsets[j] + wanted[j].size_bytes) for j in placed if wanted[i].meets(wanted[j])
        )
        start = 0
        for first, end in taken:
            if start + wanted[i].size_bytes <= first:
                break
            start = max(start, -(-end // wanted[i].alignment) * wanted[i].alignment)
        offsets[i] = start
        placed.append(i)
    return offsets, max((offsets[i] + wanted[i].size_bytes for i in placed), default=0)


def _life(alloc: ir.Operation, function: ir.Operation) -> tuple[int, int] | None:
    """The epochs in which an allocation is used, counted by the barriers of the entry block; None when unclear."""
    if len(function.regions[0].blocks) != 1 or alloc.operation.parent != function:
        return None
    users = _users(alloc)
    if not users:
        return None
    top = [_top_level(user, function) for user in users]
    copies = [t for t, user in zip(top, users) if user.name == "nvgpu.device_async_copy"]
    epoch, epochs, waits = 0, {}, []
    for op in function.regions[0].blocks[0].operations:
        if op.operation.name == "gpu.barrier":
            epoch += 1
        epochs[op.operation] = epoch
        if op.operation.name == "nvgpu.device_async_wait" and not _groups(op.operation):
            waits.append(op.operation)
    used = [epochs[t] for t in top]
    if copies:
        order = {op.operation: i for i, op in enumerate(function.regions[0].blocks[0].operations)}
        last = max(order[t] for t in copies)
        after = [wait for wait in waits if order[wait] > last]
        if not after:
            return None
        used.append(epochs[after[0]])
    return min(used), max(used)


def _users(alloc: ir.Operation) -> list[ir.Operation] | None:
    """All operations that access an allocation, through aliases too; None when it escapes them."""
    found, pending = [], [alloc.results[0]]
    while pending:
        for use in pending.pop().uses:
            user = use.owner.operation
            if user.name in _ALIASES:
                pending += user.results
            elif user.name in _READERS:
                found.append(user)
            elif user.name != "memref.dealloc":
                return None
    return found


def _top_level(op: ir.Operation, function: ir.Operation) -> ir.Operation:
    """The operation of the function's entry block that holds `op`."""
    while op.parent != function:
        op = op.parent.operation
    return op.operation


def _groups(wait: ir.Operation) -> int:
    return ir.IntegerAttr(wait.attributes["numGroups"]).value if "numGroups" in wait.attributes else 0


def _is_shared(type_: ir.Type) -> bool:
    return "workgroup" in str(ir.MemRefType(type_).memory_space)


def _is_identity(type_: ir.MemRefType) -> bool:
    return type_.affine_map == ir.AffineMap.get_identity(type_.rank)
