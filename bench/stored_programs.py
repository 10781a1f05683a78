"""Measured GPU programs by operator, what models read of each, and pools of them as tasks of a search.

    operators = read_operators(Path("v100.jsonl.xz"))      // one per workload with tiles, in the file's order
    task = StoredTask(operators[0], places)                // a SearchTask whose only knob is the number of a program
    device = ReplayDevice()                                // answers at once with what was measured

The file's form is that of `measured_programs.py`. Programs that failed are left out, but `order` still counts them: it is
the place at which a tuner measured each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np

from tilewright.bench import measured_programs, program_features
from tilewright.bench.measured_programs import as_compiled, steps_of, tiles_of
from tilewright.bench.roller_construct import workload_of
from tilewright.bench.suites import roller_rows
from tilewright.bench.warp_features import warp_columns
from tilewright.compiler.errors import TilewrightError
from tilewright.compiler.nouns.space import Knob, Space
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target, UnknownTargetError, resolve
from tilewright.compiler.tuning.cost_models.cost_model import Samples
from tilewright.compiler.tuning.features import program_sets
from tilewright.compiler.tuning.features.feature_set import Features, Steps, Table, joined_tables, rows
from tilewright.compiler.tuning.features.tiled_programs import TiledPrograms
from tilewright.compiler.tuning.roller import evaluate
from tilewright.compiler.tuning.search.search_task import Outcome, SearchTask

SETS = ("knobs", "micro-performance", "statement", "data-flow", *program_sets.PROGRAM_SETS)
FEWEST = 20
"""Operators with fewer valid programs are left out: no ranking of them means much."""


@dataclass(frozen=True)
class StoredOperator:
    """The valid programs of one operator on one device, in the order in which a tuner measured them.

    `order` [n] are their places in that order, failures counted; `us` [n] their microseconds.
    """

    name: str
    workload: Workload
    target: Target
    programs: tuple[dict, ...]
    order: np.ndarray
    us: np.ndarray
    _sets: dict[str, Table | Steps] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.us)

    def features(self, sets: frozenset[str]) -> Features:
        """These sets of features of all programs; raises TilewrightError for one that stored programs lack."""
        for name in sorted(sets - set(self._sets)):
            self._sets[name] = self._made(name)
        return {name: self._sets[name] for name in sorted(sets)}

    def samples(self, places: np.ndarray, sets: frozenset[str]) -> Samples:
        """Measured programs to learn from, with these sets of features."""
        return Samples(self.name, rows(self.features(sets), places), self.us[places], self.target.name)

    def _made(self, name: str) -> Table | Steps:
        if name in program_sets.PROGRAM_SETS:
            tiled = TiledPrograms.of(self.workload, self.programs)
            return program_sets.program_features(tiled, self.target, frozenset({name}))[name]
        if name == "knobs":
            return tile_columns(self.programs, self.target)
        if name == "micro-performance":
            tiles = [found for p in self.programs if (found := tiles_of(p, self.workload))]
            steps = [steps_of(p) for p in self.programs]
            predicted = evaluate(self.workload, as_compiled(self.target), tiles, steps)
            return Table(("us",), ("us",), predicted[:, None])
        if name in ("statement", "data-flow"):
            tiling = program_features.Tiling(self.programs, self.workload, self.target)
            if name == "data-flow":
                return program_features.data_flow(tiling)
            tiles = tile_columns(self.programs, self.target)
            warps = warp_columns(self.programs, self.workload, self.target)
            return joined_tables(program_features.statement(tiling, tiles), warps)
        raise TilewrightError(f"stored programs have no features `{name}`; they have {', '.join(SETS)}")


def read_operators(path: Path) -> list[StoredOperator]:
    """The operators with tiles in `DEVICE.jsonl.xz`; raises TilewrightError for a file that is none.

    Element-wise operators, pooling and means have no tiles; they are left out, as are those with few valid programs.
    """
    try:
        target = resolve(path.name.removesuffix(".jsonl.xz"))
    except UnknownTargetError as error:
        raise TilewrightError(f"{path}: {error}") from None
    named = {key: row for row in roller_rows() if (key := measured_programs.row_key(row))}
    workloads = {row["name"]: workload_of(row) for row in named.values()}
    found: dict[str, list[tuple[int, dict]]] = {}
    seen: dict[str, int] = {}
    try:
        for program in measured_programs.read(path):
            row = named.get(measured_programs.record_key(program["workload"]) or ())
            if row is None:
                continue
            name = row["name"]
            order = seen[name] = seen.get(name, -1) + 1
            if program["ms"] and tiles_of(program, workloads[name]) is not None:
                found.setdefault(name, []).append((order, program))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise TilewrightError(f"{path}: no file of measured programs: {error}") from None
    return [
        StoredOperator(
            name,
            workloads[name],
            target,
            tuple(program for _, program in programs),
            np.asarray([order for order, _ in programs]),
            np.asarray([program["ms"] * 1e3 for _, program in programs]),
        )
        for name, programs in found.items()
        if len(programs) >= FEWEST
    ]


_COLUMNS = (
    ("threads", "log2"), ("blocks", "log2"), ("virtual threads", "log2"), ("results per thread", "log2"),
    ("reduction per fetch", "log2"), ("inner reduction", "log2"), ("fetches", "log2"), ("shared bytes", "log2"),
    ("unroll", "steps"), ("lanes used", "share"), ("blocks per core", "log2"), ("results", "log2"),
    ("reduction", "log2"), ("global bytes", "log2"), ("flops per byte", "log2"), ("last threads", "log2"),
    ("last results", "log2"), ("first threads", "log2"),
)  # fmt: skip


def tile_columns(programs: Sequence[Mapping], target: Target) -> Table:
    """What a program's own tile sizes say, the same columns for all operators: [n, 18].

    The programs are of one operator: they have the same axes and fetch the same operands.
    """
    spatial = np.asarray([[tiles for _, tiles in p["spatial"]] for p in programs], dtype=float)
    reduce = np.asarray([[tiles for _, tiles in p["reduce"]] for p in programs], dtype=float)
    fetched = np.asarray([sum(f[0] for f in p["fetch"]) for p in programs], dtype=float)
    unroll = np.asarray([p["unroll"] for p in programs], dtype=float)
    extents = np.asarray([extent for extent, _ in programs[0]["spatial"]], dtype=float)
    depths = np.asarray([extent for extent, _ in programs[0]["reduce"]], dtype=float)
    blocks = np.ceil(extents / spatial.prod(axis=2)).prod(axis=1)
    fetches = np.ceil(depths / reduce.prod(axis=2)).prod(axis=1)
    threads = spatial[:, :, 1].prod(axis=1)
    global_bytes = np.maximum(4 * fetched * blocks * fetches, 1)
    results = np.full(len(programs), extents.prod())
    columns = [
        threads, blocks, spatial[:, :, 0].prod(axis=1), spatial[:, :, 2:].prod(axis=(1, 2)),
        reduce.prod(axis=(1, 2)), reduce[:, :, 1].prod(axis=1), fetches, np.maximum(4 * fetched, 1),
        unroll, threads / (np.ceil(threads / target.warp_size) * target.warp_size), blocks / target.num_cores,
        results, np.full(len(programs), depths.prod()), global_bytes, 2 * results * depths.prod() / global_bytes,
        spatial[:, -1, 1], spatial[:, -1, 3], spatial[:, 0, 1],
    ]  # fmt: skip
    matrix = np.stack(
        [np.log2(c) if unit == "log2" else c for c, (_, unit) in zip(columns, _COLUMNS)], axis=1
    )
    return Table(tuple(name for name, _ in _COLUMNS), tuple(unit for _, unit in _COLUMNS), matrix)


class MeasuredPool(Protocol):
    """Candidates of one workload on a target with the microseconds of each, whatever measured them."""

    @property
    def name(self) -> str: ...

    @property
    def workload(self) -> Workload: ...

    @property
    def target(self) -> Target: ...

    @property
    def us(self) -> np.ndarray: ...

    def __len__(self) -> int: ...

    def features(self, sets: frozenset[str]) -> Features:
        """These sets of features of all candidates."""
        ...


@dataclass(frozen=True)
class StoredTask:
    """Some candidates of a pool as a task: a candidate is the number of one in `places`."""

    operator: MeasuredPool
    places: np.ndarray
    calls: int = 1

    @property
    def key(self) -> str:
        return self.operator.workload.key

    @property
    def name(self) -> str:
        return self.operator.name

    @property
    def us(self) -> np.ndarray:
        """The measured microseconds, infinite for a failure: [n]."""
        return self.operator.us[self.places]

    @cached_property
    def space(self) -> Space[int]:
        """One knob, `program`; the default is the one that the micro-performance model likes most."""
        first = int(self.seeds(1)[0, 0])
        knob = Knob("program", tuple(range(len(self.places))))
        return Space((knob,), (), lambda v: int(v["program"]), lambda number: {"program": number}, first)

    def features(self, points: np.ndarray, sets: frozenset[str]) -> Features:
        """These sets of features of candidates [n, 1]."""
        return rows(self.operator.features(sets), self.places[points[:, 0]])

    def seeds(self, count: int) -> np.ndarray:
        """The candidates that the micro-performance model predicts to be fastest: [count, 1]."""
        predicted = self.operator.features(frozenset({"micro-performance"}))["micro-performance"]
        assert isinstance(predicted, Table)
        us = predicted.matrix[:, predicted.names.index("us")]
        return np.argsort(us[self.places], kind="stable")[:count, None]

    @property
    def limit_us(self) -> float:
        """The longer of arithmetic at the device's peak and of every operand once through its memory."""
        workload, target = self.operator.workload, self.operator.target
        moved = sum(operand.nbytes for operand in workload.operands) / (target.memory[0].bandwidth_gbps * 1e3)
        return max(workload.flops / (target.peak_gflops["f32"] * 1e3), moved)


class ReplayDevice:
    """Answers with what was measured once: the device of stored programs. The order is that of asking."""

    name = "replay"

    def __init__(self) -> None:
        self._asked: list[tuple[SearchTask, tuple[int, ...]]] = []

    def submit(self, task: SearchTask, points: Sequence[np.ndarray]) -> None:
        """Asks for these candidates; raises TilewrightError for a task that is none of stored programs."""
        if not isinstance(task, StoredTask):
            raise TilewrightError(f"{task.name}: only stored programs can be replayed")
        self._asked += [(task, tuple(int(place) for place in point)) for point in points]

    def outcomes(self) -> Iterator[Outcome]:
        """What is asked for, in that order."""
        while self._asked:
            task, point = self._asked.pop(0)
            assert isinstance(task, StoredTask)
            us = float(task.us[point[0]])
            if np.isinf(us):
                yield Outcome(task.key, point, error="it failed when it was measured")
            else:
                yield Outcome(task.key, point, (us,), object=f"{task.name}:{point[0]}")

    def close(self) -> None:
        self._asked.clear()
