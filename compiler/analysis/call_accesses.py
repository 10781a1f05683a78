"""Reads off a function of dispatch calls what every call reads and writes, wherever `placement` puts tensors."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from tilewright.compiler.analysis.placement import OVERWRITES, Place, own, places, shape_of
from tilewright.compiler.analysis.views import element_count, is_view
from tilewright.compiler.ir import element_bytes, functions, ir, walk
from tilewright.compiler.nouns.accesses import Accesses, Memory, Region


@dataclass(frozen=True)
class Calls:
    """The calls of a function in order, what each accesses, and the memories: `roots[i]` is what lies in memory i."""

    ops: tuple[ir.Operation, ...]
    steps: tuple[Accesses, ...]
    memories: tuple[Memory, ...]
    roots: tuple[ir.Value, ...]
    placed: dict[ir.Value, Place]

    def place(self, value: ir.Value) -> Place:
        """Where a tensor of the function lies."""
        return self.placed[value] if value in self.placed else own(value)


def read_calls(function: ir.Operation, can_fail: Container[str] = ()) -> Calls:
    """Reads a function of one block; `can_fail` names the dispatches with run-time checks.

    Calls of these keep their order, and so do calls that write over arguments: what failed first has changed nothing.

    Raises PassError where a tensor would have to lie in two places.
    """
    *ops, terminator = (view.operation for view in function.regions[0].blocks[0].operations)
    calls = Calls(tuple(op for op in ops if op.name == "func.call"), (), (), (), places(ops, is_view))
    kept = {calls.place(value).root for value in terminator.operands}
    numbers: dict[ir.Value, int] = {}
    memories: list[Memory] = []

    def region(value: ir.Value) -> Region:
        place = calls.place(value)
        if place.root not in numbers:
            numbers[place.root] = len(memories)
            item = element_bytes(ir.RankedTensorType(place.root.type).element_type)
            is_computed = not isinstance(place.root.owner, ir.Block) and (
                place.root.owner.name != "arith.constant"
            )
            is_temporary = is_computed and place.root not in kept
            memories.append(Memory(element_count(place.root.type) * item, item, is_temporary))
        return Region(numbers[place.root], place.offset, shape_of(value), place.strides)

    steps = []
    for op in calls.ops:
        callee = ir.FlatSymbolRefAttr(op.attributes["callee"]).value
        reads = dict.fromkeys(region(value) for value in op.operands)
        writes = dict.fromkeys(region(value) for value in op.results)
        is_fixed = callee in can_fail or OVERWRITES in op.attributes
        steps.append(Accesses(tuple(reads), tuple(writes), is_fixed))
    return Calls(calls.ops, tuple(steps), tuple(memories), tuple(numbers), calls.placed)


def failing_dispatches(module) -> set[str]:
    """Names of the functions of a module that hold run-time checks."""
    return {ir.StringAttr(f.attributes["sym_name"]).value for f in functions(module) if walk(f, "cf.assert")}
