"""Quantised grids that training pretends to compute on, against eager PyTorch: values, masks and gradients."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo

import tilewright

X = torch.randn(3, 4, 5)
X[0, 0] = torch.tensor([0.05, 0.15, -0.25, 25.25, 100.0])  # ties, and beyond the ends
SCALE = torch.tensor([0.1, 0.3, 0.02, 1.5])

WAYS = {
    "per tensor": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, 0, 255),
    "signed": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.7, -2, -8, 7),
    "of double precision": lambda x: torch.fake_quantize_per_tensor_affine(x.double(), 0.1, 3, 0, 255),
    "per channel of double precision": lambda x: torch.fake_quantize_per_channel_affine(
        x.double(), SCALE.clone(), torch.zeros(4, dtype=torch.int32), 1, -8, 7
    ),
    "by tensors": lambda x: torch.fake_quantize_per_tensor_affine(
        x, torch.tensor(0.1), torch.tensor(3, dtype=torch.int32), 0, 255
    ),
    "per channel": lambda x: torch.fake_quantize_per_channel_affine(
        x, SCALE.clone(), torch.tensor([0, 1, -2, 3], dtype=torch.int32), 1, -8, 7
    ),
    "fractional zero points": lambda x: torch.fake_quantize_per_channel_affine(
        x, SCALE.clone(), torch.tensor([0.5, 1.25, -2.0, 3.0]), 1, -8, 7
    ),
    "last channel": lambda x: torch.fake_quantize_per_channel_affine(
        x.mT, SCALE.clone(), torch.zeros(4, dtype=torch.int32), 2, 0, 255
    ),
}


@pytest.mark.parametrize("name", WAYS)
def test_values_and_gradients(name):
    x = X.clone().requires_grad_()
    torch._dynamo.reset()
    expected = WAYS[name](x)
    torch.testing.assert_close(tilewright.compile(WAYS[name], (X,))(X), expected.detach(), rtol=0, atol=0)
    before = tilewright.fallback_count()
    found = torch.compile(WAYS[name], backend="tilewright")(x)
    cotangent = torch.randn_like(expected)
    gradients = [torch.autograd.grad(result, x, cotangent)[0] for result in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=0, atol=0)
    assert tilewright.fallback_count() == before


LEARNT = {
    "per tensor": (
        lambda x, s, z: torch._fake_quantize_learnable_per_tensor_affine(x, s, z, 0, 255, 0.5),
        (torch.tensor([0.1]), torch.tensor([3.2])),
    ),
    "per channel": (
        lambda x, s, z: torch._fake_quantize_learnable_per_channel_affine(x, s, z, 1, 0, 15, 2.0),
        (SCALE, torch.tensor([1.0, 2.7, -3.0, 40.0])),
    ),
}


@pytest.mark.parametrize("name", LEARNT)
def test_learnt_grids(name):
    function, parameters = LEARNT[name]
    arguments = [value.clone().requires_grad_() for value in (X, *parameters)]
    torch._dynamo.reset()
    before = tilewright.fallback_count()
    results = function(*arguments), torch.compile(function, backend="tilewright")(*arguments)
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
    cotangent = torch.randn_like(results[0])
    expected, found = (torch.autograd.grad(result, arguments, cotangent) for result in results)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert tilewright.fallback_count() == before


def test_switched_off_by_a_tensor():
    def model(x, enabled):
        return torch._fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
            x, torch.tensor([0.1]), torch.tensor([3], dtype=torch.int32), enabled, 0, 255
        )

    compiled = tilewright.compile(model, (X, torch.ones(1, dtype=torch.int64)))
    for enabled in (torch.ones(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)):
        torch.testing.assert_close(compiled(X, enabled), model(X, enabled), rtol=0, atol=0)
