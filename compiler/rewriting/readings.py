"""A tensor as it lies in others: what `tensor.collapse_shape`, `tensor.expand_shape` and transposed copies make of them.

    %t = linalg.transpose ins(%x : [B, T, H, D]) -> [B, H, T, D]
    %c = tensor.collapse_shape %t -> [B*H, T, D]

%c in %t: dimensions (0, 1), (2), (3). %c in %x: dimensions (0, 2), (1), (3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tilewright.compiler.analysis.structure import producer
from tilewright.compiler.ir import ir, static_shape
from tilewright.compiler.rewriting.layout_rules import transposed_by

Groups = list[list[int]]
"""Per dimension of a tensor, the dimensions of another tensor that make it up, outer first."""


@dataclass
class Reading:
    """A tensor as it lies in `value`: `groups[d]` are the dimensions of `value` that make up d."""

    value: ir.Value
    groups: Groups
    steps: list[ir.Operation] = field(default_factory=list)
    """What was seen through last; of a result, all that follows it up to `value`."""

    @property
    def shape(self) -> tuple[int, ...]:
        return static_shape(self.value.type)

    def kept(self, group: list[int]) -> list[int]:
        """The dimensions of a group that are more than one element."""
        return [dim for dim in group if self.shape[dim] != 1]

    @property
    def keeps_innermost(self) -> bool:
        inside = [dim for group in self.groups for dim in self.kept(group)]
        return bool(inside) and inside[-1] == max(inside)


def readings(operand: ir.Value) -> Iterator[Reading]:
    """`operand` itself, then as it lies in each tensor that it is a reshaped or transposed view of."""
    value, groups = operand, [[dim] for dim in range(len(static_shape(operand.type)))]
    yield Reading(value, groups)
    while (op := producer(value)) is not None:
        if op.name == "tensor.collapse_shape":
            pieces = reassociation(op)
            groups = [[piece for dim in group for piece in pieces[dim]] for group in groups]
        elif op.name == "tensor.expand_shape":
            merged = _merged(groups, reassociation(op), static_shape(value.type))
            if merged is None:
                return
            groups = merged
        elif (permutation := transposed_by(op)) is not None:
            groups = permuted(groups, permutation)
        else:
            return
        value = op.operands[0]
        yield Reading(value, groups, [op])


def permuted(groups: Groups, permutation: Sequence[int]) -> Groups:
    """`groups` over the tensor that was transposed by `permutation`."""
    return [[permutation[dim] for dim in group] for group in groups]


def _merged(groups: Groups, pieces: Groups, shape: tuple[int, ...]) -> Groups | None:
    """`groups` over the unexpanded tensor; None when a dimension's pieces lie apart."""
    whole = {piece: dim for dim, members in enumerate(pieces) for piece in members if shape[piece] != 1}
    merged: Groups = []
    for group in groups:
        members = [piece for piece in group if shape[piece] != 1]
        dims = list(dict.fromkeys(whole[piece] for piece in members))
        complete = [piece for dim in dims for piece in pieces[dim] if shape[piece] != 1]
        if complete != members:
            return None
        merged.append(dims)
    return merged


def reassociation(op: ir.Operation) -> Groups:
    """Of a reshape, the dimensions of the longer shape that make up each of the shorter one."""
    return [[ir.IntegerAttr(dim).value for dim in group] for group in op.attributes["reassociation"]]
