"""Schedules of single reductions in the IR: what a dispatch's schedule says of each, on the operation itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tilewright.compiler.dialects.attention import ATTENTION
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.register_tiles import MOST_SPILLED
from tilewright.compiler.nouns.schedule import LOOPS, Reduction, Schedule

LOOPS_ATTRIBUTE = "tilewright.loops"
"""On a reduction of a dispatch: one entry of its schedule's `reductions`, `{windows = [2, 5, 1]}`."""
_OTHERS = "name other loops, or leave reductions out of the schedule"


def reductions_of(function: ir.Operation) -> list[ir.Operation]:
    """The reductions of a dispatch in their order, those that `reductions` of its schedule has entries for."""
    return [
        view.operation
        for view in function.regions[0].blocks[0].operations
        if view.operation.name == ATTENTION or _reduces(view.operation)
    ]


def _reduces(op: ir.Operation) -> bool:
    return op.name == "linalg.generic" and any(
        "reduction" in str(kind) for kind in op.attributes["iterator_types"]
    )


def mark(function: ir.Operation, schedule: Schedule) -> None:
    """Puts every entry of the schedule's `reductions` on its reduction; raises ScheduleError for too few or too many."""
    found = reductions_of(function)
    if schedule.reductions and len(schedule.reductions) != len(found):
        name = ir.StringAttr(function.attributes["sym_name"]).value
        raise ScheduleError(
            f"dispatch @{name}: illegal schedule: reductions has {len(schedule.reductions)} entries, the dispatch has "
            f"{len(found)} reductions; write one for each, or leave all out",
            function.location,
        )
    for op, reduction in zip(found, schedule.reductions):
        write(op, reduction)


def write(op: ir.Operation, reduction: Reduction) -> None:
    """Says how the loops of one reduction are written."""
    with op.context:
        i64 = ir.IntegerType.get_signless(64)
        sizes = ir.ArrayAttr.get([ir.IntegerAttr.get(i64, size) for size in reduction.sizes])
        op.attributes[LOOPS_ATTRIBUTE] = ir.DictAttr.get({reduction.loops: sizes})


def read(op: ir.Operation) -> Reduction | None:
    """What is said of a reduction, None where nothing is; raises ScheduleError where it is malformed."""
    if LOOPS_ATTRIBUTE not in op.attributes:
        return None
    attribute = op.attributes[LOOPS_ATTRIBUTE]
    try:
        return Reduction.from_dict(
            {
                named.name: [ir.IntegerAttr(size).value for size in ir.ArrayAttr(named.attr)]
                for named in attribute
            }
        )
    except ValueError as error:
        raise ScheduleError(f"`{LOOPS_ATTRIBUTE}`: {error}; found {attribute}", op.location) from None


def is_for(op: ir.Operation, *loops: str) -> bool:
    """Whether a reduction is to be computed by one of these kinds of loops."""
    found = read(op)
    return found is not None and found.loops in loops


class Sized(Protocol):
    """The loops of a reduction that sizes are chosen for."""

    block: int | None
    """What an operand is packed in along the vector loop."""

    def most(self) -> tuple[int, ...]:
        """The largest sizes: beyond, loops are what smaller sizes make them."""
        ...

    def accumulators(self, sizes: Sequence[int]) -> int:
        """Vector registers that the sums take."""
        ...


@runtime_checkable
class Constrained(Sized, Protocol):
    """Loops whose sizes have to agree with each other."""

    def rule(self, sizes: Sequence[int]) -> str | None:
        """The first rule that sizes break, None where they keep all."""
        ...


def broken(reduction: Reduction, loops: Sized, registers: int) -> str | None:
    """The first rule that the sizes of a reduction break on loops that they are for; None where they keep all."""
    for name, size, limit in zip(LOOPS[reduction.loops], reduction.sizes, loops.most()):
        if size > limit:
            return f"{name} is {size}, its loop has {limit}; use at most that"
        inside = loops.block is None or loops.block % size == 0 or size == limit < loops.block
        if name == "vector" and not inside:
            return f"{name} {size} crosses the blocks of {loops.block} of a packed operand; use a divisor"
    accumulators = loops.accumulators(reduction.sizes)
    if accumulators > MOST_SPILLED * registers:
        return (
            f"its sizes take {accumulators} accumulators, over {MOST_SPILLED} times the {registers} registers of the "
            "target; use smaller ones"
        )
    return loops.rule(reduction.sizes) if isinstance(loops, Constrained) else None


def check(op: ir.Operation, loops: Sized | None, registers: int) -> tuple[int, ...]:
    """The sizes that are said of a reduction; raises ScheduleError where they, or its loops, cannot be so."""
    reduction = read(op)
    assert reduction is not None
    if loops is None:
        raise refusal(op, f"this reduction has no such loops once it is cut; {_OTHERS}")
    rule = broken(reduction, loops, registers)
    if rule is not None:
        raise refusal(op, rule)
    return reduction.sizes


def refusal(op: ir.Operation, rule: str) -> ScheduleError:
    """The error of a reduction that cannot be computed as its schedule says."""
    reduction = read(op)
    shown = reduction.text() if reduction is not None else "nothing"
    return ScheduleError(
        f"dispatch @{_dispatch(op)}: illegal schedule: reductions say `{shown}`: {rule}", op.location
    )


def _dispatch(op: ir.Operation) -> str:
    while op.name not in ("func.func", "builtin.module"):
        op = op.parent.operation
    return ir.StringAttr(op.attributes["sym_name"]).value if "sym_name" in op.attributes else ""
