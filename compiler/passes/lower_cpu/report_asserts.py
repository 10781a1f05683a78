"""Turns run-time checks into a status the caller sees, instead of aborting the process.

    cf.assert %ok, "index out of range"        scf.if not %ok { memref.store 1 + message, %status[0] }
    %v = memref.load %table[%i]           =>   %v = memref.load %table[max(0, min(%i, 9))]

A failed check does not stop the kernel, so indices that were read from memory are clamped into their buffer: the
result is thrown away, but nothing outside is read or written on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.dialects.kernel_form import EXPECTED, KernelArguments, is_declaration
from tilewright.compiler.ir import arith, ir, memref, scf, walk
from tilewright.compiler.pipeline.pass_base import Pass

ASSERTS = "tilewright.asserts"
_FIRST_INDEX = {"memref.load": 1, "memref.store": 2}


@dataclass(frozen=True)
class ReportAsserts(Pass):
    """Rewrites every `cf.assert` of a kernel; the messages become the function's `tilewright.asserts`."""

    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation) -> None:
        if is_declaration(op):
            return
        kernel = KernelArguments.of(op)
        if kernel is None:
            raise self.refusal(op, EXPECTED)
        status = kernel.status
        messages: list[str] = []
        i1, i32, index = ir.IntegerType.get_signless(1), ir.IntegerType.get_signless(32), ir.IndexType.get()
        for check in walk(op, "cf.assert"):
            message = ir.StringAttr(check.attributes["msg"]).value
            if message not in messages:
                messages.append(message)
            with ir.InsertionPoint(check), check.location:
                failed = arith.xori(check.operands[0], arith.constant(i1, 1))
                branch = scf.IfOp(failed)
                with ir.InsertionPoint(branch.then_block):
                    code = arith.constant(i32, 1 + messages.index(message))
                    memref.store(code, status, [arith.constant(index, 0)])
                    scf.YieldOp([])
            check.erase()
        for access in walk(op):
            if access.name in _FIRST_INDEX:
                _clamp(access)
        op.attributes[ASSERTS] = ir.ArrayAttr.get([ir.StringAttr.get(m) for m in messages])


def _clamp(access: ir.Operation) -> None:
    """Keeps the indices of a load or store that come out of memory inside the buffer."""
    first = _FIRST_INDEX[access.name]
    shape = ir.MemRefType(access.operands[first - 1].type).shape
    for position, extent in enumerate(shape, first):
        value = access.operands[position]
        if extent < 1 or not _is_data(value, set()):
            continue
        with ir.InsertionPoint(access), access.location:
            low, high = (arith.constant(ir.IndexType.get(), bound) for bound in (0, extent - 1))
            access.operands[position] = arith.maxsi(low, arith.minsi(value, high))


def _is_data(value: ir.Value, seen: set[ir.Value]) -> bool:
    """Whether `value` is computed from something that was read from memory; `seen` holds what is not."""
    if isinstance(value.owner, ir.Block) or value in seen:
        return False
    seen.add(value)
    op = value.owner.operation
    return op.name == "memref.load" or (
        op.name.startswith(("arith.", "affine.")) and any(_is_data(operand, seen) for operand in op.operands)
    )
