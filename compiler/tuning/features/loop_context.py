"""AutoTVM's features of loops (NeurIPS'18, §3.1, §4) for CPU schedules: every loop with its context, and relations between them.

    loop_context(workload, found, target)        // Steps: a row for each loop, outer loops first, statements in their order
    context_relation(workload, found, target)    // Table: the same columns for all operators

The paper names what a context holds, the length of a loop, its annotation, the bytes that it touches and how often these are
used again (§3.1, Figure 3b); the columns are ours. A candidate's first loop is that of its rTasks. What Winograd's algorithm
and attention tile inside of themselves is a loop of each size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.compiler.nouns.schedule import LOOPS
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.features.feature_set import Steps, Table
from tilewright.compiler.tuning.model.cpu_features import CpuFeatures, Part
from tilewright.compiler.tuning.model.footprints import Footprints
from tilewright.compiler.tuning.model.loop_nests import Nest
from tilewright.compiler.tuning.model.roles import axis_stride
from tilewright.compiler.tuning.model.statements import Statement, read_statements, whole_statement

OPERANDS = 3
"""Operands with columns of their own, those that the statement touches most of: beyond, they are in the sums only."""
STATEMENT = "begins a statement"
"""The column that is 1 for the outermost loop of a statement: those until the next one are inside of each other."""

_PLACES = ("of rTasks", "of the result", "of a reduction", "in registers")
_KINDS = (*LOOPS, "element")
_OF_OPERANDS = ("touched", "reuse", "step")
COLUMNS = {
    **{f"loop {place}": "0 or 1" for place in _PLACES},
    STATEMENT: "0 or 1",
    "length": "log2 steps",
    "iterations": "log2 steps",
    "points": "log2 points",
    "touched": "log2 B",
    "arithmetic": "log2 instructions",
    "loads": "log2 instructions",
    **{
        f"{name} of operand {place + 1}": {"touched": "log2 B", "reuse": "log2 times", "step": "log2 B"}[name]
        for place in range(OPERANDS)
        for name in _OF_OPERANDS
    },
    **{f"computed by {kind}": "0 or 1" for kind in _KINDS},
}
"""Of one loop: `iterations` are its own times those of the loops around it, `points` its own times those inside of it; `touched` are
distinct bytes of all of its steps, `reuse` the bytes that its points read over these, `step` what one step moves by."""

THRESHOLDS = tuple(range(4, 28, 2))
"""Binary logarithms of the thresholds of relations: 16 to 64 Mi steps, points or bytes."""
_LARGEST = ("length", "iterations", "points", "touched", "reuse of operand 1")
_BELOW = ("iterations", "points", "touched", "touched of operand 1", "touched of operand 2")


@dataclass(frozen=True)
class _Loop:
    """One loop of n schedules: its axis, -1 for none, its place, its length [n], and the tile of all of its steps [n, axes]."""

    axis: int
    place: str
    length: np.ndarray
    whole: np.ndarray


def loop_context(workload: Workload, found: CpuFeatures, target: Target) -> Steps:
    """A row for each loop of more than one step, and for the outermost of every statement."""
    count, line = len(found), target.memory[0].transaction_bytes
    blocks = [_tasks(workload, found, line)]
    for statement, part in zip(read_statements(workload), found.parts):
        footprints = Footprints(statement, workload.axes, line)
        groups = []
        for rows, nest in part.nests:
            loops = list(_loops(statement, nest, found.task[rows], part.sizes[rows]))
            groups.append((rows, _context(footprints, loops, part, rows, found["tasks"][rows])))
        slots = max(values.shape[1] for _, values in groups)
        block = np.zeros((count, slots, len(COLUMNS)))
        for rows, values in groups:
            block[rows, : values.shape[1]] = values
        blocks.append(block)
    values = np.concatenate(blocks, axis=1)
    return _kept(values, (values[:, :, _at("length")] > 0) | _begins(values))


def context_relation(workload: Workload, found: CpuFeatures, target: Target) -> Table:
    """R_t(i, j) = max over loops k with Z_kj < beta_t of Z_ki, 0 where no loop is below (§4); and the kinds of loops."""
    return relations(loop_context(workload, found, target), [f"computed by {kind}" for kind in _KINDS])


def relations(context: Steps, kinds: Sequence[str]) -> Table:
    """The same of any loops' contexts; `kinds` are columns that are the largest of all loops."""
    there = np.arange(context.values.shape[1]) < context.lengths[:, None]
    names, units, columns = [], [], []

    def column(name: str) -> np.ndarray:
        return context.values[:, :, context.names.index(name)]

    for largest in _LARGEST:
        for below in _BELOW:
            if largest == below:
                continue
            value, other = column(largest), column(below)
            for threshold in THRESHOLDS:
                columns.append(np.where(there & (other < threshold), value, 0.0).max(axis=1))
                names.append(f"largest {largest} where {below} is below 2^{threshold}")
                units.append(context.units[context.names.index(largest)])
    for kind in kinds:
        names.append(kind)
        units.append("0 or 1")
        columns.append(column(kind).max(axis=1))
    return Table(tuple(names), tuple(units), np.stack(columns, axis=1))


def _at(name: str) -> int:
    return list(COLUMNS).index(name)


def _begins(values: np.ndarray) -> np.ndarray:
    return (values[:, :, _at(STATEMENT)] > 0) | (values[:, :, _at("loop of rTasks")] > 0)


def _kept(values: np.ndarray, kept: np.ndarray) -> Steps:
    """The rows that are `kept` [n, rows], one after the other."""
    order = np.argsort(~kept, axis=1, kind="stable")
    lengths = kept.sum(axis=1)
    moved = np.take_along_axis(np.where(kept[:, :, None], values, 0.0), order[:, :, None], axis=1)
    return Steps(tuple(COLUMNS), tuple(COLUMNS.values()), moved[:, : lengths.max(initial=1)], lengths)


def _tasks(workload: Workload, found: CpuFeatures, line_bytes: int) -> np.ndarray:
    """The loop of rTasks: it touches all of the workload's operands."""
    extents = np.asarray(workload.extents, dtype=np.int64)[None].repeat(len(found), axis=0)
    loop = _Loop(-1, "of rTasks", found["tasks"], extents)
    footprints = Footprints(whole_statement(workload), workload.axes, line_bytes)
    whole = Part({name: found[name] for name in ("arithmetic", "loads")})
    values = _context(footprints, [loop], whole, np.arange(len(found)), np.ones(len(found)))
    values[:, 0, _at(STATEMENT)] = 0
    values[:, 0, _at("points")] = _log(extents.astype(float).prod(axis=1))
    return values


def _loops(statement: Statement, nest: Nest | None, task: np.ndarray, sizes: np.ndarray) -> Iterator[_Loop]:
    """The loops of one statement, inner first: those in registers, then those around them."""
    order = tuple(reversed(statement.loops)) if nest is None else nest.order
    inner = np.ones_like(task) if nest is None else np.minimum(nest.inner, task)
    tile = np.ones_like(task)
    if nest is None:
        for column in reversed(range(sizes.shape[1])):
            yield _Loop(-1, "in registers", sizes[:, column], tile.copy())
    rest = [axis for axis in range(task.shape[1]) if axis not in order and (inner[:, axis] > 1).any()]
    for axis in dict.fromkeys((*order, *rest)):
        if (inner[:, axis] > 1).any():
            tile[:, axis] = inner[:, axis]
            yield _Loop(axis, "in registers", inner[:, axis], tile.copy())
    reached = ((axis, task[:, axis]) for axis in order) if nest is None else nest.reached(task)
    for axis, extent in reached:
        length = np.ceil(extent / np.maximum(tile[:, axis], inner[:, axis]))
        tile[:, axis] = extent
        place = "of a reduction" if axis in statement.reduction else "of the result"
        yield _Loop(axis, place, length, tile.copy())


def _context(
    footprints: Footprints, loops: list[_Loop], part: Part, rows: np.ndarray, tasks: np.ndarray
) -> np.ndarray:
    """The columns of loops that are given inner first, outer first: [rows, loops, columns]."""
    operands = footprints.operands
    extents = np.asarray([axis.extent for axis in footprints.axes], dtype=np.int64)[None]
    largest = np.argsort(-footprints.geometry.nbytes(extents)[0], kind="stable")[:OPERANDS]
    values = np.zeros((len(rows), max(1, len(loops)), len(COLUMNS)))

    def put(slot: int, name: str, column: np.ndarray | float) -> None:
        values[:, slot, _at(name)] = column

    points, inside = np.ones(len(rows)), np.ones(len(rows))
    whole = tasks.astype(float)
    for loop in loops:
        whole = whole * loop.length
    for number, loop in enumerate(loops):
        slot = len(loops) - 1 - number
        inside = points
        points = points * loop.length
        touched = footprints.geometry.nbytes(loop.whole).astype(float)
        put(slot, f"loop {loop.place}", 1.0)
        put(slot, "length", np.log2(np.maximum(loop.length, 1)))
        put(slot, "iterations", _log(whole / inside))
        put(slot, "points", _log(points))
        put(slot, "touched", _log(touched.sum(axis=1)))
        put(slot, "arithmetic", _log(part.counts["arithmetic"][rows]))
        put(slot, "loads", _log(part.counts["loads"][rows]))
        for place, column in enumerate(largest):
            operand, nbytes = operands[column], np.maximum(touched[:, column], 1.0)
            put(slot, f"touched of operand {place + 1}", _log(nbytes))
            put(slot, f"reuse of operand {place + 1}", _log(points * operand.element_bytes / nbytes))
            if loop.axis >= 0:
                step = abs(axis_stride(operand, loop.axis)) * operand.element_bytes
                put(slot, f"step of operand {place + 1}", _log(np.full(len(rows), float(step))))
        for kind in _KINDS if len(part.kind) else ():
            put(slot, f"computed by {kind}", part.kind[rows] == kind)
    values[:, 0, _at(STATEMENT)] = 1.0
    return values


def _log(values: np.ndarray) -> np.ndarray:
    return np.log2(1 + np.maximum(values, 0.0))
