"""Poolings, depthwise and small grouped convolutions: a thread sums up the windows of several neighbouring results.

    y[n, h, w .. w + 3, c .. c + 3]        4 columns of 4 channels: 16 sums in registers
      += x[n, h + kh, w + kw .., c ..] * k[kh, kw, c ..]       every vector of x and k is read once

Which results those are is decided here; the sums are written like any other element, window by window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.compiler.analysis.affine_access import dims
from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.families.elementwise.positions import Flat, Position, loop_digits

MOST_TAPS = 1024
"""Points of a window; beyond that, one thread per result leaves too little to do at once."""
_WRITTEN_TAPS = 64
"""Points of windows that are written out, so that neighbouring results share what they read."""
_MOST_SUMS = 1200
"""Multiplications written out per thread: code that the instruction cache holds."""
_TILES = (4, 5, 7, 6, 3, 2)
"""How many neighbours a thread takes: the first that divides their number. Four rows of three taps read six columns
instead of twelve; more save little and cost registers."""


@dataclass(frozen=True)
class Tile:
    """Results of one thread along one loop: `size` of loop `loop`; size 1 is no tile."""

    loop: int = 0
    size: int = 1

    def extents(self, extents: Sequence[int]) -> tuple[int, ...]:
        """Extents in tiles."""
        return tuple(n // self.size if i == self.loop else n for i, n in enumerate(extents))

    def loops(self, flat: Flat, extents: Sequence[int]) -> list[list[Position]]:
        """The loops of every result of a thread; `flat` numbers tiles."""
        outer = loop_digits(flat, self.extents(extents))
        return [
            [
                p.scaled(self.size).shifted(step) if i == self.loop and self.size > 1 else p
                for i, p in enumerate(outer)
            ]
            for step in range(self.size)
        ]


ONE_POINT = Tile()


def is_window(structured: Structured) -> bool:
    """Whether a reduction runs over small windows of an operand: `d1 * 2 + d4`, with d4 summed up, or gathers them."""
    summed = {i for i, kind in enumerate(structured.kinds) if kind == "reduction"}
    taps = math.prod(structured.extents[i] for i in summed)
    slides = any(
        dims(expr) & summed and dims(expr) - summed for map_ in structured.maps for expr in map_.results
    )
    gathers = any(view.operation.name == "tensor.extract" for view in structured.body.operations)
    return (slides and taps <= MOST_TAPS) or (gathers and taps <= _WRITTEN_TAPS)


def sums_along_rows(structured: Structured) -> bool:
    """Whether a window takes neighbours in the innermost dimension of an operand: those of a load are all used."""
    summed = {i for i, kind in enumerate(structured.kinds) if kind == "reduction"}
    maps = [map_ for map_ in structured.maps[: structured.num_inputs] if len(map_.results)]
    return any(dims(map_.results[len(map_.results) - 1]) & summed for map_ in maps)


def tile(structured: Structured, extents: Sequence[int], lanes: int, asked: int, cores: int) -> Tile:
    """The tile of one thread: along the innermost loop that windows slide over and that lanes do not run along.

    `extents` are those of the results, in the order of memory. It has `asked` results where that divides them, and
    where `asked` is 0 the most that leave enough threads for all cores.
    """
    taps = math.prod(n for n, kind in zip(structured.extents, structured.kinds) if kind == "reduction")
    if taps > _WRITTEN_TAPS:
        return Tile()
    for loop in reversed(range(len(extents) - 1)):
        if extents[loop] == 1:
            continue
        for size in (asked,) if asked else _TILES:
            threads = math.prod(extents) // lanes // size
            if (
                extents[loop] % size == 0
                and taps * lanes * size <= _MOST_SUMS
                and (asked or threads >= cores * 512)
                and loop in _sliding(structured)
            ):
                return Tile(loop, size)
        if loop in _sliding(structured):
            break
    return Tile()


def _sliding(structured: Structured) -> set[int]:
    """Dimensions of the result that windows slide along."""
    summed = {i for i, kind in enumerate(structured.kinds) if kind == "reduction"}
    moving = set[int]()
    for map_ in structured.maps:
        for expr in map_.results:
            if dims(expr) & summed:
                moving |= dims(expr) - summed
    return {i for i, expr in enumerate(structured.result_map.results) if dims(expr) & moving}
