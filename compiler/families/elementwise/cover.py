"""How results computed together are dealt out to threads: what blocks of a part have, and what sizes keep to."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.analysis.structure import Structured
from tilewright.compiler.families.elementwise.window import ONE_POINT, Tile, tile
from tilewright.compiler.ir import static_shape
from tilewright.compiler.nouns.schedule import GpuTile
from tilewright.compiler.nouns.space import Columns, Constraint, by_values, rule

LANES = (16, 8, 4, 2, 1)
"""Elements of one vector: up to 16 bytes of the shortest type."""
MOST_VECTORS = 8
"""Vectors per thread: more would not fit into registers."""


@dataclass(frozen=True)
class Part:
    """Points that are computed together: the extents of their loops, results stored, operations run for their checks.

    `window` is the reduction that they are computed from, if there is one.
    """

    extents: tuple[int, ...]
    results: tuple[int, ...] = ()
    checked: Structured | None = None
    window: Structured | None = None

    @property
    def points(self) -> int:
        return math.prod(self.extents)


@dataclass(frozen=True)
class Cover:
    """How a part is dealt out: blocks of `threads`, each with `vectors` times `lanes` tiles; `rest` tiles follow.

    `points` counts tiles, of one point each unless windows overlap.
    """

    lanes: int
    vectors: int
    threads: int
    points: int
    tile: Tile = ONE_POINT
    is_window: bool = False

    @property
    def gpu(self) -> GpuTile:
        """The schedule of a kernel of this part alone."""
        results = self.threads * self.vectors * self.lanes * self.tile.size
        if self.is_window:
            thread = (self.tile.size, self.lanes)
            return GpuTile("windows", self.threads, (results,), thread=thread, vector=self.lanes)
        return GpuTile("elementwise", self.threads, (results,), vector=self.lanes)

    @property
    def groups(self) -> int:
        """Vectors that are whole."""
        return self.points // self.lanes

    @property
    def rest(self) -> int:
        return self.points % self.lanes

    @property
    def blocks(self) -> int:
        return -(-self.groups // (self.threads * self.vectors)) + -(-self.rest // self.threads)

    @property
    def is_exact(self) -> bool:
        return self.groups % (self.threads * self.vectors) == 0


def cover_of(part: Part, threads: int, each: int, lanes: int) -> Cover:
    """A part in blocks of `threads`, each with `each` vectors of `lanes` results, or windows' neighbours as many."""
    if part.window is not None:
        small = tile_of(part, lanes, each)
        return Cover(lanes, 1, threads, part.points // small.size, small, True)
    return Cover(lanes, each, threads, part.points)


def cover_rules(part: Part, size: str = "block[0]", vector: str = "vector") -> tuple[Constraint, ...]:
    """What the sizes of a part keep to: results of a block, and elements of one access, by the names of their fields.

    Of the largest part of a windowed dispatch, `size` is `thread[0]`: the neighbours of one thread.
    """

    def each(c: Columns) -> np.ndarray:
        own = np.maximum(c["threads"] * c[vector], 1)
        return c[size] if size == "thread[0]" else np.where(c[size] % own == 0, c[size] // own, 0)

    lanes = rule(
        vector,
        f"threads access {', '.join(map(str, LANES))} elements at once",
        lambda c: ~np.isin(c[vector], LANES),
    )
    if part.window is not None:
        shared = lambda lanes, each: bool(each) and tile_of(part, lanes, each).size == each  # noqa: E731
        text = "neighbours of a thread are as many as divide theirs, and as windows share what they read of"
        return (lanes, rule(size, text, lambda c: by_values(shared, c[vector], each(c)) == 0))
    return (
        lanes,
        rule(
            vector,
            f"the same kernel as 1: there are {part.points} results",
            lambda c: c[vector] > max(1, part.points),
        ),
        rule(
            size,
            f"threads take 1 to {MOST_VECTORS} vectors of results each",
            lambda c: (each(c) < 1) | (each(c) > MOST_VECTORS),
        ),
    )


def tile_of(part: Part, lanes: int, size: int, cores: int = 0) -> Tile:
    """The tile of a windowed part, of `size` neighbours where that is not 0; none where its results do not lie as the
    window's sums do.
    """
    window = part.window
    if window is None or part.points % lanes:
        return Tile()
    shape = static_shape(window.op.results[0].type)
    return tile(window, shape, lanes, size, cores) if shape == part.extents else Tile()
