"""Roller's construction: rTiles enlarged layer by layer along the axis that saves most traffic (OSDI'22, Figure 8).

    registers  [1, 1, 1] -> [2, 1, 1] -> ... -> [8, 8, 1]      until loads keep up with arithmetic, or registers are full
    shared     [8, 8, 8] -> [64, 8, 8] -> ... -> [64, 128, 8]  the same one layer further down
    DRAM                                                       a result; the recursion goes on for the next

The single unit's program is then replicated over all units (scale-out), after small operators' tiles were shrunk.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from tilewright.compiler.target import Target
from tilewright.compiler.tuning.roller.alignment import TILE_RULES, Space, candidate_sizes, storage_padding
from tilewright.compiler.tuning.roller.axis_fusion import Fused, fuse_axes
from tilewright.compiler.tuning.roller.device import Device
from tilewright.compiler.tuning.roller.options import ConstructOptions
from tilewright.compiler.tuning.roller.performance import Performance
from tilewright.compiler.tuning.roller.program import Program
from tilewright.compiler.tuning.roller.rtile import RTile
from tilewright.compiler.workload import Workload

Tile = tuple[int, ...]

MAX_VISITS = 4000
"""Tiles looked at per epsilon before construction goes on with what it has; a bound on time, far above what K needs."""


def construct(workload: Workload, target: Target, options: ConstructOptions | None = None) -> list[Program]:
    """The `options.top_k` best programs for `workload` on `target`, fastest by the model first.

    Deterministic; at least one program for any workload, fewer than `top_k` only where no more tiles exist.
    """
    options = options or ConstructOptions()
    device = Device.of(target, _compute_dtype(workload), options.matrix_unit)
    fused = _canonical(workload, options.axis_fusion, device.threaded)
    found: dict[tuple, _Candidate] = {}
    epsilon = options.epsilon
    while True:
        space = Space(fused.workload, device, options, epsilon)
        for candidate in _Construction(space, Performance(space)).run():
            found.setdefault(candidate.key, candidate)
        if len(found) >= options.top_k or epsilon >= options.epsilon_limit - 1e-9:
            break
        epsilon = min(options.epsilon_limit, epsilon + options.epsilon_step)
    if not found:
        whole = _Candidate(tuple((1,) * len(fused.workload.axes) for _ in device.layers[:-1]), True, epsilon)
        found[whole.key] = whole
    return _programs(fused, device, options, list(found.values()))


@lru_cache(maxsize=256)
def _canonical(workload: Workload, fuse: bool, gather: bool) -> Fused:
    if not fuse:
        return Fused(workload, workload, tuple((a,) for a in range(len(workload.axes))))
    return fuse_axes(workload, gather)


def _compute_dtype(workload: Workload) -> str:
    """The type arithmetic is done in: that of the first input."""
    return workload.inputs[0].dtype if workload.inputs else workload.output.dtype


@dataclass(frozen=True)
class _Candidate:
    """Tiles of one program, fastest layer first, without the lowest layer, which holds whole tensors."""

    tiles: tuple[Tile, ...]
    staged: bool
    epsilon: float

    @property
    def key(self) -> tuple:
        return (self.tiles, self.staged)


@dataclass
class _Construction:
    """One run of `ConstructProg` at one epsilon."""

    space: Space
    performance: Performance
    results: list[_Candidate] = field(default_factory=list)
    visited: set[tuple] = field(default_factory=set)
    sizes: dict[tuple[int, int, int], np.ndarray] = field(default_factory=dict)

    def run(self) -> list[_Candidate]:
        workload = self.space.workload
        self.lowest = len(self.space.device.layers) - 1
        # A device that stages tiles gains nothing where no input is reused along an axis that it does not move along.
        self.staged = not self.space.device.threaded or self.performance.reuses
        start = self._start(0, (1,) * len(workload.axes))
        if start is not None:
            self._enter(start, 0, ())
        return self.results

    @property
    def done(self) -> bool:
        return len(self.results) >= self.space.options.candidates or len(self.visited) >= MAX_VISITS

    def _candidates(self, layer: int, axis: int, step: int) -> np.ndarray:
        key = (layer, axis, step)
        if key not in self.sizes:
            self.sizes[key] = candidate_sizes(self.space, layer, axis, step)
        return self.sizes[key]

    def _start(self, layer: int, inner: Tile) -> Tile | None:
        """The smallest conforming tile at a layer that holds the tile of the layer above; None if there is none."""
        sizes = []
        for axis, step in enumerate(inner):
            if layer == 0 and axis in self.space.workload.reduction and axis != self.space.vector_axis:
                sizes.append(self.space.matrix_multiples.get(axis, 1))
                continue
            conform = self._candidates(layer, axis, step)
            if not len(conform):
                return None
            sizes.append(int(conform[0]))
        return tuple(sizes)

    def _next(self, tile: Tile, inner: Tile, layer: int) -> list[Tile]:
        """`GetNextAlignedAxisSize`: the tiles one aligned step larger along each axis."""
        grown = []
        for axis, size in enumerate(tile):
            if layer == 0 and self.space.workload.axes[axis].kind == "reduction":
                # Registers take one step of a reduction at a time; its extent belongs to the layer below.
                continue
            conform = self._candidates(layer, axis, inner[axis])
            larger = conform[np.searchsorted(conform, size, side="right") :]
            if not len(larger):
                continue
            chosen = self._aligned(tile, inner, layer, axis, larger)
            if chosen is not None:
                grown.append((*tile[:axis], chosen, *tile[axis + 1 :]))
        return grown

    def _aligned(self, tile: Tile, inner: Tile, layer: int, axis: int, larger: np.ndarray) -> int | None:
        """The first of the sizes for which the whole tile conforms to the tile rules."""
        device = self.space.device
        rules = [r for n in sorted(self.space.options.rules) for r in TILE_RULES.get(n, ())]
        if not (device.threaded and layer == 1 and rules and self.space.workload.axes[axis].kind == "parallel"):
            return int(larger[0])
        others = 1
        for a in self.space.workload.parallel:
            if a != axis:
                others *= tile[a] // inner[a]
        threads = others * (larger // inner[axis])
        conform = np.ones(len(larger), dtype=bool)
        for rule in rules:
            conform &= rule(self.space, layer, threads)
        found = np.flatnonzero(conform)
        return int(larger[found[0]]) if len(found) else None

    def _enter(self, tile: Tile, layer: int, levels: tuple[Tile, ...]) -> None:
        """Starts a layer: its first tile is judged like every larger one."""
        if (layer, tile, levels) in self.visited or self.done:
            return
        self.visited.add((layer, tile, levels))
        if not self.performance.fits(layer, [tile], levels)[0]:
            return
        if self.performance.saturated(layer, [tile])[0]:
            self._descend(tile, layer, levels)
        self._enlarge(tile, layer, levels)

    def _enlarge(self, tile: Tile, layer: int, levels: tuple[Tile, ...]) -> None:
        """`EnlargeTile` of Figure 8."""
        inner = levels[-1] if levels else (1,) * len(tile)
        grown = self._next(tile, inner, layer)
        if not grown:
            self._descend(tile, layer, levels)
            return
        scores = self.performance.reuse_scores(layer, tile, grown)
        fits = self.performance.fits(layer, grown, levels)
        saturated = self.performance.saturated(layer, grown)
        full = False
        # Ties go to the innermost axis, whose tiles walk memory contiguously.
        for position in sorted(range(len(grown)), key=lambda p: (-scores[p], -p)):
            if self.done:
                return
            candidate = grown[position]
            if (layer, candidate, levels) in self.visited:
                continue
            self.visited.add((layer, candidate, levels))
            if not fits[position]:
                if not full:
                    self._descend(tile, layer, levels)
                full = True
                continue
            if saturated[position]:
                self._descend(candidate, layer, levels)
            self._enlarge(candidate, layer, levels)

    def _descend(self, tile: Tile, layer: int, levels: tuple[Tile, ...]) -> None:
        """Records the tile of a layer and goes on with the next; the lowest layer makes it a result."""
        if self.done:
            return
        levels = (*levels, tile)
        below = layer + 1
        if below == self.lowest:
            if self._complete(levels):
                self.results.append(_Candidate(levels, self.staged, self.space.epsilon))
            return
        start = self._start(below, tile)
        if start is not None:
            self._enter(start, below, levels)

    def _complete(self, levels: tuple[Tile, ...]) -> bool:
        """Whether a program may run as it is: blocks of threads are whole warps, if that rule is on."""
        device = self.space.device
        if not device.threaded or "execution_unit" not in self.space.options.rules:
            return True
        threads = 1
        for axis in self.space.workload.parallel:
            threads *= levels[1][axis] // levels[0][axis]
        return threads % device.lanes == 0 or threads >= self.performance.points_per_result


def _shrink(space: Space, performance: Performance, candidate: _Candidate) -> _Candidate:
    """Halves the lowest tile along the axis of least reuse until every execution unit has a tile (§3.2)."""
    tiles = [list(t) for t in candidate.tiles]
    extents = space.workload.extents
    while True:
        tasks = 1
        for axis in space.workload.parallel:
            tasks *= -(-extents[axis] // tiles[-1][axis])
        shrinkable = [a for a in space.workload.parallel if tiles[-1][a] > tiles[0][a]]
        if tasks >= space.device.units or not shrinkable:
            break
        layer = len(tiles) - 1
        smaller = []
        for axis in shrinkable:
            base = tiles[0][axis]
            half = -(-tiles[-1][axis] // base // 2) * base
            smaller.append(tuple(half if a == axis else s for a, s in enumerate(tiles[-1])))
        losses = performance.traffic(layer, smaller) - performance.traffic(layer, [tuple(tiles[-1])])[0]
        chosen = min(range(len(smaller)), key=lambda p: (losses[p], p))
        tiles[-1] = list(smaller[chosen])
        for above in tiles[1:-1]:
            above[shrinkable[chosen]] = min(above[shrinkable[chosen]], tiles[-1][shrinkable[chosen]])
    return replace(candidate, tiles=tuple(tuple(t) for t in tiles))


def _programs(fused: Fused, device: Device, options: ConstructOptions, found: list[_Candidate]) -> list[Program]:
    """Shrinks, evaluates all candidates at once and keeps the best."""
    space = Space(fused.workload, device, options)
    performance = Performance(space)
    if options.shrink:
        found = list({c.key: c for c in (_shrink(space, performance, c) for c in found)}.values())
    estimate = performance.evaluate([c.tiles for c in found], [c.staged for c in found])
    order = sorted(range(len(found)), key=lambda p: (estimate.total_us[p], p))[: options.top_k]
    names = [layer.name for layer in device.layers[:-1]]
    programs = []
    for position in order:
        candidate = found[position]
        levels = tuple(zip(names, candidate.tiles))
        pads: tuple[tuple[int, ...], ...] = ()
        if device.threaded and candidate.staged and len(candidate.tiles) > 1:
            staged, read = RTile(fused.workload, candidate.tiles[1]), RTile(fused.workload, candidate.tiles[0])
            pads = storage_padding(space, staged.input_tiles, read.input_tiles, 1)
        programs.append(
            Program(
                fused.original,
                device.target.name,
                tuple((name, fused.unfuse(tile)) for name, tile in levels),
                float(estimate.total_us[position]),
                estimate.bound[position],
                {name: float(times[position]) for name, times in estimate.times_us.items()},
                fused.workload,
                levels,
                pads,
                candidate.staged,
                candidate.epsilon,
            )
        )
    return programs
