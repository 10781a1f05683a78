"""Operations on buffers as they lie in memory, where a cast forgot that: torch-mlir's scatter does not fold them."""

from __future__ import annotations

from tilewright.compiler.ir import ir


def read_through_casts(op: ir.Operation) -> None:
    """Lets an operation use what `memref.cast`s of its operands are of."""
    for number, value in enumerate(op.operands):
        while not isinstance(value.owner, ir.Block) and value.owner.operation.name == "memref.cast":
            value = value.owner.operation.operands[0]
        op.operands[number] = value
