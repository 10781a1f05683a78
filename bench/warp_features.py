"""What the lanes of a warp do at once in measured GPU programs: columns of the set `statement`.

    warp_columns(programs, matmul(64, 96, 32), resolve("v100"))     // [n, 12]

A block's threads walk its results last axis first; each computes what lies side by side, and its virtual threads lie a whole
block of threads apart. Which banks of shared memory lanes meet in, and how many of them read the same word, decides how long
operands take to registers: Pruner (ASPLOS'25, §2.4) calls data flow what decides, and has no column for the lanes of a warp.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.bench.measured_programs import steps_of
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.features.feature_set import Table
from tilewright.compiler.tuning.features.tiled_programs import TiledPrograms
from tilewright.compiler.tuning.roller.alignment import Space
from tilewright.compiler.tuning.roller.device import Device
from tilewright.compiler.tuning.roller.options import DEFAULT
from tilewright.compiler.tuning.roller.performance import Performance
from tilewright.compiler.tuning.roller.warp_access import WarpAccess

_INPUTS = 2
"""Inputs that have columns of their own: an operator's first ones."""
_COLUMNS = (
    *((f"wavefronts of input {number}", "log2") for number in range(_INPUTS)),
    *((f"words of input {number}", "log2") for number in range(_INPUTS)),
    *((f"vector of input {number}", "elements") for number in range(_INPUTS)),
    ("wavefronts per result", "log2"), ("sectors of a store", "log2 ratio"), ("results side by side", "log2"),
    ("virtual threads of the last axis", "log2"), ("body", "log2 multiply-adds"), ("unrolled whole", "0 or 1"),
)  # fmt: skip


def warp_columns(records: Sequence[Mapping], workload: Workload, target: Target) -> Table:
    """The columns of stored programs of one operator: [n, 12]."""
    programs = TiledPrograms.of(workload, records)
    thread = np.minimum(programs.thread, np.asarray(workload.extents, dtype=np.int64))
    device = Device.of(target, workload.inputs[0].dtype)
    steps = np.asarray([steps_of(dict(record)) for record in records], dtype=np.int64)
    unpadded = np.zeros((len(programs), len(workload.inputs)), dtype=np.int64)
    warps = WarpAccess(
        Performance(Space(workload, device, DEFAULT)), programs.block, programs.thread, unpadded, steps
    )
    wavefronts, words = warps.conflicts(), warps.words()
    results = thread[:, list(workload.parallel)].astype(float).prod(axis=1)
    loaded = np.stack([o.tile_shape(thread).prod(axis=1) for o in workload.inputs], axis=1)
    body = results * programs.reduce[:, :, 1].prod(axis=1)
    vectors = np.asarray([[lanes for _, lanes in record["fetch"]][::-1] for record in records], dtype=float)
    unroll = np.asarray([record["unroll"] for record in records], dtype=float)
    columns = [
        *np.log2(_first(wavefronts)), *np.log2(_first(words)), *_first(vectors),
        np.log2((wavefronts * loaded).sum(axis=1) / results), np.log2(warps.store_waste()), np.log2(programs.lane_step),
        np.log2(programs.spatial[:, -1, 0]), np.log2(body),
        unroll >= body * programs.reduce[:, :, 0].prod(axis=1),
    ]  # fmt: skip
    names, units = zip(*_COLUMNS)
    return Table(names, units, np.stack(columns, axis=1).astype(float))


def _first(values: np.ndarray) -> np.ndarray:
    """The first inputs' values [n, inputs] as rows, ones for those that are not there: [2, n]."""
    found = np.ones((_INPUTS, len(values)))
    count = min(_INPUTS, values.shape[1])
    found[:count] = values[:, :count].T
    return found
