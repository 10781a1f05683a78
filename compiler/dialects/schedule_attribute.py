"""Schedules in the IR: writing, reading and checking the `tilewright.schedule` attribute of a dispatch."""

from __future__ import annotations

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import ir
from tilewright.compiler.schedule import ATTRIBUTE, Schedule


def write(function: ir.Operation, schedule: Schedule) -> None:
    """Attaches `schedule` to the dispatch."""
    i64 = ir.IntegerType.get_signless(64)

    def attribute(value):
        if isinstance(value, list):
            return ir.ArrayAttr.get([ir.IntegerAttr.get(i64, v) for v in value])
        return ir.IntegerAttr.get(i64, value)

    function.attributes[ATTRIBUTE] = ir.DictAttr.get({k: attribute(v) for k, v in schedule.as_dict().items()})


def read(function: ir.Operation) -> Schedule | None:
    """The dispatch's schedule, None when it has none; raises ScheduleError when the attribute is malformed."""
    if ATTRIBUTE not in function.attributes:
        return None
    attribute = function.attributes[ATTRIBUTE]
    name = ir.StringAttr(function.attributes["sym_name"]).value
    if not isinstance(attribute, ir.DictAttr):
        raise ScheduleError(
            f"dispatch @{name}: `{ATTRIBUTE}` must be a dictionary, found {attribute}", function.location
        )
    try:
        return Schedule.from_dict({named.name: _value(named.attr) for named in attribute})
    except ValueError as error:
        raise ScheduleError(f"dispatch @{name}: {error}", function.location) from None


def check(function: ir.Operation, schedule: Schedule, extents: tuple[int, ...], kinds: list[str]) -> None:
    """Raises ScheduleError unless `schedule` is legal for a sink with these loops."""
    name = ir.StringAttr(function.attributes["sym_name"]).value

    def refuse(rule: str):
        raise ScheduleError(
            f"dispatch @{name}: illegal schedule {schedule.as_dict()}: {rule}", function.location
        )

    if len(schedule.tile) > len(extents):
        refuse(f"it tiles {len(schedule.tile)} loops, the sink has {len(extents)}")
    for i, (size, extent, kind) in enumerate(zip(schedule.tile, extents, kinds)):
        if size and "parallel" not in kind:
            refuse(f"loop {i} is a {kind}, only parallel loops are cut into rTasks; use 0")
        if size > extent:
            refuse(f"tile {size} of loop {i} exceeds its extent {extent}")


def _value(attribute: ir.Attribute):
    if isinstance(attribute, ir.ArrayAttr):
        return [_value(a) for a in attribute]
    if isinstance(attribute, ir.IntegerAttr):
        return attribute.value
    return attribute
