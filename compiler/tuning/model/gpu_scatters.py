"""How kernels of scatters deal keys out to blocks: each copies its part of the target, and goes through all updates.

scatter, block (5,), 256 threads   =>   5 of 1000 keys a block; every thread compares every key, those of a slice update it

Instructions are counted in the PTX of the kernels (`families/elementwise/scatter.py`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.nouns.quasi_affine import QuasiAffine
from tilewright.compiler.nouns.schedule import WARP, GpuTile
from tilewright.compiler.nouns.workload import Operand, Workload
from tilewright.compiler.tuning.model.deal import Deal, column, ones
from tilewright.compiler.tuning.model.instructions import DEPENDENT_CYCLES
from tilewright.compiler.tuning.model.statements import Statement, operand_shapes, read_statements

_KEYS = 1024
"""Keys that lie in shared memory at once, 4 bytes each."""
_DIMENSIONS = re.compile(r"\d+")
_KEY_BYTES, _WAVEFRONT_BYTES = 4, 128
_COPIED = 8
"""Instructions that copy an element of the target."""
_FETCHED = 8
"""Instructions that bring an index to its place in shared memory, clamped into the target."""
_COMPARED, _COMPARED_CHAIN = 5, 3
"""Instructions that a thread has for every update: load, difference, comparison, branch, its share of the loop; those of them that
wait for each other."""
_UPDATED = 14
"""Instructions of an element of an update that hits."""
_REGISTERS = 22
"""Registers of a thread: 12 to 34, as assembled for sm_80."""


def scatters(workload: Workload, tiles: Sequence[GpuTile]) -> Deal:
    """Blocks of keys. Updates are taken to hit all keys alike."""
    statement, one = _scatter(workload), ones(tiles)
    target, (updates, indices) = workload.output, operand_shapes(statement, workload)[:2]
    depth = len(_DIMENSIONS.findall(statement.text.partition("array<i64")[2].partition(">")[0]))
    count = max((named[1] or (1,))[0] for named in (updates, indices))
    shape, name = target.shape, indices[0]
    keys, slice_ = max(1, math.prod(shape[:depth])), max(1, math.prod(shape[depth:]))
    own, threads = np.minimum(column(tiles, "block", 0), keys), column(tiles, "threads")
    blocks, chunks = -(-keys // own), -(-count // _KEYS)
    warps = threads / WARP
    lanes = [_points(workload, updates[1], target)] * len(tiles)
    box = _box(workload, target, own * slice_)
    each = np.maximum(1, own * slice_ // threads)
    found = Deal(blocks, box, one, np.minimum(each, 4), one, lanes, lanes, one * 4 * _KEYS, one, 1.0 * one)
    found.computed = blocks * own / keys
    hits = 1.0 * count * slice_
    operations = max(1, len(statement.arithmetic))
    found.fma = hits * operations * one
    # A warp that has a part of an update's slice goes through it whole.
    touched_lanes = count * np.ceil(slice_ / WARP) * WARP
    found.issued = (
        blocks * (own * slice_ * _COPIED + count * depth * _FETCHED + threads * count * _COMPARED)
        + touched_lanes * _UPDATED
    )
    of_warp = np.minimum(1.0, max(slice_, WARP) / threads) * np.ceil(slice_ / threads)
    found.turns = count * own / keys * of_warp
    found.waits = count + 2.0 * chunks * one
    found.cycles = DEPENDENT_CYCLES * _COMPARED_CHAIN * count * one
    found.flying = threads * target.element_bytes
    found.registers = _REGISTERS * one
    # All lanes of a warp read one key, which takes a wavefront as any access of theirs does.
    compared = blocks * warps * count * _WAVEFRONT_BYTES
    compared = compared + blocks * count * _KEY_BYTES
    found.through_shared = {name if name.startswith("in") else "out": compared}
    for number, operand in enumerate(workload.inputs):
        found.touched[f"in{number}"] = operand.nbytes / blocks
        if f"in{number}" == name:
            found.passes[name] = blocks
    # An element that is hit is read and written once more.
    found.touched["out"] = workload.output.nbytes / blocks
    found.passes["out"] = 1 + 2 * hits * workload.output.element_bytes / max(1, workload.output.nbytes) * one
    return found


def _scatter(workload: Workload) -> Statement:
    """The statement that scatters: what computes its updates may stand before it."""
    found = next((s for s in read_statements(workload) if s.label == "scatter"), None)
    if found is None:
        raise ScheduleError(
            f"features of `{workload.op}` on a GPU: gpu.kernel is scatter, but nothing is scattered"
        )
    return found


def _points(workload: Workload, updates: tuple[int, ...], target: Operand) -> np.ndarray:
    """The points [lanes, axes] where a warp copies neighbours, and applies neighbours of one update."""
    found = np.zeros((WARP, len(workload.axes)), dtype=np.int64)
    for operand in workload.operands:
        if operand.shape not in (updates, target.shape):
            # Threads bring neighbouring indices into shared memory.
            continue
        left = np.arange(WARP) % max(1, math.prod(operand.shape))
        for variable, extent in _digits(workload, operand.index_map):
            found[:, variable] = left % extent
            left = left // extent
    for operand in workload.operands:
        if operand.shape not in (updates, target.shape) and operand.shape:
            left = np.arange(WARP) % operand.shape[0]
            for variable, extent in _digits(workload, operand.index_map[:1]):
                found[:, variable] = left % extent
                left = left // extent
    return found


def _box(workload: Workload, target: Operand, elements: np.ndarray) -> np.ndarray:
    """The points of a block: a run of the target's elements, and all updates: [n, axes]."""
    found = np.tile(np.asarray(workload.extents, dtype=np.int64), (len(elements), 1))
    for operand in (o for o in workload.operands if o.shape == target.shape):
        left = np.maximum(elements, 1)
        for variable, extent in _digits(workload, operand.index_map):
            found[:, variable] = np.minimum(left, extent)
            left = -(-left // extent)
    return found


def _digits(workload: Workload, indices: Sequence[QuasiAffine]) -> list[tuple[int, int]]:
    """The axes that number the elements of an operand, and their extents, the fastest first; lines have two in a dimension."""
    found = []
    for index in reversed(indices):
        terms = sorted(index.terms, key=lambda term: term.scale)
        found += [(term.variable, workload.axes[term.variable].extent) for term in terms]
    return found
