"""Schedules of single reductions in the IR: what a dispatch's schedule says of each, on the operation itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.attention import ATTENTION
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.reduction_blocks import depth_rule, order_rule
from tilewright.compiler.nouns.register_tiles import MOST_SPILLED
from tilewright.compiler.nouns.schedule import LOOPS, Reduction, Schedule

LOOPS_ATTRIBUTE = "tilewright.loops"
"""On a reduction of a dispatch: one entry of its schedule's `reductions`, `{windows = [2, 5, 1]}`."""
STREAM = "tilewright.stream"
"""On the sink of a dispatch whose schedule says that its results are stored past the caches."""
PREFETCH = "tilewright.prefetch"
"""On a reduction whose panels are fetched ahead of their use: by how many bytes."""
_OTHERS = "name other loops, or leave reductions out of the schedule"


def reductions_of(function: ir.Operation) -> list[ir.Operation]:
    """The reductions of a dispatch, those that `reductions` of its schedule has entries for, in the order that results need them in.

    A workload lists them so: where one stands before another that it has nothing to do with, that says nothing of the work.
    """
    ops = [view.operation for view in function.regions[0].blocks[0].operations]
    needed: dict[ir.Operation, None] = {}
    # What nothing needs, and what only a region does, stands as it is written.
    pending = [*reversed(ops), ops[-1]]
    while pending:
        op = pending.pop()
        if op in needed:
            continue
        makers = [value.owner.operation for value in op.operands if not isinstance(value.owner, ir.Block)]
        missing = [maker for maker in makers if maker not in needed]
        if missing:
            pending += [op, *reversed(missing)]
        else:
            needed[op] = None
    return [op for op in needed if op.name == ATTENTION or _reduces(op)]


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
        op.attributes[LOOPS_ATTRIBUTE] = schedule_attribute.as_attribute(reduction.as_dict())


def read(op: ir.Operation) -> Reduction | None:
    """What is said of a reduction, None where nothing is; raises ScheduleError where it is malformed."""
    if LOOPS_ATTRIBUTE not in op.attributes:
        return None
    attribute = op.attributes[LOOPS_ATTRIBUTE]
    try:
        return Reduction.from_dict(schedule_attribute.as_value(attribute))
    except ValueError as error:
        raise ScheduleError(f"`{LOOPS_ATTRIBUTE}`: {error}; found {attribute}", op.location) from None


def is_for(op: ir.Operation, *loops: str) -> bool:
    """Whether a reduction is to be computed by one of these kinds of loops."""
    found = read(op)
    return found is not None and found.loops in loops


def write_prefetch(op: ir.Operation, distance: int) -> None:
    """Has the panels of a reduction fetched `distance` bytes ahead; 0 for not."""
    if distance:
        with op.context:
            op.attributes[PREFETCH] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), distance)


def read_prefetch(op: ir.Operation) -> int:
    """The bytes ahead at which the panels of a reduction are fetched, 0 where nothing is said."""
    return ir.IntegerAttr(op.attributes[PREFETCH]).value if PREFETCH in op.attributes else 0


class Sized(Protocol):
    """The loops of a reduction that sizes are chosen for."""

    block: int | None
    """What an operand is packed in along the vector loop."""

    def most(self) -> tuple[int, ...]:
        """The largest sizes: beyond, loops are what smaller sizes make them."""
        ...

    def accumulators(self, sizes: Sequence[Any]) -> Any:
        """Vector registers that the sums take, of one size each or of arrays of them."""
        ...


@runtime_checkable
class Blocked(Sized, Protocol):
    """Register tiles that may sum in blocks."""

    steps: tuple[int, ...]
    """Extents of the reduction's loops, outer first."""
    group: int
    """Steps of the innermost of them that one instruction takes."""
    alike: bool
    """Whether all blocks have to be of one size."""


@runtime_checkable
class Ordered(Sized, Protocol):
    """Register tiles that may follow each other in any of `ORDERS`."""

    others: int
    """Steps of all other loops that the operand which vectors are loaded of does not follow."""


@runtime_checkable
class Constrained(Sized, Protocol):
    """Loops whose sizes have to agree with each other, which takes them one by one."""

    def rule(self, sizes: Sequence[int]) -> str | None:
        """The first rule that sizes break, beginning with the name of the size; None where they keep all."""
        ...


EXTENT, BLOCK, ACCUMULATORS, AGREEMENT = range(4)
"""What a size can break, in this order: that of its loop, a packed operand's, the registers', what the others ask of it."""


def broken_rules(loops: str, sizes: np.ndarray, sized: Sized, registers: int) -> np.ndarray:
    """For many sizes [n, k] of one reduction: k times the first rule that each breaks plus the number of the size that
    breaks it, -1 where all are kept."""
    names, count = LOOPS[loops], sizes.shape[1]
    found = np.full(len(sizes), -1, dtype=np.int64)

    def note(rule: int, number: int, breaks: np.ndarray) -> None:
        np.copyto(found, rule * count + number, where=(found < 0) & breaks)

    if not count:
        return found
    for number, (size, limit) in enumerate(zip(sizes.T, sized.most())):
        note(EXTENT, number, size > limit)
        if names[number] == "vector" and (block := sized.block) is not None:
            note(BLOCK, number, (block % size != 0) & ((size != limit) | (limit >= block)))
    if not isinstance(sized, Constrained):
        note(ACCUMULATORS, 0, sized.accumulators(list(sizes.T)) > MOST_SPILLED * registers)
        return found
    for place in np.flatnonzero(found < 0):
        row = tuple(sizes[place].tolist())
        if sized.accumulators(row) > MOST_SPILLED * registers:
            found[place] = ACCUMULATORS * count
        elif (rule := sized.rule(row)) is not None:
            found[place] = AGREEMENT * count + names.index(rule.split()[0])
    return found


def broken(reduction: Reduction, loops: Sized, registers: int) -> str | None:
    """The first rule that the sizes of a reduction break on loops that they are for; None where they keep all."""
    names, sizes = LOOPS[reduction.loops], reduction.sizes
    if not sizes:
        return _broken_blocks(reduction, loops)
    (found,) = broken_rules(reduction.loops, np.asarray([sizes]), loops, registers)
    if found < 0:
        return _broken_blocks(reduction, loops)
    rule, number = divmod(int(found), len(sizes))
    name, size = names[number], sizes[number]
    if rule == EXTENT:
        return f"{name} is {size}, its loop has {loops.most()[number]}; use at most that"
    if rule == BLOCK:
        return f"{name} {size} crosses the blocks of {loops.block} of a packed operand; use a divisor"
    if rule == ACCUMULATORS:
        return (
            f"its sizes take {loops.accumulators(sizes)} accumulators, over {MOST_SPILLED} times the {registers} "
            "registers of the target; use smaller ones"
        )
    assert isinstance(loops, Constrained)
    return loops.rule(sizes)


def _broken_blocks(reduction: Reduction, loops: Sized) -> str | None:
    """The first rule that the blocks of a reduction and the order of its register tiles break."""
    if isinstance(loops, Blocked):
        rule = depth_rule(loops.steps, reduction.depth, loops.group, loops.alike)
        if rule is not None:
            return rule
    if not isinstance(loops, Ordered):
        return None
    tiles = (-(-extent // size) for size, extent in zip(reduction.sizes, loops.most()))
    return order_rule(reduction.order, *tiles, loops.others)


def check(op: ir.Operation, loops: Sized | None, registers: int) -> Reduction:
    """What is said of a reduction; raises ScheduleError where its sizes, its blocks or its loops cannot be so."""
    reduction = read(op)
    assert reduction is not None
    if loops is None:
        raise refusal(op, f"this reduction has no such loops once it is cut; {_OTHERS}")
    rule = broken(reduction, loops, registers)
    if rule is not None:
        raise refusal(op, rule)
    return reduction


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
