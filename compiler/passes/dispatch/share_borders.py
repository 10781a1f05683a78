"""Lets @prepack fill the borders of padded tensors, and tensors of the same border share one.

    %f = linalg.fill ins(%zero) outs(%e)                           // tensor<1x58x58x64xf32>
    %p = tensor.insert_slice %x into %f[0, 1, 1, 0] ... {tilewright.in_place}
      =>
    %p = tensor.insert_slice %x into %packed0[0, 1, 1, 0] ... {tilewright.in_place}     // the fill, from @prepack

A filled border is written once, when weights are bound: nothing ever writes there again. Tensors with the same
border share memory as soon as the one before is read for the last time, in the order in which @main stands.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from tilewright.compiler.analysis.placement import chain_of, is_inserted, places
from tilewright.compiler.analysis.views import is_view
from tilewright.compiler.analysis.weight_flow import argument_roles
from tilewright.compiler.ir import func, functions, ir, linalg, tensor
from tilewright.compiler.package.prepack import (
    empty_prepack,
    function_type,
    packed_attributes,
    return_values,
    retype,
)
from tilewright.compiler.passes.dispatch.place_inserts import is_bordered, new_dispatch
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class ShareBorders(Pass):
    """Runs on modules whose @main consists of dispatch calls and of insertions that `place-inserts` placed."""

    def run(self, op: ir.Operation) -> None:
        named = {ir.StringAttr(f.attributes["sym_name"]).value: f for f in functions(op.opview)}
        if "main" in named:
            _share_borders(named["main"], named.get("prepack"))


@dataclass
class _Border:
    """A chain of insertions into a fill: its operations, first to last use, and what distinguishes its border."""

    chain: list[ir.Operation]
    first: int
    last: int

    @property
    def fill(self) -> ir.Operation:
        return self.chain[-1].operands[1].owner.operation

    def key(self) -> tuple:
        value = self.fill.operands[0].owner.operation.attributes["value"]
        boxes = [
            (tuple(op.attributes["static_offsets"]), tuple(op.attributes["static_sizes"]))
            for op in self.chain
        ]
        return str(self.chain[0].results[0].type), str(value), str(boxes)


def _share_borders(main: ir.Operation, known: ir.Operation | None) -> None:
    """Makes the fills that are inserted into arguments of @main, results of @prepack; as few as lifetimes allow."""
    borders = _borders(main)
    if not borders:
        return
    block = main.regions[0].blocks[0]
    roles = argument_roles(main)
    prepack = empty_prepack(main, roles) if known is None else known
    *_, terminator = (view.operation for view in prepack.regions[0].blocks[0].operations)
    kept = list(terminator.operands)
    types, attributes = list(function_type(main).inputs), list(main.attributes["arg_attrs"])
    free: dict[tuple, list[tuple[int, ir.Value]]] = defaultdict(list)
    for border in sorted(borders, key=lambda b: b.first):
        key = border.key()
        shared = free[key]
        slot = next((i for i, (last, _) in enumerate(shared) if last < border.first), None)
        if slot is None:
            type_ = border.chain[0].results[0].type
            value = border.fill.operands[0].owner.operation
            name = f"border_{'x'.join(map(str, ir.RankedTensorType(type_).shape))}_{len(kept)}"
            new_dispatch(prepack, name, [], type_, lambda _, value=value, type_=type_: _filled(value, type_))
            with ir.InsertionPoint(terminator), terminator.location:
                result = func.CallOp([type_], name, []).results[0]
            argument = block.add_argument(type_, border.fill.location)
            types.append(type_)
            attributes.append(packed_attributes(len(kept)))
            kept.append(result)
            shared.append((border.last, argument))
        else:
            argument = shared[slot][1]
            shared[slot] = (border.last, argument)
        border.chain[-1].operands[1] = argument
    retype(main, types, list(function_type(main).results), attributes)
    return_values(prepack, terminator, kept)


def _filled(constant: ir.Operation, type_: ir.Type) -> ir.Value:
    value = constant.clone().operation.results[0]
    shaped = ir.RankedTensorType(type_)
    return linalg.fill(value, outs=[tensor.empty(list(shaped.shape), shaped.element_type)])


def _borders(main: ir.Operation) -> list[_Border]:
    *ops, _ = (view.operation for view in main.regions[0].blocks[0].operations)
    placed = places(ops, is_view)
    first: dict[ir.Value, int] = {}
    last: dict[ir.Value, int] = {}
    for number, op in enumerate(ops):
        if op.name == "func.call":
            for value in (*op.operands, *op.results):
                root = placed[value].root if value in placed else value
                first.setdefault(root, number)
                last[root] = number
    found = []
    for op in ops:
        if is_inserted(op) and op.results[0] in first and is_bordered(op.results[0]):
            found.append(_Border(chain_of(op), first[op.results[0]], last[op.results[0]]))
    return found
