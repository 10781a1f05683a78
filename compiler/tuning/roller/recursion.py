"""Roller's recursion (OSDI'22, Figure 8): one tile per layer of memory, enlarged along the axis that saves most traffic.

    registers  [1, 1, 1] -> [2, 1, 1] -> ... -> [8, 8, 1]      until loads keep up with arithmetic, or registers are full
    shared     [8, 8, 8] -> [64, 8, 8] -> ... -> [64, 128, 8]  the same one layer further down
    DRAM                                                       a program; the recursion goes on for the next

What the layers are, which sizes are aligned there and what a tile moves is asked of `Layers`: a described device has all
tiles that conform to the paper's rules, a kernel family those that its code generation takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

Tile = tuple[int, ...]
Levels = tuple[Tile, ...]
"""Tiles of the layers from the fastest one down."""

MAX_VISITS = 1000
"""Tiles looked at before construction goes on with what it has; a bound on time, far above what K programs need."""


@dataclass(frozen=True)
class Look:
    """Of n tiles at one layer, arrays [n]: bytes moved and taken, whether they fit and whether loads keep up."""

    traffic: np.ndarray
    footprint: np.ndarray
    fits: np.ndarray
    saturated: np.ndarray

    def reuse_scores(self) -> np.ndarray:
        """Data reuse scores of tiles 1.. against tile 0: traffic saved per byte of memory taken (§3.1): [n - 1]."""
        saved = self.traffic[0] - self.traffic[1:]
        taken = (self.footprint[1:] - self.footprint[0]).astype(float)
        return np.where(taken > 0, saved / np.maximum(taken, 1.0), np.where(saved > 0, np.inf, 0.0))


class Layers(Protocol):
    """What the recursion asks about tiles of one workload; layers are numbered from the fastest one, which is 0."""

    @property
    def count(self) -> int:
        """How many layers have tiles; the one below holds whole tensors."""
        ...

    def start(self, layer: int, inner: Tile) -> Tile | None:
        """The smallest aligned tile that holds `inner`, the tile of the layer above; None if there is none."""
        ...

    def enlarged(self, layer: int, tile: Tile, inner: Tile) -> list[Tile]:
        """`GetNextAlignedAxisSize`: the tiles that are one aligned step larger along each axis."""
        ...

    def look(self, layer: int, tiles: list[Tile], levels: Levels) -> Look:
        """What tiles take and move, over the tiles `levels` of the layers above."""
        ...

    def order(self, layer: int, look: Look) -> list[int]:
        """Positions of the enlarged tiles in a look, 1 and up, in the order in which they are tried."""
        ...

    def attainable(self, layer: int) -> bool:
        """Whether the largest tile of a layer would load as fast as it is computed."""
        ...

    def runs(self, levels: Levels) -> bool:
        """Whether tiles of all layers make a program."""
        ...


def most_reuse_first(look: Look) -> list[int]:
    """Positions of enlarged tiles by data reuse score; ties go to the innermost axis, which walks memory."""
    scores = look.reuse_scores()
    return sorted(range(1, len(look.traffic)), key=lambda position: (-scores[position - 1], -position))


@dataclass
class Recursion:
    """`ConstructProg` over `layers`: `enough` programs, at most `quota` of one tile in the fastest layer, None for any number.

    `results` are programs whose tiles load as fast as they are computed; `border` has the largest of those that do not.
    """

    layers: Layers
    enough: int
    quota: int | None
    results: list[Levels] = field(default_factory=list)
    border: list[Levels] = field(default_factory=list)
    visited: set[tuple] = field(default_factory=set)
    of_first: dict[Tile, int] = field(default_factory=dict)
    border_of_first: dict[Tile, int] = field(default_factory=dict)

    def run(self, axes: int) -> None:
        """Fills `results` and `border` for a workload of so many axes."""
        start = self.layers.start(0, (1,) * axes)
        if start is not None:
            self._enter(start, 0, (), True)

    def _done(self, levels: Levels) -> bool:
        """Whether there are enough programs, or enough of the tile that `levels` starts with."""
        enough = self.enough
        if len(self.results) >= enough or len(self.border) >= 2 * enough or len(self.visited) >= MAX_VISITS:
            return True
        if not levels or self.quota is None:
            return False
        held_up = self.border_of_first.get(levels[0], 0) >= 2 * self.quota
        return held_up or self.of_first.get(levels[0], 0) >= self.quota

    def _enter(self, tile: Tile, layer: int, levels: Levels, keeps_up: bool) -> None:
        """Starts a layer: its first tile is judged like every larger one."""
        if (layer, tile, levels) in self.visited or self._done(levels):
            return
        self.visited.add((layer, tile, levels))
        look = self.layers.look(layer, [tile], levels)
        if not look.fits[0]:
            return
        if look.saturated[0]:
            self._descend(tile, layer, levels, keeps_up)
        self._enlarge(tile, layer, levels, keeps_up)

    def _enlarge(self, tile: Tile, layer: int, levels: Levels, keeps_up: bool) -> None:
        """`EnlargeTile` of Figure 8; `keeps_up` says whether loads do at all layers above."""
        inner = levels[-1] if levels else (1,) * len(tile)
        grown = self.layers.enlarged(layer, tile, inner)
        if not grown:
            self._descend(tile, layer, levels, False)
            return
        look = self.layers.look(layer, [tile, *grown], levels)
        for position in self.layers.order(layer, look):
            if self._done(levels):
                return
            candidate = grown[position - 1]
            if (layer, candidate, levels) in self.visited:
                continue
            self.visited.add((layer, candidate, levels))
            if not look.fits[position]:
                self._descend(tile, layer, levels, False)
                continue
            if look.saturated[position]:
                self._descend(candidate, layer, levels, keeps_up)
            self._enlarge(candidate, layer, levels, keeps_up)

    def _descend(self, tile: Tile, layer: int, levels: Levels, keeps_up: bool) -> None:
        """Records the tile of a layer and goes on with the next; the lowest layer makes it a program."""
        if self._done(levels) or (layer, tile, levels, "descended") in self.visited:
            return
        self.visited.add((layer, tile, levels, "descended"))
        levels = (*levels, tile)
        below = layer + 1
        if below < self.layers.count:
            start = self.layers.start(below, tile)
            if start is not None:
                self._enter(start, below, levels, keeps_up)
            return
        if not self.layers.runs(levels):
            return
        if keeps_up or not self.layers.attainable(layer):
            self.results.append(levels)
            self.of_first[levels[0]] = self.of_first.get(levels[0], 0) + 1
        else:
            self.border.append(levels)
            self.border_of_first[levels[0]] = self.border_of_first.get(levels[0], 0) + 1
