"""Moves reshapes behind the element-wise operations that follow a computation, so that they can fuse with it.

    %m = linalg.generic // matmul : tensor<128x3072xf32>
    %v = tensor.expand_shape %m : tensor<1x128x3072xf32>
    %r = linalg.generic // element-wise, reads %v and %bias
      =>
    %r' = linalg.generic // element-wise on tensor<128x3072xf32>, reads %m and %bias
    %r = tensor.expand_shape %r'

The operation is rewritten on the shape before the reshape: other operands of its full shape are reshaped back,
which costs nothing, broadcast operands keep the loops they follow. Upstream folds reshapes by expanding the
operation instead, which leaves matmuls with more loops than they had.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import is_dim
from tilewright.compiler.ir import ir, linalg, tensor, walk
from tilewright.compiler.pipeline.pass_base import Pass

_RESHAPES = ("tensor.expand_shape", "tensor.collapse_shape")


@dataclass(frozen=True)
class SinkReshapes(Pass):
    """Rewrites element-wise generics of a module, producers before consumers."""

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            reshape = _sinkable(generic)
            if reshape is not None:
                _sink(generic, reshape)


def _sinkable(generic: ir.Operation) -> ir.Operation | None:
    """The reshape of a computed value that `generic`, element-wise with one result, reads in full."""
    if len(generic.results) != 1 or any("reduction" in str(k) for k in generic.attributes["iterator_types"]):
        return None
    maps = [ir.AffineMapAttr(a).value for a in generic.attributes["indexing_maps"]]
    identity = ir.AffineMap.get_identity(maps[-1].n_dims)
    body = generic.regions[0].blocks[0]
    if maps[-1] != identity or any(
        o.operation.name in ("linalg.index", "tensor.extract") for o in body.operations
    ):
        return None
    if not all(all(is_dim(e) for e in m.results) for m in maps):
        return None
    for operand, map_ in zip(generic.operands, maps[:-1]):
        if map_ != identity or isinstance(operand.owner, ir.Block):
            continue
        reshape = operand.owner.operation
        if reshape.name not in _RESHAPES or len(list(operand.uses)) != 1:
            continue
        source = reshape.operands[0]
        static = all(ir.ShapedType(t).has_static_shape for t in (source.type, operand.type))
        computed = not isinstance(source.owner, ir.Block) and source.owner.operation.name == "linalg.generic"
        # From and to a scalar there are no loops to rewrite: it has none.
        if static and computed and len(reshape.attributes["reassociation"]):
            return reshape
    return None


def _groups(reshape: ir.Operation) -> list[list[int]]:
    return [[int(str(i).split(" ")[0]) for i in group] for group in reshape.attributes["reassociation"]]


def _sink(generic: ir.Operation, reshape: ir.Operation) -> None:
    source = ir.RankedTensorType(reshape.operands[0].type)
    target = ir.RankedTensorType(reshape.results[0].type)
    expands = reshape.name == "tensor.expand_shape"
    groups = _groups(reshape)
    maps = [ir.AffineMapAttr(a).value for a in generic.attributes["indexing_maps"]]
    plans = []
    for map_ in maps:
        positions = [e.position for e in map_.results]
        plan = (
            collapsed_access(positions, groups, list(target.shape))
            if expands
            else expanded_access(positions, groups, list(source.shape))
        )
        if plan is None:
            return
        plans.append(plan)
    with ir.InsertionPoint(generic), generic.location:
        operands = []
        for operand, (own_groups, loops) in zip(generic.operands, plans):
            type_ = ir.RankedTensorType(operand.type)
            operands.append(_reshaped(operand, type_, own_groups, [source.shape[d] for d in loops], expands))
        result_type = ir.RankedTensorType.get(
            source.shape, ir.RankedTensorType(generic.results[0].type).element_type
        )
        rank = source.rank
        affine_maps = [
            ir.AffineMapAttr.get(ir.AffineMap.get(rank, 0, [ir.AffineExpr.get_dim(d) for d in loops]))
            for _, loops in plans
        ]
        kinds = ir.ArrayAttr.get([ir.Attribute.parse("#linalg.iterator_type<parallel>")] * rank)
        new = linalg.GenericOp(
            [result_type], operands[:-1], operands[-1:], ir.ArrayAttr.get(affine_maps), kinds
        )
        generic.regions[0].blocks[0].append_to(new.regions[0])
        old_type = ir.RankedTensorType(generic.results[0].type)
        if expands:
            value = tensor.expand_shape(old_type, new.results[0], groups, [], list(old_type.shape))
        else:
            value = tensor.collapse_shape(old_type, new.results[0], groups)
    generic.results[0].replace_all_uses_with(value)
    generic.erase()


def _reshaped(
    operand: ir.Value, type_, groups: list[list[int]], shape: list[int], collapse: bool
) -> ir.Value:
    if list(type_.shape) == shape:
        return operand
    new = ir.RankedTensorType.get(shape, type_.element_type)
    if collapse:
        return tensor.collapse_shape(new, operand, groups)
    return tensor.expand_shape(new, operand, groups, [], shape)


def collapsed_access(
    positions: list[int], groups: list[list[int]], shape: list[int]
) -> tuple[list[list[int]], list[int]] | None:
    """How an operand that follows loops `positions` is read once loops are merged by `groups`.

    Returns the reassociation of the operand's own dimensions and the merged loops it follows; None when it follows
    only part of a merged loop. `shape` are the extents of the loops before merging.
    """
    own_groups: list[list[int]] = []
    loops: list[int] = []
    pending: list[int] = []
    at = 0
    for number, group in enumerate(groups):
        members = []
        while at < len(positions) and positions[at] in group:
            members.append(at)
            at += 1
        followed = [positions[m] for m in members]
        needed = [d for d in group if shape[d] != 1]
        if not set(followed) - {d for d in group if shape[d] == 1}:
            # Only unit loops of this group, or none: nothing of it is followed unless the whole group is units.
            if needed or not followed:
                pending += members
                continue
        elif [d for d in followed if shape[d] != 1] != needed:
            return None
        own_groups.append([*pending, *members])
        pending = []
        loops.append(number)
    if at != len(positions):
        return None
    if pending:
        if not own_groups:
            return ([], []) if all(shape[positions[p]] == 1 for p in pending) else None
        own_groups[-1] += pending
    return own_groups, loops


def expanded_access(
    positions: list[int], groups: list[list[int]], shape: list[int]
) -> tuple[list[list[int]], list[int]] | None:
    """How an operand that follows loops `positions` is read once loop `i` is split into the loops `groups[i]`."""
    own_groups: list[list[int]] = []
    loops: list[int] = []
    for position in positions:
        group = groups[position]
        own_groups.append(list(range(len(loops), len(loops) + len(group))))
        loops += group
    return own_groups, loops
