"""Bits of a tensor read, and written, as another type of equal size."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tilewright
from tilewright.compiler.errors import ModelImportError
from tilewright.compiler.importers.torch.types import dtype_name
from tilewright.runtime.arrays import numpy_dtype

PAIRS = [
    *((torch.float32, torch.int32), (torch.float64, torch.int64), (torch.int8, torch.uint8)),
    *((torch.float16, torch.int16), (torch.bfloat16, torch.int16), (torch.float16, torch.bfloat16)),
]


def agree(function, *args):
    ours, theirs = [a.clone() for a in args], [a.clone() for a in args]
    found = tilewright.compile(function, args)(*ours)
    for left, right in zip([*found, *ours], [*function(*theirs), *theirs]):
        assert left.dtype == right.dtype and left.shape == right.shape
        assert torch.equal(left.reshape(-1).view(torch.uint8), right.reshape(-1).view(torch.uint8))


@pytest.mark.parametrize("shape", [(2, 5), (), (0, 3)], ids=str)
@pytest.mark.parametrize("pair", [*PAIRS, *((b, a) for a, b in PAIRS)], ids=str)
def test_bits_as_another_type(pair, shape):
    start, other = pair
    x = torch.arange(-5, 5).to(start)[: torch.Size(shape).numel()].reshape(shape)
    agree(lambda x: (x.view(other), x.view(other).clone().view(start), (x * 2).view(other)), x)


def test_writes_through_bits():
    def written(x):
        y = x.clone()
        bits, argument = y.view(torch.int32), x.view(torch.int32)
        bits &= 0x7FFFFFFF
        argument += 1
        y *= 2
        return y, bits * 1

    agree(written, torch.tensor([[1.0, -2.0], [-0.0, 3.5]]))


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_bits_of_an_argument_are_its_memory(pair, tmp_path):
    def views(x):
        bits = x.view(pair[1])
        return bits, bits.t(), bits[1:, 2], x

    example = torch.arange(12).to(pair[0]).reshape(3, 4)
    compiled = tilewright.compile(views, (example,))
    compiled.save(tmp_path / "views.twm")
    for x in (
        example,
        torch.arange(12).to(pair[0]).reshape(4, 3).t(),
        torch.ones(6, 8, dtype=pair[0])[::2, ::2],
    ):
        for found, wanted in zip(compiled(x), views(x)):
            assert found.dtype == wanted.dtype and found.stride() == wanted.stride()
            assert found.data_ptr() == wanted.data_ptr() and torch.equal(found, wanted)
    array = np.arange(12, dtype=np.int16).reshape(3, 4).astype(numpy_dtype(dtype_name(pair[0])))
    loaded = tilewright.load(tmp_path / "views.twm")
    for found in (*compiled(array), *loaded(array)):
        assert np.shares_memory(found, array)
    assert loaded(array)[0].dtype == numpy_dtype(dtype_name(pair[1]))


OTHERS = (torch.uint8, torch.int16, torch.bfloat16, torch.float32, torch.int64, torch.float64)


@pytest.mark.parametrize("shape", [(2, 8), (3, 1, 8), (0, 8)], ids=str)
@pytest.mark.parametrize("start", [*OTHERS, torch.bool], ids=str)
def test_bits_as_types_of_other_sizes(start, shape):
    x = torch.arange(-9, torch.Size(shape).numel() - 9).to(start).reshape(shape)
    others = [other for other in OTHERS if 8 * start.itemsize % other.itemsize == 0]
    agree(lambda x: [x.view(other) for other in others], x)
    agree(lambda x: [(x * 1).view(other) for other in others if other != start], x)


def test_bytes_as_booleans():
    x = torch.tensor([[0, 1, 1], [1, 0, 0]], dtype=torch.uint8)
    agree(lambda x: (x.view(torch.bool), ~x.view(torch.bool), (x == 0).view(torch.int8)), x)


def test_types_that_do_not_divide_the_last_dimension_are_refused():
    with pytest.raises(ModelImportError, match="must be divisible"):
        tilewright.compile(lambda x: x.view(torch.float64) + 1, (torch.zeros(3),))
