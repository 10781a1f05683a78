"""Statistics of numbers whose sums or squares overflow single precision, against eager PyTorch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn import functional as F

import tilewright

LARGEST = torch.finfo(torch.float32).max


def _drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


_LARGE = {
    "one sign": _drawn(4, 3, 5).sigmoid() * LARGEST,
    "both signs": _drawn(4, 3, 5).sign() * LARGEST,
    "one of them": torch.where(torch.arange(5) == 3, LARGEST, _drawn(4, 3, 5)),
    "squares overflow": _drawn(4, 3, 5) * 1e25,
}


@pytest.mark.parametrize("strides", ["dense", "transposed"])
@pytest.mark.parametrize("name", _LARGE)
def test_batch_norm_of_large_numbers(name, strides):
    x = _LARGE[name] if strides == "dense" else _LARGE[name].transpose(1, 2)
    weight, bias = _drawn(x.shape[1]), _drawn(x.shape[1])

    def normalised(x, mean, variance):
        y = F.batch_norm(x, mean, variance, weight, bias, training=True)
        return y, F.batch_norm(x, None, None, training=True), mean, variance

    args = (x, torch.zeros(x.shape[1]), torch.ones(x.shape[1]))
    if strides == "dense":
        wanted = normalised(*copy.deepcopy(args))
    else:  # eager squares in double precision here, but its mean is infinite
        weight, bias = weight.double(), bias.double()
        wanted = [y.float() for y in normalised(*(a.double() for a in args))]
        weight, bias = weight.float(), bias.float()
    found = tilewright.compile(normalised, args)(*args)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", _LARGE)
def test_deviations_of_large_numbers(name):
    x = _LARGE[name]
    functions = [
        lambda x: torch.std(x, 1),
        lambda x: torch.std(x, (0, 2), correction=0, keepdim=True),
        lambda x: torch.std_mean(x, -1)[0],
        lambda x: torch.std_mean(x, 0)[1],
        lambda x: torch.var_mean(x, (0, 1))[1],
        lambda x: torch.var(x, (0, 1)),
        lambda x: torch.std(x * 1e-37 * 1e-25, 1) * 1e25 * 1e30,
    ]
    found = tilewright.compile(lambda x: [function(x) for function in functions], (x,))(x)
    for ours, function in zip(found, functions, strict=True):
        torch.testing.assert_close(ours, function(x), rtol=1e-5, atol=0)


@pytest.mark.parametrize("about", [0.0, 1.0, 1e4, 1e19])
def test_variances_of_numbers_that_are_nearly_equal_or_large(about):
    """The square of the mean's error is no part of them, and they are finite where the sum of the squares is not."""
    torch.manual_seed(0)
    x = about + torch.randn(3, 7, 5) * (1e-3 if about < 1e19 else 6e18)
    functions = [
        lambda x: torch.var(x, 1),
        lambda x: torch.var(x, correction=0),
        lambda x: torch.var_mean(x, (0, 2))[0],
        lambda x: torch.std_mean(x, 2, keepdim=True)[0],
    ]
    found = tilewright.compile(lambda x: [function(x) for function in functions], (x,))(x)
    for ours, function in zip(found, functions, strict=True):
        exact = function(x.double())
        torch.testing.assert_close(ours.double(), exact, rtol=1.5e-7, atol=0)
