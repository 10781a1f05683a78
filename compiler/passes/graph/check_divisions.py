"""check-divisions: whole numbers are divided by zero with an error, and by -1 without overflow; neither traps.

    %q = arith.divsi %x, %d      =>      cf.assert (%d != 0), "integer division by zero"
                                         %q = select(%d == -1, 0 - %x, %x / select(%d == 0 or %d == -1, 1, %d))

CPUs trap on both. Eager PyTorch raises for zero, and wraps the smallest number over -1 around to itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.ir import arith, cf, ir, walk
from tilewright.compiler.passes.graph.simplify_bodies import constant_of
from tilewright.compiler.pipeline.pass_base import Pass

MESSAGE = "integer division by zero"

_SIGNED = {"arith.divsi": arith.divsi, "arith.remsi": arith.remsi, "arith.floordivsi": arith.floordivsi}
_UNSIGNED = {"arith.divui": arith.divui, "arith.remui": arith.remui}


@dataclass(frozen=True)
class CheckDivisions(Pass):
    """Guards every division of integers in the module whose divisor is no constant beside 0 and -1.

    Divisions of `index` values count loops and are left as they are.
    """

    def run(self, op: ir.Operation) -> None:
        for division in walk(op):
            if division.name not in _SIGNED and division.name not in _UNSIGNED:
                continue
            divisor = division.operands[1]
            if not isinstance(divisor.type, ir.IntegerType) or constant_of(divisor) not in (None, 0, -1):
                continue
            with ir.InsertionPoint(division), division.location:
                guarded = _guarded(division)
            division.results[0].replace_all_uses_with(guarded)
            division.erase()


def _guarded(division: ir.Operation) -> ir.Value:
    left, divisor = division.operands
    number = lambda n: arith.constant(divisor.type, n)  # noqa: E731
    cf.assert_(arith.cmpi(arith.CmpIPredicate.ne, divisor, number(0)), MESSAGE)
    if division.name in _UNSIGNED:
        return _UNSIGNED[division.name](left, arith.maxui(divisor, number(1)))
    # Of 0 and -1 alone, the successor is 0 or 1.
    special = arith.cmpi(arith.CmpIPredicate.ule, arith.addi(divisor, number(1)), number(1))
    rest = _SIGNED[division.name](left, arith.select(special, number(1), divisor))
    if division.name == "arith.remsi":
        return rest
    negated = arith.cmpi(arith.CmpIPredicate.eq, divisor, number(-1))
    return arith.select(negated, arith.subi(number(0), left), rest)
