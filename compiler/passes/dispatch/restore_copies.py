"""restore-copies: a dispatch that returns an argument copies it by an operation again, which can be cut into rTasks."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.ir import functions, ir
from tilewright.compiler.passes.dispatch.materialize_returns import copy_of
from tilewright.compiler.passes.dispatch.outline_dispatches import OPERATOR
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class RestoreCopies(Pass):
    """Undoes what `canonicalize` does to copies.

    Before: func.func private @copy(%x) { return %x }
    After:  func.func private @copy(%x) { %0 = linalg.generic ins(%x) { yield %in } ; return %0 }

    To `canonicalize` an element-wise identity is its operand. Between the arguments and results of a dispatch it is
    the work to be done, and without an operation there is nothing that a schedule could tile. Runs on functions
    with `tilewright.operator`.
    """

    def run(self, op: ir.Operation) -> None:
        for function in functions(op.opview):
            if OPERATOR not in function.attributes:
                continue
            *_, terminator = (view.operation for view in function.regions[0].blocks[0].operations)
            for number, value in enumerate(terminator.operands):
                if isinstance(value.owner, ir.Block) and ir.ShapedType(value.type).has_static_shape:
                    with ir.InsertionPoint(terminator), terminator.location:
                        terminator.operands[number] = copy_of(value)
