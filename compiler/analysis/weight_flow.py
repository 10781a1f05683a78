"""What a function computes from weights and constants alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.compiler.analysis.placement import is_inserted
from tilewright.compiler.ir import ir, walk

PURE_DIALECTS = frozenset(
    {"arith", "math", "complex", "tensor", "linalg", "tm_tensor", "index", "affine", "scf"}
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
    such values, weights included; `read_elsewhere` those that other ops read."""

    sources: dict[ir.Operation, list[ir.Value]] = field(default_factory=dict)
    values: set[ir.Value] = field(default_factory=set)
    read_elsewhere: list[ir.Value] = field(default_factory=list)

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
            read, pure = _reads(op)
            inside = [value for value in read if value in flow.values]
            if pure and not any(value in others for value in read):
                flow.sources[op] = inside
                flow.values.update(op.results)
            else:
                flow.read_elsewhere.extend(inside)
                others.update(op.results)
        return flow


def _reads(op: ir.Operation) -> tuple[list[ir.Value], bool]:
    """What `op` reads, the captures of its regions included, and whether it neither writes nor fails."""
    values = list(op.operands)
    pure = len(op.results) > 0 and op.name.partition(".")[0] in PURE_DIALECTS and not is_inserted(op)
    if len(op.regions):
        for inner in walk(op):
            values.extend(inner.operands)
            pure = pure and inner.name.partition(".")[0] in PURE_DIALECTS
    return values, pure


def static_values(function: ir.Operation) -> set[ir.Value]:
    """Values that depend on weights and constants alone."""
    return WeightFlow.of(function, argument_roles(function)).values
