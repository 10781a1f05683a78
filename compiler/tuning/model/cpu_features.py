"""Features of CPU schedules: what each makes of arithmetic, registers, caches and cores, from nouns alone, for many at once.

    found = cpu_features(workload, schedules, target)
    found["traffic.L2"]                  // bytes that one rTask loads into L2: [n]
    found.unit("traffic.L2")             // "bytes into a cache"

Counts are those of one rTask. The dispatch's statements run one after the other in it; `found.parts` has the columns of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.nouns.reduction_blocks import ORDERS, depth_rule, split
from tilewright.compiler.nouns.schedule import LOOPS, Schedule
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import MemoryLevel, Target
from tilewright.compiler.tuning.model import attention_part, loop_nests, winograd_part
from tilewright.compiler.tuning.model.footprints import Footprints, nested_tiles, page_walks, reloaded
from tilewright.compiler.tuning.model.loop_nests import COUNTS, Cut, Nest
from tilewright.compiler.tuning.model.roles import (
    Along,
    Groups,
    Products,
    Windows,
    column_operand,
    is_contiguous,
    steps_of,
)
from tilewright.compiler.tuning.model.statements import (
    RESULT,
    Statement,
    axes_of,
    read_statements,
    whole_statement,
)

UNITS = {
    "tasks": "rTasks",
    "rounds": "rTasks of the busiest core",
    "balance": "part of all cores' time that has rTasks",
    "computed": "points computed, of those that are needed",
    "arithmetic": "vector instructions, in multiply-adds",
    "stalled": "multiply-adds that could have been started",
    "loads": "instructions",
    "stores": "instructions",
    "spilled": "sums that are stored and loaded, each time",
    "shuffles": "instructions",
    "starts": "innermost loops begun",
    "registers": "vector registers",
    "useful": "vector instructions that are needed, in multiply-adds",
    "utilisation": "useful of all arithmetic",
    "loads_per_multiply_add": "instructions per multiply-add",
    "walks": "pages whose address is looked for again",
    "traffic": "bytes into a cache",
    "footprint": "bytes",
    "run": "bytes side by side",
    "line_use": "bytes used of those of its cache lines",
    "packed": "0 or 1",
    "strided": "0 or 1",
    "prefetch": "bytes ahead of their use at which packed operands, or rows that are walked again, are fetched",
    "streamed": "bytes stored past the caches",
}
"""What columns count, by their names up to the first dot: `traffic.L2.in0` is that of one level and one operand."""

WALKS = "walks"
WALKED_SHARE = 0.75
"""The part of a cache that keeps what several statements walk in turn: measured on Zen 5, 4096 rows of a softmax that take
32 of 48 KiB each were faster one by one than seven at a time, which L2 holds."""


@dataclass
class Part:
    """One statement: its counts by name, its page walks too, and bytes that it loads into each cache, by level and operand.

    `nests` are its loops: the schedules that have them alike, and None for algorithms that are no nest. `sizes` [n, sizes] are
    those that a schedule says of a reduction.
    """

    counts: dict[str, np.ndarray]
    traffic: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    kind: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype="U9"))
    sizes: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    nests: list[tuple[np.ndarray, Nest | None]] = field(default_factory=list)

    def loaded(self, level: str) -> np.ndarray:
        """Bytes of all operands."""
        return np.sum(list(self.traffic[level].values()), axis=0)


@dataclass(frozen=True)
class CpuFeatures:
    """Columns [n] by name, the parts that they are summed up of, and what one rTask has of every axis: `task` [n, axes]."""

    columns: Mapping[str, np.ndarray]
    parts: tuple[Part, ...]
    task: np.ndarray

    def __getitem__(self, name: str) -> np.ndarray:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns["tasks"])

    @staticmethod
    def unit(name: str) -> str:
        """What a column counts."""
        return UNITS[name.partition(".")[0]]

    def matrix(self) -> np.ndarray:
        """All columns side by side: [n, columns]."""
        return np.stack(list(self.columns.values()), axis=1)


def cpu_features(workload: Workload, schedules: Sequence[Schedule], target: Target) -> CpuFeatures:
    """The features of complete schedules; raises ScheduleError that names the field for one that leaves one out."""
    statements = read_statements(workload)
    task, tasks = _tasks(workload, statements, schedules)
    cut = _Cuts(workload, statements, schedules, target, task)
    parts = tuple(cut.part(number) for number in range(len(statements)))
    if any(s.label == "attention" for s in statements):
        tasks = tasks * attention_part.pieces(statements, cut.sizes)
    columns = _columns(workload, schedules, target, task, tasks, parts)
    return CpuFeatures(columns, parts, task)


def _tasks(
    workload: Workload, statements: Sequence[Statement], schedules: Sequence[Schedule]
) -> tuple[np.ndarray, np.ndarray]:
    """What one rTask has of every axis [n, axes], and how many rTasks there are [n]."""
    extents = np.asarray(workload.extents, dtype=np.int64)
    task = np.tile(extents, (len(schedules), 1))
    tasks = np.ones(len(schedules), dtype=np.int64)
    for row, schedule in enumerate(schedules):
        if schedule.gpu is not None or schedule.unroll or schedule.vector:
            raise ScheduleError(
                f"features of `{workload.op}` on a CPU: unroll, vector and gpu are no fields of complete schedules; "
                "complete the schedule first"
            )
        for axis, size in enumerate(schedule.tile):
            if not size:
                continue
            if axis >= len(extents) or workload.axes[axis].kind != "parallel" or size > extents[axis]:
                raise ScheduleError(
                    f"features of `{workload.op}`: tile[{axis}] is {size}, which no loop of its result has; use 0"
                )
            task[row, axis] = size
    return task, np.maximum(1, (-(-extents // task)).prod(axis=1)) * tasks


class _Cuts:
    """The statements of a workload under many schedules."""

    def __init__(
        self,
        workload: Workload,
        statements: Sequence[Statement],
        schedules: Sequence[Schedule],
        target: Target,
        task: np.ndarray,
    ):
        self.workload, self.statements, self.target, self.task = workload, statements, target, task
        reducing = [number for number, s in enumerate(statements) if s.reduces]
        self.kinds: dict[int, np.ndarray] = {}
        self.sizes: dict[int, np.ndarray] = {}
        self.depths: dict[int, np.ndarray] = {}
        self.orders: dict[int, np.ndarray] = {}
        for place, number in enumerate(reducing):
            self.kinds[number], self.sizes[number] = _said(workload, schedules, place, len(reducing))
            said = [schedule.reductions[place] for schedule in schedules]
            self.depths[number] = np.asarray([reduction.depth for reduction in said], dtype=np.int64)
            self.orders[number] = np.asarray([reduction.order for reduction in said])
        self.caches = caches(target)
        self.streams = np.asarray([schedule.stream for schedule in schedules], dtype=bool)
        self.seen: set[str] = set()
        self.held = self._held()
        self.fused = self._fused()
        self.met = self._met()

    def _held(self) -> np.ndarray:
        """Bytes of all tensors that one rTask touches: [n]."""
        found = {}
        for s in self.statements:
            footprints = self._footprints(s)
            for operand, nbytes in zip(footprints.operands, footprints.line_footprint(self.task).T):
                known = found.get(operand.name)
                found[operand.name] = nbytes if known is None else np.maximum(known, nbytes)
        return np.sum(list(found.values()), axis=0)

    def _fused(self) -> dict[int, np.ndarray]:
        """By statement: where what it reads of the one before is still in registers [n].

        It is element-wise then, one element to one, of few instructions, and along the vectors of a reduction.
        """
        found = {}
        for number, s in enumerate(self.statements[1:], 1):
            before = self.statements[number - 1]
            read = [o for o in s.reads if o.name == before.result.name]
            short = all(op.dialect != "math" or op.name in ("sqrt", "absf") for op in s.arithmetic)
            if s.reduction or not before.reduction or len(read) != 1 or not short:
                continue
            if any(op.name == "index" for op in s.arithmetic):
                continue
            plain = [i.terms[0].variable if len(i.terms) == 1 else None for i in read[0].index_map]
            last = next((a for a in reversed(plain) if a is not None), None)
            if last is not None and is_contiguous(s.result, last):
                found[number] = np.isin(self.kinds[number - 1], ("products", "windows", "dots", "winograd"))
        return found

    def _met(self) -> dict[int, np.ndarray]:
        """By reduction: where what it reads of the one before is computed as it is met, on the same vectors [n]."""
        found = {}
        for number, s in enumerate(self.statements[1:], 1):
            before = self.statements[number - 1]
            read = [o for o in s.reads if o.name == before.result.name]
            plain = not before.reduction and all(op.name != "index" for op in before.arithmetic)
            if s.reduction and plain and len(read) == 1 and set(axes_of(read[0])) == set(s.loops):
                found[number] = self.kinds[number] == "along"
        return found

    def _footprints(self, statement: Statement) -> Footprints:
        return Footprints(statement, self.workload.axes, self.target.memory[0].transaction_bytes)

    def part(self, number: int) -> Part:
        """One statement under every schedule."""
        s, count = self.statements[number], len(self.task)
        names = {o.name for o in (*s.reads, s.result)}
        new = names - self.seen
        self.seen |= names
        part = Part({name: np.zeros(count) for name in (*COUNTS, WALKS)})
        part.traffic = {
            level.name: {o.name: np.zeros(count) for o in (*s.reads, s.result)} for level in self.caches
        }
        part.kind = self.kinds.get(number, np.full(count, "element"))
        part.sizes = self.sizes.get(number, np.zeros((count, 0), dtype=np.int64))
        for rows, kind, extents in self._alike(number):
            cut = self._cut(number, kind, rows, part.sizes)
            nest = None
            if kind == "attention":
                found = attention_part.part(cut, self.caches)
            elif kind == "winograd":
                found = winograd_part.part(cut, self.caches)
            else:
                nest = self._nest(number, kind, cut, extents)
                traffic, walks = self._traffic(number, cut, nest, new, rows)
                found = {name: getattr(nest, name) for name in COUNTS} | {WALKS: walks}, traffic
            part.nests.append((rows, nest))
            counts, traffic = found
            for name, values in counts.items():
                part.counts[name][rows] = values
            for level, by_operand in traffic.items():
                for name, values in by_operand.items():
                    part.traffic[level][name][rows] = values
        if number in self.fused:
            # What it reads is in registers, and what is stored is its result instead.
            kept = ~self.fused[number]
            part.counts["loads"] *= np.where(kept, 1.0, (len(s.reads) - 1) / max(1, len(s.reads)))
            part.counts["starts"] *= kept
        if number in self.met:
            part.counts["loads"] *= np.where(self.met[number], (len(s.reads) - 1) / len(s.reads), 1.0)
        return part

    def _cut(self, number: int, kind: str, rows: np.ndarray, sizes: np.ndarray) -> Cut:
        """A statement under schedules that are alike."""
        cut = Cut(self.statements[number], self.task[rows], sizes[rows], self.target)
        if number not in self.depths:
            return cut
        depths, order = self.depths[number][rows], str(self.orders[number][rows[0]])
        return replace(cut, blocks=self._blocks(cut, kind, depths) if depths.any() else None, order=order)

    def _blocks(self, cut: Cut, kind: str, depths: np.ndarray) -> np.ndarray:
        """What blocks of so many steps of the reduction have of every axis: [n, axes]."""
        found, reduction = cut.extents.copy(), steps_of(cut.statement, kind)
        said = np.concatenate([depths[:, None], cut.extents[:, reduction]], axis=1)
        distinct, inverse = np.unique(said, axis=0, return_inverse=True)
        for number, (depth, *extents) in enumerate(distinct.tolist()):
            if (rule := depth_rule(extents, depth)) is not None:
                raise ScheduleError(f"features of `{self.workload.op}`: {rule}")
            position, size = split(extents, depth) or (0, extents[0])
            members = inverse.reshape(-1) == number
            found[np.ix_(members, reduction[:position])] = 1
            found[members, reduction[position]] = size
        return found

    def _alike(self, number: int) -> list[tuple[np.ndarray, str, tuple[int, ...]]]:
        """The schedules by the kind of a statement's loops, their order and the roles of its axes: rows, the kind, extents of
        one row."""
        s = self.statements[number]
        kinds = self.kinds.get(number, np.full(len(self.task), "element"))
        # Roles of vectors along the result tell loops of eight steps and more not apart.
        own = np.where(kinds[:, None] == "along", self.task, np.minimum(self.task, 8))
        if not s.reduction:
            own = np.ones_like(own)
        codes = np.unique(kinds, return_inverse=True)[1].reshape(-1, 1)
        blocked = self.depths.get(number, np.zeros(len(kinds), dtype=np.int64)) > 0
        orders = self.orders.get(number, np.full(len(kinds), ORDERS[0]))
        ranks = np.stack([np.unique(orders, return_inverse=True)[1].reshape(-1), blocked], axis=1)
        _, first, inverse = np.unique(
            np.concatenate([codes, ranks, own], axis=1), axis=0, return_index=True, return_inverse=True
        )
        merged: dict[tuple[str, object, str, bool], list[int]] = {}
        for group, row in enumerate(first):
            kind = str(kinds[row])
            roles = self._roles(number, kind, tuple(self.task[row].tolist()))
            merged.setdefault((kind, roles, str(orders[row]), bool(blocked[row])), []).append(group)
        found = []
        for (kind, *_), groups in merged.items():
            rows = np.flatnonzero(np.isin(inverse.reshape(-1), groups))
            found.append((rows, kind, tuple(self.task[rows[0]].tolist())))
        return found

    def _roles(self, number: int, kind: str, extents: tuple[int, ...]) -> object:
        s = self.statements[number]
        if kind in ("products", "winograd"):
            return Products.of(s, extents)
        if kind in ("dots", "tiles"):
            plain = Products.of(s, extents)
            column = column_operand(s, plain.vector) if plain else None
            return Products.of(s, extents, column)
        makers = {"along": Along.of, "groups": Groups.of, "windows": Windows.of}
        return makers[kind](s, extents) if kind in makers else None

    def _nest(self, number: int, kind: str, cut: Cut, extents: tuple[int, ...]) -> Nest:
        s, roles = cut.statement, self._roles(number, kind, extents)
        if kind == "element":
            return loop_nests.part(cut) if s.is_part else loop_nests.elementwise(cut)
        if kind == "scalar":
            return loop_nests.scalar(cut)
        if roles is None:
            raise ScheduleError(
                f"features of `{self.workload.op}`: reductions says {kind}, but the workload has no such loops: {s.text}"
            )
        if kind in ("dots", "tiles"):
            group = {16: 2, 8: 4}.get(s.reads[0].element_bytes * 8, 1)
            return (loop_nests.dots if kind == "dots" else loop_nests.tiles)(cut, roles, group)  # type: ignore[arg-type]
        makers = {"products": loop_nests.products, "windows": loop_nests.windows}
        makers |= {"along": loop_nests.along, "groups": loop_nests.groups}  # type: ignore[dict-item]
        return makers[kind](cut, roles)  # type: ignore[arg-type]

    def _traffic(
        self, number: int, cut: Cut, nest: Nest, new: set[str], rows: np.ndarray
    ) -> tuple[dict[str, dict[str, np.ndarray]], np.ndarray]:
        """Bytes into every cache by operand, those that are stored counted twice, loaded and written back; and page walks."""
        s = cut.statement
        footprints = self._footprints(s)
        parts = nested_tiles(nest, cut.extents)
        touched = [footprints.touched(part) for part in parts]
        found: dict[str, dict[str, np.ndarray]] = {}
        none = np.zeros(len(rows), dtype=bool)
        given = self.fused.get(number, self.met.get(number, np.zeros(len(self.task), dtype=bool)))[rows]
        taken = self.fused[number + 1][rows] if number + 1 in self.fused else none
        # Between blocks sums wait in memory, whoever takes the last ones out of registers.
        taken = taken & (cut.blocks is None)
        before = self.statements[number - 1].result.name
        for level in self.caches:
            loaded = reloaded(nest, parts, touched, level, share_of(level, self.target), s.reduction)
            room = WALKED_SHARE * share_of(level, self.target)
            missed = np.clip(1 - room / np.maximum(self.held[rows], 1.0), 0.0, 1.0)
            found[level.name] = {}
            for column, operand in enumerate(footprints.operands):
                values = loaded[:, column]
                inside = operand.name.startswith("%")
                if inside or operand.name not in new:
                    # Memory of the rTask's own, and what it touched before, is there where the cache holds all of it.
                    values = values * missed
                result = operand is footprints.operands[-1]
                in_registers = given if operand.name == before else taken if result and inside else none
                values = np.where(in_registers, 0.0, values)
                twice = 2.0 if result else 1.0
                if operand.name == RESULT:
                    values = np.where(self.streams[rows], 0.0, values)
                found[level.name][operand.name] = found[level.name].get(operand.name, 0.0) + values * twice
        return found, page_walks(nest, parts, touched, s.reduction)


def _said(
    workload: Workload, schedules: Sequence[Schedule], place: int, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """What schedules say of one reduction: the kinds of loops [n], and their sizes [n, most sizes]."""
    most = max(len(names) for names in LOOPS.values())
    kinds, sizes = [], np.ones((len(schedules), most), dtype=np.int64)
    for row, schedule in enumerate(schedules):
        if len(schedule.reductions) != count:
            raise ScheduleError(
                f"features of `{workload.op}`: reductions has {len(schedule.reductions)} entries, the workload has {count} "
                "reductions; complete the schedule first"
            )
        reduction = schedule.reductions[place]
        kinds.append(reduction.loops)
        sizes[row, : len(reduction.sizes)] = reduction.sizes
    return np.asarray(kinds), sizes


def caches(target: Target) -> list[MemoryLevel]:
    """The caches of a CPU, nearest first."""
    return list(reversed(target.memory[1:-1]))


def own_cache(target: Target) -> MemoryLevel:
    """The last cache that a core has for itself."""
    found = caches(target)
    return next((level for level in reversed(found) if level.shared_by == 1), found[0])


def share_of(level: MemoryLevel, target: Target) -> float:
    """Bytes of a cache that one core has for itself while all work."""
    return level.capacity_bytes / max(1, min(level.shared_by, target.num_cores))


def _columns(
    workload: Workload,
    schedules: Sequence[Schedule],
    target: Target,
    task: np.ndarray,
    tasks: np.ndarray,
    parts: Sequence[Part],
) -> dict[str, np.ndarray]:
    count, cores = len(schedules), target.num_cores
    found: dict[str, np.ndarray] = {"tasks": tasks.astype(float)}
    found["rounds"] = np.ceil(tasks / cores)
    found["balance"] = tasks / (found["rounds"] * cores)
    points = task.astype(float).prod(axis=1)
    found["computed"] = (
        points * (-(-np.asarray(workload.extents) // task)).prod(axis=1) / max(1, math.prod(workload.extents))
    )
    whole = Footprints(whole_statement(workload), workload.axes, target.memory[0].transaction_bytes)
    for name in (*COUNTS, WALKS):
        values = [part.counts[name] for part in parts]
        found[name] = np.max(values, axis=0) if name == "registers" else np.sum(values, axis=0)
    found["utilisation"] = np.where(
        found["arithmetic"] > 0, found["useful"] / np.maximum(found["arithmetic"], 1e-9), 1.0
    )
    found["loads_per_multiply_add"] = found["loads"] / np.maximum(found["arithmetic"], 1.0)
    for level in caches(target):
        found[f"traffic.{level.name}"] = np.sum([part.loaded(level.name) for part in parts], axis=0)
        for name in (o.name for o in whole.operands):
            named = [p.traffic[level.name].get(name, np.zeros(count)) for p in parts]
            found[f"traffic.{level.name}.{name}"] = np.sum(named, axis=0)
    runs = whole.runs(task)
    lines = whole.line_footprint(task)
    nbytes = whole.geometry.nbytes(task)
    for column, operand in enumerate(whole.operands):
        found[f"footprint.{operand.name}"] = nbytes[:, column].astype(float)
        found[f"run.{operand.name}"] = runs.nbytes[:, column]
        found[f"line_use.{operand.name}"] = nbytes[:, column] / np.maximum(lines[:, column], 1.0)
        found[f"packed.{operand.name}"] = np.full(count, float(operand.is_packed))
        found[f"strided.{operand.name}"] = np.full(count, float(bool(operand.strides)))
    found["footprint"] = np.sum(lines, axis=1)
    found["prefetch"] = np.asarray([s.prefetch for s in schedules], dtype=float)
    found["streamed"] = np.where([s.stream for s in schedules], nbytes[:, -1], 0).astype(float)
    return found
