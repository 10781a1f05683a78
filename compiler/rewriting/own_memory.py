"""Memory of its own for everything that begins with an empty tensor."""

from __future__ import annotations

from tilewright.compiler.ir import ir


def give_each_its_own(empty: ir.Operation) -> None:
    """Copies a `tensor.empty` for every use but the first."""
    uses = [(use.owner.operation, use.operand_number) for use in empty.results[0].uses]
    for user, operand in uses[1:]:
        with ir.InsertionPoint(user):
            user.operands[operand] = empty.clone().results[0]
