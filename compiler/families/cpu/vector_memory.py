"""Which memory a memref is a view of."""

from __future__ import annotations

from tilewright.compiler.ir import ir

_VIEWS = (
    "memref.subview",
    "memref.cast",
    "memref.collapse_shape",
    "memref.expand_shape",
    "memref.reinterpret_cast",
)


def memory_of(value: ir.Value) -> ir.Value:
    """The buffer that a memref is a view of."""
    while not isinstance(value.owner, ir.Block) and value.owner.name in _VIEWS:
        value = value.owner.operands[0]
    return value
