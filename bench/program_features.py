"""The sets `statement` and `data-flow` of measured GPU programs, for models that read the same sets of CPU schedules.

    statement(operator)     // [n, 33]: tile sizes, what a block and a thread keep and load, how a device's cores are filled;
                            // `warp_features` has the rest of the set
    data_flow(operator)     // [n, 2 x inputs + 2, 18]: each movement between memories, in the order of time

A block loads a tile of each input into shared memory, a thread what it multiplies into registers, computes, and stores its
results: Pruner (ASPLOS'25, §2.4) has a sequence of such movements with 23 columns that it does not name; these are ours.
Tiles of inputs are read off the workload's accesses, never off the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.compiler.nouns.workload import Operand, Workload
from tilewright.compiler.targets.target import Target
from tilewright.compiler.tuning.features.feature_set import Steps, Table, joined_tables

_TRANSACTION_BYTES = 32
"""What a warp's access of global memory is cut into. Source: CUDA C++ Best Practices Guide, "Coalesced Access"."""

_FLOW = (
    ("into shared memory", "0 or 1"), ("into registers", "0 or 1"), ("arithmetic", "0 or 1"),
    ("into global memory", "0 or 1"), ("operand", "number"), ("bytes of all blocks", "log2 B"),
    ("bytes of a block", "log2 B"), ("bytes at once", "log2 B"), ("times", "log2"), ("run", "log2 B"),
    ("transactions used", "share"), ("vector", "elements"), ("arithmetic per byte", "log2 flop per B"),
    ("threads", "log2"), ("lanes used", "share"), ("share of its memory", "log2"), ("blocks per core", "log2"),
    ("last wave", "share"),
)  # fmt: skip
_STATEMENT = (
    ("registers", "log2"), ("registers over limit", "log2"), ("shared over capacity", "log2"),
    ("blocks at once", "log2"), ("waves", "log2"), ("last wave", "share"), ("warps of a core", "log2"),
    ("flops of a thread", "log2"), ("flops per shared byte", "log2"), ("flops per global byte", "log2"),
    ("least run", "log2 B"), ("least transactions used", "share"), ("padded", "log2 ratio"),
    ("limit of flops", "log2 us"), ("limit of bytes", "log2 us"),
)  # fmt: skip


@dataclass(frozen=True)
class Tiling:
    """The programs of one operator as arrays: tiles of a block with one fetch, and of a thread with one step: [n, axes]."""

    programs: Sequence[Mapping]
    workload: Workload
    target: Target

    @cached_property
    def spatial(self) -> np.ndarray:
        return np.asarray([[tiles for _, tiles in p["spatial"]] for p in self.programs], dtype=np.int64)

    @cached_property
    def reduce(self) -> np.ndarray:
        return np.asarray([[tiles for _, tiles in p["reduce"]] for p in self.programs], dtype=np.int64)

    @cached_property
    def block(self) -> np.ndarray:
        tiles = np.concatenate([self.spatial.prod(axis=2), self.reduce.prod(axis=2)], axis=1)
        return np.minimum(tiles, np.asarray(self.workload.extents))

    @cached_property
    def thread(self) -> np.ndarray:
        own = self.spatial[:, :, [0, 2, 3]].prod(axis=2)
        return np.minimum(
            np.concatenate([own, self.reduce[:, :, 1]], axis=1), np.asarray(self.workload.extents)
        )

    @cached_property
    def counts(self) -> np.ndarray:
        """Blocks, fetches of each block, and steps of a thread in each fetch: [n, 3]."""
        extents, parallel = np.asarray(self.workload.extents), list(self.workload.parallel)
        tiles = np.concatenate([self.spatial.prod(axis=2), self.reduce.prod(axis=2)], axis=1)
        times = -(-extents // tiles)
        others = list(self.workload.reduction)
        steps = self.reduce[:, :, 0].prod(axis=1)
        return np.stack([times[:, parallel].prod(axis=1), times[:, others].prod(axis=1), steps], axis=1)

    @cached_property
    def threads(self) -> np.ndarray:
        return self.spatial[:, :, 1].prod(axis=1).astype(float)

    @cached_property
    def lanes_used(self) -> np.ndarray:
        warps = np.ceil(self.threads / self.target.warp_size)
        return self.threads / (warps * self.target.warp_size)

    @cached_property
    def waves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Blocks that a core runs at once, waves of them, and the share of the last wave that is filled: [n] each."""
        target, warps = self.target, np.ceil(self.threads / self.target.warp_size)
        room = [
            np.full(len(self.programs), target.core_blocks or 16),
            (target.core_threads or 2048) / (warps * target.warp_size),
            (target.core_shared_bytes or target.level("shared").capacity_bytes)
            / np.maximum(self.shared_bytes, 1),
            target.level("registers").capacity_bytes / (4 * (self.registers + 16) * warps * target.warp_size),
        ]
        at_once = np.maximum(np.floor(np.min(room, axis=0)), 1)
        waves = self.counts[:, 0] / (at_once * target.num_cores)
        return at_once, waves, waves / np.ceil(waves)

    @cached_property
    def shared_bytes(self) -> np.ndarray:
        return np.sum([operand.tile_bytes(self.block) for operand in self.workload.inputs], axis=0)

    @cached_property
    def registers(self) -> np.ndarray:
        held = [operand.tile_bytes(self.thread) for operand in self.workload.operands]
        return np.sum(held, axis=0) / 4

    @cached_property
    def flops(self) -> np.ndarray:
        """Of a block in one fetch: [n]."""
        return self.workload.flops_per_point * self.block.astype(float).prod(axis=1)

    def runs(self, operand: Operand, tiles: np.ndarray) -> np.ndarray:
        """Bytes of a tile that lie side by side: [n]."""
        shape = operand.tile_shape(tiles)
        run = shape[:, -1].copy()
        whole = shape[:, -1] == operand.shape[-1]
        for axis in range(shape.shape[1] - 2, -1, -1):
            run = np.where(whole, run * shape[:, axis], run)
            whole = whole & (shape[:, axis] == operand.shape[axis])
        return run * operand.element_bytes


def statement(tiling: Tiling, tiles: Table) -> Table:
    """The columns of `tiles`, and what follows from them of resources, waves and traffic: [n, 18 + 15]."""
    target, workload = tiling.target, tiling.workload
    at_once, waves, last = tiling.waves
    warps = at_once * np.ceil(tiling.threads / target.warp_size)
    shared_read = np.sum([o.tile_bytes(tiling.thread) for o in workload.inputs], axis=0) * tiling.threads
    loaded = np.maximum(tiling.shared_bytes, 1)
    runs = np.min([tiling.runs(o, tiling.block) for o in workload.inputs], axis=0)
    total = tiling.counts[:, 0] * tiling.counts[:, 1] * tiling.flops
    moved = tiling.counts[:, 0] * tiling.counts[:, 1] * loaded
    columns = [
        tiling.registers, tiling.registers / target.registers_per_thread,
        loaded / target.level("shared").capacity_bytes, at_once, waves, last, warps,
        tiling.flops / tiling.threads, tiling.flops / (np.maximum(shared_read, 1) * tiling.counts[:, 2]),
        tiling.flops / loaded, runs, np.minimum(runs / _TRANSACTION_BYTES, 1), total / workload.flops,
        total / (target.peak_gflops["f32"] * 1e3), moved / (target.memory[0].bandwidth_gbps * 1e3),
    ]  # fmt: skip
    own = np.stack([_scaled(c, unit) for c, (_, unit) in zip(columns, _STATEMENT)], axis=1)
    names, units = zip(*_STATEMENT)
    return joined_tables(tiles, Table(names, units, own))


def data_flow(tiling: Tiling) -> Steps:
    """Loads of each input into shared memory, then into registers, the arithmetic, the store: [n, 2 x inputs + 2, 18]."""
    workload, target = tiling.workload, tiling.target
    blocks, fetches, steps = tiling.counts.T
    shared, registers = target.level("shared").capacity_bytes, 4 * target.registers_per_thread
    found = []
    for number, operand in enumerate(workload.inputs):
        nbytes = operand.tile_bytes(tiling.block)
        vector = np.asarray([p["fetch"][-1 - number][1] for p in tiling.programs])
        run = tiling.runs(operand, tiling.block)
        found.append(_step(tiling, 0, number, nbytes, fetches, run, vector, nbytes / shared))
    for number, operand in enumerate(workload.inputs):
        nbytes = operand.tile_bytes(tiling.thread)
        run = tiling.runs(operand, tiling.thread)
        moved = nbytes * tiling.threads
        found.append(
            _step(tiling, 1, number, moved, fetches * steps, run, np.ones(len(run)), nbytes / registers)
        )
    none = np.ones(len(blocks))
    found.append(_step(tiling, 2, 0, none, fetches * steps, none, none, 4 * tiling.registers / registers))
    out, last = workload.output, len(workload.inputs)
    run = tiling.runs(out, tiling.block)
    found.append(_step(tiling, 3, last, out.tile_bytes(tiling.block), none, run, none, none))
    names, units = zip(*_FLOW)
    values = np.stack(found, axis=1)
    return Steps(names, units, values, np.full(len(values), values.shape[1]))


def _step(
    tiling: Tiling, kind: int, operand: int, nbytes: np.ndarray, times: np.ndarray, run: np.ndarray,
    vector: np.ndarray, share: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """One movement of `nbytes` by a block, so many `times`: [n, 18]."""
    blocks, fetches = tiling.counts[:, 0].astype(float), tiling.counts[:, 1]
    block_bytes = np.maximum(nbytes, 1) * times
    count = len(blocks)
    columns = [
        *(np.full(count, float(kind == other)) for other in range(4)), np.full(count, float(operand)),
        blocks * block_bytes, block_bytes, np.maximum(nbytes, 1), times, run,
        np.minimum(run / _TRANSACTION_BYTES, 1), vector, tiling.flops * fetches / block_bytes, tiling.threads,
        tiling.lanes_used, share, blocks / tiling.target.num_cores, tiling.waves[2],
    ]  # fmt: skip
    return np.stack(
        [_scaled(np.asarray(c, dtype=float), unit) for c, (_, unit) in zip(columns, _FLOW)], axis=1
    )


def _scaled(column: np.ndarray, unit: str) -> np.ndarray:
    return np.log2(np.maximum(column, 1e-9)) if unit.startswith("log2") else column
