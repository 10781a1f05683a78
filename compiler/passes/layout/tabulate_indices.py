"""tabulate-indices: numbers that a body computes from its loops alone, and that many elements share, are read from a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.analysis.structure import Structured, volume
from tilewright.compiler.ir import ir, walk
from tilewright.compiler.passes.layout.hoist_weights import SEVERAL, SMALL_BYTES
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import elementwise

_REUSED = 8
"""Elements that read each entry of a table, at least."""


@dataclass(frozen=True)
class TabulateIndices(Pass):
    """Moves what depends on loop indices alone out of element-wise bodies, to a generic over these loops only.

    Before, the mean of a pooling whose windows leave padding out:

        %y = linalg.generic {(c, h, w), (c, h, w)} ins(%sums) { %n = <counted from linalg.index 1 and 2> ; divf %sum, %n }

    After:

        %t = linalg.generic {(h, w)} { %n = <counted from linalg.index 0 and 1> ; yield %n }
        %y = linalg.generic {(c, h, w), (h, w), (c, h, w)} ins(%sums, %t) { divf %sum, %n }

    `hoist-weights` computes the table once, and a body without indices can be computed where its input is in registers.
    Only floats of several operations, in tables of at most 16 KiB whose entries several elements share.
    """

    anchor: ClassVar[str] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            s = Structured.read(generic)
            if s is None or not s.is_elementwise or not s.num_inputs or not s.has_index:
                continue
            tables = [t for t in _tables(s) if t.is_worth_it(s)]
            if tables:
                _read_instead(s, tables)


@dataclass(frozen=True)
class _Table:
    """A value of a body, the loops that it depends on, and the operations that compute it from these, in order."""

    value: ir.Value
    loops: tuple[int, ...]
    slice: tuple[ir.Operation, ...]

    def is_worth_it(self, s: Structured) -> bool:
        type_ = self.value.type
        if not self.loops or not isinstance(type_, ir.FloatType):
            return False
        entries = volume(s.extents, self.loops)
        operations = sum(op.name not in ("linalg.index", "arith.constant") for op in self.slice)
        return (
            operations >= SEVERAL
            and entries * type_.width // 8 <= SMALL_BYTES
            and s.points >= _REUSED * entries
        )


def _tables(s: Structured) -> list[_Table]:
    """The last values of the body that depend on nothing but loops and constants, which others than these read."""
    known: dict[ir.Value, _Table] = {}
    for view in s.body.operations:
        op = view.operation
        if op.name == "linalg.index":
            known[op.results[0]] = _Table(op.results[0], (ir.IntegerAttr(op.attributes["dim"]).value,), (op,))
        elif (
            op.name.startswith(("arith.", "math."))
            and len(op.results) == 1
            and all(value in known or _is_constant(value) for value in op.operands)
        ):
            inside = [known[value] for value in op.operands if value in known]
            loops = sorted({loop for table in inside for loop in table.loops})
            steps = dict.fromkeys(step for table in inside for step in table.slice)
            known[op.results[0]] = _Table(op.results[0], tuple(loops), (*steps, op))
    return [
        table
        for value, table in known.items()
        if any(not _is_inside(use.owner.operation, known) for use in value.uses)
    ]


def _is_inside(op: ir.Operation, known: dict[ir.Value, _Table]) -> bool:
    return len(op.results) == 1 and op.results[0] in known


def _is_constant(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.operation.name == "arith.constant"


def _read_instead(s: Structured, tables: list[_Table]) -> None:
    """Rebuilds the generic with one more input per table."""
    op, inputs = s.op, s.num_inputs
    with op.location, ir.InsertionPoint(op):
        made = [_made(table, s) for table in tables]
        names = [op.attributes[i] for i in range(len(op.attributes))]
        attributes = {named.name: named.attr for named in names}
        maps = [
            ir.AffineMap.get(len(s.extents), 0, [ir.AffineDimExpr.get(d) for d in t.loops]) for t in tables
        ]
        attributes["indexing_maps"] = ir.ArrayAttr.get(
            [ir.AffineMapAttr.get(m) for m in (*s.maps[:inputs], *maps, *s.maps[inputs:])]
        )
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(
            [inputs + len(tables), len(s.maps) - inputs]
        )
        rebuilt = ir.Operation.create(
            "linalg.generic",
            results=[result.type for result in op.results],
            operands=[*list(op.operands)[:inputs], *made, *list(op.operands)[inputs:]],
            attributes=attributes,
            regions=1,
        )
    block = s.body
    block.append_to(rebuilt.regions[0])
    outs = list(block.arguments)[inputs:]
    for table in tables:
        table.value.replace_all_uses_with(block.add_argument(table.value.type, op.location))
    for argument in outs:
        argument.replace_all_uses_with(block.add_argument(argument.type, op.location))
    for _ in outs:
        block.erase_argument(inputs)
    for old, new in zip(op.results, rebuilt.results):
        old.replace_all_uses_with(new)
    op.erase()


def _made(table: _Table, s: Structured) -> ir.Value:
    """The table's values over its loops, at the insertion point."""

    def computed(*_: ir.Value) -> ir.Value:
        copies: dict[ir.Value, ir.Value] = {}
        for op in table.slice:
            clone = op.clone().operation
            if op.name == "linalg.index":
                loop = ir.IntegerAttr(op.attributes["dim"]).value
                clone.attributes["dim"] = ir.IntegerAttr.get(
                    ir.IntegerType.get_signless(64), table.loops.index(loop)
                )
            for number, value in enumerate(op.operands):
                clone.operands[number] = copies.get(value, value)
            copies[op.results[0]] = clone.results[0]
        return copies[table.value]

    type_ = ir.RankedTensorType.get([s.extents[loop] for loop in table.loops], table.value.type)
    return elementwise(type_, [], [], computed).results[0]
