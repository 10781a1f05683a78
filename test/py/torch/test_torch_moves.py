"""Operators that move elements against eager PyTorch: decompositions as they are, and compiled."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright
from tilewright.compiler.importers.torch import indexing as torch_indexing


@st.composite
def rolls(draw):
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    if not shape or draw(st.booleans()):
        return shape, [draw(st.integers(-30, 30))], []
    dims = draw(st.lists(st.integers(-len(shape), len(shape) - 1), min_size=1, max_size=4))
    return shape, [draw(st.integers(-10, 10)) for _ in dims], dims


@given(rolls())
@settings(deadline=None, max_examples=200)
def test_rolls_count_shifts_modulo_the_extent(case):
    shape, shifts, dims = case
    x = torch.arange(torch.Size(shape).numel()).reshape(shape)
    torch.testing.assert_close(torch_indexing.roll(x, shifts, dims), x.roll(shifts, dims), rtol=0, atol=0)


@pytest.mark.parametrize(
    "compiler", [tilewright.compile, lambda f, args: torch.compile(f, backend="tilewright")]
)
def test_compiled_rolls(compiler):
    def rolled(x):
        return (
            x.roll(-3, 0),
            x.roll((5, -3), (1, 1)),
            x.roll(0, 2),
            x.roll(7),
            x[0, 0].roll(-2),
            x[0, 0, 0].roll(1),
        )

    x = torch.arange(18).reshape(2, 9, 1)
    before = tilewright.fallback_count()
    for found, wanted in zip(compiler(rolled, (x,))(x), rolled(x)):
        assert torch.equal(found, wanted)
    assert tilewright.fallback_count() == before


def test_copies_of_views_are_dense():
    def every(x, y):
        copies = [torch.view_copy(x, (-1,)), torch.slice_copy(x, 1, 0, 2), torch.select_copy(x, 0, -1)]
        copies += [*torch.split_copy(x, 2, 1), *torch.unbind_copy(x), torch.detach_copy(x)]
        return [*copies, torch.view_as_real_copy(torch.view_as_complex_copy(y))]

    x, y = torch.arange(12.0).reshape(4, 3).t(), torch.arange(6.0).reshape(3, 2)
    wanted = every(x, y)
    for ours, eager in zip(tilewright.compile(every, (x, y))(x, y), wanted, strict=True):
        torch.testing.assert_close(ours, eager)
        assert ours.stride() == eager.stride()
