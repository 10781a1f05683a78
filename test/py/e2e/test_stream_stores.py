"""Results larger than the last cache are whole and exact, wherever in memory they begin."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import tilewright
from tilewright.compiler.targets.host import host


class Scaled(nn.Module):
    """An element-wise operation that ends in another type."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * 2 - 1).to(self.dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int16], ids=str)
@pytest.mark.parametrize("shift", [0, 1, 5])
def test_every_element_is_stored(dtype, shift):
    width = torch.empty(0, dtype=dtype).element_size()
    count = host().memory[1].capacity_bytes // width + 1237
    x = torch.arange(count, dtype=torch.float32) % 1000
    run = tilewright.compile(Scaled(dtype), (x,)).executable
    room = np.full(count + 64, 7, dtype=torch.empty(0, dtype=dtype).numpy().dtype)
    begin = (-room.ctypes.data % 64) // width + shift
    found = room[begin : begin + count]
    run.run([x.data_ptr()], [found.ctypes.data])
    np.testing.assert_array_equal(found, (x * 2 - 1).to(dtype).numpy())
    assert (room[:begin] == 7).all() and (room[begin + count :] == 7).all()
