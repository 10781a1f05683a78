"""Register tiles of depthwise convolutions and poolings: a small image of accumulators that shares what its windows read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

_LATENCY_X_THROUGHPUT = 8
"""Accumulators that keep two multiply-add units of four cycles' latency busy."""


@dataclass(frozen=True)
class Window:
    """One dimension of a window: `extent` outputs, at `stride`, each over `taps` inputs that lie `dilation` apart."""

    extent: int
    taps: int
    stride: int = 1
    dilation: int = 1

    def span(self, outputs: int) -> int:
        """Inputs from the first to the last that `outputs` neighbouring outputs read."""
        return (outputs - 1) * self.stride + (self.taps - 1) * self.dilation + 1


@dataclass(frozen=True)
class WindowTile:
    """`rows` x `columns` outputs of `vectors` registers each."""

    rows: int
    columns: int
    vectors: int


@cache
def choose_window_tile(
    rows: Window, columns: Window, channels: int, lanes: int, registers: int, weights: bool
) -> WindowTile:
    """The tile with the least time per useful output, from multiply-adds and loads that both issue at one rate.

    Registers hold the accumulators, the inputs that one row of the tile's windows spans and one weight. An input is
    loaded once per tile, a weight once per tap. Extents that do not divide are computed by tiles that overlap.
    """
    best, chosen = (float("inf"), 0, 0), WindowTile(1, 1, 1)
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
                loads = rows.span(high) * inputs + (taps * vectors if weights else 0)
                cycles = max(taps * sums * max(1.0, _LATENCY_X_THROUGHPUT / sums), loads) + sums
                computed = -(-rows.extent // high) * -(-columns.extent // wide) * -(-channels // width)
                score = (cycles * computed, high, vectors)
                if score < best:
                    best, chosen = score, WindowTile(high, wide, vectors)
    return chosen
