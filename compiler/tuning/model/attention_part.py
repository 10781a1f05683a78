"""Attention on a CPU, for many cuts at once: instructions of its two products and its softmax, and what they load.

For a group of queries along the lanes, `families/cpu/attention_loops.py` goes over blocks of keys: scores are register tiles
of keys x vectors, results of values x vectors, with exponentials in between (T. Dao, "FlashAttention-2", 2023, §3.1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.compiler.nouns.attention_cut import rows_in_flight
from tilewright.compiler.targets.target import MemoryLevel
from tilewright.compiler.tuning.model.arithmetic import IN_FLIGHT
from tilewright.compiler.tuning.model.loop_nests import COUNTS, Cut
from tilewright.compiler.tuning.model.roles import attention_loops
from tilewright.compiler.tuning.model.statements import Statement

_EXPONENTIAL = 16
"""Instructions on a vector of scores: scaling, the maximum, the difference, its exponential, and their sum."""


def pieces(statements: Sequence[Statement], sizes: Mapping[int, np.ndarray]) -> np.ndarray:
    """How many rTasks the attention of a workload is cut into: [n]."""
    (number,) = (n for n, s in enumerate(statements) if s.label == "attention")
    heads, queries, *_ = attention_loops(statements[number])
    return heads * -(-queries // sizes[number][:, 0])


def part(
    cut: Cut, caches: Sequence[MemoryLevel]
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """Counts of one rTask, and bytes into every cache by operand."""
    s, lanes, registers = cut.statement, cut.lanes, cut.target.registers_per_thread
    _, _, keys, inner, width = attention_loops(s)
    queries, vectors, block, held = (cut.sizes[:, i] for i in range(4))
    found = {name: np.zeros(len(cut)) for name in COUNTS}
    item = s.result.element_bytes
    # Later queries see more keys: half of them on average, and the block on the diagonal whole.
    seen = np.minimum(keys, (keys + block) / 2) if "causal" in s.text else np.full(len(cut), float(keys))
    passes = np.zeros(len(cut))
    scratch = np.zeros(len(cut))
    for count, wide in _groups(queries, vectors, lanes):
        for extent, steps, total in ((block, inner, seen), (np.full_like(block, width), None, seen)):
            flight = _in_flight(extent, wide, np.minimum(held, 1 << 16))
            tiles = np.ceil(extent / flight)
            if steps is None:
                # Of every block, results are loaded, scaled and stored again.
                blocks, depth = np.ceil(total / block), block
                found["stores"] += count * blocks * width * wide
                found["arithmetic"] += count * blocks * width * wide
            else:
                blocks, depth = np.ceil(total / block), np.full(len(cut), float(steps))
                found["stores"] += count * blocks * block * wide
            sums = flight * wide
            work = count * blocks * tiles * depth
            found["arithmetic"] += work * sums
            found["stalled"] += work * np.maximum(0, IN_FLIGHT - sums)
            found["loads"] += work * (flight + wide)
            needed = sums + np.minimum(flight, wide) + 1
            found["spilled"] += work * np.clip(needed - registers, 0, None) * (count > 0)
            found["starts"] += count * blocks * tiles
            found["registers"] = np.maximum(found["registers"], np.where(count > 0, needed, 0))
        found["arithmetic"] += count * seen * wide * _EXPONENTIAL
        found["loads"] += 2 * count * seen * wide
        # Queries are turned to lie along lanes, results back.
        found["shuffles"] += count * wide * (inner + width) * np.log2(lanes)
        passes += count
        scratch = np.maximum(scratch, np.where(count > 0, (block + inner + width) * wide * lanes * item, 0))
    found["useful"] = queries * seen * (inner + width + _EXPONENTIAL) / lanes
    names = [o.name for o in s.reads[:3]]
    sizes = (queries * inner * item, seen * inner * item, seen * width * item)
    traffic = {}
    for level in caches:
        kept = sum(sizes) + scratch <= level.capacity_bytes / 2 / max(1, level.shared_by)
        again = np.where(kept, 1.0, passes)
        spills = np.where(
            scratch > level.capacity_bytes / 2, passes * scratch * 2 * np.ceil(seen / block), 0.0
        )
        traffic[level.name] = {
            names[0]: np.broadcast_to(sizes[0], (len(cut),)) * 1.0,
            names[1]: sizes[1] * again,
            names[2]: sizes[2] * again,
            s.result.name: 2.0 * queries * width * item + spills,
        }
    return found, traffic


def _groups(queries: np.ndarray, vectors: np.ndarray, lanes: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """`AttentionCut.groups` of many cuts: (count, vectors) of the even groups, and of the last one."""
    total = -(-queries // lanes)
    full, rest = total // vectors, total % vectors
    joins = (rest == 1) & (full > 0)
    full, rest = full - joins, np.where(joins, vectors + 1, rest)
    return [(full, vectors), ((rest > 0).astype(np.int64), np.maximum(rest, 1))]


def _in_flight(extent: np.ndarray, vectors: np.ndarray, registers: np.ndarray) -> np.ndarray:
    """`rows_in_flight` of many tiles."""
    table, inverse = np.unique(np.stack([extent, vectors, registers], axis=1), axis=0, return_inverse=True)
    found = np.asarray([rows_in_flight(*row) for row in table.tolist()], dtype=np.int64)
    return found[inverse.reshape(-1)]
