"""Schedules in the IR: writing, reading and checking the `tilewright.schedule` attribute of a dispatch."""

from __future__ import annotations

from dataclasses import replace

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.schedule import ATTRIBUTE, PREDICTED, Schedule


def write(function: ir.Operation, schedule: Schedule) -> None:
    """Attaches `schedule` to the dispatch."""
    with function.context:
        function.attributes[ATTRIBUTE] = as_attribute(schedule.as_dict())


def write_prediction(function: ir.Operation, us: float, bound: str) -> None:
    """Attaches what the schedule should take, in microseconds, and what sets it: compute or a memory level."""
    with function.context, function.location:
        values = {"us": ir.FloatAttr.get(ir.F64Type.get(), us), "bound": ir.StringAttr.get(bound)}
        function.attributes[PREDICTED] = ir.DictAttr.get(values)


def read_prediction(function: ir.Operation) -> tuple[float, str] | None:
    """(microseconds, what bounds it) of the dispatch's schedule, None where nothing was predicted."""
    if PREDICTED not in function.attributes:
        return None
    attribute = function.attributes[PREDICTED]
    found = {named.name: named.attr for named in attribute} if isinstance(attribute, ir.DictAttr) else {}
    us, bound = found.get("us"), found.get("bound")
    if us is None or bound is None:
        return None
    right = isinstance(us, ir.FloatAttr) and isinstance(bound, ir.StringAttr)
    return (us.value, bound.value) if right else None


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
        return Schedule.from_dict({named.name: as_value(named.attr) for named in attribute})
    except ValueError as error:
        raise ScheduleError(f"dispatch @{name}: {error}", function.location) from None


def refuse_scheduled(module: ir.Module, phase: str) -> None:
    """Raises ScheduleError where a function has a schedule that `phase`, which makes dispatches anew, would lose."""
    for function in functions(module):
        if ATTRIBUTE in function.attributes:
            name = ir.StringAttr(function.attributes["sym_name"]).value
            raise ScheduleError(
                f"dispatch @{name} has a schedule, and phase `{phase}` comes before schedules: continue by `tilewright compile "
                "FILE.mlir --from schedule`",
                function.location,
            )


def check(function: ir.Operation, schedule: Schedule, extents: tuple[int, ...], kinds: list[str]) -> None:
    """Raises ScheduleError unless `schedule` is legal for a sink with these loops."""
    name = ir.StringAttr(function.attributes["sym_name"]).value

    def refuse(rule: str):
        applied = replace(schedule, levels=()).as_dict()
        raise ScheduleError(f"dispatch @{name}: illegal schedule {applied}: {rule}", function.location)

    if len(schedule.tile) > len(extents):
        refuse(f"it tiles {len(schedule.tile)} loops, the sink has {len(extents)}")
    for i, (size, extent, kind) in enumerate(zip(schedule.tile, extents, kinds)):
        if size and "parallel" not in kind:
            refuse(f"loop {i} is a {kind}, only parallel loops are cut into rTasks; use 0")
        if size > extent:
            refuse(f"tile {size} of loop {i} exceeds its extent {extent}")


def as_attribute(value: object) -> ir.Attribute:
    """Dictionaries, lists, words and numbers as IR; the inverse of `as_value`."""
    if isinstance(value, dict):
        return ir.DictAttr.get({name: as_attribute(entry) for name, entry in value.items()})
    if isinstance(value, list):
        return ir.ArrayAttr.get([as_attribute(entry) for entry in value])
    if isinstance(value, str):
        return ir.StringAttr.get(value)
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def as_value(attribute: ir.Attribute):
    """What an attribute says, as dictionaries, lists, words and numbers; what is none of these stays as it is."""
    if isinstance(attribute, ir.DictAttr):
        return {named.name: as_value(named.attr) for named in attribute}
    if isinstance(attribute, ir.ArrayAttr):
        return [as_value(a) for a in attribute]
    if isinstance(attribute, ir.BoolAttr):
        return bool(attribute.value)
    if isinstance(attribute, ir.IntegerAttr):
        return attribute.value
    if isinstance(attribute, ir.StringAttr):
        return attribute.value
    return attribute
