"""What a kernel promises LLVM about its buffers: `llvm.noalias` only where nothing is exchanged between threads."""

from __future__ import annotations

from tilewright.compiler.ir import ir

_VIEWS = {
    "memref.subview", "memref.view", "memref.reinterpret_cast", "memref.cast", "memref.expand_shape",
    "memref.collapse_shape",
}  # fmt: skip


def promises(function: ir.Operation, buffers: list[ir.Value]) -> ir.ArrayAttr:
    """`llvm.noalias` on the buffers that are either read or written, but not both, and on no other argument.

    Where threads exchange values through a buffer, as through the workspace, LLVM would merge loads of an argument
    without aliases across the barriers between them.
    """
    promised = []
    for argument in function.regions[0].blocks[0].arguments:
        is_plain = any(argument == buffer for buffer in buffers) and not {True, False} <= _uses(argument)
        promised.append(ir.DictAttr.get({"llvm.noalias": ir.UnitAttr.get()} if is_plain else {}))
    return ir.ArrayAttr.get(promised)


def _uses(buffer: ir.Value) -> set[bool]:
    """Whether a buffer is written (True) and whether it is read (False); both where that cannot be told."""
    found: set[bool] = set()
    for use in buffer.uses:
        op = use.owner.operation
        if op.name in _VIEWS:
            found |= _uses(op.results[0])
        elif op.name in ("memref.store", "vector.store", "tilewright.store_release"):
            found.add(True)
        elif op.name in ("memref.load", "vector.load", "nvgpu.device_async_copy", "tilewright.load_acquire"):
            found.add(False)
        elif op.name != "memref.extract_strided_metadata":
            found |= {True, False}
    return found
