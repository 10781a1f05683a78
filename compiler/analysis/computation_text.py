"""What a dispatch computes as canonical text: the same for equal computations, whatever their values and loops are called.

One line per operation, in the order in which the sink needs them. Tensors are `in0`, `in1` for what is read from memory,
by the number of the operand, and `%0`, `%1` for what operations give each other; loops are named by the axis that they are.

    %0[a0, a1, a2] = (in0, in1, 0.0) mulf(x0, x1) -> v0; addf(x2, v0) -> v1; yield(v1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.compiler.ir import ir

_IGNORED = ("operandSegmentSizes", "indexing_maps", "iterator_types")
"""Attributes that the text of an operation says in another way."""


class ComputationText:
    """Writes operations down; `operand` names tensors that come from outside, by value."""

    def __init__(self, operand: Callable[[ir.Value], str]):
        self.operand = operand
        self.given: dict[ir.Value, str] = {}
        self.lines: list[str] = []

    def add(self, op: ir.Operation, where: str = "", read: Sequence[str] | None = None) -> None:
        """A line for an operation, whose results later lines may name.

        `where` says how it runs over the axes, `read` what its operands are called where that is not by value.
        """
        number = len(self.lines)
        reads = ", ".join([self.name(value) for value in op.operands] if read is None else read)
        for position, result in enumerate(op.results):
            self.given[result] = f"%{number}" if len(op.results) == 1 else f"%{number}#{position}"
        body = "; ".join(self._region(region, {}) for region in op.regions)
        types = ", ".join(str(result.type) for result in op.results)
        label = "" if op.name == "linalg.generic" else op.name.partition(".")[2] + _attributes(op)
        self.lines.append(f"%{number}[{where}] = {label}({reads}) {body} : {types}")

    def name(self, value: ir.Value) -> str:
        """What a value is called: a constant by what it is, a fill by its number."""
        if value in self.given:
            return self.given[value]
        if not isinstance(value.owner, ir.Block):
            op = value.owner.operation
            if op.name == "arith.constant":
                return str(op.attributes["value"])
            if op.name == "tensor.empty":
                return "undefined"
            if op.name == "linalg.fill":
                return self.name(op.operands[0])
        return self.operand(value)

    def _region(self, region: ir.Region, outside: Mapping[ir.Value, str]) -> str:
        """The operations of a region, values numbered in order."""
        names = dict(outside)
        texts = []
        for block in region.blocks:
            for argument in block.arguments:
                names[argument] = f"x{len(names)}"
            for view in block.operations:
                op = view.operation
                read = ", ".join(names[v] if v in names else self.name(v) for v in op.operands)
                nested = "".join(f" {{{self._region(inner, names)}}}" for inner in op.regions)
                text = f"{op.name}{_attributes(op)}({read}){nested}"
                for result in op.results:
                    names[result] = f"v{len(names)}"
                    text += f" -> {names[result]} : {result.type}"
                texts.append(text)
        return "; ".join(texts)


def _attributes(op: ir.Operation) -> str:
    kept = [f"{name} = {op.attributes[name]}" for name in sorted(op.attributes) if name not in _IGNORED]
    return f" {{{', '.join(kept)}}}" if kept else ""
