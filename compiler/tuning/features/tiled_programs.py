"""GPU programs of one operator as arrays of tile sizes, in the form that stored programs have.

    programs = TiledPrograms.of(workload, records)     // records: spatial, reduce, fetch as `bench/measured_programs.py` reads them
    programs.block, programs.thread                    // tiles over the workload's axes: [n, axes]

Tiles follow Ansor's multi-level tiling for GPUs, S S S R R S R S (OSDI'20, §4.1): per parallel axis a block has virtual threads,
threads and two levels inside of a thread; per reduction, what is fetched at once has two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.nouns.workload import Operand, Workload

PARALLEL_LEVELS, REDUCTION_LEVELS = 4, 2


@dataclass(frozen=True)
class TiledPrograms:
    """`spatial` [n, parallel axes, 4] are sizes of virtual threads, threads and two inner levels; `reduce` [n, reductions, 2].

    The workload's parallel axes stand before its reductions.
    """

    workload: Workload
    spatial: np.ndarray
    reduce: np.ndarray

    def __post_init__(self) -> None:
        axes = (*self.workload.parallel, *self.workload.reduction)
        if axes != tuple(range(len(self.workload.axes))):
            raise ScheduleError("tiled programs have parallel axes and then reductions, no other axes")
        for name, tiles, count, levels in (
            ("spatial", self.spatial, len(self.workload.parallel), PARALLEL_LEVELS),
            ("reduce", self.reduce, len(self.workload.reduction), REDUCTION_LEVELS),
        ):
            if tiles.shape != (len(self), count, levels):
                raise ScheduleError(
                    f"{name} is [programs, {count}, {levels}] for this workload, found {list(tiles.shape)}"
                )
            if (tiles < 1).any():
                raise ScheduleError(f"{name} has a tile size below 1")

    def __len__(self) -> int:
        return len(self.spatial)

    @classmethod
    def of(cls, workload: Workload, records: Sequence[Mapping]) -> TiledPrograms:
        """The programs of stored records; raises ScheduleError for one of another operator, or without tile sizes."""
        parallel, reductions = len(workload.parallel), len(workload.reduction)
        for record in records:
            extents = [extent for extent, _ in (*record["spatial"], *record["reduce"])]
            if extents != list(workload.extents):
                raise ScheduleError(
                    f"a program of extents {extents}, the workload has {list(workload.extents)}"
                )
        try:
            spatial = np.asarray([[tiles for _, tiles in r["spatial"]] for r in records], dtype=np.int64)
            reduce = np.asarray([[tiles for _, tiles in r["reduce"]] for r in records], dtype=np.int64)
            return cls(
                workload,
                spatial.reshape(len(records), parallel, PARALLEL_LEVELS),
                reduce.reshape(len(records), reductions, REDUCTION_LEVELS),
            )
        except ValueError as error:
            raise ScheduleError(f"a program without all of its tile sizes: {error}") from None

    @cached_property
    def block(self) -> np.ndarray:
        """What a block computes between two fetches: [n, axes]."""
        return np.concatenate([self.spatial.prod(axis=2), self.reduce.prod(axis=2)], axis=1)

    @cached_property
    def thread(self) -> np.ndarray:
        """Results of one thread, and one step of every reduction: [n, axes]."""
        own = self.spatial[:, :, [0, 2, 3]].prod(axis=2)
        return np.concatenate([own, np.ones(self.reduce.shape[:2], dtype=np.int64)], axis=1)

    @cached_property
    def counts(self) -> np.ndarray:
        """How many blocks there are along every axis, or fetches along a reduction: [n, axes]."""
        return -(-np.asarray(self.workload.extents, dtype=np.int64) // self.block)

    @cached_property
    def blocks(self) -> np.ndarray:
        """[n]."""
        return self.counts[:, list(self.workload.parallel)].astype(float).prod(axis=1)

    @cached_property
    def fetches(self) -> np.ndarray:
        """Times that a block fetches its inputs: [n]."""
        return self.counts[:, list(self.workload.reduction)].astype(float).prod(axis=1)

    @cached_property
    def threads(self) -> np.ndarray:
        """Threads of one block: [n]."""
        return self.spatial[:, :, 1].prod(axis=1)

    @cached_property
    def lane_step(self) -> np.ndarray:
        """How far apart neighbouring threads compute along the last axis: [n]."""
        return (
            self.spatial[:, -1, 2:].prod(axis=1)
            if self.spatial.shape[1]
            else np.ones(len(self), dtype=np.int64)
        )


def run_of(operand: Operand, tiles: np.ndarray) -> np.ndarray:
    """Elements of an operand's data tile that lie side by side, of tiles [n, axes]: [n]."""
    shape = operand.tile_shape(tiles)
    run, whole = np.ones(len(tiles), dtype=np.int64), np.ones(len(tiles), dtype=bool)
    for dim in reversed(range(shape.shape[1])):
        run = np.where(whole, run * shape[:, dim], run)
        whole = whole & (shape[:, dim] == operand.shape[dim])
    return run
