"""fold-unit-copies: a transpose that only moves dimensions of extent 1 is a reshape, which costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.compiler.ir import ir, static_shape, tensor, walk
from tilewright.compiler.pipeline.pass_base import Pass
from tilewright.compiler.rewriting.generics import body, indexing_maps, terminator


@dataclass(frozen=True)
class FoldUnitCopies(Pass):
    """Replaces generics that copy every element to where it was in memory by reshapes.

    Before, as packing leaves it for a weight of one block:

        %p = linalg.generic {indexing_maps = [(a, b, c) -> (b, a, c), (a, b, c) -> (a, b, c)]}
                 ins(%w : tensor<27x1x32xf32>) outs(%e : tensor<1x27x32xf32>) { yield %in }

    After:

        %c = tensor.collapse_shape %w [[0, 1], [2]] : tensor<27x1x32xf32> into tensor<27x32xf32>
        %p = tensor.expand_shape %c [[0, 1], [2]] output_shape [1, 27, 32]

    Transposes of longer dimensions, broadcasts and conversions stay.
    """

    anchor: ClassVar[str] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        for generic in walk(op, "linalg.generic"):
            if keeps_order(generic):
                _replace(generic)


def keeps_order(generic: ir.Operation) -> bool:
    """Whether `generic` copies its one input, element for element in row-major order, into an output of its type."""
    if len(generic.operands) != 2 or len(generic.results) != 1 or len(body(generic).operations) != 1:
        return False
    source, result = generic.operands[0].type, generic.results[0].type
    if not isinstance(source, ir.RankedTensorType) or not source.has_static_shape:
        return False
    if source.element_type != result.element_type or not result.has_static_shape:
        return False
    yielded = terminator(body(generic)).operands[0]
    if yielded != body(generic).arguments[0]:
        return False
    read, written = (
        _long_loops(map_, type_) for map_, type_ in zip(indexing_maps(generic), (source, result))
    )
    return read is not None and read == written and len(set(read)) == len(read)


def _long_loops(map_: ir.AffineMap, type_: ir.RankedTensorType) -> list[int] | None:
    """The loops behind dimensions longer than 1, in order; None when one of them is not a loop alone."""
    loops = []
    for expr, extent in zip(map_.results, type_.shape):
        if extent != 1:
            if not isinstance(expr, ir.AffineDimExpr):
                return None
            loops.append(expr.position)
    return loops


def _long_groups(shape: tuple[int, ...]) -> list[list[int]]:
    """Dimensions grouped so that each group holds one longer than 1; none when all are 1."""
    groups: list[list[int]] = []
    leading: list[int] = []
    for dim, extent in enumerate(shape):
        if extent != 1:
            groups.append([*leading, dim])
            leading = []
        elif groups:
            groups[-1].append(dim)
        else:
            leading.append(dim)
    return groups


def _replace(generic: ir.Operation) -> None:
    value, result = generic.operands[0], generic.results[0]
    shape, target = static_shape(value.type), static_shape(result.type)
    with generic.location, ir.InsertionPoint(generic):
        if shape != target:
            long = [extent for extent in shape if extent != 1]
            if len(long) != len(shape):
                flat = ir.RankedTensorType.get(long, value.type.element_type)
                value = tensor.collapse_shape(flat, value, _long_groups(shape))
            if len(long) != len(target):
                groups = _long_groups(target)
                value = tensor.expand_shape(
                    result.type, value, groups, output_shape=[], static_output_shape=list(target)
                )
    result.replace_all_uses_with(value)
    generic.erase()
