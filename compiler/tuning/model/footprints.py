"""What tiles of a statement touch of memory: bytes, cache lines, contiguous runs, and what a cache of some size reloads.

A nest is a register tile and the loops around it, inner first. The largest part of it that a cache holds stays there from
one step of the loop around it to the next: that loop loads what it touches once, and every loop further out loads all
of it again (Roller, OSDI'22, §3.3, `MemTraffic`, on a cache in place of a scratchpad).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tilewright.compiler.nouns.workload import Axis, Operand, Workload
from tilewright.compiler.targets.target import MemoryLevel
from tilewright.compiler.tuning.model.loop_nests import Nest
from tilewright.compiler.tuning.model.roles import element_strides
from tilewright.compiler.tuning.model.rtile import TileGeometry
from tilewright.compiler.tuning.model.statements import Statement

STREAMED_SHARE = 0.5
"""The part of a cache that keeps what is used again; the rest is what streams through it. Source: Low et al., "Analytical
Modeling Is Enough for High-Performance BLIS", TOMS 2016, §4."""


WAYS = 16
"""Lines of one set of a private cache behind the first. Sources: Intel's optimisation manual 248966 (L2 of 16 ways), AMD's
software optimisation guide 58455 (Zen 5: 16)."""
PAGE_BYTES = 4096
"""Of memory that nobody asked to be in larger pages."""
KEPT_PAGES = 1536
"""Pages whose addresses a core keeps: the fewest of server cores since 2015. Sources: Intel's optimisation manual 248966
(Skylake 1536, Ice Lake 2048), AMD's software optimisation guides (Zen 3 2048, Zen 4 3072, Zen 5 4096)."""
_PAGE_SETS = 128
"""Sets that these lie in, found by the lowest bits of a page's number. Sources: as above (12 or 16 ways of 128)."""
_FIRST_SPAN_BYTES = 4096
"""Addresses this far apart share a set of the first cache, whose sets are found before pages are: 8 ways of 32 KiB, 12 of 48."""


@dataclass(frozen=True)
class Runs:
    """Of n data tiles, by operand [n, operands]: bytes of one contiguous run, how many there are, the greatest number
    of bytes that all distances between runs are multiples of, 0 where there is one, and bytes from the first element to
    the last."""

    nbytes: np.ndarray
    count: np.ndarray
    apart: np.ndarray
    reach: np.ndarray


@dataclass(frozen=True)
class Touched:
    """Bytes of cache lines by operand, the pages of 4 KiB that these lie in, and the runs that they are in."""

    lines: np.ndarray
    pages: np.ndarray
    runs: Runs

    def kept(self, level: MemoryLevel, capacity_bytes: float) -> np.ndarray:
        """Whether runs lie so that the sets which they share hold them all: [n, operands]."""
        return self.runs.count <= kept_runs(level, capacity_bytes, self.runs.apart, self.runs.nbytes)

    @property
    def addresses_kept(self) -> np.ndarray:
        """Whether a core keeps the addresses of the pages of each operand by itself: [n, operands]."""
        return self.pages <= kept_pages(self.runs.apart, self.runs.nbytes)


def kept_runs(
    level: MemoryLevel, capacity_bytes: float, apart: np.ndarray, nbytes: np.ndarray | int
) -> np.ndarray:
    """How many runs of `nbytes` whose distances are multiples of `apart` bytes, 0 of one run, the sets hold that they share."""
    # Sets of a cache that cores share are found by hashing the address.
    if level.shared_by > 1:
        return np.full(np.shape(apart), np.inf)
    span = _FIRST_SPAN_BYTES if level.name == "L1" else capacity_bytes / WAYS
    places = span / np.maximum(np.maximum(np.gcd(apart, int(span)), nbytes), 1)
    return np.where(apart == 0, np.inf, capacity_bytes / span * np.maximum(places, 1.0))


def kept_pages(apart: np.ndarray, nbytes: np.ndarray | int = 1) -> np.ndarray:
    """Pages whose addresses a core keeps of runs of `nbytes` whose distances are multiples of `apart` bytes, 0 of one run.

    Runs that are whole pages apart share sets: of rows 16 KiB apart a quarter of all addresses is kept.
    """
    spread = np.gcd(apart, _PAGE_SETS * PAGE_BYTES) // PAGE_BYTES
    used = -(-nbytes // PAGE_BYTES)
    return np.where(apart == 0, KEPT_PAGES, KEPT_PAGES * np.minimum(used / np.maximum(spread, 1), 1.0))


@dataclass(frozen=True)
class Footprints:
    """Of one statement, for arrays of tiles over the workload's axes; columns are its reads and then its result."""

    statement: Statement
    axes: tuple[Axis, ...]
    line_bytes: int

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        return (*self.statement.reads, self.statement.result)

    @cached_property
    def geometry(self) -> TileGeometry:
        """That of the statement as a workload of its own."""
        operands = (*(replace(o, output=False) for o in self.statement.reads),)
        return TileGeometry(Workload("", self.axes, (*operands, replace(self.statement.result, output=True))))

    def runs(self, tiles: np.ndarray) -> Runs:
        """The contiguous runs of every operand's data tile."""
        spans = self.geometry.spans(tiles)
        length = np.ones((len(tiles), len(self.operands)))
        count = np.ones_like(length)
        apart = np.zeros(length.shape, dtype=np.int64)
        reach = self.geometry.element_bytes * np.ones_like(length)
        for column, (operand, part) in enumerate(zip(self.operands, self.geometry.slices)):
            strides = element_strides(operand)
            joined = np.ones(len(tiles), dtype=bool)
            dense = 1
            for dim in reversed(range(len(operand.shape))):
                span = spans[:, part.start + dim]
                joined = joined & (strides[dim] == dense if operand.shape[dim] > 1 else True)
                length[:, column] *= np.where(joined, span, 1)
                count[:, column] *= np.where(joined, 1, span)
                reach[:, column] += (span - 1) * float(strides[dim] * operand.element_bytes)
                step = np.where(~joined & (span > 1), strides[dim] * operand.element_bytes, 0)
                apart[:, column] = np.gcd(apart[:, column], step)
                joined = joined & (span == operand.shape[dim])
                dense = strides[dim] * operand.shape[dim] if operand.shape[dim] > 1 else dense
            if operand.name in self.statement.gathers:
                count[:, column] *= length[:, column]
                length[:, column] = 1
        return Runs(length * self.geometry.element_bytes, count, apart, reach)

    def line_footprint(self, tiles: np.ndarray) -> np.ndarray:
        """Bytes of the cache lines that every operand's data tile lies in: [n, operands]."""
        return self._lines(self.runs(tiles))

    def touched(self, tiles: np.ndarray) -> Touched:
        """Cache lines and pages, and what they take of caches whose sets they share."""
        runs = self.runs(tiles)
        return Touched(self._lines(runs), self._pages(runs), runs)

    def _pages(self, runs: Runs) -> np.ndarray:
        """Pages that every operand's data tile lies in; none of packed operands, which are the runtime's, in large pages."""
        item = self.geometry.element_bytes
        packed = [operand.is_packed for operand in self.operands]
        apart = runs.count * (1 + (runs.nbytes - item) / PAGE_BYTES)
        return np.where(packed, 0.0, np.minimum(apart, 1 + (runs.reach - item) / PAGE_BYTES))

    def _lines(self, runs: Runs) -> np.ndarray:
        item, line, run, count = self.geometry.element_bytes, self.line_bytes, runs.nbytes, runs.count
        # Tiles start at multiples of themselves: where rows are aligned so are they. A run that begins anywhere lies in a line
        # more than it fills, less what the first of it takes.
        even = self._aligned & ((run % line == 0) | (line % np.maximum(run, 1) == 0))
        begun = np.where(even, np.ceil(run / line), np.ceil((run + line - item) / line)) * line
        whole = np.asarray([self._extent_bytes(o) for o in self.operands])
        return np.minimum(begun * count, np.maximum(whole + line, run))

    @cached_property
    def _aligned(self) -> np.ndarray:
        """Whether every row of an operand begins on a cache line where its first one does: [operands]."""
        return np.asarray(
            [
                all(
                    step * o.element_bytes % self.line_bytes == 0
                    for step in element_strides(o)[:-1]
                    if step > 1
                )
                for o in self.operands
            ]
        )

    @staticmethod
    def _extent_bytes(operand: Operand) -> float:
        """From an operand's first element to its last."""
        steps = element_strides(operand)
        last = sum((size - 1) * step for size, step in zip(operand.shape, steps))
        return (last + 1.0) * operand.element_bytes


def nested_tiles(nest: Nest, task: np.ndarray) -> np.ndarray:
    """Ever larger parts of a nest, the register tile first, the whole rTask last: [depth, n, axes]."""
    tile = np.minimum(nest.inner, task)
    parts = [tile.copy()]
    for axis, extent in nest.reached(task):
        tile[:, axis] = extent
        parts.append(tile.copy())
    return np.stack(parts)


def deepest(kept: np.ndarray) -> np.ndarray:
    """Which part of a nest a cache holds while the loop around it goes on, from whether it holds each [depth, ...]: the last one
    before the first that it does not."""
    return np.where(kept.all(axis=0), len(kept) - 1, np.argmin(kept, axis=0))


def times_again(parts: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """How often parts `depth` [n] of nests `parts` [depth, n, axes] are loaded until the whole rTask is done: [n]."""
    part = parts[depth, np.arange(parts.shape[1])]
    return (-(-parts[-1] // part)).astype(float).prod(axis=1)


def reloaded(
    nest: Nest,
    parts: np.ndarray,
    touched: Sequence[Touched],
    level: MemoryLevel,
    capacity_bytes: float,
    sums: Sequence[int],
) -> np.ndarray:
    """Bytes of every operand that one rTask loads into a cache, from what its nest's parts touch: [n, operands].

    An operand whose lines evict each other is loaded again by itself. The last one, the result, is in registers while
    the loops `sums` run, where these are the innermost.
    """
    lines = np.stack([part.lines for part in touched])
    fits = lines.sum(axis=2) <= capacity_bytes * STREAMED_SHARE
    kept = np.stack([part.kept(level, capacity_bytes) for part in touched]) & fits[:, :, None]
    depth = _beside_sums(nest, deepest(kept), sums)
    found = _again(parts, lines, depth)
    # What is left of the lines at a task's edges is its neighbour's, which comes next and finds them there.
    runs, line = touched[-1].runs, level.transaction_bytes
    inside = (depth == len(parts) - 1) & (runs.nbytes >= line)
    return np.where(inside, np.minimum(found, runs.nbytes * runs.count), found)


def _beside_sums(nest: Nest, depth: np.ndarray, sums: Sequence[int]) -> np.ndarray:
    """The parts `depth` [n, operands] that are kept, where the last operand is in registers while loops of `sums` run."""
    held = next((n for n, axis in enumerate(nest.order) if axis not in sums), len(nest.order))
    depth[:, -1] = np.maximum(depth[:, -1], held)
    return depth


def page_walks(nest: Nest, parts: np.ndarray, touched: Sequence[Touched], sums: Sequence[int]) -> np.ndarray:
    """Pages whose address one rTask looks for again, because too many others were met in between: [n].

    A page for each 4 KiB is not counted: bandwidths are measured with it. Nor is any that the rTask before has met, where
    the addresses of all that one rTask needs are kept.
    """
    pages = np.stack([part.pages for part in touched])
    own = np.stack([part.addresses_kept for part in touched])
    kept = own & (pages.sum(axis=2) <= KEPT_PAGES)[:, :, None]
    found = _again(parts, pages, _beside_sums(nest, deepest(kept), sums))
    first = np.where(kept[-1], pages[-1], np.minimum(touched[-1].lines / PAGE_BYTES, pages[-1]))
    return np.clip(found - first, 0.0, None).sum(axis=1)


def _again(parts: np.ndarray, values: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """What of `values` [depth, n, operands] each operand has at the part that is kept, as often as that is loaded: [n, operands]."""
    row = np.arange(parts.shape[1])
    columns = [values[at, row, column] * times_again(parts, at) for column, at in enumerate(depth.T)]
    return np.stack(columns, axis=1)
