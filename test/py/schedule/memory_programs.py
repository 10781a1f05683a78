"""Random programs of steps over a few memories, and what each step of them reads when they run in some order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from tilewright.compiler.analysis.placement import dense_strides
from tilewright.compiler.nouns.accesses import Accesses, Region

SHAPE = (3, 4)
MEMORIES = 5


@st.composite
def drawn_regions(draw, memories: range) -> Region:
    """The whole of a memory or a box of it."""
    strides = dense_strides(SHAPE)
    low, size = (0, 0), SHAPE
    if draw(st.booleans()):
        low = tuple(draw(st.integers(0, n - 1)) for n in SHAPE)
        size = tuple(draw(st.integers(1, n - a)) for n, a in zip(SHAPE, low))
    offset = sum(a * s for a, s in zip(low, strides))
    return Region(draw(st.sampled_from(memories)), offset, size, strides)


@st.composite
def programs(draw, most: int = 14) -> list[Accesses]:
    """Steps that read up to three regions and write one or two; memory 0 is only read, as weights are."""
    reads = st.lists(drawn_regions(range(MEMORIES)), max_size=3)
    writes = st.lists(drawn_regions(range(1, MEMORIES)), min_size=1, max_size=2)
    return [
        Accesses(tuple(draw(reads)), tuple(draw(writes)), draw(st.integers(0, 4)) == 0)
        for _ in range(draw(st.integers(0, most)))
    ]


def drawn_order(before: Sequence[Sequence[int]], draw: Callable[[Any], Any]) -> list[int]:
    """A random order in which each step follows those that `before` names."""
    order: list[int] = []
    while len(order) < len(before):
        ready = [n for n, needed in enumerate(before) if n not in order and all(m in order for m in needed)]
        order.append(draw(st.sampled_from(ready)))
    return order


def _items(region: Region) -> list[tuple[int, int]]:
    rows, columns = region.shape
    down, across = region.strides
    return [
        (region.memory, region.offset + i * down + j * across) for i in range(rows) for j in range(columns)
    ]


def reads_of(program: Sequence[Accesses], order: Sequence[int]) -> tuple[dict, dict]:
    """What every step reads (the step that wrote each item last), and what memory holds in the end."""
    held: dict[tuple[int, int], int] = {}
    found = {}
    for number in order:
        step = program[number]
        found[number] = [held.get(item) for region in step.reads for item in _items(region)]
        held.update((item, number) for region in step.writes for item in _items(region))
    return found, held
