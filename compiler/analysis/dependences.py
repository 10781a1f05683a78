"""What the operations of a block need of each other, and orders that keep to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilewright.compiler.ir import ir, walk


def external_operands(op: ir.Operation) -> list[ir.Value]:
    """Values that `op` or anything nested in it takes from outside, each once, in order."""
    if not len(op.regions):
        return list(dict.fromkeys(op.operands))
    nested = walk(op)
    defined = set()
    for inner in nested:
        if inner != op:
            defined.update(inner.results)
        for region in inner.regions:
            for block in region:
                defined.update(block.arguments)
    found: dict[ir.Value, None] = dict.fromkeys(op.operands)
    for inner in nested:
        for value in inner.operands:
            if value not in defined:
                found[value] = None
    return list(found)


def needed_by(ops: Sequence[ir.Operation]) -> list[list[int]]:
    """For every operation of a block, the numbers of those whose results it needs at once."""
    producer = {result: number for number, op in enumerate(ops) for result in op.results}
    return [
        [producer[value] for value in external_operands(op) if not isinstance(value.owner, ir.Block)]
        for op in ops
    ]


def bits_before(needed: Sequence[Sequence[int]], own: Mapping[int, int]) -> list[int]:
    """The bits of all operations that each one needs, directly or not; `own[i]` are those that operation i adds.

    With one bit for every weight that products share, this tells which of them a value was computed with. Operations
    stand behind those that they need.
    """
    found: list[int] = []
    for numbers in needed:
        before = 0
        for number in numbers:
            before |= found[number] | own.get(number, 0)
        found.append(before)
    return found


def in_order(needed: Sequence[Sequence[int]], wanted: Iterable[int]) -> list[int]:
    """The numbers `wanted`, in this order, each right behind those that it needs and that did not come before."""
    order: list[int] = []
    done = [False] * len(needed)
    for last in wanted:
        pending = [last]
        while pending:
            number = pending[-1]
            missing = [other for other in needed[number] if not done[other]]
            if missing and not done[number]:
                pending += reversed(missing)
                continue
            pending.pop()
            if not done[number]:
                done[number] = True
                order.append(number)
    return order
