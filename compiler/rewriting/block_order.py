"""Puts the operations of a block in another order, each behind what it needs."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.analysis.dependences import in_order, needed_by
from tilewright.compiler.ir import ir


def put_in_order(function: ir.Operation, wanted: Sequence[ir.Operation]) -> None:
    """Moves `wanted` behind each other, each right behind what it needs, and all other operations behind these.

    Operations of the function's one block that are not wanted keep their order as far as their operands allow.
    """
    *ops, terminator = (view.operation for view in function.regions[0].blocks[0].operations)
    numbers = {op: number for number, op in enumerate(ops)}
    for number in in_order(needed_by(ops), (*(numbers[op] for op in wanted), *range(len(ops)))):
        ops[number].move_before(terminator)
