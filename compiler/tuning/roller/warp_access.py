"""What the lanes of a warp touch at once: banks of shared memory, lines of the cache, sectors of stored results.

Lanes walk the threads of a block innermost axis first; where operands lie contiguously along a reduction, they share its
points among themselves. Addresses follow from the index maps, so strides, windows and padding come out as they are.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tilewright.compiler.nouns.quasi_affine import QuasiAffine
from tilewright.compiler.tuning.roller.performance import Performance

_OFFSETS = np.arange(0, 32, 4, dtype=np.int64)
"""Where a row may start in a cache line, in words, when rows are no whole lines."""


class WarpAccess:
    """The first warp of n programs with block tiles `tile` and thread tiles `thread`, both [n, axes]."""

    def __init__(
        self,
        performance: Performance,
        tile: np.ndarray,
        thread: np.ndarray,
        padding: np.ndarray,
        lane_steps: np.ndarray | None = None,
    ):
        self.performance = performance
        self.tile, self.thread, self.padding = tile, thread, padding
        self.steps = np.ones_like(tile) if lane_steps is None else lane_steps
        self.operands = performance.space.workload.operands

    @cached_property
    def position(self) -> np.ndarray:
        """Points of the iteration space that the lanes compute, from the tile's start: [n, lanes, axes].

        Lanes beyond the block's threads repeat the first one, which costs nothing.
        """
        performance, count = self.performance, len(self.tile)
        lanes = np.arange(performance.device.lanes, dtype=np.int64)
        left = np.broadcast_to(lanes, (count, len(lanes)))
        position = np.zeros((count, len(lanes), len(performance.extents)), dtype=np.int64)
        walked = performance.space.vector_axis
        if walked is not None and walked in performance.space.workload.reduction:
            position[:, :, walked] = left % performance.extents[walked]
            return position
        grid = np.maximum(1, self.tile // self.thread)
        for axis in reversed(performance.space.workload.parallel):
            position[:, :, axis] = left % grid[:, axis, None] * self.steps[:, axis, None]
            left = left // grid[:, axis, None]
        return np.where((left == 0)[:, :, None], position, 0)

    def conflicts(self) -> np.ndarray:
        """Wavefronts of a warp's read of one element per lane of every staged input: [n, inputs].

        Lanes that read different words of one bank wait for each other, lanes that read the same word do not.
        Source: NVIDIA, CUDA C Programming Guide, "Shared Memory".
        """
        performance, count = self.performance, len(self.tile)
        layer = performance.device.layers[1]
        wavefronts = np.ones((count, len(performance.inputs)))
        if performance.tile_threads > 1:
            # Matrix instructions read rows of 16 bytes, which padded tiles spread over all banks.
            return wavefronts
        spans = performance.geometry.spans(self.tile)
        for column, row in enumerate(performance.inputs):
            width = max(1, layer.bank_bytes // int(performance.geometry.element_bytes[row]))
            word = np.sort(self._staged(row, column, spans) // width, axis=1)
            used = np.zeros((count, layer.banks))
            np.add.at(used, (np.arange(count)[:, None], word % layer.banks), _first(word))
            wavefronts[:, column] = used.max(axis=1)
        return wavefronts

    def words(self) -> np.ndarray:
        """Elements that a warp's read of one per lane of every staged input asks for, each counted once: [n, inputs]."""
        spans = self.performance.geometry.spans(self.tile)
        staged = [self._staged(row, column, spans) for column, row in enumerate(self.performance.inputs)]
        return np.stack([_first(np.sort(place, axis=1)).sum(axis=1) for place in staged], axis=1)

    def lines(self) -> np.ndarray:
        """Cache lines that a warp's read of one element per lane touches in every input read in place: [n, inputs].

        Each is a wavefront of its own. Source: NVIDIA, Nsight Compute documentation, "L1/TEX cache".
        """
        performance = self.performance
        line = performance.device.layers[1].transaction_bytes
        lines = np.ones((len(self.tile), len(performance.inputs)))
        for column, row in enumerate(performance.inputs):
            lines[:, column] = self._chunks(row, line)
        return lines

    def store_waste(self) -> np.ndarray:
        """Bytes of whole sectors that a warp's stores take over those it writes, at least one: [n]."""
        performance = self.performance
        sector = performance.device.layers[-1].transaction_bytes
        row = performance.output
        written = performance.device.lanes * int(performance.geometry.element_bytes[row])
        return np.maximum(1.0, self._chunks(row, sector) * sector / written)

    def _chunks(self, row: int, size_bytes: int) -> np.ndarray:
        """Distinct aligned chunks of a tensor in memory that the lanes touch, averaged over where rows start: [n]."""
        operand = self.operands[row]
        elements = max(1, size_bytes // int(self.performance.geometry.element_bytes[row]))
        address = np.zeros(self.position.shape[:2], dtype=np.int64)
        stride = 1
        for index, extent in zip(reversed(operand.index_map), reversed(operand.shape)):
            address += self._along(index) * stride
            stride *= extent
        aligned = not operand.shape or operand.shape[-1] % elements == 0
        windowed = any(len(index.terms) > 1 for index in operand.index_map)
        offsets = _OFFSETS % elements if windowed or not aligned else _OFFSETS[:1]
        found = [_first(np.sort((address + offset) // elements, axis=1)).sum(axis=1) for offset in offsets]
        return np.mean(found, axis=0)

    def _along(self, index: QuasiAffine[int]) -> np.ndarray | int:
        """How far the lanes lie behind where a dimension starts: [n, lanes], 0 where nothing moves along it."""
        return index.shifted(-index.offset).evaluate(lambda axis: self.position[:, :, axis])

    def _staged(self, row: int, column: int, spans: np.ndarray) -> np.ndarray:
        """Where the lanes read a staged input, in elements: [n, lanes]."""
        operand = self.operands[row]
        address = np.zeros(self.position.shape[:2], dtype=np.int64)
        stride = np.ones(len(self.tile), dtype=np.int64)
        pads = self.padding[:, column]
        leading = self.performance.leading_axis(row)
        if leading is not None:
            for axis in sorted(operand.axes, key=lambda a: (a == leading, a), reverse=True):
                address += self.position[:, :, axis] * stride[:, None]
                stride = stride * (self.tile[:, axis] + (pads if axis == leading else 0))
            return address
        part = self.performance.geometry.slices[row]
        for dim in range(len(operand.shape) - 1, -1, -1):
            address += self._along(operand.index_map[dim]) * stride[:, None]
            size = spans[:, part.start + dim]
            stride = stride * (size + (pads if dim == len(operand.shape) - 1 else 0))
        return address


def _first(ordered: np.ndarray) -> np.ndarray:
    """Marks the first of equal values in rows [n, lanes] in order."""
    first = np.ones_like(ordered, dtype=bool)
    first[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return first
