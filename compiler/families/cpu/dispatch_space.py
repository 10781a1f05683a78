"""The space of a dispatch's schedules on a CPU: tiles of its sink's loops, and for every reduction its loops and their sizes.

    tile[0] in 1, 2, 4, 25, 50, 100, 200           the sizes that one rTask may take of a loop that can be cut
    reductions[0] in products, along, scalar        the kinds that its first reduction can be computed by
    reductions[0].products.unroll in 1 .. 32        where it is computed so
    reductions[0].products.depth in 0, 32 .. 512    blocks of its steps, where it has enough; and the order of register tiles
    prefetch in 0, 4096 .. 65536                    how far ahead packed operands, and rows of the next rTask, are fetched

What a reduction can be depends on the tile: its loops are read once for each of the extents that it has under the tiles
of the points in question, and sizes are held against them for all points at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from tilewright.compiler.analysis.cut_space import lines_cut_space, read_cut_space
from tilewright.compiler.analysis.line_operations import lines_of
from tilewright.compiler.analysis.placement import OVERWRITES, REPLACES
from tilewright.compiler.analysis.sink import outside
from tilewright.compiler.analysis.winograd_form import Convolution2d
from tilewright.compiler.analysis.workload_of import NoWorkload, read_workload
from tilewright.compiler.dialects.reduction_attribute import (
    ACCUMULATORS,
    Blocked,
    Ordered,
    Sized,
    broken_rules,
)
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.cpu.cut_reductions import CutReduction, Cuts, Shape
from tilewright.compiler.families.cpu.kinds import KINDS, Kind, kinds_of
from tilewright.compiler.families.cpu.panels import DISTANCES, Panels
from tilewright.compiler.families.cpu.streamed_loops import Streamed
from tilewright.compiler.families.cpu.walked_rows import ALONG, walked_rows
from tilewright.compiler.ir import ir
from tilewright.compiler.nouns.reduction_blocks import ORDERS, depths, same_as_rows
from tilewright.compiler.nouns.register_tiles import MOST_SPILLED
from tilewright.compiler.nouns.schedule import FETCHING, LOOPS, ONE_ORDER, THROUGH_MEMORY, Reduction, Schedule
from tilewright.compiler.nouns.space import KEPT, Columns, Constraint, Knob, Rule, Space, Value
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.cpu.rtask_tiles import tile_sizes

_STREAM, _PREFETCH = "stream", "prefetch"
_DEPTH, _ORDER = "depth", "order"
_BY_NAME = {kind.name: kind for kind in KINDS}


def dispatch_space(function: ir.Operation, target: Target, constructed: Schedule) -> Space:
    """All schedules of a dispatch on a CPU; `constructed` is the one to use without a search, complete."""
    with function.context, function.location:
        cuts = Cuts(function)
        tiles = _tiles(function, target)
        panels = [number for number, op in enumerate(cuts.ops) if Panels.read(op) is not None]
        reductions = [_Reduction(cuts, number, target, tiles) for number in range(len(cuts.ops))]
        knobs = [Knob(_tile(loop), sizes) for loop, sizes in enumerate(tiles) if len(sizes) > 1]
        for reduction in reductions:
            knobs += reduction.knobs(reduction.usual(constructed))
        fetching = [r.name for r in reductions if r.number in panels and r.fetches]
        rows = [reductions[number] for number in walked_rows(function)]
        walking = [r.name for r in rows if any(kind.name == ALONG for kind, _ in r.kinds)]
        walking = walking if any(len(sizes) > 1 for sizes in tiles) else []
        if fetching or walking:
            knobs.append(Knob(_PREFETCH, tuple(sorted({0, *DISTANCES, constructed.prefetch}))))
        if any(_streams(cuts, tile, target) for tile in ((), constructed.tile)):
            knobs.append(Knob(_STREAM, (0, 1)))
    named = {knob.name for knob in knobs}

    whole = [max(sizes) for sizes in tiles]

    def write(values: Mapping[str, Value]) -> Schedule:
        cut = [int(values.get(_tile(loop), extent)) for loop, extent in enumerate(whole)]
        tile = tuple(0 if size == extent else size for size, extent in zip(cut, whole))
        entries = tuple(r.written(values) for r in reductions)
        stream, prefetch = bool(values.get(_STREAM)), int(values.get(_PREFETCH, 0))
        return Schedule(tile, reductions=entries, stream=stream, prefetch=prefetch)

    def read(schedule: Schedule) -> Mapping[str, Value]:
        if schedule.gpu is not None or schedule.unroll or schedule.vector:
            raise ScheduleError("unroll, vector and gpu are no fields of complete schedules for CPUs")
        if len(schedule.reductions) != len(reductions):
            raise ScheduleError(
                f"reductions has {len(schedule.reductions)} entries, the dispatch has {len(reductions)}"
            )
        found: dict[str, Value] = {}
        sizes = [*schedule.tile, *[0] * (len(whole) - len(schedule.tile))]
        for loop, size in enumerate(sizes):
            if loop < len(tiles) and len(tiles[loop]) > 1:
                found[_tile(loop)] = size or whole[loop]
            elif size not in (0, *whole[loop : loop + 1]):
                raise ScheduleError(f"{_tile(loop)} is {size}, but that loop stays whole; use 0")
        for reduction, said in zip(reductions, schedule.reductions):
            found |= reduction.values(said)
        if _STREAM in named:
            found[_STREAM] = int(schedule.stream)
        elif schedule.stream:
            raise ScheduleError(
                "stream is true, but no cut has rows that are stored past the caches; leave it out"
            )
        if _PREFETCH in named:
            found[_PREFETCH] = schedule.prefetch
        elif schedule.prefetch:
            raise ScheduleError(
                f"prefetch is {schedule.prefetch}, but no reduction multiplies by a packed operand or walks rows again; "
                "leave it out"
            )
        return found

    constraints = [r.constraint() for r in reductions]
    if _PREFETCH in named:
        constraints.append(_fetching(fetching, walking, whole))
    if _STREAM in named:
        constraints.append(_streaming(cuts, target, whole, [r.name for r in reductions]))
    return Space(tuple(knobs), tuple(constraints), write, read, constructed)


def order_knobs(space: Space) -> set[str]:
    """The knobs of such a space that say in which order the dispatch's reductions sum."""
    kinds = {reduction.loops for reduction in space.default().reductions}
    if kinds <= {*ONE_ORDER, "attention"}:
        return {k.name for k in space.knobs if re.fullmatch(r"reductions\[\d+\](\.attention\.keys)?", k.name)}
    # Beside what is fetched, LLVM may round the products of loops along memory apart from their sums, or with them.
    free = {_STREAM} if ALONG in kinds else {_STREAM, _PREFETCH}
    return {knob.name for knob in space.knobs if knob.name not in free}


def _streams(cuts: Cuts, tile: Shape, target: Target) -> bool:
    if REPLACES in cuts.function.attributes:  # the first and the last vectors of rows are stored twice
        return False
    sink = cuts.sink_under(tile)
    return sink is not None and Streamed.read(sink, target.vector_bits) is not None


def _fetching(panels: Sequence[str], rows: Sequence[str], whole: Sequence[int]) -> Constraint:
    """Panels, and rows of the next rTask, are fetched ahead where one of the reductions that have any is computed by loops
    that do so."""
    rule = Rule(_PREFETCH, "nothing that is packed, or walked again, is read by loops that fetch ahead")

    def broken(columns: Columns) -> np.ndarray:
        asked = columns[_PREFETCH] > 0
        can = np.zeros(len(asked), dtype=bool)
        for name in panels:
            can |= np.isin(columns[name], FETCHING)
        taken = [columns.get(_tile(loop), np.full(len(asked), e)) for loop, e in enumerate(whole)]
        cut = np.any([size < extent for size, extent in zip(taken, whole)], axis=0)
        for name in rows:
            can |= (columns[name] == ALONG) & cut
        return np.where(asked & ~can, 0, KEPT)

    return Constraint((rule,), broken)


def _streaming(cuts: Cuts, target: Target, whole: Sequence[int], reductions: Sequence[str]) -> Constraint:
    """Results are stored past the caches where an rTask has long rows of them, and no reduction holds them in registers."""
    rules = (
        Rule(_STREAM, "a reduction stores its results from registers"),
        Rule(_STREAM, "results are no dense rows of 16 vectors or more"),
    )
    known: dict[Shape, bool] = {}

    def suits(tile: Shape) -> bool:
        if tile not in known:
            with cuts.function.context, cuts.function.location:
                known[tile] = _streams(cuts, tile, target)
        return known[tile]

    def broken(columns: Columns) -> np.ndarray:
        streamed = columns[_STREAM] == 1
        found = np.full(len(streamed), KEPT, dtype=np.int64)
        for name in reductions:
            found[streamed & ~np.isin(columns[name], THROUGH_MEMORY)] = 0
        taken = [columns.get(_tile(loop), np.full(len(streamed), e)) for loop, e in enumerate(whole)]
        for row in np.flatnonzero(streamed & (found == KEPT)):
            if not suits(tuple(int(sizes[row]) for sizes in taken)):
                found[row] = 1
        return found

    return Constraint(rules, broken)


def _tile(loop: int) -> str:
    return f"tile[{loop}]"


def _tiles(function: ir.Operation, target: Target) -> list[tuple[int, ...]]:
    """The sizes to choose of for every loop of the sink, the whole loop last; nothing where the dispatch is not cut."""
    lines = lines_of(function)
    if lines is not None:
        space = lines_cut_space(lines, OVERWRITES in function.attributes, target.vector_bits)
        return [tile_sizes(space, loop) for loop in range(len(space.extents))]
    try:
        dispatch = read_workload(function)
    except NoWorkload:
        return []
    if dispatch.main is None or Cuts(function).sink is None:
        return []
    space = read_cut_space(dispatch, target.vector_bits)
    if outside(function) is not None:
        space = replace(space, loops=(), transposed=())
    convolutions = (Convolution2d.read(structured.op) for structured in dispatch.group)
    outputs = [c.outputs for c in convolutions if c is not None and c.outputs]
    return [tile_sizes(space, loop, outputs) for loop in range(len(space.extents))]


@dataclass
class _Reduction:
    """One reduction of a dispatch, under tiles of the sink's loops: its kinds, and whether sizes suit them."""

    cuts: Cuts
    number: int
    target: Target
    tiles: Sequence[tuple[int, ...]]
    known: dict[tuple, Sized | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The field of the schedule."""
        return f"reductions[{self.number}]"

    def size_name(self, kind: str, size: str) -> str:
        """The knob of one of its sizes."""
        return f"{self.name}.{kind}.{size}"

    @cached_property
    def whole(self) -> CutReduction:
        return self.cuts.read(self.number)

    @property
    def fetches(self) -> bool:
        """Whether any of its kinds can fetch panels ahead."""
        return any(kind.name in FETCHING for kind, _ in self.kinds)

    @cached_property
    def kinds(self) -> list[tuple[Kind, Sized]]:
        """What computes it where nothing is cut, preferred first: a cut leaves no other."""
        return kinds_of(self.whole, self.target)

    # Knobs.

    def knobs(self, usual: Mapping[str, int]) -> list[Knob]:
        """The kind of loops, and the sizes of each; `usual` are values that sizes begin with."""
        extents = self._extents()
        found = [Knob(self.name, tuple(kind.name for kind, _ in self.kinds))]
        for kind, loops in self.kinds:
            domains = kind.domains(self.whole, loops, self.target, extents)
            for size, domain in zip(LOOPS[kind.name], domains):
                values, name = tuple(sorted(domain)), self.size_name(kind.name, size)
                start = sum(value <= usual.get(name, 1) for value in values) - 1
                found.append(Knob(name, values, (self.name, kind.name), max(0, start)))
            found += [
                Knob(self.size_name(kind.name, own), values, (self.name, kind.name), mended=own == _ORDER)
                for own, values in self._blocks(loops).items()
            ]
        return found

    @staticmethod
    def _blocks(loops: Sized) -> dict[str, tuple[int, ...] | tuple[str, ...]]:
        """Blocks of the reduction's steps and orders of register tiles, where there are others than the plain ones."""
        found: dict[str, tuple[int, ...] | tuple[str, ...]] = {}
        if isinstance(loops, Blocked):
            found[_DEPTH] = depths(loops.steps, loops.group, loops.alike)
        if isinstance(loops, Ordered):
            rows, columns = loops.most()
            found[_ORDER] = tuple(o for o in ORDERS if not same_as_rows(o, rows, columns, loops.others))
        return {own: values for own, values in found.items() if len(values) > 1}

    def usual(self, constructed: Schedule) -> dict[str, int]:
        """What each kind's sizes are best under the tile of the constructed schedule."""
        cut = self.cuts.under(constructed.tile)[self.number]
        found = {}
        for kind, loops in kinds_of(cut, self.target):
            best = next(iter(kind.ranked(cut, loops, self.target)))
            found |= {self.size_name(kind.name, n): s for n, s in zip(LOOPS[kind.name], best)}
        return found

    def _extents(self) -> list[set[int]]:
        """What each of its loops has under any tile, from cuts along one loop of the sink at a time."""
        if self.whole.structure is None:
            return []
        found = [{extent} for extent in self.whole.structure.extents]
        for loop, sizes in enumerate(self.tiles):
            taken = [np.asarray(s if i == loop else s[-1:]) for i, s in enumerate(self.tiles)]
            cut = self.cuts.extents(taken)[self.number] if len(sizes) > 1 else None
            for own, values in zip(found, cut or ()):
                own |= set(np.atleast_1d(values).tolist())
        return found

    def written(self, values: Mapping[str, Value]) -> Reduction:
        """The entry of a schedule."""
        kind = str(values[self.name])
        sizes = tuple(int(values[self.size_name(kind, n)]) for n in LOOPS[kind])
        depth = int(values.get(self.size_name(kind, _DEPTH), 0))
        return Reduction(kind, sizes, depth, str(values.get(self.size_name(kind, _ORDER), ORDERS[0])))

    def values(self, said: Reduction) -> dict[str, Value]:
        """The inverse of `written`; raises ScheduleError for blocks or an order of a reduction without these knobs."""
        sizes: dict[str, Value] = {
            self.size_name(said.loops, n): s for n, s in zip(LOOPS[said.loops], said.sizes)
        }
        loops = next((loops for kind, loops in self.kinds if kind.name == said.loops), None)
        blocks = self._blocks(loops) if loops is not None else {}
        for own, value, plain in ((_DEPTH, said.depth, 0), (_ORDER, said.order, ORDERS[0])):
            name = self.size_name(said.loops, own)
            if own in blocks:
                sizes[name] = value
            elif value != plain:
                raise ScheduleError(
                    f"{name} is {value}, but its loops have no other than {plain}; leave it out"
                )
        return {self.name: said.loops, **sizes}

    # Rules.

    def constraint(self) -> Constraint:
        """Its loops have to exist under the tile, and its sizes to suit them."""
        rules, firsts = [Rule(self.name, "it has no such loops as it is cut")], {}
        registers = self.target.registers_per_thread
        texts = (
            "over its loop",
            "crosses the blocks of a packed operand",
            f"over {MOST_SPILLED} accumulators for each of {registers} registers",
            "does not go with the other sizes",
        )
        orders: dict[str, int] = {}
        for kind, loops in self.kinds:
            firsts[kind.name] = len(rules)
            names = [self.size_name(kind.name, size) for size in LOOPS[kind.name]]
            rules += [
                Rule(name, text)
                for rule, text in enumerate(texts)
                for name in (names[:1] * len(names) if rule == ACCUMULATORS else names)
            ]
            if _ORDER in self._blocks(loops):
                orders[kind.name] = len(rules)
                rules.append(Rule(self.size_name(kind.name, _ORDER), "its register tiles go along rows too"))

        def broken(columns: Columns) -> np.ndarray:
            found = np.full(len(columns[self.name]), KEPT, dtype=np.int64)
            for rows, kind, loops in self._loops(columns):
                if loops is None:
                    found[rows] = 0
                elif LOOPS[kind]:
                    sizes = [columns[self.size_name(kind, size)][rows] for size in LOOPS[kind]]
                    rule = broken_rules(kind, np.stack(sizes, axis=1), loops, registers)
                    found[rows] = np.where(rule < 0, KEPT, rule + firsts[kind])
                    if kind in orders and isinstance(loops, Ordered):
                        again = self._same(columns[self.size_name(kind, _ORDER)][rows], sizes, loops)
                        found[rows] = np.where((rule < 0) & again, orders[kind], found[rows])
            return found

        return Constraint(tuple(rules), broken)

    @staticmethod
    def _same(orders: np.ndarray, sizes: Sequence[np.ndarray], loops: Ordered) -> np.ndarray:
        """Where register tiles follow each other in their order as they do along rows: [n]."""
        rows, width = (-(-extent // size) for extent, size in zip(loops.most(), sizes))
        return np.any(
            [(orders == order) & same_as_rows(order, rows, width, loops.others) for order in ORDERS], axis=0
        )

    def _loops(self, columns: Columns) -> list[tuple[np.ndarray, str, Sized | None]]:
        """The points by what their reduction is: rows of points, a kind, and its loops there."""
        chosen = columns[self.name]
        count = len(chosen)
        whole = [max(sizes) for sizes in self.tiles]
        taken = [columns.get(_tile(loop), np.full(count, extent)) for loop, extent in enumerate(whole)]
        cut = self.cuts.extents(taken)[self.number] if taken else None
        facts = [np.broadcast_to(np.asarray(size), (count,)) for size in cut or ()]
        # Where the last rTasks start matters to those who put other tiles there; to others only that they overlap.
        starts = [
            np.where(size < s[-1], s[-1] - size, 0) * (s[-1] % size > 0) for size, s in zip(taken, self.tiles)
        ]
        exactly = any(kind.name == "winograd" for kind, _ in self.kinds)
        facts += starts if exactly else [np.any(starts, axis=0).astype(np.int64)] if starts else []
        kinds = [kind.name for kind, _ in self.kinds]
        which = np.searchsorted(np.asarray(sorted(kinds)), chosen)
        rows = np.stack([which, *facts], axis=1)
        distinct, inverse = np.unique(rows, axis=0, return_inverse=True)
        order = np.argsort(inverse.reshape(-1), kind="stable")
        bounds = np.searchsorted(inverse.reshape(-1)[order], np.arange(len(distinct) + 1))
        found = []
        for number, (place, *row) in enumerate(distinct.tolist()):
            members = order[bounds[number] : bounds[number + 1]]
            kind = sorted(kinds)[place]
            extents = tuple(row[: len(cut)]) if cut else None
            found.append((members, kind, self._read(kind, extents, tuple(row[len(cut or ()) :]))))
        return found

    def _read(self, kind: str, extents: Shape | None, starts: Shape) -> Sized | None:
        key = (kind, extents, starts)
        if key not in self.known:
            with self.cuts.function.context, self.cuts.function.location:
                cut = self.cuts.read(self.number, extents, tuple(start for start in starts if start))
                self.known[key] = _BY_NAME[kind].read(cut, self.target)
        return self.known[key]
