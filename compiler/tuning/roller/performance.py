"""The micro-performance model: footprint, traffic and throughput of rTiles, over arrays of tiles (OSDI'22, §3.3).

`Performance` is the hardware abstraction's four questions, `MemFootprint`, `MemTraffic`, `MaxComputePerf` and `MemPerf`
of Figure 9, for one workload on one device. `evaluate` puts whole programs in order: on caches each layer's traffic over
its bandwidth and the arithmetic overlap, the slowest of them counts; devices with threads have a model of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.compiler.tuning.model.overlap import one_by_one, unevenness
from tilewright.compiler.tuning.roller.alignment import Space, bank_padding
from tilewright.compiler.tuning.roller.recursion import Look, Tile

MIN_VECTORS = 10
"""Vectors in registers before a CPU's register tile is large enough: results in flight that hide a multiply-add's
latency of 4 cycles on two pipes, and their operands. Source: Fog, "Instruction tables" (Zen 2 to 4, Skylake, Ice Lake)."""


@dataclass(frozen=True)
class Estimate:
    """Of n programs: `total_us` [n], the name of the layer that bounds each, and every layer's own time [n]."""

    total_us: np.ndarray
    bound: list[str]
    times_us: dict[str, np.ndarray]


class Performance:
    """Answers about tiles of one workload on one device, for many tiles at once."""

    def __init__(self, space: Space):
        self.space = space
        self.geometry = space.geometry
        self.device = space.device
        workload = space.workload
        self.extents = self.geometry.extents
        self._reduces = self.geometry.moves[:, space.reduction].any(axis=1)
        out = int(np.flatnonzero(self.geometry.is_output)[0])
        self.inputs = [int(row) for row in np.flatnonzero(~self.geometry.is_output)]
        self.output = out
        self.flops = workload.flops
        self._readers: dict[Tile, np.ndarray] = {}
        # A matrix instruction's operands are spread over the registers of a whole warp.
        self.tile_threads = self.device.lanes if space.matrix_multiples and self.device.threaded else 1

    @cached_property
    def reuses(self) -> bool:
        """Whether some input is used again along a parallel axis that it does not move along."""
        moving = self.geometry.moves[self.inputs]
        missing = (~moving[:, self.space.parallel]).any(axis=1) & moving.any(axis=1)
        return bool(missing.any() and len(self.space.reduction))

    @cached_property
    def bounded(self) -> bool:
        """Whether no register tile, however large, loads as fast as it is computed: reuse ends before arithmetic does.

        Depthwise convolutions, pooling, reductions and elementwise operators are so on every device.
        """
        whole = self.extents.copy()
        whole[self.space.reduction] = 1
        return not self._keeps_up(0, self.traffic(0, whole[None]))[0]

    def attainable(self, layer: int) -> bool:
        """Whether the largest tile at a layer would load as fast as it is computed."""
        return bool(self._keeps_up(layer, self.traffic(layer, self.extents[None]))[0])

    @cached_property
    def gathered(self) -> np.ndarray:
        """Operands [operands] whose staged tile is a box over the axes they move along, not over their dimensions.

        They are those that are reused along a parallel axis and whose index map takes axes apart: implicit GEMM.
        """
        found = []
        for row, operand in enumerate(self.space.workload.operands):
            apart = any(t.divisor > 1 or t.modulus for i in operand.index_map for t in i.terms)
            found.append(
                apart and not self.geometry.moves[row, self.space.parallel].all() and not operand.output
            )
        return np.asarray(found) & self.device.threaded

    def staged_elements(self, tiles: np.ndarray) -> np.ndarray:
        """Elements of every operand's tile as it is stored: [n, operands]."""
        elements = self.geometry.elements(tiles)
        for row in self._gathered_rows:
            elements[:, row] = tiles[:, self.geometry.moves[row]].prod(axis=1)
        return elements

    @cached_property
    def _gathered_rows(self) -> list[int]:
        return [int(row) for row in np.flatnonzero(self.gathered)]

    def footprint(self, layer: int, tiles: np.ndarray, read: Tile | None = None) -> np.ndarray:
        """`MemFootprint`: bytes that tiles [n, axes] take of a layer: [n].

        Where inputs are staged, that includes their bank padding for reads by the tile `read`.
        """
        if layer == 0 and not self.device.threaded:
            return self._vector_bytes(tiles)
        return self._stored(layer, tiles, self.staged_elements(tiles) * self.geometry.element_bytes, read)

    def _stored(self, layer: int, tiles: np.ndarray, nbytes: np.ndarray, read: Tile | None) -> np.ndarray:
        """The footprint from the bytes `nbytes` [n, operands] of data tiles."""
        if layer == 0 or not self.device.threaded:
            return nbytes.sum(axis=1)
        # A thread keeps its results in registers; only inputs are staged.
        staged = nbytes[:, self.inputs]
        if read is None:
            return staged.sum(axis=1)
        leading, padding = self.leading_padding(tiles, read)
        return (staged + padding * (staged // np.maximum(leading, 1))).sum(axis=1)

    def leading_padding(self, tiles: np.ndarray, read: Tile) -> tuple[np.ndarray, np.ndarray]:
        """Leading extents of staged inputs and the bank padding added to them: two times [n, inputs] elements."""
        layer = self.device.layers[1]
        spans = self.geometry.spans(tiles)
        reader = self._reader(read)
        leading = np.ones((len(tiles), len(self.inputs)), dtype=np.int64)
        padding = np.zeros_like(leading)
        for column, row in enumerate(self.inputs):
            axis = self.leading_axis(row)
            part = self.geometry.slices[row]
            if part.stop - part.start < 2:
                continue
            leading[:, column] = tiles[:, axis] if axis is not None else spans[:, part.stop - 1]
            width = max(1, layer.bank_bytes // int(self.geometry.element_bytes[row]))
            size = read[axis] if axis is not None else int(reader[part.stop - 1])
            if "memory_bank" in self.space.options.rules and layer.banks > 1:
                padding[:, column] = bank_padding(leading[:, column], size, layer.banks, width)
        return leading, padding

    def _reader(self, read: Tile) -> np.ndarray:
        """Spans of the data tiles of one reading tile; construction asks for the same one many times."""
        if read not in self._readers:
            self._readers[read] = self.geometry.spans(np.asarray([read], dtype=np.int64))[0]
        return self._readers[read]

    def leading_axis(self, row: int) -> int | None:
        """The axis that is innermost in the staged tile of a gathered operand; None where its dimensions are kept."""
        if not self.gathered[row]:
            return None
        operand = self.space.workload.operands[row]
        last = next(i for i in reversed(operand.index_map) if i.terms)
        parallel = [t.variable for t in last.terms if t.variable in self.space.workload.parallel]
        return (parallel or [t.variable for t in last.terms])[0]

    def _vector_bytes(self, tiles: np.ndarray) -> np.ndarray:
        """Vector registers: results and the inputs that move along the vectors; others are broadcast one by one."""
        lanes, axis = self.device.lanes, self.space.vector_axis
        vector_bytes = self.device.target.vector_bits // 8
        if axis is None:
            return self.geometry.elements(tiles).sum(axis=1) * vector_bytes
        packed = tiles.copy()
        packed[:, axis] = -(-tiles[:, axis] // lanes)
        count = np.zeros(len(tiles), dtype=np.int64)
        for row in range(len(self.space.workload.operands)):
            moving = self.geometry.moves[row]
            along = packed[:, moving].prod(axis=1)
            count += along if moving[axis] or row == self.output else 1
        return count * vector_bytes

    def traffic(self, layer: int, tiles: np.ndarray) -> np.ndarray:
        """`MemTraffic`: bytes that the whole computation moves into a layer, cut into tiles [n, axes] there: [n]."""
        return self._moved(layer, tiles, self.staged_elements(tiles) * self.geometry.element_bytes)

    def _moved(self, layer: int, tiles: np.ndarray, nbytes: np.ndarray) -> np.ndarray:
        """The traffic from the bytes `nbytes` [n, operands] of data tiles."""
        counts = (-(-self.extents // tiles)).astype(float)
        parallel = counts[:, self.space.parallel].prod(axis=1)
        reduction = counts[:, self.space.reduction].prod(axis=1)
        inputs = nbytes[:, self.inputs] * np.where(self._reduces[self.inputs], reduction[:, None], 1.0)
        results = nbytes[:, self.output].astype(float)
        if layer > 0 and not self.device.threaded:
            # Partial results come back for every further part of the reduction.
            results *= 2 * reduction - 1
        return (inputs.sum(axis=1) + results) * parallel

    def _keeps_up(self, layer: int, traffic: np.ndarray) -> np.ndarray:
        """Whether loads of `traffic` bytes take no longer than the arithmetic: `MemPerf` beyond `MaxComputePerf`."""
        below = self.device.layers[layer + 1]
        return traffic / below.bandwidth_gbps <= self.flops / self.device.peak_gflops

    def thread_limit(self, register_tile: Tile) -> int:
        """Threads of one block: at most half of what one may have, and at most half of a unit's registers.

        Half, so that two blocks are resident and one computes while the other loads.
        """
        target = self.device.target
        held = int(self.footprint(0, np.asarray([register_tile], dtype=np.int64))[0]) // self.tile_threads
        by_registers = target.level("registers").capacity_bytes // 2 // max(held, 4)
        return max(self.device.lanes, min(target.block_threads // 2 or target.warp_size, by_registers))

    def threads(self, tiles: np.ndarray, register_tile: Tile) -> np.ndarray:
        """Threads of blocks of tiles [n, axes]: [n]."""
        inner = np.asarray(register_tile, dtype=np.int64)
        parallel = self.space.parallel
        return (tiles[:, parallel] // inner[parallel]).prod(axis=1) * self.tile_threads

    def look(self, layer: int, tiles: Sequence[Tile], levels: tuple[Tile, ...]) -> Look:
        """Everything that construction asks of tiles at a layer over the tiles `levels` of the layers above."""
        array = np.asarray(tiles, dtype=np.int64)
        staged = layer > 0 and self.device.threaded
        nbytes = self.staged_elements(array) * self.geometry.element_bytes
        traffic = self._moved(layer, array, nbytes)
        if layer == 0 and not self.device.threaded:
            footprint = self._vector_bytes(array)
        else:
            footprint = self._stored(layer, array, nbytes, levels[0] if staged else None)
        fits = footprint <= self.device.layers[layer].capacity_bytes * (1 if layer else self.tile_threads)
        if staged and not self.reuses:
            fits = np.ones(len(array), dtype=bool)
        saturated = self._keeps_up(layer, traffic)
        if staged:
            threads = self.threads(array, levels[0])
            fits &= threads <= self.thread_limit(levels[0])
            saturated = saturated | self.bounded
            saturated &= self.whole_warps(threads)
        elif layer == 0 and self.device.threaded and self.bounded:
            # More registers would not help: two results per thread already overlap each other's latency.
            saturated = array[:, self.space.parallel].prod(axis=1) >= 2
        elif layer == 0 and not self.device.threaded:
            vector_bytes = self.device.target.vector_bits // 8
            least = min(MIN_VECTORS, self.device.layers[0].capacity_bytes // vector_bytes // 2)
            saturated &= footprint // vector_bytes >= least
        elif layer == len(self.device.layers) - 2 and self.bounded and not self.reuses:
            # Nothing is reused, so any tile moves as much: all sizes are results, to scale out by.
            saturated = np.ones(len(array), dtype=bool)
        return Look(traffic, footprint, fits, saturated)

    def whole_warps(self, threads: np.ndarray) -> np.ndarray:
        """Whether blocks fill warps, and one on every scheduler where arithmetic is to keep them all busy."""
        if "execution_unit" not in self.space.options.rules:
            return np.ones(len(threads), dtype=bool)
        unit = self.device.lanes * (1 if self.bounded else self.device.teus)
        return (threads % unit == 0) | (threads >= self.results)

    @cached_property
    def results(self) -> int:
        """Points of the parallel axes."""
        return int(np.prod(self.extents[self.space.parallel])) if len(self.space.parallel) else 1

    def evaluate(
        self,
        programs: Sequence[tuple[Tile, ...]],
        staged: Sequence[bool],
        lane_steps: np.ndarray | None = None,
    ) -> Estimate:
        """Times of whole programs, tiles from the fastest layer down; `lane_steps` as for devices with threads."""
        if self.device.threaded:
            from tilewright.compiler.tuning.roller.threads import evaluate_threads

            return evaluate_threads(self, programs, np.asarray(staged), lane_steps)
        return self._evaluate_caches(programs)

    def _evaluate_caches(self, programs: Sequence[tuple[Tile, ...]]) -> Estimate:
        device = self.device
        lowest = np.asarray([tiles[-1] for tiles in programs], dtype=np.int64)
        tasks = (-(-self.extents // lowest))[:, self.space.parallel].prod(axis=1)
        # The last round of tasks leaves units idle.
        idle = unevenness(tasks, device.units)
        times: dict[str, np.ndarray] = {}
        for layer in range(len(device.layers) - 1):
            tiles = [program[layer] for program in programs]
            below = device.layers[layer + 1]
            array = np.asarray(tiles, dtype=np.int64)
            moved = np.minimum(self.traffic(layer, array), self._resident_traffic(layer, tiles))
            share = idle if layer + 2 < len(device.layers) else np.ones(len(idle))
            times[below.name] = moved / below.bandwidth_gbps / 1e3 * share
        times["compute"] = self._padded_flops(programs) / device.peak_gflops / 1e3 * idle
        stacked = np.stack(list(times.values()))
        names = list(times)
        total = one_by_one(times["compute"], stacked[:-1])
        return Estimate(total + device.target.start_us, [names[i] for i in stacked.argmax(axis=0)], times)

    def _resident_traffic(self, layer: int, tiles: Sequence[Tile]) -> np.ndarray:
        """The traffic where operands that fit into the layer whole stay there; others are as `traffic` has them."""
        layer_bytes = self.device.layers[layer].capacity_bytes
        if layer == 0 or self.space.workload.nbytes > layer_bytes:
            return np.full(len(tiles), np.inf)
        return np.full(len(tiles), float(self.space.workload.nbytes))

    def _padded_flops(self, programs: Sequence[tuple[Tile, ...]]) -> np.ndarray:
        """Operations with what ragged register tiles and half-filled vectors waste: [n]."""
        registers = np.asarray([tiles[0] for tiles in programs], dtype=np.int64)
        padded = -(-self.extents // registers) * registers
        waste = (padded / self.extents).prod(axis=1)
        axis = self.space.vector_axis
        lanes = self.device.lanes
        if axis is None:
            return self.flops * waste * lanes
        filled = registers[:, axis] / (-(-registers[:, axis] // lanes) * lanes)
        return self.flops * waste / filled
