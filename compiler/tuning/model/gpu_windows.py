"""How kernels of windows deal results out: neighbours along a loop that windows slide over to a thread, lanes along the last loop.

pooling [64, 56, 56] of 3 x 3, stride 2, thread (2, 4): 9 x 5 elements of the image loaded by a thread for 2 x 4 results

A thread loads an element that several of its windows share once, keeps the sums of all of its results until it stores
them, and those elements that its next result needs again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from tilewright.compiler.nouns.schedule import WARP, GpuTile
from tilewright.compiler.nouns.workload import Operand, Workload
from tilewright.compiler.tuning.model.deal import Deal, column, once_for_each, ones
from tilewright.compiler.tuning.model.gemm_shape import ACCESS_BYTES
from tilewright.compiler.tuning.model.instructions import DIVISION
from tilewright.compiler.tuning.model.roles import axis_stride
from tilewright.compiler.tuning.model.statements import Statement, read_statements

MOST_FLYING = 8
"""Accesses of a thread that are under way together."""
_WRITTEN_TAPS = 64
"""Points of windows that are written out. Those of larger ones are loaded for each result on its own."""
_WORD = 4
"""Bytes of a register; shorter elements take one each."""
_BASE = 14
"""Registers of a thread for its number, addresses and predicates; this one, `_HELD` and `_AHEAD` from some 600 kernels that
were assembled for sm_70, sm_80 and sm_90a (`test_registers_of_windows_rank_as_the_assembler_counts_them`)."""
_HELD = 0.25
"""The part of what several results of a thread need again that stays in registers; the assembler loads the rest again."""
_AHEAD, _MOST_AHEAD = 0.75, 16
"""Registers of elements that are loaded ahead of their use."""
_SPILL_BASE = 24


def sliding_axis(workload: Workload) -> int | None:
    """The innermost loop of results, but for that of lanes, which windows slide along: a thread has neighbours there."""
    reduced = frozenset(workload.reduction)
    moving = set()
    for operand in workload.inputs:
        for index in operand.index_map:
            variables = {term.variable for term in index.terms}
            if variables & reduced:
                moving |= variables - reduced
    inner = [a for a in workload.parallel[:-1] if workload.extents[a] > 1 and a in moving]
    return inner[-1] if inner else None


def windows(workload: Workload, tiles: Sequence[GpuTile]) -> Deal:
    """Tiles of neighbours, numbered in the order of results; threads beyond the last tile compute it once more."""
    one, axes, slides = ones(tiles), workload.parallel, sliding_axis(workload)
    points = math.prod(workload.extents[a] for a in axes)
    threads, vector, size = column(tiles, "threads"), column(tiles, "vector"), column(tiles, "thread", 0)
    blocks = -(-(points // (vector * size)) // threads)

    def boxes(count: np.ndarray, along: np.ndarray) -> np.ndarray:
        """The results of so many lanes [n, axes], and all of the windows' points."""
        found = _boxes(workload, slides, count, along)
        found[:, list(workload.reduction)] = [workload.extents[a] for a in workload.reduction]
        return found

    box = boxes(np.minimum(threads * vector, points // size), size)
    own, alone = boxes(vector, size), boxes(vector, one)
    most = max(1, ACCESS_BYTES // max(o.element_bytes for o in workload.operands))

    def at_once(lanes: int, along: int) -> np.ndarray:
        flat = (np.arange(WARP)[:, None] * lanes + np.arange(min(lanes, most))).reshape(-1)
        return _points(workload, slides, flat % max(1, points // along), along)

    lanes = once_for_each(at_once, vector, size)
    found = Deal(blocks, box, vector, size, one, lanes, lanes, 0 * one, one, one.astype(float))
    found.computed = blocks * threads * vector * size / max(1, points)
    found.fma = sum(map(partial(_operations, workload), read_statements(workload))) * found.computed
    taps = math.prod(workload.extents[a] for a in workload.reduction)
    is_written = taps <= _WRITTEN_TAPS
    # Lanes that go on in the next row are loaded one by one, and stored so where neighbours lie between.
    inner = axes[-1] if axes else None
    straddles = (workload.extents[inner] if inner is not None else 1) % vector != 0
    loads, nbytes = np.zeros(len(tiles)), np.zeros(len(tiles))
    inputs, again, shared = np.zeros(len(tiles)), np.zeros(len(tiles)), np.zeros(len(tiles))
    for operand in workload.inputs:
        elements = _elements(operand, own if is_written else alone)
        if not is_written and operand.axes & frozenset(workload.reduction):
            elements = 1.0 * taps * np.minimum(elements, vector)
        apart = _elements(operand, boxes(one, size)) * np.where(inner in operand.axes, vector, 1)
        words = max(1, operand.element_bytes // _WORD)
        wide = elements / _access(workload, operand, vector, slides, size, own)
        loads += np.where(straddles, np.maximum(apart, elements), wide)
        nbytes += elements * operand.element_bytes
        if slides in operand.axes:
            inputs += words * elements
            step = _elements(operand, boxes(vector, 2 * one)) - _elements(operand, alone)
            shared += words * np.maximum(_elements(operand, alone) - step, 0)
        else:
            again += words * elements
    if not is_written:
        again, shared = 0 * again, 0 * shared
    sums = size * vector * max(1, workload.output.element_bytes // _WORD)
    several = size > 1
    most_stored = max(1, ACCESS_BYTES // workload.output.element_bytes)
    stores = size * vector / np.where(straddles & several, 1, np.gcd(vector, most_stored))
    found.registers = np.ceil(
        _BASE + sums + several * _HELD * again + _AHEAD * np.minimum(inputs, _MOST_AHEAD)
    ).astype(np.int64)
    # Stores come last, and elements stay for the thread's next results: an assembler with fewer registers spills some.
    found.needed = np.ceil(_SPILL_BASE + sums + several * (again + shared)).astype(np.int64)
    index = DIVISION * len(axes)
    found.issued = blocks * threads * (loads + stores + index)
    found.flying = threads * np.minimum(nbytes, MOST_FLYING * nbytes / np.maximum(loads, 1))
    return found


def _boxes(workload: Workload, slides: int | None, count: np.ndarray, along: np.ndarray) -> np.ndarray:
    """Sizes [n, axes] of `count` neighbouring lanes, each with `along` results of the loop that windows slide over."""
    axes = workload.parallel
    box = np.ones((len(count), len(workload.axes)), dtype=np.int64)
    left = np.maximum(count, 1)
    for axis in reversed(axes):
        each = along if axis == slides else np.ones_like(along)
        lanes = np.maximum(workload.extents[axis] // each, 1)
        box[:, axis] = np.minimum(left, lanes) * each
        left = -(-left // lanes)
    return box


def _points(workload: Workload, slides: int | None, flat: np.ndarray, along: int) -> np.ndarray:
    """The first results [len(flat), axes] of tiles by their numbers."""
    points = np.zeros((len(flat), len(workload.axes)), dtype=np.int64)
    left = flat
    for axis in reversed(workload.parallel):
        each = along if axis == slides else 1
        lanes = max(1, workload.extents[axis] // each)
        points[:, axis] = left % lanes * each
        left = left // lanes
    return points


def _elements(operand: Operand, boxes: np.ndarray) -> np.ndarray:
    """Elements of an operand that boxes [n, axes] touch: [n]."""
    return operand.tile_bytes(boxes) / operand.element_bytes


def _operations(workload: Workload, statement: Statement) -> float:
    """Instructions of a statement's arithmetic, of all points; a product and the sum that takes it are one."""
    names = [op.name for op in statement.arithmetic if op.dialect != "math" or op.name in ("absf", "fma")]
    count = len(names) - min(names.count("mulf"), names.count("addf"))
    return float(math.prod(workload.extents[a] for a in statement.loops) * count)


def _access(
    workload: Workload,
    operand: Operand,
    vector: np.ndarray,
    slides: int | None,
    size: np.ndarray,
    boxes: np.ndarray,
) -> np.ndarray:
    """Elements that are used of one access of a thread: up to 16 bytes of neighbours, where they begin at multiples of that."""
    most = max(1, ACCESS_BYTES // operand.element_bytes)
    last = operand.index_map[-1] if operand.index_map else None
    if last is None:
        return np.ones(len(vector))
    inner = workload.parallel[-1] if workload.parallel else -1
    starts = np.full(len(vector), most)
    for axis in workload.parallel:
        step = axis_stride(operand, axis) * (vector if axis == inner else size if axis == slides else 1)
        starts = np.gcd(starts, step)
    if not any(term.variable in workload.reduction for term in last.terms):
        return np.where(axis_stride(operand, inner) == 1, np.gcd(vector, starts), 1).astype(float)
    # Windows take neighbours in memory: rows come in as whole vectors, wherever a row begins in one.
    row = operand.tile_shape(boxes)[:, -1]
    offsets = np.arange(most) * operand.shape[-1] % most
    vectors = np.mean([-(-(row + offset) // most) for offset in offsets], axis=0)
    return np.where(starts % most == 0, row / vectors, 1.0)
