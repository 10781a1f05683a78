"""Names the operations of a graph, and writes the choices on them that a module asks for by name.

    module attributes {tilewright.choices = {matmul_0.block = 32}} { ... linalg.generic ... }
      =>
    linalg.generic {tilewright.choice = {block = 32 : i64, name = "matmul_0"}} ...

Equal operations in equal places share a name, so that a network of many equal blocks has the choices of one. A place is
what operations could be computed in one dispatch with: all that elements travel between without passing a contraction.
Names are given in program order, by kind; what depends on weights alone has none. A module that asks for nothing, not
even for an empty set, has no names.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim
from tilewright.compiler.analysis.computation_text import ComputationText
from tilewright.compiler.analysis.fusion_places import fusion_places
from tilewright.compiler.analysis.padding import Padding
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.analysis.weight_flow import WeightFlow, argument_roles
from tilewright.compiler.dialects import choice_attribute
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.pipeline.pass_base import Pass

_WORDS = {
    "addf": "add",
    "addi": "add",
    "maximumf": "max",
    "maxnumf": "max",
    "minimumf": "min",
    "minnumf": "min",
}


@dataclass(frozen=True)
class NameOperations(Pass):
    """Names what @main computes, and refuses choices of operations or fields that there are none of."""

    def run(self, op: ir.Operation) -> None:
        if choice_attribute.ASKED not in op.attributes:
            return
        mains = [f for f in functions(op.opview) if ir.StringAttr(f.attributes["sym_name"]).value == "main"]
        named: dict[str, list[ir.Operation]] = {}
        for name, operation in (pair for main in mains for pair in _names(main)):
            choice_attribute.write(operation, name=name)
            named.setdefault(name, []).append(operation)
        for knob, value in choice_attribute.asked(op).items():
            name, _, field = knob.rpartition(".")
            if name not in named:
                known = ", ".join(named) or "none"
                raise self.refusal(op, f"{knob} = {value}: there is no operation `{name}`; there are {known}")
            if field not in choice_attribute.CHOSEN:
                fields = ", ".join(choice_attribute.CHOSEN)
                raise self.refusal(op, f"{knob} = {value}: there is no field `{field}`; choose of {fields}")
            for operation in named[name]:
                choice_attribute.ask(operation, field, value)


def _names(main: ir.Operation) -> list[tuple[str, ir.Operation]]:
    """(name, operation) of every operation with loops, in program order."""
    static = WeightFlow.of(main, argument_roles(main)).values
    found = [
        s
        for view in main.regions[0].blocks[0].operations
        if (s := Structured.read(view.operation)) is not None and not set(s.op.results) <= static
    ]
    places = fusion_places(found)
    texts = {place: _text([found[n] for n in numbers], static) for place, numbers in places.items()}
    first: dict[tuple[str, int], str] = {}
    counts: Counter[str] = Counter()
    names = []
    of = {number: (place, at) for place, numbers in places.items() for at, number in enumerate(numbers)}
    for number, structured in enumerate(found):
        place, at = of[number]
        key = (texts[place], at)
        if key not in first:
            kind = _kind(structured)
            first[key] = f"{kind}_{counts[kind]}"
            counts[kind] += 1
        names.append((first[key], structured.op))
    return names


def _text(place: list[Structured], static: set[ir.Value]) -> str:
    """What the operations of a place compute, of which kinds of values, and which of it is read outside."""
    text = ComputationText(lambda value: f"{'weight' if value in static else 'value'} {value.type}")
    inside = {s.op for s in place}
    outside = []
    for s in place:
        text.add(s.op, where=f"{s.op.attributes['indexing_maps']} {s.kinds}")
        outside.append(
            sum(use.owner.operation not in inside for result in s.op.results for use in result.uses)
        )
    return "\n".join([*text.lines, str(outside)])


def _kind(structured: Structured) -> str:
    """`conv2d`, `matmul`, `sum`, `pad`, `copy`, or the last operation of the body: `add`, `exp`."""
    if structured.is_contraction:
        windows = sum(not is_dim(expr) for expr in structured.maps[0].results)
        return f"conv{windows}d" if windows else "matmul"
    if Padding.read(structured.op) is not None:
        return "pad"
    *before, _ = structured.body.operations
    if not before:
        return "copy"
    dialect, _, word = before[-1].operation.name.partition(".")
    if word in _WORDS:
        word = _WORDS[word]
    elif dialect == "arith" and word.endswith(("f", "i")):
        word = word[:-1]
    return "sum" if word == "add" and not structured.is_elementwise else word
