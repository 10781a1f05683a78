"""Turns run-time checks into a status the caller sees, instead of aborting the process.

cf.assert %ok, "index out of range"   =>   scf.if not %ok { memref.store 1 + message, %status[0] }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.ir import arith, ir, memref, scf, walk
from tilewright.compiler.passes.base import Pass

ASSERTS = "tilewright.asserts"


@dataclass(frozen=True)
class ReportAsserts(Pass):
    """Rewrites every `cf.assert` of a kernel; the messages become the function's `tilewright.asserts`."""

    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation) -> None:
        status = list(op.regions[0].blocks[0].arguments)[-2]
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
        op.attributes[ASSERTS] = ir.ArrayAttr.get([ir.StringAttr.get(m) for m in messages])
