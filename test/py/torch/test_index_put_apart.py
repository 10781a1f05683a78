"""Numbers of dimensions that stand apart, `x[i, :, j] = v`: whichever dimensions, ranks of numbers and values."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright
from tilewright.compiler.importers.torch import indexing as torch_indexing

aten = torch.ops.aten


@st.composite
def writes(draw):
    """A tensor, numbers for some of its dimensions, and values that broadcast to what they name."""
    shape = draw(st.lists(st.integers(1, 3), min_size=3, max_size=5))
    named = draw(
        st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)).filter(lambda n: sum(n) > 1)
    )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1 << 20)))
    common = draw(st.sampled_from([(), (2,), (2, 3)]))

    def numbers(extent: int) -> torch.Tensor:
        of = [draw(st.sampled_from([n, 1])) for n in common][draw(st.integers(0, len(common))) :]
        return torch.randint(-extent, extent, of, generator=generator)

    indices = [numbers(n) if is_named else None for n, is_named in zip(shape, named)]
    x = torch.randint(0, 9, shape, generator=generator)
    region = [draw(st.sampled_from([n, 1])) for n in aten.index(x, indices).shape]
    return x, indices, torch.randint(0, 9, region, generator=generator)


@given(writes())
@settings(deadline=None, max_examples=300)
def test_dimensions_are_moved_to_the_front(case):
    x, indices, values = case
    found = torch_indexing.index_put(x, indices, values, True)
    expected = aten.index_put(x, indices, values, True)
    if found is not NotImplemented:
        assert torch.equal(found, expected)
    positions = [d for d, index in enumerate(indices) if index is not None]
    if positions != list(range(positions[0], positions[-1] + 1)):
        assert found is not NotImplemented


@pytest.mark.parametrize("accumulate", [False, True])
def test_compiled_writes(accumulate):
    def write(x, i, j, v):
        y, z = x.clone(), x.clone()
        y[i, :, j] = 7.0
        y[..., 1::2] += 1
        z[0, :, j] = v[0]
        return y, z, aten.index_put(x, [i, None, j], v, accumulate)

    rows, columns = torch.tensor([[0], [-1]]), torch.tensor([1, 2, 4])
    args = (torch.randn(4, 3, 5), rows, columns, torch.randn(2, 3, 3))
    for found, expected in zip(tilewright.compile(write, args)(*args), write(*args)):
        assert torch.equal(found, expected)
        assert found.stride() == expected.stride()
