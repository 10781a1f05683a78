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

from tilewright.compiler.tuning.roller.alignment import Space, bank_padding

Tile = tuple[int, ...]


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
        self.inputs = np.flatnonzero(~self.geometry.is_output)
        self.output = out
        self.flops = workload.flops

    @cached_property
    def reuses(self) -> bool:
        """Whether some input is used again along a parallel axis that it does not move along."""
        parallel = self.space.parallel
        moving = self.geometry.moves[self.inputs][:, parallel]
        # An operand that is constant over everything (a scale) is no reuse worth staging.
        return bool(((~moving).any(axis=1) & self.geometry.moves[self.inputs].any(axis=1)).any()) and bool(
            len(self.space.reduction)
        )

    @cached_property
    def gathered(self) -> np.ndarray:
        """Operands [operands] whose staged tile is a box over the axes they move along, not over their dimensions."""
        found = [
            any(t.divisor > 1 or t.modulus for i in o.index_map for t in i.terms) for o in self.space.workload.operands
        ]
        return np.asarray(found) & self.device.threaded

    @cached_property
    def points_per_result(self) -> int:
        return int(np.prod(self.extents[self.space.parallel])) if len(self.space.parallel) else 1

    def staged_elements(self, tiles: np.ndarray) -> np.ndarray:
        """Elements of every operand's tile as it is stored: [n, operands]."""
        elements = self.geometry.elements(tiles)
        for row in np.flatnonzero(self.gathered):
            elements[:, row] = tiles[:, self.geometry.moves[row]].prod(axis=1)
        return elements

    def footprint(self, layer: int, tiles: np.ndarray) -> np.ndarray:
        """`MemFootprint`: bytes that tiles [n, axes] take of a layer, padding included: [n]."""
        if layer == 0 and not self.device.threaded:
            return self._vector_bytes(tiles)
        nbytes = self.staged_elements(tiles) * self.geometry.element_bytes
        if layer == 0 or not self.device.threaded:
            return nbytes.sum(axis=1)
        # A thread keeps its results in registers; only inputs are staged.
        return nbytes[:, self.inputs].sum(axis=1) + self._padding_bytes(tiles)

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

    def _padding_bytes(self, tiles: np.ndarray) -> np.ndarray:
        """Bytes of bank padding of staged inputs, for readers that take one element of the leading dimension."""
        layer = self.device.layers[1]
        total = np.zeros(len(tiles), dtype=np.int64)
        if "memory_bank" not in self.space.options.rules or layer.banks <= 1:
            return total
        spans = self.geometry.spans(tiles)
        for row in self.inputs:
            part = self.geometry.slices[row]
            if part.stop - part.start < 2:
                continue
            width = max(1, layer.bank_bytes // int(self.geometry.element_bytes[row]))
            leading = spans[:, part.stop - 1]
            pads = np.asarray([bank_padding(int(size), 1, layer.banks, width) for size in leading])
            rows = self.staged_elements(tiles)[:, row] // np.maximum(leading, 1)
            total += pads * rows * self.geometry.element_bytes[row]
        return total

    def fits(self, layer: int, tiles: Sequence[Tile], levels: tuple[Tile, ...]) -> np.ndarray:
        """Whether tiles [n] at a layer, over the tiles `levels` of the layers above, stay within all capacities: [n]."""
        array = np.asarray(tiles, dtype=np.int64)
        staged = layer > 0 and self.device.threaded
        if staged and not self.reuses:
            conform = np.ones(len(array), dtype=bool)
        else:
            conform = self.footprint(layer, array) <= self.device.layers[layer].capacity_bytes
        if staged:
            inner = np.asarray(levels[0], dtype=np.int64)
            parallel = self.space.parallel
            threads = (array[:, parallel] // inner[parallel]).prod(axis=1)
            conform &= threads <= self.thread_limit(levels[0])
        return conform

    def thread_limit(self, register_tile: Tile) -> int:
        """Threads of one block: at most what the device allows, and at most half of a unit's registers.

        Half, so that two blocks are resident and one computes while the other loads.
        """
        target = self.device.target
        held = int(self.footprint(0, np.asarray([register_tile], dtype=np.int64))[0])
        by_registers = target.level("registers").capacity_bytes // 2 // max(held, 4)
        return max(self.device.lanes, min(target.block_threads // 2 or target.warp_size, by_registers))

    def traffic(self, layer: int, tiles: Sequence[Tile]) -> np.ndarray:
        """`MemTraffic`: bytes that the whole computation moves into a layer, cut into tiles [n] there: [n]."""
        array = np.asarray(tiles, dtype=np.int64)
        counts = -(-self.extents // array)
        parallel = counts[:, self.space.parallel].prod(axis=1).astype(float)
        reduction = counts[:, self.space.reduction].prod(axis=1).astype(float)
        nbytes = self.geometry.nbytes(array).astype(float)
        if self.gathered.any():
            rows = np.flatnonzero(self.gathered)
            nbytes[:, rows] = (self.staged_elements(array) * self.geometry.element_bytes)[:, rows]
        total = np.zeros(len(array))
        for row in self.inputs:
            total += nbytes[:, row] * parallel * (reduction if self._reduces[row] else 1.0)
        results = nbytes[:, self.output] * parallel
        if layer > 0 and not self.device.threaded:
            # Partial results come back for every further part of the reduction.
            results = results * (2 * reduction - 1)
        return total + results

    def saturated(self, layer: int, tiles: Sequence[Tile]) -> np.ndarray:
        """Whether tiles [n] load as fast as they are computed: `MemPerf` beyond `MaxComputePerf`."""
        below = self.device.layers[layer + 1]
        return self.traffic(layer, tiles) / below.bandwidth_gbps <= self.flops / self.device.peak_gflops

    def reuse_scores(self, layer: int, tile: Tile, grown: Sequence[Tile]) -> np.ndarray:
        """The data reuse score of every enlarged tile: traffic saved per byte of memory taken (§3.1)."""
        tiles = [tile, *grown]
        traffic = self.traffic(layer, tiles)
        footprint = self.footprint(layer, np.asarray(tiles, dtype=np.int64)).astype(float)
        saved, taken = traffic[0] - traffic[1:], footprint[1:] - footprint[0]
        return np.where(taken > 0, saved / np.maximum(taken, 1.0), np.where(saved > 0, np.inf, 0.0))

    def evaluate(self, programs: Sequence[tuple[Tile, ...]], staged: Sequence[bool]) -> Estimate:
        """Times of whole programs, tiles from the fastest layer down."""
        if self.device.threaded:
            from tilewright.compiler.tuning.roller.threads import evaluate_threads

            return evaluate_threads(self, programs, np.asarray(staged))
        return self._evaluate_caches(programs)

    def _evaluate_caches(self, programs: Sequence[tuple[Tile, ...]]) -> Estimate:
        device = self.device
        lowest = np.asarray([tiles[-1] for tiles in programs], dtype=np.int64)
        tasks = (-(-self.extents // lowest))[:, self.space.parallel].prod(axis=1)
        # The last round of tasks leaves units idle.
        idle = -(-tasks // device.units) * device.units / tasks
        times: dict[str, np.ndarray] = {}
        for layer in range(len(device.layers) - 1):
            tiles = [program[layer] for program in programs]
            below = device.layers[layer + 1]
            moved = np.minimum(self.traffic(layer, tiles), self._resident_traffic(layer, tiles))
            share = idle if layer + 2 < len(device.layers) else np.ones(len(idle))
            times[below.name] = moved / below.bandwidth_gbps / 1e3 * share
        times["compute"] = self._padded_flops(programs) / device.peak_gflops / 1e3 * idle
        stacked = np.stack(list(times.values()))
        names = list(times)
        return Estimate(
            stacked.max(axis=0) + device.target.start_us, [names[i] for i in stacked.argmax(axis=0)], times
        )

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
