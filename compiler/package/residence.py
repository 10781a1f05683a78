"""Where a dispatch's arguments come from when @main calls it: weights from the memory that keeps them, others from caches."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.ir import functions, ir, walk
from tilewright.compiler.package import plan
from tilewright.compiler.targets.target import Target


@dataclass
class Calls:
    """How often @main calls a dispatch, and which of its arguments are weights where it does so first."""

    count: int
    weights: tuple[bool, ...]


def name_of(function: ir.Operation) -> str:
    return ir.StringAttr(function.attributes["sym_name"]).value


def calls_of_main(module: ir.Module) -> dict[str, Calls]:
    """The dispatches that @main calls, by name, in the order of their first calls."""
    found: dict[str, Calls] = {}
    for function in functions(module):
        if name_of(function) != "main":
            continue
        attributes = list(function.attributes["arg_attrs"]) if "arg_attrs" in function.attributes else []
        roles = {
            argument: "tilewright.role" in entry and entry["tilewright.role"].value != "input"
            for argument, entry in zip(function.regions[0].blocks[0].arguments, attributes)
        }
        for call in walk(function, "func.call"):
            name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
            if name not in found:
                found[name] = Calls(0, tuple(roles.get(_source(operand), False) for operand in call.operands))
            found[name].count += 1
    return found


def _source(value: ir.Value) -> ir.Value:
    """What a chain of reshapes and slices is a view of."""
    while not isinstance(value.owner, ir.Block) and value.owner.operation.name.startswith("tensor."):
        if not value.owner.operation.operands:
            break
        value = value.owner.operation.operands[0]
    return value


def weight_bytes(module: ir.Module) -> int:
    """Bytes of all that @main reads and no call changes: they pass through the caches once per call."""
    total = 0
    for function in functions(module):
        if name_of(function) == "main" and "arg_attrs" in function.attributes:
            types = function.attributes["function_type"].value.inputs
            for type_, entry in zip(types, function.attributes["arg_attrs"]):
                if "tilewright.role" in entry and entry["tilewright.role"].value != "input":
                    total += plan.tensor_spec(type_, "").nbytes
    return total


def weight_level(target: Target, nbytes: int) -> str:
    """The fastest memory that keeps so many bytes of weights from one call of the model to the next."""
    lasting = target.memory[:2] if target.kind == "gpu" else target.memory[:-1]
    return [level.name for level in lasting if level.capacity_bytes >= nbytes or level is lasting[0]][-1]


def residence_of(calls: Calls, level: str) -> tuple[str, ...]:
    """For each argument the `level` that weights are in, "" for what another kernel has just written."""
    return tuple(level if is_weight else "" for is_weight in calls.weights)
