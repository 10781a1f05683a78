"""How far an element of a tensor can be followed while it is only moved, or its type changed: both ways.

%q = extf of a slice of a transposed view of %qkv     =>    %q[b, h, m, k] is %qkv[b, m, h * 64 + k], in f16
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.analysis.element_source import (
    Element,
    Linear,
    Loops,
    copied_at,
    digits_of_groups,
    moved_from,
    origin,
    reassociation,
)
from tilewright.compiler.analysis.structure import maps_of, producer
from tilewright.compiler.ir import ir, static_shape

_NARROW = (ir.F16Type, ir.BF16Type)


def farthest(element: Element, loops: Loops, along: int) -> Element:
    """The farthest tensor that `element` was moved from in which `along` still runs over neighbours in memory."""
    best = element
    while (found := moved_from(element, loops)) is not None:
        element = found
        if stride(element, along, loops) == 1:
            best = element
    return best


def stride(element: Element, along: int, loops: Loops) -> int:
    at = loops.row_major(element.index, static_shape(element.value.type))
    return loops.resolved(at).scale_of(along)


def narrowed(elements: Sequence[Element], loops: Loops) -> list[Element] | None:
    """The elements before they were widened to f32, when all of them come from one type of 16 bits; else None."""
    found = [_before_cast(origin(element, loops), "arith.extf") for element in elements]
    known = [element for element in found if element is not None]
    types = {str(ir.RankedTensorType(element.value.type).element_type) for element in known}
    return known if len(known) == len(elements) and len(types) == 1 else None


def _before_cast(element: Element, name: str) -> Element | None:
    """The element that `element` is cast from by an element-wise operation `name` between f32 and 16 bits."""
    op = producer(element.value)
    at = None if op is None else _cast_at(op, name)
    if op is None or at is None:
        return None
    read, written = at
    through = {ir.AffineDimExpr(e).position: index for e, index in zip(written.results, element.index)}
    return Element(op.operands[0], tuple(through[ir.AffineDimExpr(e).position] for e in read.results))


def _cast_at(op: ir.Operation, name: str) -> tuple[ir.AffineMap, ir.AffineMap] | None:
    """The maps by which a generic that only casts reads and writes, both permutations; None for other operations."""
    if op.name != "linalg.generic" or len(op.operands) != 2:
        return None
    first, *rest = (view.operation for view in op.regions[0].blocks[0].operations)
    if first.name != name or len(rest) != 1 or rest[0].operands[0] != first.results[0]:
        return None
    if first.operands[0] != op.regions[0].blocks[0].arguments[0]:
        return None
    types = {first.operands[0].type, first.results[0].type}
    wide = any(isinstance(t, ir.F32Type) for t in types)
    read, written = maps_of(op)
    permuted = read.is_permutation and written.is_permutation
    return (read, written) if wide and permuted and any(isinstance(t, _NARROW) for t in types) else None


def destination(
    element: Element, loops: Loops, along: int, through_cast: bool
) -> tuple[Element, list[ir.Operation]]:
    """Where a result ends up through the views and transposes that alone read it, and these operations.

    Of the places where `along` still runs over neighbours the farthest, and with `through_cast` behind a rounding to
    16 bits as well.
    """
    best, taken = element, []
    steps: list[ir.Operation] = []
    while True:
        uses = list(element.value.uses)
        op = uses[0].owner.operation if len(uses) == 1 else None
        index = None if op is None else _moved_to(element, op, loops)
        if op is not None and index is None and through_cast:
            index = _cast_to(element, op)
        if op is None or index is None:
            return best, taken
        steps.append(op)
        element = Element(op.results[0], tuple(index))
        if stride(element, along, loops) == 1:
            best, taken = element, list(steps)


def _moved_to(element: Element, op: ir.Operation, loops: Loops) -> Sequence[Linear] | None:
    """The index of `element` in the view or permuted copy that `op` makes of its tensor."""
    shape = static_shape(element.value.type)
    if op.name == "tensor.collapse_shape":
        return [
            loops.row_major([element.index[d] for d in group], [shape[d] for d in group])
            for group in reassociation(op)
        ]
    if op.name == "tensor.expand_shape":
        return digits_of_groups(op, element.index, static_shape(op.results[0].type), loops)
    at = copied_at(op)
    if at is None or op.operands[0] != element.value or not at[0].is_permutation:
        return None
    through = {ir.AffineDimExpr(e).position: index for e, index in zip(at[0].results, element.index)}
    return [through[loop] for loop in at[1]]


def _cast_to(element: Element, op: ir.Operation) -> Sequence[Linear] | None:
    """The index of `element` in the rounded copy that `op` makes of its tensor."""
    at = _cast_at(op, "arith.truncf")
    if at is None or op.operands[0] != element.value:
        return None
    through = {ir.AffineDimExpr(e).position: index for e, index in zip(at[0].results, element.index)}
    return [through[ir.AffineDimExpr(e).position] for e in at[1].results]
