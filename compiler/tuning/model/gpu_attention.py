"""Fused attention on a GPU, for many schedules at once: blocks of queries that stream keys and values through shared memory.

Shared memory is counted as kernels lay it out; times are those of `attention_tiles`, which constructs the same kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.nouns.attention_cut import AttentionShape
from tilewright.compiler.nouns.schedule import GpuTile
from tilewright.compiler.nouns.workload import Operand, Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.model.attention_time import AttentionBlock, AttentionTime, predict_block
from tilewright.compiler.tuning.model.gemm_resources import MMA_REGISTERS, SIMT_REGISTERS
from tilewright.compiler.tuning.model.gemm_shape import ACCESS_BYTES
from tilewright.compiler.tuning.model.gpu_kernel import (
    GpuKernel,
    GpuLoop,
    Movement,
    by_movements,
    run_share,
    standing,
    traffic,
)
from tilewright.compiler.tuning.model.gpu_staging import Sizes
from tilewright.compiler.tuning.model.gpu_streams import named_operands
from tilewright.compiler.tuning.model.roles import attention_loops
from tilewright.compiler.tuning.model.statements import read_statements

_PANEL, _ROW_BYTES, _BARRIERS_BYTES = 64, 128, 32
"""Of kernels of warpgroups: elements of a panel's row, its bytes, and the four barriers of a stage."""
_LANES = 16
"""Lanes that share a row of queries where there are no matrix instructions."""
_EXPONENTIALS = 1.0
"""Functions of special units for each score."""


def attention_kernel(workload: Workload, kind: str, tiles: Sequence[GpuTile], target: Target) -> GpuKernel:
    """n schedules of the kind "simt", "mma" or "wgmma"."""
    (statement,) = (s for s in read_statements(workload) if s.label == "attention")
    heads, queries, keys, inner, width = attention_loops(statement)
    causal = "causal" in statement.text
    sizes = Sizes(tiles)
    rows, columns, stages = sizes.column("block", 0), sizes.column("block", 1), sizes.column("stages")
    threads = sizes.column("threads")
    operands = named_operands(workload)
    # Queries, keys and values may be parts of one tensor.
    names = tuple(o.name for o in statement.reads[:3])
    known = {o.name for o in operands}
    if len(names) < 3 or not known.issuperset(names):
        raise ScheduleError(
            f"features of `{workload.op}` on a GPU: queries, keys and values are computed in the dispatch, of which nothing is known"
        )
    dtype, item = statement.reads[0].dtype, statement.reads[0].element_bytes
    shared, registers = _needs(kind, rows, columns, stages, threads, inner, width, item)
    blocks = heads * -(-queries // rows)
    found = standing(target, blocks, blocks, threads, registers, shared)
    # Later queries see more keys: half of them on average.
    part = np.where(causal & (queries > rows), 0.5, 1.0)
    steps = np.ceil(keys / columns) * part
    seen = steps * columns
    products = blocks * rows * seen * (inner + width)
    scores = blocks * rows * seen
    unit = {"simt": "fma", "mma": "mma", "wgmma": "wgmma"}[kind]
    ones = np.ones(len(tiles))
    found |= {
        f"arithmetic.{name}": products if name == unit else 0 * ones for name in ("fma", "mma", "wgmma")
    }
    # Beside its products a score takes a scale, a maximum, a difference, a sum and a conversion.
    found["arithmetic.fma"] = found["arithmetic.fma"] + 5 * scores
    found["arithmetic.special"] = _EXPONENTIALS * scores
    needed = heads * float(queries) * keys * (inner + width) * (0.5 if causal else 1.0)
    out = operands[-1]
    moves = [_move("shared", names[0], rows * inner * item, ones, inner * item, 0)]
    moves += [
        _move("shared", name, columns * extent * item, steps, extent * item, stages > 1)
        for name, extent in ((names[1], inner), (names[2], width))
    ]
    warps = np.maximum(1, threads // 32 - (4 if kind == "wgmma" else 0))
    own = np.maximum(1, rows // warps) if kind != "simt" else np.maximum(1, rows * _LANES // threads)
    read = [
        rows * inner * item * (steps if kind == "simt" else ones),
        columns * inner * item * steps * rows / own,
        columns * width * item * steps * rows / own,
    ]
    for name, nbytes in zip(names, read):
        moves.append(_move("registers", name, nbytes / np.maximum(steps, 1), steps, 0, 0))
    others = [o for o in operands[:-1] if o.name not in names]
    for operand in others:
        moves.append(_move("registers", operand.name, operand.nbytes / blocks, ones, 128, 0))
    moves.append(_move("global", out.name, rows * width * item, ones, width * item, 0))
    rest = {o.name: ones * o.nbytes for o in others}
    l2 = [blocks * rows * inner * item * ones, blocks * seen * inner * item, blocks * seen * width * item]
    result = {out.name: ones * out.nbytes}
    found |= traffic(
        {
            "DRAM": {o.name: ones * o.nbytes for o in operands},
            "L2": _summed(names, l2) | rest | result,
            "shared": _summed(names, [blocks * nbytes for nbytes in read]),
        },
        len(tiles),
    )
    lanes = {"simt": 1, "mma": 16 * 8 * 16 / 32, "wgmma": 64 * 16}[kind]
    found |= {
        "computed": products / max(1.0, needed),
        "instructions": (products / (32 * lanes) + 12 * scores / 32) * ones,
        "steps": steps,
        "stages": stages.astype(float),
        "flying": columns * (inner + width) * item * np.maximum(stages - 1, 1.0),
        "split": ones,
        "cluster": ones,
        "raster": ones,
        "conflicts": ones,
        "footprint": (rows * (inner + width) + seen * (inner + width)) * item,
    }
    found |= by_movements(moves, blocks)
    shape = AttentionShape(heads, queries, keys, inner, width, causal)
    resident = found["resident"].astype(np.int64)
    times: dict[tuple[int, ...], AttentionTime] = {}
    predicted = []
    for key in zip(rows.tolist(), columns.tolist(), warps.tolist(), resident.tolist()):
        if key not in times:
            times[key] = predict_block(shape, AttentionBlock(kind, *key), dtype, target)
        predicted.append(times[key])
    parts = {name: np.asarray([t.parts_us[name] for t in predicted]) for name in predicted[0].parts_us}
    us = np.asarray([t.us for t in predicted])
    loops = _loops(sizes, operands, names, item, (heads, queries, keys, inner, width), own, steps)
    return GpuKernel(tuple(o.name for o in operands), found, moves, loops, us, parts, dtype)


def _summed(names: Sequence[str], values: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """By operand, the sum of what its parts have."""
    found: dict[str, np.ndarray] = {}
    for name, own in zip(names, values):
        found[name] = found.get(name, np.zeros(len(own))) + own
    return found


def _move(
    into: str, name: str, nbytes: np.ndarray, times: np.ndarray, run: float, deferred: np.ndarray | int
) -> Movement:
    ones = np.ones(len(times))
    share = run_share(ones * run) if run else ones
    return Movement(
        into,
        name,
        nbytes * ones,
        times * ones,
        ones * run,
        share,
        ones * ACCESS_BYTES,
        ones,
        ones * deferred,
    )


def _needs(
    kind: str,
    rows: np.ndarray,
    columns: np.ndarray,
    stages: np.ndarray,
    threads: np.ndarray,
    inner: int,
    width: int,
    item: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Shared bytes of a block and registers of a thread: [n] each."""
    if kind == "wgmma":
        panels, wide = -(-inner // _PANEL), -(-width // _PANEL)
        shared = max(panels, wide) * rows * _ROW_BYTES
        shared = shared + stages * ((panels + wide) * columns * _ROW_BYTES + _BARRIERS_BYTES)
        return shared, np.minimum(65536 // threads // 8 * 8, 255)
    if kind == "mma":
        deep, wide = -(-inner // 16) * 16, -(-width // 16) * 16
        pitches = [n if n // 8 & (n // 8 - 1) == 0 else n + 8 for n in (deep, wide)]
        shared = 2 * (rows * pitches[0] + stages * columns * (pitches[0] + pitches[1]))
        fragments = rows // 16 // (threads // 32)
        return shared, fragments * (columns + pitches[1]) // 2 + fragments * pitches[0] // 4 + MMA_REGISTERS
    size = max(4, item)
    step = ACCESS_BYTES // size
    deep, wide = -(-inner // 8) * 8, -(-width // _LANES) * _LANES
    elements = rows * (deep + step) + stages * columns * (deep + step + wide) + rows * (columns + step)
    own, across = rows * _LANES // threads, columns // _LANES
    sums = own * (across + wide // _LANES + 2)
    return size * elements, (sums + step * (own + across)) * size // 4 + SIMT_REGISTERS


def _loops(
    sizes: Sizes,
    operands: Sequence[Operand],
    names: Sequence[str],
    item: int,
    extents: tuple[int, int, int, int, int],
    own: np.ndarray,
    steps: np.ndarray,
) -> list[GpuLoop]:
    """The loops of blocks along heads and queries, of blocks of keys, of threads and of one thread, outer ones first."""
    heads, queries, keys, inner, width = extents
    rows, columns = sizes.column("block", 0), sizes.column("block", 1)
    ones = np.ones(len(rows))
    depth = float(inner + width)

    def touched(h: np.ndarray, m: np.ndarray, n: np.ndarray) -> np.ndarray:
        m, n = np.minimum(m, queries), np.minimum(n, keys)
        own = _summed(names, [h * m * inner * item, h * n * inner * item, h * n * width * item])
        rest = {o.name: o.nbytes / (heads * queries) * h * m for o in operands if o.name not in own}
        return np.stack([(own | rest)[o.name] for o in operands], axis=1)

    levels = [
        ("of blocks", ones * heads, (ones * heads, ones * queries, ones * keys)),
        ("of blocks", np.ceil(queries / rows), (ones, ones * queries, ones * keys)),
        ("of steps", steps, (ones, rows * ones, ones * keys)),
        ("of threads", rows / own, (ones, rows * ones, columns * ones)),
        ("in registers", own * columns * ones, (ones, own * ones, columns * ones)),
    ]
    points, found = ones * depth, []
    for place, length, size in reversed(levels):
        points = points * length
        found.append(GpuLoop(place, np.maximum(length, 1.0), points, touched(*size)))
    return found[::-1]
