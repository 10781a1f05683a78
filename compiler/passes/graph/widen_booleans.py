"""widen-booleans: booleans are read and written as the bytes that they are, so that LLVM vectorises what touches them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.ir import ir, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class WidenBooleans(Pass):
    """Rewrites loads and stores of `i1` in LLVM's dialect.

    Before: %b = llvm.load %p : !llvm.ptr -> i1
            llvm.store %b, %q : i1, !llvm.ptr
    After:  %w = llvm.load %p : !llvm.ptr -> i8 ; %b = llvm.trunc %w : i8 to i1
            %z = llvm.zext %b : i1 to i8 ; llvm.store %z, %q : i8, !llvm.ptr

    A boolean in memory is a byte that holds 0 or 1 in either form. LLVM's loop vectoriser refuses types whose vectors
    are packed in bits, which left boolean tensors to scalar loops at a tenth of the speed.
    """

    def run(self, op: ir.Operation) -> None:
        byte, boolean = ir.IntegerType.get_signless(8), ir.IntegerType.get_signless(1)
        for inner in walk(op):
            if inner.name == "llvm.load" and inner.results[0].type == boolean:
                with ir.InsertionPoint(inner), inner.location:
                    wide = _again(inner, [byte], list(inner.operands))
                    narrow = ir.Operation.create("llvm.trunc", [boolean], [wide.results[0]])
                inner.results[0].replace_all_uses_with(narrow.results[0])
                inner.erase()
            elif inner.name == "llvm.store" and inner.operands[0].type == boolean:
                with ir.InsertionPoint(inner), inner.location:
                    wide = ir.Operation.create("llvm.zext", [byte], [inner.operands[0]])
                    _again(inner, [], [wide.results[0], *list(inner.operands)[1:]])
                inner.erase()


def _again(op: ir.Operation, results: list[ir.Type], operands: list[ir.Value]) -> ir.Operation:
    """`op` with other types, everything else kept."""
    attributes = {name: op.attributes[name] for name in op.attributes}
    return ir.Operation.create(op.name, results, operands, attributes)
