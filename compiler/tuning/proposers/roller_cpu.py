"""Roller's construction of a CPU's schedules: its recursion over the sizes that a dispatch's space has.

    registers  [1, 16] -> [2, 16] -> ... -> [14, 32]       accumulators hide latency, until registers are full
    rTask      [14, 32] -> [28, 32] -> ... -> [128, 256]   until its loads keep up with arithmetic, and beyond
    scale-out                                              shrunk until every core has an rTask, evenly spread

Code is generated for these two layers. What the caches between them hold follows from the loops, and is counted so.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.nouns.register_tiles import RegisterTile
from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import KEPT, Space
from tilewright.compiler.tuning.cpu.cpu_candidates import (
    EPSILON,
    FEWEST,
    Candidate,
    cache_levels,
    distinct,
    relaxed,
)
from tilewright.compiler.tuning.cpu.dispatch import CpuDispatch, RegisterSizes
from tilewright.compiler.tuning.cpu.register_layers import RegisterLayer
from tilewright.compiler.tuning.cpu.register_tile import LATENCY_X_THROUGHPUT
from tilewright.compiler.tuning.cpu.rtask_tiles import CpuModel, Ranked, powers
from tilewright.compiler.tuning.roller.options import ConstructOptions
from tilewright.compiler.tuning.roller.recursion import Levels, Look, Recursion, Tile, most_reuse_first

_MOST_SIZES = 24
"""Sizes of a loop that are tried: an extent has many even divisions."""
_MOST_TILES = 4096
"""Tiles whose loads are computed at once."""
_SPARE = 4
"""Schedules completed at most, beside twice as many as are asked for."""
_ENOUGH = 96
"""rTask tiles after which the recursion ends: all are ranked at once."""
_MOST_REGISTER_TILES = 256
"""Tiles of registers after which it ends: there are some dozens."""
_COMPULSORY = 1.5
"""Loads within this factor of those that every tile needs are not worth a larger one."""
_ALIKE = 1.02
"""Tiles predicted within this factor of each other are as fast as each other: those that divide their loops come first."""
_NEARLY, _MOST_HEIGHTS = 1.1, 2
"""Where loads from caches bound an rTask, so many tiles of more rows are tried that take up to this factor more cycles."""
_WORTH_HEIGHT = 1.1
"""What they have to gain in predicted time. Measured on Zen 5, a 3x3 convolution of 256 channels whose filter lies in rows
of 1 KiB: 2.4 ms in tiles of 4 x 64, 1.3 ms in tiles of 8 x 32."""
_RESOLUTION_US = 1e-3
"""Predictions are rounded to this."""


def propose(subject: CpuDispatch, count: int, options: ConstructOptions) -> list[Candidate]:
    """At most `count` points of the dispatch's space, the one to use without a measurement first."""
    pending = itertools.islice(_schedules(subject, options), 2 * count + _SPARE)
    space = subject.space
    found: dict[Schedule, Candidate] = {}
    # No more are completed than are needed: some make one point of the space, or none.
    while len(found) < count and (taken := list(itertools.islice(pending, count - len(found)))):
        taken = [entry for entry in taken if _is_point(space, entry[0])]
        points = space.points([schedule for schedule, _ in taken])
        legal = space.legal(points) == KEPT
        for point, kept, (schedule, ranked) in zip(points, legal, taken):
            if not kept:
                near = space.repaired(point[None])
                if not len(near):
                    continue
                schedule = replace(space.schedule(near[0]), levels=schedule.levels)
            found.setdefault(schedule, Candidate(schedule, ranked.us, ranked.bound))
    # Nothing cut always runs.
    return list(found.values()) or [Candidate(space.default(), *subject.predicted(space.default()))]


def _schedules(subject: CpuDispatch, options: ConstructOptions) -> Iterator[tuple[Schedule, Ranked]]:
    """What is constructed as points of the space that need not be legal: sizes of one knob may exclude another's."""
    registers = subject.registers
    model = CpuModel(subject.workload, subject.cuts, subject.target, subject.task_us)
    completed: dict[Tile, Schedule | None] = {}
    for ranked, sizes in _constructed(subject, options):
        tile = subject.cut(ranked.tile)
        if tile not in completed:
            completed[tile] = _completed(subject, tile)
        whole = completed[tile]
        if whole is None:
            continue
        entries = list(whole.reductions)
        if registers is not None and sizes and entries[registers.number].loops == registers.kind:
            entries[registers.number] = registers.reduction(sizes)
        yield replace(whole, levels=cache_levels(model, ranked), reductions=tuple(entries)), ranked


def _completed(subject: CpuDispatch, tile: Tile) -> Schedule | None:
    """The schedule of a tile with what its reductions are best, None where no kernel is cut so."""
    try:
        return subject.complete(Schedule(tile))
    except ScheduleError:
        return None


def _is_point(space: Space, schedule: Schedule) -> bool:
    try:
        space.point(schedule)
    except ScheduleError:
        return False
    return True


Sizes = tuple[int, ...]


def _constructed(subject: CpuDispatch, options: ConstructOptions) -> Iterator[tuple[Ranked, Sizes]]:
    """The best rTask with the best registers, then in turn two other rTasks and another tile of registers."""
    registers = subject.registers
    cuts = relaxed(subject.cuts, options)
    model = CpuModel(subject.workload, cuts, subject.target, subject.task_us, options.rules)
    held = register_tiles(subject, registers, options) if registers is not None else [()]
    tiles, chosen = rtask_tiles(subject, model, registers, held[0], options), held[0]
    for sizes in _taller(model, registers, held) if tiles[0].bound != "compute" else []:
        others = rtask_tiles(subject, model, registers, sizes, options)
        if others[0].us * _WORTH_HEIGHT < tiles[0].us:
            tiles, chosen = others, sizes

    def inside(ranked: Ranked) -> list[Sizes]:
        found = _within(subject.read_registers(subject.cut(ranked.tile)), held)
        return found if chosen == held[0] else sorted(found, key=lambda sizes: sizes != chosen)

    best = inside(tiles[0])
    yield tiles[0], best[0]
    others = ((tile, inside(tile)[0]) for tile in distinct(tiles))
    again = ((tiles[0], sizes) for sizes in best[1:])
    left = True
    while left:
        left = False
        for source in (others, others, again):
            following = next(source, None)
            if following is not None:
                left = True
                yield following


# The layers.


@dataclass(frozen=True)
class _Steps:
    """From each size of some ascending domains to the next one: the recursion takes thousands of such steps."""

    domains: tuple[list[int], ...]
    places: tuple[dict[int, int], ...]

    @classmethod
    def of(cls, domains: Sequence[np.ndarray]) -> _Steps:
        lists = tuple(domain.tolist() for domain in domains)
        return cls(lists, tuple({size: place for place, size in enumerate(sizes)} for sizes in lists))

    def moved(self, tile: Tile, step: int) -> list[Tile]:
        """The tiles whose size along one axis is that many places on, where the domain has it."""
        found = []
        for axis, (size, domain, places) in enumerate(zip(tile, self.domains, self.places)):
            place = places[size] + step
            if 0 <= place < len(domain):
                found.append((*tile[:axis], domain[place], *tile[axis + 1 :]))
        return found

    def number(self, tile: Tile) -> int:
        """Where a tile stands among all, the last axis innermost."""
        found = 0
        for size, domain, places in zip(tile, self.domains, self.places):
            found = found * len(domain) + places[size]
        return found


@dataclass(frozen=True)
class _Knobs:
    """A layer whose sizes are those of knobs, ascending: every tile of them makes a program."""

    domains: tuple[np.ndarray, ...]

    @property
    def count(self) -> int:
        return 1

    @cached_property
    def steps(self) -> _Steps:
        return _Steps.of(self.domains)

    def start(self, layer: int, inner: Tile) -> Tile | None:
        return tuple(domain[0] for domain in self.steps.domains)

    def enlarged(self, layer: int, tile: Tile, inner: Tile) -> list[Tile]:
        return self.steps.moved(tile, 1)

    def order(self, layer: int, look: Look) -> list[int]:
        return most_reuse_first(look)

    def attainable(self, layer: int) -> bool:
        return True

    def runs(self, levels: Levels) -> bool:
        return True


# The registers.


@dataclass(frozen=True)
class _Registers(_Knobs):
    """The layer of registers: sizes of the space's knobs, aligned with vectors, that the registers hold."""

    layer: RegisterLayer
    registers: int

    def look(self, layer: int, tiles: list[Tile], levels: Levels) -> Look:
        sizes = np.asarray(tiles, dtype=np.int64)
        taken = self.layer.taken(sizes)
        # The smallest tile always runs: it spills least.
        fits = (taken <= self.registers) | (sizes == [d[0] for d in self.domains]).all(axis=1)
        # Where loads take longest, half of the accumulators that hide latency do.
        saturated = 2 * self.layer.accumulators(sizes) >= LATENCY_X_THROUGHPUT
        return Look(self.layer.loads(sizes), taken, fits, saturated)


def register_tiles(subject: CpuDispatch, registers: RegisterSizes, options: ConstructOptions) -> list[Sizes]:
    """Tiles of registers, those that compute in the fewest cycles first; without `execution_unit` the smallest alone."""
    domains = _register_domains(subject, registers, options)
    if domains is None:
        return [()]
    layers = _Registers(domains, registers.layer, subject.target.registers_per_thread)
    if "execution_unit" not in options.rules:
        return [tuple(int(domain[0]) for domain in domains)]
    run = Recursion(layers, _MOST_REGISTER_TILES, None)
    run.run(len(domains))
    found = np.asarray(list(dict.fromkeys(levels[0] for levels in (*run.results, *run.border))))
    return _fastest_first(registers.layer, found)


def _fastest_first(layer: RegisterLayer, sizes: np.ndarray) -> list[Sizes]:
    """Tiles of registers by cycles."""
    keys = (*layer.ties(sizes)[::-1], np.round(layer.cycles(sizes), 9))
    return [tuple(int(size) for size in sizes[place]) for place in np.lexsort(keys)]


def _taller(model: CpuModel, registers: RegisterSizes | None, held: list[Sizes]) -> list[Sizes]:
    """Tiles of more rows and fewer columns than the first, nearly as fast: they load what lies in rows less often.

    Panels of packed operands come as fast as they are asked for: their tiles follow from registers alone.
    """
    loops = model.space.registers
    if registers is None or loops is None or loops.widths is not None or len(held[0]) != 2:
        return []
    sizes = np.asarray(held, dtype=np.int64)
    cycles = registers.layer.cycles(sizes)
    near = (cycles <= _NEARLY * cycles[0]) & (sizes[:, 0] > sizes[0, 0]) & (sizes[:, 1] < sizes[0, 1])
    found: dict[int, Sizes] = {}
    for rows, columns in sizes[near].tolist():
        found.setdefault(columns, (rows, columns))
    return list(found.values())[:_MOST_HEIGHTS]


def _within(registers: RegisterSizes | None, held: list[Sizes]) -> list[Sizes]:
    """The tiles of registers that an rTask is large enough for, the fastest there first."""
    if registers is None or not held[0]:
        return held
    limits = np.asarray(registers.layer.extents)
    sizes = np.asarray(held, dtype=np.int64)
    # A vector that is longer than a row is one of the whole row.
    vectors = np.asarray([name.endswith(".vector") for name in registers.knobs])
    sizes = np.where(vectors, np.minimum(sizes, limits), sizes)
    sizes = sizes[(sizes <= limits).all(axis=1)]
    return list(dict.fromkeys(_fastest_first(registers.layer, sizes))) if len(sizes) else held


def _register_domains(
    subject: CpuDispatch, registers: RegisterSizes, options: ConstructOptions
) -> tuple[np.ndarray, ...] | None:
    """The sizes of each knob that are aligned: whole vectors, or all of a loop that is shorter; None without knobs."""
    knobs = {knob.name: knob.domain for knob in subject.space.knobs}
    if not registers.knobs or any(name not in knobs for name in registers.knobs):
        return None
    found = []
    for name, extent in zip(registers.knobs, registers.layer.extents):
        sizes = np.asarray(knobs[name], dtype=np.int64)
        sizes = sizes[sizes <= extent] if (sizes <= extent).any() else sizes[:1]
        if name.endswith(".vector"):
            lanes = getattr(registers.layer, "lanes", 1)
            whole = sizes[(sizes % lanes == 0) | ((sizes == extent) & (extent <= 8 * lanes))]
            sizes = whole if len(whole) else sizes
        found.append(sizes)
    return tuple(found)


# The rTask.


@dataclass(frozen=True)
class _RTasks(_Knobs):
    """The layer of rTasks: sizes of the space's knobs that conform to the rules over one tile of registers."""

    model: CpuModel
    register: RegisterTile | None
    efficiency: float

    @cached_property
    def lattice(self) -> np.ndarray:
        """All tiles of the domains, in the order of their places: [n, loops]."""
        grids = np.meshgrid(*self.domains, indexing="ij")
        count = math.prod(map(len, self.domains))
        found = np.asarray([grid.reshape(-1) for grid in grids], dtype=np.int64)
        return found.reshape(len(self.domains), count).T

    def places(self, tiles: Sequence[Tile]) -> np.ndarray:
        """Where tiles stand in the lattice: [n]."""
        return np.asarray([self.steps.number(tile) for tile in tiles], dtype=np.int64)

    @cached_property
    def tasks(self) -> np.ndarray:
        """The rTasks that each tile makes: [n]."""
        return self.model.tasks(self.lattice)

    @cached_property
    def measured(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Core-microseconds that all loads take, those of all arithmetic, bytes of one rTask: [n] each."""
        model, tiles, tasks = self.model, self.lattice, self.tasks
        nest = model.nest(tiles, [self.register] * len(tiles))
        nbytes = model.nbytes(nest)
        loads = list(model.loads_us(nest, nbytes, tasks).values())
        slowest = (np.add if model.space.passes else np.maximum).reduce(loads)
        moved = (slowest + model.first_us(nest, nbytes, tasks)) * tasks
        return moved, model.arithmetic_us(nest) * tasks, nbytes[-1]

    @cached_property
    def saturated(self) -> np.ndarray:
        """Whether the loads of each tile take no longer than its arithmetic, or hardly longer than those of the best: [n]."""
        moved, computed, _ = self.measured
        enough = moved <= np.maximum(computed / self.efficiency, _COMPULSORY * moved.min())
        return enough & (self.tasks <= self.model.most_tasks())

    def look(self, layer: int, tiles: list[Tile], levels: Levels) -> Look:
        places = self.places(tiles)
        moved, _, nbytes = self.measured
        fits = np.ones(len(tiles), dtype=bool)
        return Look(moved[places], nbytes[places], fits, self.saturated[places])


def rtask_tiles(
    subject: CpuDispatch,
    model: CpuModel,
    registers: RegisterSizes | None,
    sizes: Sizes,
    options: ConstructOptions,
) -> list[Ranked]:
    """Tiles of the sink's loops by predicted time, of equals those that divide; padding grows while there are too few."""
    register = RegisterTile(*sizes) if model.space.registers is not None and len(sizes) == 2 else None
    _, efficiency = model.register(model.space.extents, register)
    inner = _inner(model, registers, sizes)
    epsilon = max(options.epsilon, EPSILON)
    loops = range(len(model.space.extents))
    least = min(FEWEST, options.top_k)
    while True:
        domains = tuple(_aligned(subject, model, loop, inner[loop], epsilon, options) for loop in loops)
        if math.prod(map(len, domains)) < least and epsilon < options.epsilon_limit:
            epsilon += options.epsilon_step
            continue
        domains = _thinned(domains)
        layers = _RTasks(domains, model, register, efficiency)
        run = Recursion(layers, _ENOUGH, None)
        run.run(len(domains))
        tiles = dict.fromkeys(levels[0] for levels in (*run.results, *run.border))
        if options.shrink:
            tiles |= dict.fromkeys(_shrunk(layers, tile) for tile in list(tiles))
        if len(tiles) >= least or epsilon >= options.epsilon_limit:
            break
        epsilon += options.epsilon_step
    found = np.asarray(list(tiles), dtype=np.int64).reshape(len(tiles), len(domains))
    ranked = model.ranked(found, *model.predict(found, register))
    extents = model.space.extents

    def order(tile: Ranked) -> tuple[int, bool]:
        divides = all(extent % size == 0 for size, extent in zip(tile.tile, extents))
        slower = max(tile.us, _RESOLUTION_US) / max(ranked[0].us, _RESOLUTION_US)
        return int(math.log(slower) / math.log(_ALIKE)), not divides

    return sorted(ranked, key=order)


def _inner(model: CpuModel, registers: RegisterSizes | None, sizes: Sizes) -> list[int]:
    """What the registers hold of each loop of the sink where results share what they load."""
    found = [1] * len(model.space.extents)
    shares = registers is not None and sizes and _shares(registers.layer, sizes)
    if registers is not None and shares:
        for loop, unit, size in zip(registers.loops, registers.units, sizes):
            if loop is not None:
                found[loop] = min(unit * size, model.space.extents[loop])
    return found


def _shares(layer: RegisterLayer, sizes: Sizes) -> bool:
    """Whether a tile of registers loads less than its results one by one."""
    tile = np.asarray([sizes])
    return bool(layer.loads(tile)[0] < layer.loads(np.ones_like(tile))[0])


def _aligned(
    subject: CpuDispatch, model: CpuModel, loop: int, inner: int, epsilon: float, options: ConstructOptions
) -> np.ndarray:
    """Sizes of a loop in the space, ascending, that conform to the rules (§3.1); the whole loop always does.

    Whole vectors, blocks and rows (`memory_transaction`); divisors of the loop and multiples of what registers hold, but
    for a part `epsilon` that is computed twice (`tensor_shape`).
    """
    cuts = model.space
    extent = cuts.extents[loop]
    knob = next((k for k in subject.space.knobs if k.name == f"tile[{loop}]"), None)
    if knob is None:
        return np.asarray([extent], dtype=np.int64)
    sizes = np.asarray(knob.domain, dtype=np.int64)
    conform = sizes % max(1, cuts.steps[loop]) == 0
    if "tensor_shape" in options.rules:
        conform &= (-extent % sizes <= epsilon * extent) & (-sizes % inner <= epsilon * sizes)
    elif not cuts.exact:
        conform &= np.isin(sizes, powers(extent, cuts.steps[loop]))
    return sizes[(conform & (sizes >= inner)) | (sizes == extent)]


def _thinned(domains: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """As many sizes as are tried: those that divide the loop, the whole loop with them, and evenly among the others."""
    most = _MOST_SIZES
    while True:
        found = tuple(_some(sizes, most) for sizes in domains)
        if math.prod(map(len, found)) <= _MOST_TILES:
            return found
        most -= 1


def _some(sizes: np.ndarray, most: int) -> np.ndarray:
    divides = sizes[-1] % sizes == 0
    dividing, others = _evenly(sizes[divides], most), sizes[~divides]
    return np.union1d(dividing, _evenly(others, max(1, most - len(dividing))))


def _evenly(sizes: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of them, the last one among them."""
    return sizes[::-1][:: max(1, -(-len(sizes) // most))][::-1]


def _shrunk(layers: _RTasks, tile: Tile) -> Tile:
    """The tile with the next smaller size along the axis that loses least reuse, again until every core has one (§3.2)."""
    cores = layers.model.cores
    while layers.tasks[layers.places([tile])[0]] < cores:
        smaller = layers.steps.moved(tile, -1)
        if not smaller:
            break
        tile = smaller[int(np.argmin(layers.measured[0][layers.places(smaller)]))]
    return tile
