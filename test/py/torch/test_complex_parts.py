"""Parts of complex numbers are read where they were made, through what moves them."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import tilewright
from tilewright.compiler import driver
from tilewright.compiler.importers.torch.complex_parts import read_parts

aten = torch.ops.aten


def _moved(a, b):
    z = torch.complex(a, b).transpose(0, 1)[1:].unsqueeze(1).expand(3, 2, 3).flip(0)
    return z.real * 2 + z.imag


def _of_pairs(a, b):
    z = torch.view_as_complex(torch.stack([a, b], -1)).reshape(-1)
    return z.imag - z.real


def _read_twice(a, b):
    z = torch.complex(a, b)
    return z.real + z.t().imag.t(), torch.view_as_real(z) * 1


def _of_a_sum(a, b):
    return (torch.complex(a, b) + 1).real.exp()


def _returned(a, b):
    return torch.complex(a, b).real


@pytest.mark.parametrize(
    ("function", "left"),
    [(_moved, 0), (_of_pairs, 0), (_read_twice, 1), (_of_a_sum, 1), (_returned, 1)],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_parts_are_read_where_they_were_made(function, left):
    a, b = torch.randn(3, 4), torch.randn(3, 4)
    module = make_fx(function, tracing_mode="fake")(a, b)
    read_parts(module.graph)
    module.recompile()
    assert len(module.graph.find_nodes(op="call_function", target=aten.view_as_real.default)) == left
    torch.testing.assert_close(module(a, b), function(a, b))
    torch.testing.assert_close(tilewright.compile(function, (a, b))(a, b), function(a, b))


def test_transforms_along_two_dimensions():
    x = torch.randn(2, 6, 10)

    def filtered(x):
        spectrum = torch.fft.fft2(x)
        return torch.fft.ifft2(spectrum * spectrum.conj()).real * 2, torch.fft.irfft2(torch.fft.rfft2(x))

    torch.testing.assert_close(tilewright.compile(filtered, (x,))(x), filtered(x), rtol=1e-4, atol=1e-4)


def test_parts_of_an_argument_are_read_of_it():
    """Without its pairs of numbers in between, which would be written and read again."""

    def parts(z):
        return z.real * 2 + z.t().imag.t(), z.imag.exp()

    z = torch.randn(3, 4, dtype=torch.complex64)
    module = make_fx(parts, tracing_mode="fake")(z)
    read_parts(module.graph)
    module.recompile()
    assert not module.graph.find_nodes(op="call_function", target=aten.view_as_real.default)
    torch.testing.assert_close(module(z), parts(z))
    torch.testing.assert_close(tilewright.compile(parts, (z,))(z), parts(z))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_products_of_matrices_are_real_ones(dtype):
    """Any others would be loops over single numbers."""

    def products(x, y):
        return (
            x @ y,
            x.T @ x,
            torch.einsum("ij,kj->ik", x, x.conj()),
            torch.stack([x, x * 1j]) @ y,
            torch.addmm(y[:1], x, y),
        )

    x, y = torch.randn(30, 17, dtype=dtype), torch.randn(17, 21, dtype=dtype)
    imported = str(driver.import_model(products, (x, y)).module)
    assert not [line for line in imported.splitlines() if "linalg.matmul" in line and "complex" in line]
    for ours, theirs in zip(tilewright.compile(products, (x, y))(x, y), products(x, y), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
