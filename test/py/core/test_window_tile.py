"""Register tiles of windows fit the registers, stay inside their extents, and re-use what windows share."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilewright.compiler.nouns.register_tiles import Window
from tilewright.compiler.tuning.cpu.window_tile import window_tiles

windows = st.builds(Window, st.integers(1, 112), st.integers(1, 8), st.integers(1, 3), st.integers(1, 2))


@given(
    windows,
    windows,
    st.integers(4, 1000),
    st.sampled_from([4, 8, 16]),
    st.sampled_from([16, 32]),
    st.booleans(),
)
def test_tiles_fit_registers_and_extents(rows, columns, channels, lanes, registers, weights):
    tiles = window_tiles(rows, columns, channels, lanes, registers, weights)
    assert tiles and len(set(tiles)) == len(tiles)
    for tile in tiles:
        assert 1 <= tile.rows <= rows.extent and 1 <= tile.columns <= columns.extent
        assert tile.vectors == 1 or tile.vectors * lanes <= channels
        needed = tile.vectors * (tile.rows * tile.columns + columns.span(tile.columns)) + 1
        assert needed <= registers or (tile.rows, tile.columns, tile.vectors) == (1, 1, 1)


@given(st.integers(6, 64), st.integers(2, 7))
def test_neighbouring_outputs_share_their_inputs(extent, taps):
    tile, *_ = window_tiles(Window(extent, taps), Window(extent, taps), 64, 16, 32, weights=True)
    assert tile.rows * tile.columns * tile.vectors >= 6


def test_a_narrow_image_takes_more_rows_or_registers():
    tile, *_ = window_tiles(Window(7, 3), Window(2, 3), 512, 16, 32, weights=True)
    assert tile.rows * tile.vectors >= 4


def test_span_counts_strides_and_dilations():
    assert Window(10, 3).span(4) == 6
    assert Window(10, 3, stride=2).span(4) == 9
    assert Window(10, 3, stride=2, dilation=3).span(1) == 7
