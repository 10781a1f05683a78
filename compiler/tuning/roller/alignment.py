"""The alignment rules: which tile sizes an axis may take at a layer, and how stored tiles are padded.

Each rule is one small function. An axis rule looks at sizes of one axis, a tile rule at whole tiles that differ in one
axis; both return which conform. `GetNextAlignedAxisSize` (Roller, OSDI'22, §3.1, "Deriving all rTiles") asks all of
them for the next larger size, so a new rule is one function and one entry in `AXIS_RULES` or `TILE_RULES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.tuning.model.rtile import TileGeometry, innermost_axes, unit_stride_axis
from tilewright.compiler.tuning.roller.device import Device
from tilewright.compiler.tuning.roller.options import ConstructOptions


@dataclass(frozen=True)
class Space:
    """What rules and model look at: a workload in canonical form on a device, and the options in force."""

    workload: Workload
    device: Device
    options: ConstructOptions
    epsilon: float = 0.0

    @cached_property
    def geometry(self) -> TileGeometry:
        return TileGeometry(self.workload)

    @cached_property
    def parallel(self) -> np.ndarray:
        return np.asarray(self.workload.parallel, dtype=np.int64)

    @cached_property
    def reduction(self) -> np.ndarray:
        return np.asarray(self.workload.reduction, dtype=np.int64)

    @cached_property
    def vector_axis(self) -> int | None:
        """The axis whose neighbours are computed in the lanes of one vector or warp.

        It is the one that walks the result, unless an input has to be gathered along it; then the one that walks
        the largest input.
        """
        workload = self.workload
        axis = unit_stride_axis(workload.output, workload)
        gathered = [o for o in workload.inputs if axis in o.axes and axis not in innermost_axes(o, workload)]
        if axis is not None and not gathered:
            return axis
        walks = [(o.nbytes, unit_stride_axis(o, workload)) for o in workload.inputs]
        walks = [(size, found) for size, found in walks if found is not None]
        return max(walks)[1] if walks else axis

    @cached_property
    def leading(self) -> tuple[tuple[int, int], ...]:
        """(axis, element bytes) of every operand whose innermost dimension is one axis, not a window of two."""
        found = []
        for operand in self.workload.operands:
            moving = [i for i in operand.index_map if i.terms]
            if moving and moving[-1] is operand.index_map[-1] and len(moving[-1].terms) == 1:
                term = moving[-1].terms[0]
                if term.scale == 1 and term.divisor == 1:
                    found.append((term.variable, operand.element_bytes))
        return tuple(found)

    @cached_property
    def matrix_multiples(self) -> dict[int, int]:
        """Axis -> the multiple that the target's first matrix unit for the dtype wants of it."""
        units = [u for u in self.device.target.matrix_units if u.dtype == self.device.dtype]
        if not (self.options.matrix_unit and units and len(self.workload.inputs) >= 2):
            return {}
        a, b = self.workload.inputs[:2]
        out = self.workload.output
        m, n, k = units[0].shape
        groups = ((a.axes & out.axes) - b.axes, (b.axes & out.axes) - a.axes, (a.axes & b.axes) - out.axes)
        if not all(groups):
            return {}
        return {max(axes): size for axes, size in zip(groups, (m, n, k))}


def tensor_shape(space: Space, layer: int, axis: int, sizes: np.ndarray) -> np.ndarray:
    """Tiles divide the axis but for padding of at most epsilon of it: (S - N mod S) mod S <= epsilon N."""
    extent = space.workload.extents[axis]
    return (-extent) % sizes <= space.epsilon * extent + 1e-9


def memory_transaction(space: Space, layer: int, axis: int, sizes: np.ndarray) -> np.ndarray:
    """Leading dimensions of data tiles are whole transactions of the layer they are loaded from.

    An axis that is shorter than a transaction is taken whole.
    """
    if layer == 0:
        return np.ones(len(sizes), dtype=bool)
    transaction = space.device.layers[layer + 1].transaction_bytes
    extent = space.workload.extents[axis]
    conform = np.ones(len(sizes), dtype=bool)
    for leading, element_bytes in space.leading:
        if leading == axis:
            short = extent * element_bytes < transaction
            conform &= (sizes * element_bytes % transaction == 0) | ((sizes >= extent) & short)
    return conform


def vector_lanes(space: Space, layer: int, axis: int, sizes: np.ndarray) -> np.ndarray:
    """Execution unit: registers hold whole vectors (or, a thread's, powers of two, which share warps evenly)."""
    if layer > 0:
        return np.ones(len(sizes), dtype=bool)
    if space.device.threaded:
        return sizes & (sizes - 1) == 0
    if axis != space.vector_axis:
        return np.ones(len(sizes), dtype=bool)
    extent = space.workload.extents[axis]
    return (sizes % space.device.lanes == 0) | ((sizes == extent) & (extent < space.device.lanes))


def matrix_shape(space: Space, layer: int, axis: int, sizes: np.ndarray) -> np.ndarray:
    """Tiles are whole matrix instructions along each of their axes (§3.1; 16 x 16 x 16 on a V100's tensor cores)."""
    return sizes % space.matrix_multiples.get(axis, 1) == 0


def warps(space: Space, layer: int, threads: np.ndarray) -> np.ndarray:
    """Execution unit: a block's threads fill warps on every scheduler, or are a factor of them on the way there."""
    unit = space.device.lanes * space.device.teus
    return (threads % unit == 0) | (unit % np.maximum(threads, 1) == 0)


def bank_padding(leading: int, read: int, banks: int, width: int = 1) -> int:
    """Elements to pad a stored tile's leading dimension with, so that reads of `read` of them spread over the banks.

    `(B L - N mod (B L) + L ceil(n / L)) mod (B L)` with B `banks` of L = `width` elements (Roller, OSDI'22, §3.1).
    """
    row = banks * width
    return (row - leading % row + width * -(-read // width)) % row


AxisRule = Callable[[Space, int, int, np.ndarray], np.ndarray]
TileRule = Callable[[Space, int, np.ndarray], np.ndarray]

AXIS_RULES: dict[str, tuple[AxisRule, ...]] = {
    "memory_transaction": (memory_transaction,),
    "execution_unit": (vector_lanes,),
    "tensor_shape": (tensor_shape,),
    "memory_bank": (),
    "matrix_unit": (matrix_shape,),
}
"""Rules on the sizes of one axis, by the name that switches them on."""

TILE_RULES: dict[str, tuple[TileRule, ...]] = {"execution_unit": (warps,)}
"""Rules on the number of threads of a tile, for devices that have threads; asked at the staging layer."""

_CHUNK = 512


def candidate_sizes(space: Space, layer: int, axis: int, step: int) -> np.ndarray:
    """All conforming sizes of an axis at a layer, ascending: multiples of `step`, the size at the layer above."""
    extent = space.workload.extents[axis]
    limit = extent * (1 + space.epsilon) if "tensor_shape" in space.options.rules else 2.0 * extent
    count = int(max(limit, step) // step)
    sizes = step * np.arange(1, min(count, _CHUNK) + 1, dtype=np.int64)
    whole = -(-extent // step) * step
    if whole > sizes[-1]:
        sizes = np.append(sizes, whole)
    conform = np.ones(len(sizes), dtype=bool)
    for name in sorted(space.options.rules):
        for rule in AXIS_RULES[name]:
            conform &= rule(space, layer, axis, sizes)
    # An axis smaller than what rules ask for is taken whole: there is nothing to align it with.
    if not conform.any() and extent <= step:
        return np.asarray([step], dtype=np.int64)
    sizes = sizes[conform]
    # Beyond the first that covers the axis, larger tiles only hold more padding.
    sizes = sizes[: np.searchsorted(sizes, extent) + 1]
    if layer > 0 and space.workload.axes[axis].kind == "reduction" and len(sizes) > 1:
        # A reduction's tile changes how often a layer is filled, not what moves: doubling is fine enough.
        doubled = sizes[0] << np.arange(int(sizes[-1] // sizes[0]).bit_length())
        sizes = sizes[np.isin(sizes, doubled) | (sizes == sizes[-1])]
    return sizes
