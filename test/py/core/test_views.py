"""Slices are views exactly where numpy says that their elements are neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.analysis.views import element_count, is_view, slice_offset
from tilewright.compiler.ir import ir, parse, walk

_ALIVE: list[ir.Module] = []


def operation(name: str, text: str) -> ir.Operation:
    module = parse(text)
    _ALIVE.append(module)
    return walk(module.operation, name)[0]


def sliced(shape, offsets, sizes, strides) -> ir.Operation:
    source = f"tensor<{''.join(f'{s}x' for s in shape)}f32>"
    result = f"tensor<{''.join(f'{s}x' for s in sizes)}f32>"
    return operation(
        "tensor.extract_slice",
        f"func.func @f(%x: {source}) -> {result} {{ %r = tensor.extract_slice %x{list(offsets)} {list(sizes)} "
        f"{list(strides)} : {source} to {result} return %r : {result} }}",
    )


@st.composite
def slices(draw):
    """(extent, offset, size, stride) per dimension; most take a dimension whole, or one element of it."""
    chosen = []
    for _ in range(draw(st.integers(1, 4))):
        extent = draw(st.integers(1, 5))
        offset = draw(st.sampled_from([0, 0, draw(st.integers(0, extent - 1))]))
        stride = draw(st.sampled_from([1, 1, 1, 2]))
        most = -(-(extent - offset) // stride)
        size = draw(st.sampled_from([most, 1, draw(st.integers(1, most))]))
        chosen.append((extent, offset, size, stride))
    return tuple(zip(*chosen))


@settings(max_examples=300, deadline=None)
@given(slices())
def test_offsets_are_numpys(chosen):
    shape, offsets, sizes, strides = chosen
    elements = np.arange(np.prod(shape)).reshape(shape)
    window = tuple(slice(o, o + n * s, s) for o, n, s in zip(offsets, sizes, strides))
    taken = elements[window].ravel()
    assert taken.size == np.prod(sizes)
    neighbours = bool((np.diff(taken) == 1).all())
    op = sliced(shape, offsets, sizes, strides)
    offset = slice_offset(op)
    if offset is not None:
        assert neighbours
        assert offset == taken[0]
    elif all(stride == 1 for stride in strides):
        assert not neighbours
    assert is_view(op) == (offset is not None)


def test_slices_that_drop_dimensions_are_views():
    op = operation(
        "tensor.extract_slice",
        "func.func @f(%x: tensor<4x3x5xf32>) -> tensor<5xf32> { %r = tensor.extract_slice %x[2, 1, 0] [1, 1, 5] "
        "[1, 1, 1] : tensor<4x3x5xf32> to tensor<5xf32> return %r : tensor<5xf32> }",
    )
    assert slice_offset(op) == (2 * 3 + 1) * 5


def test_dynamic_slices_are_copies():
    op = operation(
        "tensor.extract_slice",
        "func.func @f(%x: tensor<8xf32>, %i: index) -> tensor<2xf32> { %r = tensor.extract_slice %x[%i] [2] [1] "
        ": tensor<8xf32> to tensor<2xf32> return %r : tensor<2xf32> }",
    )
    assert not is_view(op)


@pytest.mark.parametrize(
    "name, text",
    [
        ("tensor.collapse_shape", "tensor.collapse_shape %x [[0, 1]] : tensor<4x2xf32> into tensor<8xf32>"),
        (
            "tensor.expand_shape",
            "tensor.expand_shape %x [[0, 1], [2]] output_shape [2, 2, 2] : tensor<4x2xf32> into tensor<2x2x2xf32>",
        ),
    ],
)
def test_reshapes_are_views(name, text):
    result = text.rpartition(" into ")[2]
    op = operation(
        name, f"func.func @f(%x: tensor<4x2xf32>) -> {result} {{ %r = {text} return %r : {result} }}"
    )
    assert is_view(op)
    assert element_count(op.results[0].type) == 8


def test_transposes_are_none():
    op = operation(
        "linalg.transpose",
        "func.func @f(%x: tensor<4x2xf32>, %y: tensor<2x4xf32>) -> tensor<2x4xf32> { %r = linalg.transpose "
        "ins(%x : tensor<4x2xf32>) outs(%y : tensor<2x4xf32>) permutation = [1, 0] return %r : tensor<2x4xf32> }",
    )
    assert not is_view(op)
