"""Assignments through boolean masks: choices between old and new elements, or refused by name."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.importers.torch import indexing as torch_indexing
from tilewright.compiler.torch.fallback import FallbackWarning

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]


@st.composite
def assignments(draw):
    """A tensor, how many dimensions stand before the mask's, the mask, and values that broadcast."""
    shape = draw(st.lists(st.integers(0, 3), min_size=1, max_size=5))
    first = draw(st.integers(0, len(shape) - 1))
    last = draw(st.integers(first + 1, len(shape)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 1 << 20)))
    dtype = draw(st.sampled_from(DTYPES))
    x = torch.randint(0, 2 if dtype == torch.bool else 9, shape, generator=generator).to(dtype)
    mask = torch.rand(shape[first:last], generator=generator) < draw(st.sampled_from([0.0, 0.5, 1.0]))
    wide = [*shape[:first], 1, *shape[last:]]
    wide = [draw(st.sampled_from([n, 1])) for n in wide][draw(st.integers(0, len(wide))) :]
    wide = [1] * draw(st.integers(0, 1)) * (len(wide) == len(shape) - mask.dim() + 1) + wide
    values = torch.randint(0, 2, wide, generator=generator).to(dtype)
    return x, [None] * first + [mask], values


@given(assignments(), st.booleans())
@settings(deadline=None, max_examples=300)
def test_masked_assignments_are_choices(case, accumulate):
    x, indices, values = case
    found = torch_indexing.index_put(x, indices, values, accumulate)
    assert found is not NotImplemented and found.dtype == x.dtype
    try:
        expected = torch.ops.aten.index_put(x, indices, values, accumulate)
    except (IndexError, RuntimeError):
        return  # eager refuses some broadcasts of values by leading ones
    assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "compiler", [tilewright.compile, lambda f, args: torch.compile(f, backend="tilewright")]
)
@pytest.mark.filterwarnings("ignore")
def test_compiled_assignments(compiler):
    def assign(x):
        y, z = x.clone(), x.clone()
        y[y > 0] = 0
        y[y[:, :, 0, 0] < 0] = 1.5
        z[:, z[0, :, 0, 0] > 0] = x[:, :1]
        return y, z, x.index_put((x > 0,), x[0, 0, 0, 0], accumulate=True)

    x, before = torch.randn(2, 3, 2, 2), tilewright.fallback_count()
    for found, expected in zip(compiler(assign, (x,))(x), assign(x)):
        assert torch.equal(found, expected)
    assert tilewright.fallback_count() == before


SHAPED_BY_DATA = {
    "as many values as the mask has": lambda x, v: x.index_put((x > 0,), v[:2]),
    "a mask per dimension": lambda x, v: x.view(2, 2).index_put((v[:2] > 0, v[2:] > 0), v[0]),
    "a mask beside numbers": lambda x, v: x.view(2, 2).index_put((torch.tensor([0]), v[2:] > 0), v[0]),
}


@pytest.mark.parametrize("name", SHAPED_BY_DATA)
def test_what_depends_on_the_mask_is_refused_by_name(name):
    x, values = torch.tensor([1.0, -1.0, 2.0, -2.0]), torch.ones(4)
    function = SHAPED_BY_DATA[name]
    with pytest.raises(UnsupportedError, match=r"(?s)index_put.*another number of values for another mask"):
        tilewright.compile(function, (x, values))
    before = tilewright.fallback_count()
    compiled = torch.compile(lambda x, v: function(x, v) + 1, backend="tilewright")
    with pytest.warns(FallbackWarning, match="another mask"):
        found = compiled(x, values)
    assert torch.equal(found, function(x, values) + 1) and tilewright.fallback_count() == before + 1


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_indices_of_every_width(dtype):
    x, i = torch.randn(4, 3), torch.tensor([0, -1], dtype=dtype)

    def indexed(x, i):
        return x[i], x[:, i], x[i, i.abs()], x.index_put((i,), x[:2]), x.index_select(0, i.abs())

    for found, expected in zip(tilewright.compile(indexed, (x, i))(x, i), indexed(x, i)):
        assert torch.equal(found, expected)
