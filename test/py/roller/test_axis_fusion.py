"""Workloads in canonical form compute the same, with fewer axes."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.nouns.workload import Operand, Workload
from tilewright.compiler.tuning import operators
from tilewright.compiler.tuning.roller.axis_fusion import Fused, fuse_axes


def flat(operand: Operand, point: tuple[int, ...]) -> int:
    """Where in memory an operand is at a point of the iteration space."""
    address = 0
    for index, extent in zip(operand.index_map, operand.shape):
        at = index.offset
        for term in index.terms:
            step = point[term.variable] // term.divisor
            at += term.scale * (step % term.modulus if term.modulus else step)
        address = address * extent + at
    return address


def accesses(workload: Workload) -> list[tuple[int, ...]]:
    """What every point touches, sorted, so that the order of axes does not matter."""
    points = itertools.product(*(range(extent) for extent in workload.extents))
    return sorted(tuple(flat(operand, point) for operand in workload.operands) for point in points)


def check(fused: Fused) -> None:
    original, canonical = fused.original, fused.workload
    assert math.prod(canonical.extents) == math.prod(original.extents)
    assert canonical.flops == original.flops
    assert accesses(canonical) == accesses(original)


def test_the_elementwise_operator_of_section_3_2() -> None:
    fused = fuse_axes(operators.elementwise([17, 11, 3], inputs=2))
    assert fused.workload.extents == (561,)
    assert [operand.shape for operand in fused.workload.operands] == [(561,)] * 3
    assert fused.groups == ((0, 1, 2),)
    check(fused)


def test_axes_that_one_operand_lacks_stay_apart() -> None:
    assert fuse_axes(operators.matmul(6, 5, 4)).workload.extents == (6, 5, 4)


def test_a_pointwise_convolution_is_a_product_per_image() -> None:
    fused = fuse_axes(operators.conv2d(2, 3, 4, 5, 6, 1))
    assert fused.workload.extents == (2, 6, 20, 3)
    check(fused)


def test_windows_keep_rows_and_columns_apart() -> None:
    fused = fuse_axes(operators.conv2d(2, 3, 4, 5, 6, 3))
    assert fused.workload.extents == (2, 6, 4, 5, 3, 3, 3)
    check(fused)


def test_trailing_reductions_merge() -> None:
    fused = fuse_axes(operators.reduction([4, 5, 6, 7], [2, 3]))
    assert fused.workload.extents == (20, 42)
    check(fused)


def test_reductions_of_other_dimensions_do_not() -> None:
    fused = fuse_axes(operators.reduction([4, 5, 6], [1]))
    assert fused.workload.extents == (4, 6, 5)
    check(fused)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_gathered_convolutions_are_matrix_products(kernel: int, layout: str) -> None:
    fused = fuse_axes(operators.conv2d(2, 3, 4, 5, 6, kernel, layout=layout), gather=True)
    assert sorted(fused.workload.extents) == sorted((40, 6, 3 * kernel * kernel))
    check(fused)


def test_depthwise_convolutions_are_not_gathered() -> None:
    fused = fuse_axes(operators.depthwise_conv2d(2, 3, 4, 5, 3), gather=True)
    assert fused.workload.extents == (2, 3, 4, 5, 3, 3)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.data(),
)
def test_fused_reductions_touch_the_same(shape: list[int], data: st.DataObject) -> None:
    reduced = data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True, max_size=len(shape)))
    check(fuse_axes(operators.reduction(shape, reduced)))


def test_tiles_of_fused_axes_are_boxes_over_the_original_ones() -> None:
    fused = fuse_axes(operators.elementwise([17, 11, 3]))
    assert fused.unfuse((1,)) == (1, 1, 1)
    assert fused.unfuse((3,)) == (1, 1, 3)
    assert fused.unfuse((33,)) == (1, 11, 3)
    assert fused.unfuse((66,)) == (2, 11, 3)
    assert fused.unfuse((561,)) == (17, 11, 3)


def test_axes_of_one_step_are_dropped_and_come_back() -> None:
    fused = fuse_axes(operators.matmul(1, 8, 4))
    assert fused.workload.extents == (8, 4)
    assert fused.unfuse((2, 4)) == (1, 2, 4)
