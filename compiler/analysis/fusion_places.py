"""Which operations could be computed in one dispatch: those that elements travel between without passing a contraction.

Padding is in one place with the windows that slide over it, windows are with the product that reads what they give, and what
chooses parts of a tensor with the product that multiplies by them.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.compiler.analysis.chosen_parts import chosen_parts
from tilewright.compiler.analysis.padding import slid_padding
from tilewright.compiler.analysis.structure import Structured


def fusion_places(found: Sequence[Structured]) -> dict[int, list[int]]:
    """By its first operation, the numbers of those in one place, ascending."""
    root = list(range(len(found)))

    def top(number: int) -> int:
        while root[number] != number:
            root[number] = root[root[number]]
            number = root[number]
        return number

    given = {result: number for number, s in enumerate(found) for result in s.op.results}
    from_windows: set[int] = set()
    for number, structured in enumerate(found):
        sources = {given[value] for value in structured.op.operands if value in given}
        if structured.is_windowed or (structured.is_elementwise and sources & from_windows):
            from_windows.add(number)
        for source in sources:
            if (
                not structured.is_contraction
                or source in from_windows
                or slid_padding(found[source].op) is not None
                or chosen_parts(found[source].op) is not None
            ):
                low, high = sorted((top(source), top(number)))
                root[high] = low
    places: dict[int, list[int]] = {}
    for number in range(len(found)):
        places.setdefault(top(number), []).append(number)
    return places
