"""Winograd's algorithm on a CPU, for many schedules at once: transforms of the input, products of planes, transforms back.

    planes = (m + r - 1)^2 products of [tiles, channels] and [channels, filters], an rTask's own scratch in between

Source: Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR'16, §4; loops: `lower_winograd.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.compiler.nouns.register_tiles import register_count
from tilewright.compiler.nouns.winograd_transforms import straight_line, transforms
from tilewright.compiler.targets.target import MemoryLevel
from tilewright.compiler.tuning.model.arithmetic import IN_FLIGHT
from tilewright.compiler.tuning.model.loop_nests import COUNTS, Cut
from tilewright.compiler.tuning.model.roles import slid_axes, steps_of


def part(
    cut: Cut, caches: Sequence[MemoryLevel]
) -> tuple[dict[str, np.ndarray], dict[str, dict[str, np.ndarray]]]:
    """Counts of one rTask, and bytes into every cache by operand."""
    s, lanes = cut.statement, cut.lanes
    (data, slid) = next((o, w) for o in s.reads if len(w := slid_axes(o, s)) == 2)
    filters_operand = next(o for o in s.reads if o is not data)
    (row, row_tap, *_), (column, *_) = slid
    taps = int(cut.extents[0, row_tap])
    outputs = _outputs(filters_operand.shape, taps)
    matrices = transforms(outputs, taps)
    planes, item = matrices.points**2, s.result.element_bytes
    channel_axes = steps_of(s, "winograd")
    others = [a for a in s.parallel if a not in (row, column)]
    images = cut.product([a for a in others if a not in filters_operand.axes])
    channels, filters = (
        cut.product(channel_axes),
        cut.product([a for a in others if a in filters_operand.axes]),
    )
    tiles = images * np.ceil(cut.extent(row) / outputs) * np.ceil(cut.extent(column) / outputs)
    n, m = matrices.points, outputs
    forward = 2 * n * len(straight_line(matrices.data).steps)
    backward = (n + m) * len(straight_line(matrices.output).steps)
    vectors_in, vectors_out = np.ceil(channels / lanes), np.ceil(filters / lanes)
    found = {name: np.zeros(len(cut)) for name in COUNTS}
    found["arithmetic"] = tiles * (vectors_in * forward + vectors_out * backward)
    found["loads"] = tiles * (vectors_in * 2 * planes + vectors_out * (planes + n * m))
    found["stores"] = tiles * (vectors_in * 2 * planes + vectors_out * (n * m + m * m))
    block = np.minimum(filters, filters_operand.shape[-1])
    unroll, vector = np.minimum(cut.sizes[:, 0], tiles), np.minimum(cut.sizes[:, 1], block)
    taken = channels if cut.blocks is None else cut.blocks[:, channel_axes].prod(axis=1)
    parts = np.ceil(channels / taken)
    each = planes * np.ceil(filters / block) * parts
    for rows, many in ((unroll, tiles // unroll), (tiles % unroll, (tiles % unroll > 0) * 1)):
        for width, wide in ((vector, block // vector), (block % vector, (block % vector > 0) * 1)):
            vectors = register_count(width.astype(np.int64), lanes)
            sums, count = rows * vectors, each * many * wide
            held = sums + np.minimum(rows, vectors) + 1
            steps = count * channels / parts
            found["arithmetic"] += steps * sums
            found["stalled"] += steps * np.maximum(0, IN_FLIGHT - sums)
            # Sums of all blocks of channels but the first come from memory.
            found["loads"] += steps * (rows + vectors) + count * sums * (1 - 1 / parts)
            found["spilled"] += steps * np.clip(held - cut.target.registers_per_thread, 0, sums)
            found["stores"] += count * sums
            found["starts"] += count
            found["registers"] = np.maximum(found["registers"], np.where(count > 0, held, 0))
    found["useful"] = cut.product(s.loops) / lanes
    image = images * (cut.extent(row) + taps - 1) * (cut.extent(column) + taps - 1) * channels * item
    filter_bytes = planes * channels * filters * item
    transformed = planes * tiles * channels * item
    multiplied = planes * tiles * block * item
    traffic = {}
    for level in caches:
        capacity = level.capacity_bytes / max(1, min(level.shared_by, cut.target.num_cores))
        # Written, read once per block of filters; products written and read for every block of channels.
        own = transformed * (1 + np.ceil(filters / block)) + 2 * multiplied * np.ceil(filters / block) * parts
        kept = transformed + multiplied <= capacity
        # A plane's filters, of one block of channels, stay while all rows of tiles go by, where half of the cache holds them.
        plane = taken * block * item
        again = np.where(plane <= capacity / 2, 1.0, np.ceil(tiles / unroll))
        traffic[level.name] = {
            data.name: image,
            filters_operand.name: filter_bytes * again,
            s.result.name: 2.0 * cut.product(s.parallel) * item + np.where(kept, 0.0, own),
        }
    return found, traffic


def _outputs(shape: Sequence[int], taps: int) -> int:
    """The m of F(m, r): filters are stored with as many planes behind them as (m + r - 1)^2 products take."""
    known = {1 + -(-((m + taps - 1) ** 2) // taps**2): m for m in (2, 4)}
    return known[shape[-5]]
