"""Roller's construction for a described device: the recursion over the tiles that conform to its rules (OSDI'22, §3.2).

The single unit's program is then replicated over all units (scale-out), after small operators' tiles were shrunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.roller.alignment import TILE_RULES, Space, candidate_sizes
from tilewright.compiler.tuning.roller.axis_fusion import Fused, fuse_axes
from tilewright.compiler.tuning.roller.device import Device
from tilewright.compiler.tuning.roller.options import DEFAULT, ConstructOptions
from tilewright.compiler.tuning.roller.performance import Performance
from tilewright.compiler.tuning.roller.program import Program
from tilewright.compiler.tuning.roller.recursion import Levels, Look, Recursion, Tile, most_reuse_first


def construct(workload: Workload, target: Target, options: ConstructOptions = DEFAULT) -> list[Program]:
    """The `options.top_k` best programs for `workload` on `target`, fastest by the model first.

    Deterministic; at least one program for any workload, fewer than `top_k` only where no more tiles exist.
    """
    device = Device.of(target, _compute_dtype(workload), options.matrix_unit)
    fused = _canonical(workload, options.axis_fusion, device.threaded)
    found: dict[tuple, _Candidate] = {}
    border: dict[tuple, _Candidate] = {}
    epsilon = options.epsilon
    while True:
        space = Space(fused.workload, device, options, epsilon)
        layers = _DeviceLayers(space, Performance(space))
        unbounded = layers.performance.bounded and device.threaded
        quota = None if unbounded else max(options.top_k, options.candidates // 4)
        run = Recursion(layers, options.candidates, quota)
        run.run(len(space.workload.axes))
        for known, programs in ((found, run.results), (border, run.border)):
            for levels in programs:
                candidate = _Candidate(levels, layers.staged, epsilon)
                known.setdefault(candidate.key, candidate)
        # Where two paddings found only tiles that loads hold up, a third will not do better.
        hopeless = not found and len(border) >= options.top_k and epsilon > options.epsilon
        if len(found) >= options.top_k or hopeless or epsilon >= options.epsilon_limit - 1e-9:
            break
        epsilon = min(options.epsilon_limit, epsilon + options.epsilon_step)
    if len(found) < options.top_k:
        found = {**found, **border}
    if not found:
        # Not even the smallest aligned tile fits, as with very many operands: single vectors or warps always run.
        smallest = _smallest(Space(fused.workload, device, options, options.epsilon_limit))
        found[smallest.key] = smallest
    return _programs(fused, device, options, list(found.values()))


def evaluate(
    workload: Workload,
    target: Target,
    programs: Sequence[tuple[Tile, ...]],
    lane_steps: Sequence[Tile] | None = None,
) -> np.ndarray:
    """Predicted times in microseconds of given programs, tiles from the fastest layer down over the workload's axes: [n].

    Tiles are taken as they are, without axis fusion; what a target could not run at all is priced, not refused.
    `lane_steps` says how far apart neighbouring threads compute along each axis, 1 if None.
    """
    device = Device.of(target, _compute_dtype(workload))
    performance = Performance(Space(workload, device, DEFAULT))
    staged = [not device.threaded or performance.reuses] * len(programs)
    steps = None if lane_steps is None else np.asarray(lane_steps, dtype=np.int64)
    return performance.evaluate(programs, staged, steps).total_us


def _smallest(space: Space) -> _Candidate:
    """One vector, or one thread per result of a warp, at every layer."""
    tile = [1] * len(space.workload.axes)
    if space.vector_axis is not None and not space.device.threaded:
        tile[space.vector_axis] = min(space.device.lanes, space.workload.extents[space.vector_axis])
    levels = [tuple(tile)] * (len(space.device.layers) - 1)
    if space.device.threaded and space.workload.parallel:
        tile[space.workload.parallel[-1]] = space.device.lanes
        levels[-1] = tuple(tile)
    return _Candidate(tuple(levels), False, space.epsilon)


@lru_cache(maxsize=256)
def _canonical(workload: Workload, fuse: bool, gather: bool) -> Fused:
    if not fuse and workload.axes:
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
class _DeviceLayers:
    """The layers of a described device: all tiles that conform to the rules at one epsilon."""

    space: Space
    performance: Performance
    sizes: dict[tuple[int, int, int], np.ndarray] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return len(self.space.device.layers) - 1

    @property
    def staged(self) -> bool:
        """A device that stages tiles gains nothing where no input is reused along an axis that it does not move along."""
        return not self.space.device.threaded or self.performance.reuses

    def _candidates(self, layer: int, axis: int, step: int) -> np.ndarray:
        key = (layer, axis, step)
        if key not in self.sizes:
            self.sizes[key] = candidate_sizes(self.space, layer, axis, step)
        return self.sizes[key]

    def start(self, layer: int, inner: Tile) -> Tile | None:
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

    def enlarged(self, layer: int, tile: Tile, inner: Tile) -> list[Tile]:
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
        if not (
            device.threaded and layer == 1 and rules and self.space.workload.axes[axis].kind == "parallel"
        ):
            return int(larger[0])
        if self.performance.bounded:
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

    def look(self, layer: int, tiles: list[Tile], levels: Levels) -> Look:
        return self.performance.look(layer, tiles, levels)

    def order(self, layer: int, look: Look) -> list[int]:
        """Where reuse is bounded, blocks of threads grow from the innermost axis outwards, so that accesses coalesce."""
        if self.performance.bounded and self.space.device.threaded:
            return sorted(range(1, len(look.traffic)), reverse=True)
        return most_reuse_first(look)

    def attainable(self, layer: int) -> bool:
        return self.performance.attainable(layer)

    def runs(self, levels: Levels) -> bool:
        if not self.space.device.threaded:
            return True
        threads = self.performance.threads(np.asarray(levels[-1:]), levels[0])
        return bool(self.performance.whole_warps(threads)[0])


def _shrink(space: Space, performance: Performance, candidate: _Candidate) -> _Candidate:
    """Halves the lowest tile along the axis of least reuse until every execution unit has a tile (§3.2)."""
    tiles = [list(t) for t in candidate.tiles]
    extents = space.workload.extents
    layer = len(tiles) - 1
    while True:
        tasks = 1
        for axis in space.workload.parallel:
            tasks *= -(-extents[axis] // tiles[-1][axis])
        shrinkable = [a for a in space.workload.parallel if tiles[-1][a] > 1]
        if tasks >= space.device.units or not shrinkable:
            break
        smaller = [_halved(tiles, axis) for axis in shrinkable]
        losses = performance.traffic(layer, np.asarray([levels[-1] for levels in smaller]))
        tiles = smaller[min(range(len(smaller)), key=lambda p: (losses[p], p))]
    return replace(candidate, tiles=tuple(tuple(t) for t in tiles))


def _halved(tiles: list[list[int]], axis: int) -> list[list[int]]:
    """All levels with half the size of one axis, rounded up, each still a multiple of the level above."""
    halved = [list(level) for level in tiles]
    above = 1
    for level in halved:
        half = -(-level[axis] // 2)
        above = level[axis] = -(-half // above) * above
    return halved


def _programs(
    fused: Fused, device: Device, options: ConstructOptions, found: list[_Candidate]
) -> list[Program]:
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
            _, padding = performance.leading_padding(np.asarray([candidate.tiles[1]]), candidate.tiles[0])
            pads = tuple(
                (*(0,) * (len(o.shape) - 1), int(p)) for o, p in zip(fused.workload.inputs, padding[0])
            )
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
