"""Functions of floats at their poles, infinities and roots, and what exact division leaves, against eager PyTorch."""

from __future__ import annotations

import math

import pytest
import torch

import tilewright

aten = torch.ops.aten

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def compiled(functions, *args):
    """The results of all `functions`, compiled as one."""
    return tilewright.compile(lambda *args: [function(*args) for function in functions], args)(*args)


@pytest.mark.parametrize("dtype", FLOATS)
def test_division_leaves_exact_rests(dtype):
    x = torch.cat(
        [torch.linspace(-50, 50, 41), torch.tensor([0.0, -0.0, 6e4, -1e20, math.inf, math.nan])]
    ).to(dtype)
    y = torch.tensor([0.3, -0.7, 3.0, math.inf, 0.0, math.nan]).to(dtype).unsqueeze(1)
    functions = [torch.fmod, torch.remainder]
    functions += [
        lambda x, _, rest=rest, y=y: rest(x, y) for rest in (torch.fmod, torch.remainder) for y in (0.3, -2)
    ]
    found = compiled(functions, x, y)
    by_numbers = [torch.tensor(number, dtype=dtype) for number in (0.3, -2)]
    divisors = [y, y, *by_numbers, *by_numbers]
    rests = [torch.fmod, torch.remainder, *[torch.fmod] * 2, *[torch.remainder] * 2]
    for ours, rest, divisor in zip(found, rests, divisors, strict=True):
        wanted = rest(x.to(torch.float64), divisor.to(torch.float64)).to(
            dtype
        )  # eager's f32 gives up beside 1e20
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, wanted, rtol=0, atol=0, equal_nan=True)
        number = ~wanted.isnan()
        assert torch.equal(ours.signbit()[number], wanted.signbit()[number])


@pytest.mark.parametrize("dtype", FLOATS)
def test_gamma_functions_at_poles_and_roots(dtype):
    special = [0.0, -0.0, -1, -2, 1, 2, 0.5, 1.5, 2.5, 1e4, math.inf, -math.inf, math.nan]
    beside = [c + d for c in (0.0, 1, 2, -1, 3) for d in (1e-2, -1e-2, 1e-6, -1e-6, 0.3)]
    x = torch.tensor(special + beside, dtype=torch.float64).to(dtype)
    log, derivative = compiled([torch.lgamma, torch.digamma], x)
    accuracy = {torch.float64: 1e-12, torch.float32: 1e-6}.get(dtype)
    for ours, function in ((log, torch.lgamma), (derivative, torch.digamma)):
        wanted = function(x.to(torch.float64)).to(dtype)
        torch.testing.assert_close(
            ours, wanted, rtol=accuracy, atol=None if accuracy is None else 0, equal_nan=True
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.uint8])
def test_numbers_keep_their_precision(dtype):
    x = torch.tensor([0.1, 1.1, 2.3, 7.7], dtype=torch.float64).to(dtype)
    functions = [
        lambda x: math.pi - x,
        lambda x: torch.rsub(x, 3.3) if x.dtype.is_floating_point else x,
        lambda x: torch.rsub(x, 7, alpha=2),
        lambda x: torch.linspace(4.3, 50.3, 50, dtype=x.dtype),
        lambda x: torch.linspace(40, 1, 7, dtype=x.dtype),
        lambda x: torch.linspace(40, 1, 2, dtype=x.dtype),
    ]
    accuracy = {torch.float64: 1e-14, torch.float32: 1e-6}.get(dtype, 0)
    for ours, function in zip(compiled(functions, x), functions, strict=True):
        torch.testing.assert_close(ours, function(x), rtol=accuracy, atol=0)


@pytest.mark.parametrize("parameter", [None, "its own", torch.float32])
@pytest.mark.parametrize("dtype", FLOATS)
def test_saved_statistics_have_the_type_of_parameters(dtype, parameter):
    x = torch.randn(2, 4, 4, generator=torch.Generator().manual_seed(0)).to(dtype)
    if dtype == torch.float64 and parameter == torch.float32:
        pytest.skip("eager has no narrower parameters")
    weight = (
        None if parameter is None else torch.ones(4, dtype=dtype if parameter == "its own" else parameter)
    )
    functions = [
        lambda x: aten._native_batch_norm_legit.no_stats(x, weight, weight, True, 0.1, 1e-5),
        lambda x: aten.native_batch_norm(x, weight, weight, None, None, True, 0.1, 1e-5),
        lambda x: aten.native_group_norm(x, weight, weight, 2, 4, 4, 2, 1e-5),
        lambda x: aten.native_layer_norm(x, [4], weight, weight, 1e-5),
    ]
    for ours, function in zip(compiled(functions, x), functions, strict=True):
        wanted, *statistics = function(x)  # eager normalises by statistics that it has rounded to 16 bits
        torch.testing.assert_close(ours[0], wanted, rtol=0, atol=4 * torch.finfo(dtype).eps)
        torch.testing.assert_close(list(ours[1:]), statistics, check_stride=False)
