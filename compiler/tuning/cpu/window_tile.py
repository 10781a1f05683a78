"""Register tiles of depthwise convolutions and poolings: a small image of accumulators that shares what its windows read."""

from __future__ import annotations

from functools import cache

from tilewright.compiler.nouns.register_tiles import Window, WindowTile

_LATENCY_X_THROUGHPUT = 8
"""Accumulators that keep two multiply-add units of four cycles' latency busy."""


@cache
def window_tiles(
    rows: Window,
    columns: Window,
    channels: int,
    lanes: int,
    registers: int,
    weights: bool,
    lane_step: int = 1,
) -> tuple[WindowTile, ...]:
    """Tiles that fit the registers, by time per useful output, from multiply-adds and loads that both issue at one rate.

    Registers hold the accumulators, the inputs that one row of the tile's windows spans and one weight. An input is
    loaded once per tile, by a load and a shuffle more for every further element between lanes, a weight once per tap.
    Extents that do not divide are computed by tiles that overlap.
    """
    scored = []
    taps = rows.taps * columns.taps
    for vectors in (1, 2, 3, 4):
        width = vectors * lanes
        if vectors > 1 and width > channels:
            break
        for high in (1, 2, 3, 4):
            for wide in range(1, min(columns.extent, registers) + 1):
                sums, inputs = high * wide * vectors, columns.span(wide) * vectors
                if high > rows.extent or (
                    sums + inputs + 1 > registers and (high, wide, vectors) != (1, 1, 1)
                ):
                    break
                loads = rows.span(high) * inputs * (2 * lane_step - 1) + (taps * vectors if weights else 0)
                cycles = max(taps * sums * max(1.0, _LATENCY_X_THROUGHPUT / sums), loads) + sums
                computed = -(-rows.extent // high) * -(-columns.extent // wide) * -(-channels // width)
                scored.append(((cycles * computed, high, vectors, wide), WindowTile(high, wide, vectors)))
    return tuple(tile for _, tile in sorted(scored, key=lambda row: row[0]))
