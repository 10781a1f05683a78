"""Functions that libm computes one by one, in kernels whose loops are written in vectors."""

from __future__ import annotations

import pytest
import torch

import tilewright

FUNCTIONS = [torch.erf, torch.exp, torch.tanh, torch.log1p, torch.sinh]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_transposing_kernels_call_functions_lane_by_lane(function, dtype: torch.dtype) -> None:
    x = torch.linspace(-0.9, 3, 300, dtype=torch.float64).to(dtype).reshape(2, 30, 5)

    def transposed(x: torch.Tensor) -> torch.Tensor:
        return (function(x.transpose(1, 2)) + 1).contiguous()

    found, wanted = tilewright.compile(transposed, (x,))(x), transposed(x)
    assert found.stride() == wanted.stride()
    torch.testing.assert_close(found, wanted)
