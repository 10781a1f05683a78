"""Bits of a tensor read, and written, as another type of equal size."""

from __future__ import annotations

import pytest
import torch

import tilewright
from tilewright.compiler.errors import UnsupportedError

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


def test_types_of_other_sizes_are_refused():
    with pytest.raises(UnsupportedError, match="view"):
        tilewright.compile(lambda x: x.view(torch.float64) + 1, (torch.zeros(4),))
