"""Drops the dimensions of extent 1 that an operand is indexed with by a constant.

    %s = linalg.generic (d0, d1) ins(%x) outs(%e : tensor<128x1xf32>)   // map (d0, 0)
      =>
    %s = linalg.generic (d0, d1) ins(%x) outs(%e' : tensor<128xf32>)    // map (d0)
    %r = tensor.expand_shape %s [[0, 1]]

Such maps come from reductions that keep their dimension; they are no projected permutations, so upstream can
neither tile nor fuse through them. Loops stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.ir import ir, tensor, walk
from tilewright.compiler.pipeline.pass_base import Pass


@dataclass(frozen=True)
class DropUnitResults(Pass):
    """Rewrites every `linalg.generic` on static tensors of a module."""

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            maps = [ir.AffineMapAttr(a).value for a in generic.attributes["indexing_maps"]]
            if any(_constants(map_) for map_ in maps):
                _drop(generic, maps)


def _constants(map_: ir.AffineMap) -> list[int]:
    return [i for i, expr in enumerate(map_.results) if isinstance(expr, ir.AffineConstantExpr)]


def reassociation(rank: int, dropped: list[int]) -> list[list[int]]:
    """Groups that collapse the `dropped` dimensions of a `rank`-dimensional tensor into a neighbour."""
    groups: list[list[int]] = []
    pending: list[int] = []
    for i in range(rank):
        if i in dropped:
            pending.append(i)
        else:
            groups.append([*pending, i])
            pending = []
    if pending and groups:
        groups[-1] += pending
    return groups


def _drop(generic: ir.Operation, maps: list[ir.AffineMap]) -> None:
    inputs = len(generic.operands) - len(generic.results)
    new_maps, results = [], []
    with ir.InsertionPoint(generic), generic.location:
        for i, (map_, operand) in enumerate(zip(maps, generic.operands)):
            type_ = operand.type
            if not isinstance(type_, ir.RankedTensorType) or not ir.ShapedType(type_).has_static_shape:
                new_maps.append(map_)
                continue
            # A constant may also pick one element of many, which is no reshape.
            dropped = [d for d in _constants(map_) if type_.shape[d] == 1]
            if not dropped:
                new_maps.append(map_)
                continue
            kept = [d for d in range(len(map_.results)) if d not in dropped]
            shape = [type_.shape[d] for d in kept]
            small = ir.RankedTensorType.get(shape, type_.element_type)
            groups = reassociation(type_.rank, dropped)
            generic.operands[i] = tensor.collapse_shape(small, operand, groups)
            new_maps.append(ir.AffineMap.get(map_.n_dims, 0, [map_.results[d] for d in kept]))
            if i >= inputs:
                results.append((i - inputs, small, groups, type_))
    generic.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in new_maps])
    for number, small, groups, type_ in results:
        result = generic.results[number]
        uses = [(use.owner.operation, use.operand_number) for use in result.uses]
        result.set_type(small)
        with ir.InsertionPoint.after(generic), generic.location:
            expanded = tensor.expand_shape(type_, result, groups, [], list(type_.shape))
        for user, position in uses:
            user.operands[position] = expanded
