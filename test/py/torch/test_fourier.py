"""Fourier transforms against eager PyTorch: values, places in memory, gradients, and lengths that are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import tilewright
from tilewright.compiler.errors import UnsupportedError


def noise(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(math.prod(shape)))


def assert_alike(found: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> None:
    """`found` lies in memory as `expected` does, and is as near to `exact`, which is in double precision, as rounding leaves it."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert found.stride() == expected.stride()
    eps = torch.finfo(expected.real.dtype).eps
    torch.testing.assert_close(
        found.to(exact.dtype), exact, rtol=0.0, atol=16 * eps * float(exact.abs().max().clamp(min=1e-30))
    )


def check(function, x: torch.Tensor) -> None:
    wide = x.to(torch.complex128 if x.is_complex() else torch.float64)
    assert_alike(tilewright.compile(function, (x,))(x), function(x), function(wide))


COMPLEX = {
    "fft": torch.fft.fft,
    "ifft": torch.fft.ifft,
    "of columns": lambda x: torch.fft.fft(x, dim=0),
    "of columns, orthogonal": lambda x: torch.fft.ifft(x, dim=0, norm="ortho"),
    "fft2": torch.fft.fft2,
    "of two dimensions, the other way round": lambda x: torch.fft.ifftn(x, dim=(1, 0)),
    "of more than there is": lambda x: torch.fft.fft(x, n=x.shape[-1] + 3),
    "to real numbers": torch.fft.irfft,
    "to an odd number of them": lambda x: torch.fft.irfft(x, n=2 * x.shape[-1] - 1),
    "of two dimensions to real numbers": lambda x: torch.fft.irfft2(x, norm="forward"),
    "hfft": torch.fft.hfft,
}
REAL = {
    "fft": torch.fft.fft,
    "rfft": torch.fft.rfft,
    "rfft of columns": lambda x: torch.fft.rfft(x, dim=0),
    "rfft2": torch.fft.rfft2,
    "rfftn, the other way round": lambda x: torch.fft.rfftn(x, dim=(1, 0), norm="ortho"),
    "ihfft": torch.fft.ihfft,
    "and back": lambda x: torch.fft.irfft(torch.fft.rfft(x) * 2, n=x.shape[-1]),
}


@pytest.mark.parametrize("shape", [(6, 8), (5, 7), (3, 60)])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_of_complex_numbers(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x = noise(*shape, dtype=dtype)
    wide = x.to(torch.complex128)
    found = tilewright.compile(lambda x: [f(x) for f in COMPLEX.values()], (x,))(x)
    for ours, function in zip(found, COMPLEX.values(), strict=True):
        assert_alike(ours, function(x), function(wide))


@pytest.mark.parametrize("shape", [(6, 8), (5, 7), (3, 60)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_of_real_numbers(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x = noise(*shape, dtype=dtype)
    found = tilewright.compile(lambda x: [f(x) for f in REAL.values()], (x,))(x)
    for ours, function in zip(found, REAL.values(), strict=True):
        assert_alike(ours, function(x), function(x.double()))


@settings(deadline=None, max_examples=12)
@given(st.integers(1, 1500))
def test_of_any_length(length: int) -> None:
    check(torch.fft.rfft, noise(2, length))


@pytest.mark.parametrize(
    "length", [64, 65, 67, 128, 194, 1021, 3 * 97, 4096, 2 * 3 * 5 * 7 * 11, 64 * 64 * 3]
)
def test_lengths_are_taken_apart(length: int) -> None:
    check(torch.fft.fft, noise(2, length, dtype=torch.complex64))
    check(lambda x: torch.fft.irfft(torch.fft.rfft(x), n=length), noise(3, length))


SHORT = [2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 20, 31, 32, 35, 60, 64]


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
def test_every_short_length(target: str) -> None:
    """More lines than a vector has lanes, next to each other along memory or not; the last vector overlaps others."""
    functions = (
        lambda x, n: torch.fft.fft(torch.complex(x, x.flip(0))[:, :n]),
        lambda x, n: torch.fft.rfft(x[:, :n]),
        lambda x, n: torch.fft.irfft(torch.complex(x, x.flip(0))[:, : n // 2 + 1], n=n),
        lambda x, n: torch.fft.rfft(x.t()[:n], dim=0),
        lambda x, n: torch.fft.irfft(torch.complex(x, x.flip(0)).t()[: n // 2 + 1], n=n, dim=0),
    )

    def all_of(x: torch.Tensor) -> list[torch.Tensor]:
        return [function(x, n) for n in SHORT for function in functions]

    x = noise(19, 64)
    compiled = tilewright.compile(all_of, (x,), target=target)
    for ours, theirs, exact in zip(compiled(x), all_of(x), all_of(x.double()), strict=True):
        assert_alike(ours, theirs, exact)


@pytest.mark.parametrize("lines", [1, pytest.param(8, marks=pytest.mark.slow), 20])
@pytest.mark.parametrize("length", [96, 255, 1000, 3072])
def test_of_few_and_many_lines(lines: int, length: int) -> None:
    x = noise(lines, length)

    def both_ways(x: torch.Tensor) -> list[torch.Tensor]:
        spectrum = torch.fft.rfft(x)
        return [spectrum, torch.fft.irfft(spectrum * 2, n=length), torch.fft.ifft(spectrum, n=length)]

    found = tilewright.compile(both_ways, (x,))(x)
    for ours, theirs, exact in zip(found, both_ways(x), both_ways(x.double()), strict=True):
        assert_alike(ours, theirs, exact)


@pytest.mark.parametrize("shape", [(12, 33), (9, 5), (1, 20)])
def test_on_a_gpu_they_are_products(shape: tuple[int, int]) -> None:
    functions = (*(REAL[name] for name in ("fft", "rfft2", "and back")), lambda x: torch.fft.ifft(x, dim=0))

    def all_of(x: torch.Tensor) -> list[torch.Tensor]:
        found = [function(x) for function in functions]
        return [torch.view_as_real(f.resolve_conj()) if f.is_complex() else f for f in found]

    x = noise(*shape)
    found = tilewright.compile(all_of, (x,), target="emulate:sm_80")(x)
    for ours, exact in zip(found, all_of(x.double()), strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=0.0, atol=2e-6 * float(exact.abs().max()))


def test_of_numbers_that_are_transposed() -> None:
    check(lambda x: torch.fft.fft(x.transpose(0, 1), dim=0), noise(7, 12, dtype=torch.complex64))


def test_signals_are_cut_into_windows_and_put_together_again() -> None:
    window = torch.hann_window(64, dtype=torch.float64)

    def spectra(x: torch.Tensor) -> torch.Tensor:
        return torch.stft(x, 64, 16, window=window.to(x.dtype), return_complex=True)

    def signal(x: torch.Tensor) -> torch.Tensor:
        return torch.istft(x, 64, 16, window=window.to(x.real.dtype))

    check(spectra, noise(2, 640))
    check(signal, spectra(noise(2, 640)))


class Mixer(nn.Module):
    """Tokens that are mixed by a transform of both dimensions, as in FNet, and weighed frequency by frequency."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(noise(16, 13, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mixed = torch.fft.fft(torch.fft.fft(x, dim=-1), dim=-2).real
        return mixed + torch.fft.irfft(torch.fft.rfft(x) * self.weight, n=x.shape[-1])


def test_gradients() -> None:
    model, x = Mixer(), noise(3, 16, 24)

    def gradient(function) -> torch.Tensor:
        (found,) = torch.autograd.grad(function(x).square().sum(), [model.weight])
        return torch.view_as_real(found)

    found, expected = gradient(torch.compile(model, backend="tilewright")), gradient(model)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


def test_lengths_with_a_large_prime_factor_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="_fft_r2c"):
        tilewright.compile(torch.fft.rfft, (noise(2, 4099),))


WINDOWS = [
    ((2, 20), 1, 5, 2),
    ((2, 20), 1, 4, 4),
    ((3, 17, 4), 1, 3, 5),
    ((3, 17, 4), 1, 16, 1),
    ((9,), 0, 9, 2),
]


@pytest.mark.parametrize(("shape", "dim", "size", "step"), WINDOWS)
def test_windows_are_added_up_in_the_order_of_eager(
    shape: tuple[int, ...], dim: int, size: int, step: int
) -> None:
    grads = [noise(*torch.zeros(shape).unfold(dim, size, step).shape)]
    grads += [grads[0].to(torch.bfloat16), (8 * grads[0]).to(torch.int64)]

    def gathered(*grads: torch.Tensor) -> list[torch.Tensor]:
        return [torch.ops.aten.unfold_backward(grad, list(shape), dim, size, step) for grad in grads]

    for ours, theirs in zip(
        tilewright.compile(gathered, tuple(grads))(*grads), gathered(*grads), strict=True
    ):
        np.testing.assert_array_equal(ours.float().numpy(), theirs.float().numpy())
        assert ours.stride() == theirs.stride()
