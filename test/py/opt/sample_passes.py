"""Passes that exist only in the tests of this folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tilewright.compiler.ir import arith, ir, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class CountAdds(Pass):
    """Writes how many `arith.addi` a function holds into its attribute `adds`."""

    anchor: ClassVar[str] = "func.func"
    scale: int = 1

    def run(self, op: ir.Operation) -> None:
        count = len(walk(op, "arith.addi")) * self.scale
        op.attributes["adds"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), count)


@dataclass(frozen=True)
class RefuseSubtraction(Pass):
    """Refuses modules that subtract."""

    def run(self, op: ir.Operation) -> None:
        for found in walk(op, "arith.subi"):
            raise self.refusal(found, "subtraction is not supported; negate and add")


@dataclass(frozen=True)
class DivideByZero(Pass):
    """Crashes, after it has changed the module."""

    def run(self, op: ir.Operation) -> None:
        op.attributes["touched"] = ir.UnitAttr.get()
        raise ZeroDivisionError("1 / 0")


@dataclass(frozen=True)
class BreakTypes(Pass):
    """Leaves IR behind whose types do not fit."""

    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation) -> None:
        block = op.regions[0].blocks[0]
        with ir.InsertionPoint.at_block_begin(block):
            wrong = arith.constant(ir.IntegerType.get_signless(64), 0)
        block.operations[len(block.operations) - 1].operation.operands[0] = wrong


@dataclass(frozen=True)
class RunBadScript(Pass):
    """Fails inside MLIR, with MLIR's own diagnostics."""

    def run(self, op: ir.Operation) -> None:
        ir.Module.parse("func.func @f( {")


@dataclass(frozen=True)
class EveryKind(Pass):
    """Has an option of every kind, and does nothing."""

    anchor: ClassVar[str] = "any"
    flag: bool = False
    count: int = 3
    ratio: float = 0.5
    name_of_it: str = "x"
    mode: Literal["fast", "safe"] = "fast"
    sizes: tuple[int, ...] = (1, 2)
    names: tuple[str, ...] = ()
    limit: int | None = None

    def run(self, op: ir.Operation) -> None:
        op.attributes["test.ran"] = ir.UnitAttr.get()


@dataclass(frozen=True)
class NeedsSize(Pass):
    """Has an option without a default."""

    size: int

    def run(self, op: ir.Operation) -> None:
        op.attributes["size"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), self.size)


TEST_PASSES = {
    cls.name(): cls
    for cls in (CountAdds, RefuseSubtraction, DivideByZero, BreakTypes, RunBadScript, EveryKind, NeedsSize)
}
