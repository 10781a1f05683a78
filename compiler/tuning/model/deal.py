"""What a kernel of a GPU that multiplies no matrices deals out to blocks, threads and lanes: the record of n schedules, and its algebra.

Who deals what out: `gpu_deals` (results, boxes, rows), `gpu_windows`, `gpu_lines` (sorts and scans), `gpu_scatters`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.compiler.nouns.schedule import GpuTile
from tilewright.compiler.nouns.workload import Workload


def _none() -> np.ndarray:
    return np.zeros(0)


@dataclass
class Deal:
    """Of n schedules, arrays [n]: blocks, and what each has.

    `box` [n, axes] are the points of a block, along reductions all that it walks; `lanes` gives for a schedule the points of
    the elements that a warp accesses at once [elements, axes], and `stored` those of the result where they are others.
    `vector` are elements of one access, `each` such groups of a thread that are under way together, `steps` how often
    that is repeated. `passes` says how often an operand is read by name, `split` among how many blocks a row is divided,
    `rounds` how often blocks wait for each other through global memory.

    What threads of a block wait for one after the other: `waits` barriers, shuffles and accesses of shared memory, `turns`
    accesses of L2, `cycles` of arithmetic. Empty where the kernel says nothing of its own: `computed` points of those that are
    needed, `fma` operations and `issued` other instructions of lanes of all blocks, `flying` bytes of a block under way,
    `registers` that the assembler gives a thread and those `needed` without spilling. `touched` are bytes of one block by
    operand, `through_shared` bytes of all blocks into and out of shared memory by operand.
    """

    blocks: np.ndarray
    box: np.ndarray
    vector: np.ndarray
    each: np.ndarray
    steps: np.ndarray
    lanes: list[np.ndarray]
    stored: list[np.ndarray]
    shared: np.ndarray
    split: np.ndarray
    conflicts: np.ndarray
    passes: dict[str, np.ndarray] = field(default_factory=dict)
    rounds: np.ndarray = field(default_factory=_none)
    waits: np.ndarray = field(default_factory=_none)
    turns: np.ndarray = field(default_factory=_none)
    cycles: np.ndarray = field(default_factory=_none)
    computed: np.ndarray = field(default_factory=_none)
    fma: np.ndarray = field(default_factory=_none)
    issued: np.ndarray = field(default_factory=_none)
    flying: np.ndarray = field(default_factory=_none)
    registers: np.ndarray = field(default_factory=_none)
    needed: np.ndarray = field(default_factory=_none)
    touched: dict[str, np.ndarray] = field(default_factory=dict)
    through_shared: dict[str, np.ndarray] = field(default_factory=dict)

    def said(self, name: str, otherwise: np.ndarray | float) -> np.ndarray:
        """What the kernel says of itself by the name of a field, `otherwise` where that is empty: [n]."""
        own = getattr(self, name)
        return own if len(own) else np.broadcast_to(np.asarray(otherwise), self.blocks.shape)


def points_along(workload: Workload, axes: Sequence[int], flat: np.ndarray) -> np.ndarray:
    """The points [len(flat), axes] that are number `flat` in the order of these axes, the last one innermost."""
    points = np.zeros((len(flat), len(workload.axes)), dtype=np.int64)
    left = flat
    for axis in reversed(axes):
        points[:, axis] = left % workload.extents[axis]
        left = left // workload.extents[axis]
    return points


def box_of(workload: Workload, axes: Sequence[int], count: np.ndarray) -> np.ndarray:
    """Sizes along `axes` [n, axes] of so many points in their order, the last axis first; others have one point."""
    box = np.ones((len(count), len(workload.axes)), dtype=np.int64)
    left = np.maximum(count, 1)
    for axis in reversed(axes):
        box[:, axis] = np.minimum(left, workload.extents[axis])
        left = -(-left // workload.extents[axis])
    return box


def once_for_each(make: Callable[..., Any], *columns: np.ndarray) -> list[Any]:
    """What is made of each row of these columns, one object for rows that are equal."""
    known: dict[tuple, Any] = {}
    rows = list(zip(*(column.tolist() for column in columns)))
    for row in rows:
        if row not in known:
            known[row] = make(*row)
    return [known[row] for row in rows]


def column(tiles: Sequence[GpuTile], name: str, place: int = -1) -> np.ndarray:
    """A field of schedules, or one of its sizes: [n]."""
    values = [getattr(tile, name) for tile in tiles]
    return np.asarray([v[place] for v in values] if place >= 0 else values, dtype=np.int64)


def ones(tiles: Sequence[object]) -> np.ndarray:
    """1 for each: [n]."""
    return np.ones(len(tiles), dtype=np.int64)
