"""Data tiles inferred from index maps are the boxes that enumerating a tile's points touches."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.nouns.quasi_affine import QuasiAffine, Term
from tilewright.compiler.nouns.workload import Axis, Operand, Workload
from tilewright.compiler.tuning import operators
from tilewright.compiler.tuning.model.rtile import TileGeometry, unit_stride_axis
from tilewright.compiler.tuning.roller import RTile


def position(term: Term, value: int) -> int:
    step = value // term.divisor
    return term.scale * (step % term.modulus if term.modulus else step)


def touched(operand: Operand, tile: tuple[int, ...]) -> tuple[int, ...]:
    """The extents of the box of positions that the points of a tile at the origin touch, by enumeration."""
    found = []
    for index, extent in zip(operand.index_map, operand.shape):
        values = {
            sum(position(t, point[t.variable]) for t in index.terms)
            for point in itertools.product(*(range(size) for size in tile))
        }
        found.append(min(max(values) - min(values) + 1, extent))
    return tuple(found)


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Workload, tuple[int, ...]]:
    """A workload with strided, windowed, packed and broadcast operands, and a tile of it."""
    count = draw(st.integers(1, 4))
    extents = draw(st.lists(st.integers(1, 6), min_size=count, max_size=count))
    axes = tuple(
        Axis(f"a{n}", extent, "parallel" if n < 2 else "reduction") for n, extent in enumerate(extents)
    )
    operands = []
    for number in range(draw(st.integers(2, 4))):
        dims, shape = [], []
        for _ in range(draw(st.integers(0 if number else 1, 3))):
            terms = []
            for axis in draw(st.lists(st.integers(0, count - 1), max_size=2, unique=True)):
                divisor, modulus = draw(st.sampled_from([(1, 0), (1, 0), (2, 0), (1, 2), (2, 2)]))
                terms.append(Term(axis, draw(st.integers(1, 3)), divisor, modulus))
            dims.append(QuasiAffine(tuple(terms)))
            shape.append(1 + sum(max(position(t, v) for v in range(extents[t.variable])) for t in terms))
        operands.append(Operand(f"o{number}", tuple(shape), "f32", tuple(dims), number == 0))
    tile = tuple(draw(st.integers(1, extent)) for extent in extents)
    return Workload("test", axes, tuple(operands)), tile


@settings(max_examples=300, deadline=None)
@given(workloads())
def test_data_tiles_are_what_points_touch(drawn: tuple[Workload, tuple[int, ...]]) -> None:
    workload, tile = drawn
    rtile = RTile(workload, tile)
    expected = [touched(operand, tile) for operand in workload.operands]
    assert rtile.output_tile == expected[0]
    assert rtile.input_tiles == tuple(expected[1:])
    geometry = TileGeometry(workload)
    elements = geometry.elements(np.asarray([tile, tile]))
    assert elements.tolist() == [[math.prod(shape) for shape in expected]] * 2
    for operand, shape in zip(workload.operands, expected):
        assert operand.tile_shape(np.asarray([tile])).tolist() == [list(shape)]


def test_the_matmul_of_figure_4() -> None:
    tile = RTile(operators.matmul(64, 64, 64), (4, 4, 2))
    assert tile.input_tiles == ((4, 2), (2, 4))
    assert tile.output_tile == (4, 4)
    assert tile.stored_bytes == (8 + 8) * 4


def test_windows_overlap_between_tiles() -> None:
    tile = RTile(operators.conv2d(1, 8, 14, 14, 16, 3, stride=2), (1, 16, 2, 7, 8, 3, 3))
    # Two rows of stride 2 under a window of 3 read 5 rows, 7 columns read 15.
    assert tile.input_tiles == ((1, 8, 5, 15), (16, 8, 3, 3))


def test_padding_of_a_convolution_is_not_read() -> None:
    same = operators.conv2d(1, 8, 14, 14, 16, 3, shape=(14, 14))
    assert RTile(same, (1, 1, 14, 14, 1, 3, 3)).input_tiles[0] == (1, 1, 14, 14)


def test_storage_padding_takes_room() -> None:
    padded = RTile(operators.matmul(64, 64, 64), (4, 4, 2), ((0, 1), (0, 0)))
    assert padded.stored_bytes == (4 * 3 + 2 * 4) * 4


def test_a_tile_has_a_size_for_every_axis() -> None:
    with pytest.raises(ValueError, match=r"a tile of matmul needs 3 sizes, found \(4, 4\)"):
        RTile(operators.matmul(8, 8, 8), (4, 4))


def test_the_axis_that_walks_an_operand() -> None:
    matmul = operators.matmul(8, 8, 8)
    assert [unit_stride_axis(operand, matmul) for operand in matmul.operands] == [2, 1, 1]
    pool = operators.pool2d(2, 3, 5, 5, 3, 2)
    # Windows two apart are walked by no parallel axis, but by the window's own.
    assert [unit_stride_axis(operand, pool) for operand in pool.operands] == [5, 3]
