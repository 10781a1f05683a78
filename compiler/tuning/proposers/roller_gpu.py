"""Schedules of GPUs that Roller's recursion constructs through the knobs of a kernel's space (OSDI'22, Figure 8).

    registers  vector, thread[i]    what a thread has, until issuing keeps up with memory
    block      block[i], tile[i]    what a block has, until memory keeps up with issuing, or with the best block
    scale-out                       shrunk, and rows divided, until every multiprocessor has a block (§3.2)

Sizes are those of the knobs which the space's constraints and the rules of alignment leave (§3.1). What a tile takes and
moves says the model of complete schedules, for all of them at once. Tiles of contractions have layers of their own
(`tuning/gpu/gemm_recursion.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tilewright.compiler.nouns.schedule import Schedule
from tilewright.compiler.nouns.space import KEPT, Space
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.cpu_candidates import EPSILON, FEWEST, Candidate
from tilewright.compiler.tuning.model.gpu_deals import levels_of
from tilewright.compiler.tuning.model.gpu_features import GpuFeatures, gpu_features
from tilewright.compiler.tuning.proposers.aligned_gpu import completed
from tilewright.compiler.tuning.proposers.gpu_dispatch import GpuDispatch
from tilewright.compiler.tuning.roller.options import ConstructOptions
from tilewright.compiler.tuning.roller.recursion import Levels, Look, Recursion, Tile, most_reuse_first

_REGISTERS = ("vector", "thread")
_BLOCK = ("block", "tile")
"""Fields of a schedule whose knobs are a layer's sizes. All others are ranked for each tile, but for `_PARTS`."""
_THREADS = "threads"
"""What shares a block, and is ranked too; where blocks have no sizes of their own, they are as large as their threads make them."""
_DIVIDED = "split_k"
"""The knob that divides rows among blocks, which is asked where there are too few of them."""
_PARTS = "parts"
"""Sizes of what else a dispatch computes: they go with its threads, and stay as the family chooses both."""
_COMPULSORY = 1.25
"""Loads that take this much longer than those of the best tile are worth a program: there is little to be saved."""
_MOST_DIVIDED = 8
"""Schedules whose rows are divided, the fastest of those that leave multiprocessors idle."""
_ENOUGH, _QUOTA = 128, 32
"""Blocks after which the recursion ends, and those of one tile of registers: all are ranked at once."""
_MOST_POINTS, _MOST_MODELLED = 4096, 128
"""Points of a space that are held against its rules, and legal ones that are modelled: some milliseconds."""
_MOST_SIZES = 16
_ALIKE = 1.02
"""Predictions within this factor of each other leave the order to what is taken."""
_AS_FEW = 1.1
"""Instructions, and runs in memory, within this factor of the fewest are as few."""


def propose(subject: GpuDispatch, count: int, options: ConstructOptions) -> list[Candidate]:
    """At most `count` complete schedules, each once; raises ScheduleError for kernels that the model does not count."""
    if subject.form == "product":
        return completed(subject, subject.enumerate(options, "roller"), count)
    found = [each for space in subject.rivals.values() for each in _constructed(subject, space, options)]
    return [
        Candidate(_with_levels(subject, own.schedule), round(own.us, 3), own.bound)
        for own in _ordered(found)[:count]
    ]


def _with_levels(subject: GpuDispatch, schedule: Schedule) -> Schedule:
    """The schedule with what threads and blocks hold of what is no product, for those who read it."""
    if subject.form == "attention":
        return schedule
    return replace(schedule, levels=levels_of(subject.workload, schedule))


@dataclass(frozen=True)
class _Made:
    """A constructed schedule: its predicted time and what bounds it; warps of a block, no more than there are schedulers;
    instructions of warps and runs of bytes in memory of all blocks; the time of all resources together, and of waiting.
    """

    schedule: Schedule
    us: float
    bound: str
    warps: float
    instructions: float
    runs: float
    effort: float
    latency: float


def _ordered(found: Sequence[_Made]) -> list[_Made]:
    """By time. Of those that are alike blocks of a warp for every scheduler come first, of few instructions, few runs in
    memory, and little of all resources and of waiting.
    """
    best = min((own.us for own in found), default=1.0)
    alike = [own for own in found if own.us <= _ALIKE * best]
    fewest = (
        min((own.instructions for own in alike), default=1.0),
        min((own.runs for own in alike), default=1.0),
    )

    def key(own: _Made) -> tuple[float, ...]:
        return (
            _steps(own.us, best, _ALIKE),
            -own.warps,
            _steps(own.instructions, fewest[0], _AS_FEW),
            _steps(own.runs, fewest[1], _AS_FEW),
            round(own.effort, 3),
            round(own.latency, 6),
        )

    return sorted(found, key=key)


def _steps(value: float, least: float, factor: float) -> int:
    return math.floor(math.log(max(value, 1e-9) / max(least, 1e-9)) / math.log(factor) + 1e-9)


def _constructed(subject: GpuDispatch, space: Space, options: ConstructOptions) -> list[_Made]:
    """What the recursion constructs of one kernel's space, and what the family chooses, with which it is ranked."""
    lattice = _lattice(subject, space, options)
    layers = _Layers(space, lattice, subject.target)
    run = Recursion(layers, _ENOUGH, _QUOTA if layers.count > 1 else None)
    run.run(len(layers.columns[0]))
    levels = dict.fromkeys((*run.results, *run.border))
    if options.shrink:
        levels |= dict.fromkeys(own for each in list(levels) for own in _shrunk(layers, each))
    own = np.flatnonzero((lattice.points == space.point(space.default())).all(axis=1)).tolist()
    rows = [*own, *(row for each in levels for row in layers.every[each])]
    made = [lattice.made(row) for row in rows]
    if options.shrink and any(knob.name == _DIVIDED for knob in space.knobs):
        few = [row for row in rows if lattice.features["tasks"][row] < subject.target.num_cores]
        points = _divided(space, lattice, few, subject.target)
        if len(points):
            more = _Lattice.of(subject, space, points)
            made += [more.made(row) for row in range(len(points))]
    return list({each.schedule: each for each in made}.values())


# The sizes that are aligned.


@dataclass(frozen=True)
class _Lattice:
    """Legal points of a space [n, knobs], and the model's features of their schedules."""

    points: np.ndarray
    schedules: list[Schedule]
    features: GpuFeatures
    schedulers: int

    @classmethod
    def of(cls, subject: GpuDispatch, space: Space, points: np.ndarray) -> _Lattice:
        schedules = [space.schedule(point) for point in points]
        found = gpu_features(subject.workload, schedules, subject.target)
        return cls(points, schedules, found, subject.target.schedulers)

    def at(self, rows: np.ndarray) -> _Lattice:
        """Some of the points."""
        found = self.features
        columns = {name: values[rows] for name, values in found.columns.items()}
        parts = {name: values[rows] for name, values in found.parts_us.items()}
        schedules = [self.schedules[row] for row in rows]
        kept = GpuFeatures(columns, found.kind[rows], (), found.us[rows], parts)
        return _Lattice(self.points[rows], schedules, kept, self.schedulers)

    def made(self, row: int) -> _Made:
        """One of them."""
        found = self.features
        parts = {name: float(values[row]) for name, values in found.parts_us.items()}
        bound = max(parts, key=lambda name: parts[name])
        latency = parts.pop("latency")
        warps = min(float(found["warps"][row]), self.schedulers)
        counts = float(found["instructions"][row]), float(self.runs[row])
        us = float(found.us[row])
        return _Made(self.schedules[row], us, bound, warps, *counts, sum(parts.values()), latency)

    @cached_property
    def moved(self) -> np.ndarray:
        """Bytes of L2 that all blocks move, the unused parts of their sectors included: [n]."""
        found = np.zeros(len(self.points))
        for name, values in self.features.columns.items():
            level, _, operand = name.partition(".L2.")
            if level == "traffic" and operand:
                used = self.features.columns.get(f"sectors.{operand}")
                found += values if used is None else values / np.where(used > 0, used, 1.0)
        return found

    @cached_property
    def runs(self) -> np.ndarray:
        """How many runs of bytes side by side in global memory all blocks move: [n]."""
        columns, found = self.features.columns, np.zeros(len(self.points))
        for name in columns:
            _, is_run, operand = name.partition("run.")
            if is_run:
                found += columns[f"traffic.L2.{operand}"] / np.maximum(columns[name], 1.0)
        return found

    @cached_property
    def loaded(self) -> np.ndarray:
        """The same bytes, of those that are used: [n]."""
        plain = self.features["traffic.L2"]
        return self.moved / np.where(plain > 0, plain, 1.0)

    @cached_property
    def memory_us(self) -> np.ndarray:
        """The slowest of what loads and stores take: [n]."""
        parts = self.features.parts_us
        return np.maximum.reduce([parts[name] for name in ("DRAM", "L2", "shared")])

    @cached_property
    def core_us(self) -> np.ndarray:
        """The slower of arithmetic and issuing instructions: [n]."""
        return np.maximum(self.features.parts_us["compute"], self.features.parts_us["issue"])


def _lattice(subject: GpuDispatch, space: Space, options: ConstructOptions) -> _Lattice:
    """The points whose sizes conform to the rules; padding may be more while too few do."""
    target = subject.target
    every = _Lattice.of(subject, space, _legal(space))
    keep = np.ones(len(every.points), dtype=bool)
    if "execution_unit" in options.rules:
        # The blocks of a multiprocessor together have a warp for every scheduler.
        keep &= every.features["warps"] * every.features["resident"] >= target.schedulers
    if "memory_transaction" in options.rules:
        keep &= every.loaded <= (1 + EPSILON) * every.loaded.min()
    if "memory_bank" in options.rules:
        keep &= every.features["conflicts"] <= every.features["conflicts"][keep].min()
    if "tensor_shape" in options.rules:
        epsilon, padding = max(options.epsilon, EPSILON), every.features["computed"] - 1
        least = min(FEWEST, int(keep.sum()))
        while (keep & (padding <= epsilon)).sum() < least and epsilon < options.epsilon_limit:
            epsilon += options.epsilon_step
        # Nothing waits for what is padded while all blocks run at once.
        keep &= (padding <= max(epsilon, padding[keep].min())) | (every.features["tasks"] <= target.num_cores)
    keep |= (every.points == space.point(space.default())).all(axis=1)
    return every.at(np.flatnonzero(keep))


def _legal(space: Space) -> np.ndarray:
    """Points that keep a space's constraints, with a power of two of warps, no more than are modelled: [n, knobs].

    Where there are more, sizes that divide the largest one are kept, and some of the others.
    """
    default = space.point(space.default())
    has_parts = any(knob.name.startswith(_PARTS) for knob in space.knobs)
    domains = []
    for knob, place in zip(space.knobs, default):
        every = np.arange(len(knob.domain))
        if knob.name.startswith(_PARTS) or (has_parts and knob.name == _THREADS):
            every = every[place : place + 1]
        elif knob.name == _DIVIDED:
            every = np.union1d(every[:1], every[place : place + 1])
        elif knob.name == _THREADS:
            sizes = np.asarray(knob.domain)
            every = np.union1d(every[sizes & (sizes - 1) == 0], every[place : place + 1])
        domains.append(every)

    def thinned(most: int) -> list[np.ndarray]:
        return [
            _some(k.domain, own, most, int(place)) for k, own, place in zip(space.knobs, domains, default)
        ]

    most = _MOST_SIZES
    while most > 1 and math.prod(map(len, thinned(most))) > _MOST_POINTS:
        most -= 1
    points = _product(thinned(most))
    legal = points[space.legal(points) == KEPT]
    while most > 1 and len(legal) > _MOST_MODELLED:
        most -= 1
        keep = [np.isin(legal[:, i], own) for i, own in enumerate(thinned(most))]
        legal = legal[np.logical_and.reduce(keep)]
    return legal if len(legal) else default[None]


def _product(choices: Sequence[np.ndarray]) -> np.ndarray:
    """All that can be taken of `choices`, one of each, the last one innermost: [n, choices]."""
    points = np.zeros((math.prod(map(len, choices)), len(choices)), dtype=np.int64)
    inner = 1
    for at in reversed(range(len(choices))):
        points[:, at] = choices[at][np.arange(len(points)) // inner % len(choices[at])]
        inner *= len(choices[at])
    return points


def _some(domain: Sequence[int | str], places: np.ndarray, most: int, usual: int) -> np.ndarray:
    """At most `most` places of a domain, or one more: that of the default, and sizes that divide the largest one first."""
    if len(places) <= most:
        return places
    if isinstance(domain[0], str):
        return np.union1d(places[:most], [usual])
    sizes = np.asarray(domain)[places]
    divides = sizes[-1] % np.maximum(sizes, 1) == 0
    dividing, others = _evenly(places[divides], most), places[~divides]
    left = most - len(dividing)
    found = np.union1d(dividing, _evenly(others, left)) if left > 0 else dividing
    return np.union1d(found, [usual])


def _evenly(places: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of them, the last one among them."""
    if len(places) <= most:
        return places
    return places[np.unique(np.linspace(len(places) - 1, 0, most, endpoint=most > 1).round().astype(int))]


# The layers.


class _Layers:
    """The tiles of a lattice: registers where the kernel has knobs for them, and blocks; one row of the lattice for each.

    Where fields that are no sizes leave several rows to a tile, it has the fastest.
    """

    def __init__(self, space: Space, lattice: _Lattice, target: Target) -> None:
        self.lattice, self.target = lattice, target
        names = [knob.name.partition("[")[0] for knob in space.knobs]
        columns = [[i for i, name in enumerate(names) if name in fields] for fields in (_REGISTERS, _BLOCK)]
        columns[1] = columns[1] or [i for i, name in enumerate(names) if name == _THREADS]
        self.columns = [own for own in columns if own] or [[]]
        values = space.columns(lattice.points)
        sizes = np.stack(
            [values[k.name] if k.is_ordered else 0 * lattice.points[:, 0] for k in space.knobs], axis=1
        )
        tiles = [[tuple(row) for row in sizes[:, own].tolist()] for own in self.columns]
        self.rows: dict[Levels, int] = {}
        self.every: dict[Levels, list[int]] = {}
        self.below: dict[Levels, dict[Tile, None]] = {}
        self.ordered: dict[Levels, np.ndarray] = {}
        # Of a tile with blocks around it, the smallest block stands for it.
        for row in np.lexsort(
            (np.round(lattice.features.us, 6), sizes[:, self.columns[-1]].prod(axis=1))
        ).tolist():
            levels: Levels = ()
            for own in tiles:
                self.below.setdefault(levels, {})[own[row]] = None
                levels = (*levels, own[row])
                self.rows.setdefault(levels, row)
            self.every.setdefault(levels, []).append(row)
        found, core, memory = lattice.features, lattice.core_us, lattice.memory_us
        registers = 4.0 * found["registers"]
        self.fits = found["spilled"] <= found["spilled"].min()
        # What comes into registers costs instructions: fewer where a thread has more.
        issues = core <= np.maximum(memory, _COMPULSORY * core.min())
        loads = memory <= np.maximum(core, _COMPULSORY * memory.min())
        self.looks = [
            (found["instructions"], registers, issues),
            (lattice.moved, found["shared"] + registers * found["threads"], loads),
        ][-len(self.columns) :]

    @property
    def count(self) -> int:
        return len(self.columns)

    def row(self, levels: Levels) -> int:
        return self.rows[levels]

    def known(self, levels: Levels) -> np.ndarray:
        """The tiles of a layer over those of the layers above, small ones first: [n, axes]."""
        if levels not in self.ordered:
            tiles = np.asarray(list(self.below[levels]))
            self.ordered[levels] = tiles[np.lexsort((*tiles.T[::-1], tiles.prod(axis=1)))]
        return self.ordered[levels]

    def next(self, levels: Levels, tile: Tile, larger: bool) -> list[Tile]:
        """Along each axis the tile with the next size there, and others no smaller, or no larger, than they are."""
        known, own = self.known(levels), np.asarray(tile)
        within = known[(known >= own if larger else known <= own).all(axis=1)][:: 1 if larger else -1]
        found: dict[Tile, None] = {}
        for axis in range(len(tile)):
            beyond = within[within[:, axis] != tile[axis]]
            if len(beyond):
                sizes = beyond[:, axis]
                found[tuple(beyond[sizes.argmin() if larger else sizes.argmax()].tolist())] = None
        return list(found)

    def start(self, layer: int, inner: Tile) -> Tile | None:
        return tuple(self.known((inner,) if layer else ())[0].tolist())

    def enlarged(self, layer: int, tile: Tile, inner: Tile) -> list[Tile]:
        return self.next((inner,) if layer else (), tile, larger=True)

    def look(self, layer: int, tiles: list[Tile], levels: Levels) -> Look:
        rows = [self.rows[*levels, tile] for tile in tiles]
        traffic, footprint, saturated = (values[rows] for values in self.looks[layer])
        return Look(traffic, footprint, self.fits[rows], saturated)

    def order(self, layer: int, look: Look) -> list[int]:
        return most_reuse_first(look)

    def attainable(self, layer: int) -> bool:
        return True

    def runs(self, levels: Levels) -> bool:
        return True


# Scale-out.


def _shrunk(layers: _Layers, levels: Levels) -> Iterator[Levels]:
    """The blocks with the next smaller size along the axis that loses least, again until every multiprocessor has one."""
    tasks, moved = layers.lattice.features["tasks"], layers.lattice.moved
    while tasks[layers.row(levels)] < layers.target.num_cores:
        *outer, block = levels
        smaller = [(*outer, tile) for tile in layers.next(tuple(outer), block, larger=False)]
        smaller = [own for own in smaller if tasks[layers.row(own)] > tasks[layers.row(levels)]]
        if not smaller:
            break
        levels = min(smaller, key=lambda own: moved[layers.row(own)])
        yield levels


def _divided(space: Space, lattice: _Lattice, rows: Sequence[int], target: Target) -> np.ndarray:
    """Legal points whose rows are divided among as many blocks as give every multiprocessor one, or a few: [n, knobs]."""
    at = next(number for number, knob in enumerate(space.knobs) if knob.name == _DIVIDED)
    domain = np.asarray(space.knobs[at].domain)
    found = []
    for row in sorted(dict.fromkeys(rows), key=lambda row: lattice.features.us[row])[:_MOST_DIVIDED]:
        whole = lattice.features["tasks"][row] / lattice.features["split"][row]
        for waves in (1, 2, 4):
            place = int(np.searchsorted(domain, waves * target.num_cores / whole, side="right")) - 1
            if place > 0:
                found.append(lattice.points[row].copy())
                found[-1][at] = place
    points = np.unique(np.asarray(found, dtype=np.int64).reshape(len(found), len(space.knobs)), axis=0)
    return points[space.legal(points) == KEPT]
