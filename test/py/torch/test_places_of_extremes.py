"""Places of extremes: of lines in memory by way of their values, which vectors find; of others as PyTorch looks for them."""

from __future__ import annotations

import math

import pytest
import torch

import tilewright
from tilewright.compiler.importers.torch import order

aten = torch.ops.aten
OPERATORS = [aten.argmax.default, aten.argmin.default, aten.max.dim, aten.min.dim]
DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8]


def places(x):
    return [
        *(x.argmax(-1), x.argmin(2, keepdim=True), x.max(-1), x.min(-1, keepdim=True)),
        *(x.argmax(), x.argmin(keepdim=True), x[:, 0].argmax(-1), x.mT.max(1), x.mT.argmin(-1)),
    ]


@pytest.mark.parametrize("dtype", [*DTYPES, torch.uint8], ids=str)
@pytest.mark.parametrize("n", [3, 19])
def test_the_first_extreme_or_the_first_nan_is_met(dtype, n):
    x = torch.randint(0, 5, (6, 3, n)).to(dtype)
    if dtype.is_floating_point:
        x[0, 0, 1], x[0, 0, 2], x[4, 1, 2] = math.nan, math.nan, -0.0
        x[1, 1], x[2, 2], x[3, 0] = -math.inf, math.nan, math.inf
    found = tilewright.compile(places, (x,))(x)
    torch.testing.assert_close(found, places(x), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lines_in_memory_are_looked_through_by_value(operator, dtype):
    decomposition = order.TABLE[operator]
    x = torch.randint(0, 5, (3, 12)).to(dtype)
    for keep in (False, True):
        found = decomposition(x, -1, keep)
        assert found is not NotImplemented
        expected = operator(x, -1, keep)
        torch.testing.assert_close(found, tuple(expected) if isinstance(expected, tuple) else expected)
    for other, dim in ((x, 0), (x.t(), 1), (x[:, :5], 1), (x[:0], 1), (x.new_zeros(()), 0)):
        assert decomposition(other, dim) is NotImplemented
