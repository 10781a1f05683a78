"""What a function computes from weights and constants alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.compiler.analysis.placement import is_inserted
from tilewright.compiler.ir import ir, walk

PURE_DIALECTS = frozenset(
    {"arith", "math", "complex", "tensor", "linalg", "tm_tensor", "tilewright", "index", "affine", "scf"}
)
"""Dialects whose ops, on tensors, neither write nor fail."""

ROLE = "tilewright.role"


PARAMETER = "tilewright.parameter"
"""On inputs that are parameters of a model, but given at every call."""


def argument_roles(function: ir.Operation, parameters: str = "input") -> list[str]:
    """The `tilewright.role` of every argument, empty where there is none; `parameters` for inputs marked as such."""
    if "arg_attrs" not in function.attributes:
        return [""] * len(function.regions[0].blocks[0].arguments)
    attributes = function.attributes["arg_attrs"]
    return [
        parameters if PARAMETER in entry else ir.StringAttr(entry[ROLE]).value if ROLE in entry else ""
        for entry in attributes
    ]


@dataclass
class WeightFlow:
    """`sources[op]` is what each op that needs weights and constants only reads, in program order; `values` all
    such values, weights included; `others` the ops that are not of the flow, in program order."""

    sources: dict[ir.Operation, list[ir.Value]] = field(default_factory=dict)
    values: set[ir.Value] = field(default_factory=set)
    others: list[ir.Operation] = field(default_factory=list)

    @classmethod
    def of(cls, function: ir.Operation, roles: list[str]) -> WeightFlow:
        """Follows the values of a function of one block, in time linear in its ops.

        An op belongs to the flow when everything that it and its regions read does, and nothing in it writes or
        can fail: `cf.assert` in a body keeps an op out. So does an insertion in place: it fills part of a tensor
        that others fill too, and a chain of insertions that is cut loses what was inserted before the cut.
        """
        flow = cls()
        block = function.regions[0].blocks[0]
        others: set[ir.Value] = set()
        for argument, role in zip(block.arguments, roles):
            (flow.values if role in ("weight", "packed") else others).add(argument)
        for view in block.operations:
            op = view.operation
            # Most ops read an activation: their bodies, which take longest to walk, have nothing to decide.
            belongs = not any(value in others for value in op.operands) and _is_pure(op)
            read = _reads(op) if belongs else []
            if belongs and not any(value in others for value in read):
                flow.sources[op] = [value for value in read if value in flow.values]
                flow.values.update(op.results)
            else:
                flow.others.append(op)
                others.update(op.results)
        return flow

    def read_elsewhere(self) -> list[ir.Value]:
        """The flow's values that other ops read, as often as they do, in program order."""
        return [value for op in self.others for value in _reads(op) if value in self.values]


def _is_pure(op: ir.Operation) -> bool:
    """Whether `op` and what is in its regions neither writes nor fails."""
    inside = walk(op) if len(op.regions) else [op]
    pure = all(inner.name.partition(".")[0] in PURE_DIALECTS for inner in inside)
    return len(op.results) > 0 and pure and not is_inserted(op)


def _reads(op: ir.Operation) -> list[ir.Value]:
    """What `op` reads, the captures of its regions included."""
    values = list(op.operands)
    for inner in walk(op) if len(op.regions) else ():
        values.extend(inner.operands)
    return values


def static_values(function: ir.Operation) -> set[ir.Value]:
    """Values that depend on weights and constants alone."""
    return WeightFlow.of(function, argument_roles(function)).values
