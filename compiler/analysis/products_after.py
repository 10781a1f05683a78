"""Which product reads what windows give: a depthwise convolution or a pooling, what is computed from it, and a contraction.

    %d = linalg.generic // depthwise ; %y = linalg.generic // relu of %d ; %p = linalg.generic // product of %y and a weight

All of %d and %y goes to %p and nowhere else, element by element, so that an rTask with whole rows of %p can compute its part of
them once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.ir import ir


def products_after(
    found: Sequence[Structured | None], users: Mapping[ir.Value, Sequence[int]]
) -> dict[int, int]:
    """The product of every windowed reduction, and of what is computed from one, that has one; by numbers.

    `found` are operations in program order, None for what is not structured; `users` has the numbers of those that read a
    value, `len(found)` for what leaves the block.
    """
    ends: dict[int, int] = {}
    for number, s in reversed(list(enumerate(found))):
        if s is not None and len(s.op.results) == 1 and (s.is_elementwise or s.is_windowed):
            (result,) = s.op.results
            reached = {_end(found, user, result, ends) for user in users[result]}
            if len(reached) == 1 and (end := reached.pop()) is not None:
                ends[number] = end
    after: dict[ir.Value, int] = {}
    fed: dict[int, int] = {}
    for number, end in reversed(ends.items()):
        s = found[number]
        if s is not None and (s.is_windowed or any(after.get(value) == end for value in s.op.operands)):
            fed[number] = after[s.op.results[0]] = end
    return fed


def _end(
    found: Sequence[Structured | None], user: int, value: ir.Value, ends: Mapping[int, int]
) -> int | None:
    """The product that `value` goes to by way of operation `user`; `ends` are those of later operations."""
    reader = found[user] if user < len(found) else None
    if reader is None:
        return None
    maps = [map_ for operand, map_ in zip(reader.op.operands, reader.maps) if operand == value]
    if not maps or not all(map_.is_projected_permutation for map_ in maps):
        return None
    return user if reader.is_contraction else ends.get(user) if reader.is_elementwise else None
