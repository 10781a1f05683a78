"""Whether a reduction and what computes from it have rows of one kind, which threads of a GPU's block can share."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.analysis.affine_access import dims
from tilewright.compiler.analysis.structure import Structured, loop_lines, volume
from tilewright.compiler.ir import static_shape

ACROSS = "the group holds a reduction along other loops"
REPEATED = "loops of the group would repeat it"


def apart(number: int, group: Sequence[Structured]) -> str | None:
    """Why the reduction `group[number]` has other rows than the rest of a group, in program order, its sink last; None if not."""
    reduction, others = group[number], [s for i, s in enumerate(group) if i != number]
    if _is_summed_across(reduction, others):
        return ACROSS
    line = loop_lines(group[-1], group)[number] or {}
    walked = volume(group[-1].extents, [loop for loop, own in line.items() if own is None])
    summed = volume(reduction.extents, [i for i, kind in enumerate(reduction.kinds) if kind == "reduction"])
    # Loops that walk once more what was summed, as a softmax does, repeat nothing.
    return None if walked in (1, summed) else REPEATED


def _is_summed_across(first: Structured, group: Sequence[Structured]) -> bool:
    """Whether a reduction of `group` runs along a loop that results of the reduction `first` keep.

    A layer norm's two run along the same loops; a mean of its rows, after it, does not.
    """
    kept = {
        result: {dim for dim, extent in enumerate(static_shape(result.type)) if extent > 1}
        for result in first.op.results
    }
    for structured in group:
        loops = {
            loop
            for operand, map_ in zip(structured.op.operands, structured.maps)
            for dim in kept.get(operand, ())
            for loop in dims(map_.results[dim])
        }
        if any(structured.kinds[loop] == "reduction" for loop in loops):
            return True
        for result, map_ in zip(structured.op.results, structured.maps[structured.num_inputs :]):
            kept[result] = {dim for dim, expr in enumerate(map_.results) if loops & set(dims(expr))}
    return False
