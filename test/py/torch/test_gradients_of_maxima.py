"""Gradients of maxima go to the elements that are the maximum, however those were computed."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F

MAXIMA = {
    "amax of a product": lambda x, w, b: (x * w + b).amax(1),
    "amin over rows": lambda x, w, b: torch.sin(x * w + b.exp()).amin(0),
    "amax of an activation": lambda x, w, b: F.gelu(x * w + b).amax((0, 2)),
    "amax of a norm": lambda x, w, b: F.layer_norm(x, (6,), w, b).amax(-2),
    "maximum of all": lambda x, w, b: (x.softmax(-1) * w).max(),
    "largest magnitude": lambda x, w, b: (x * w + b).norm(float("inf"), dim=1),
    "smallest magnitude": lambda x, w, b: (x * w + b).norm(-float("inf"), dim=0),
    "amax of a window": lambda x, w, b: F.max_pool1d(x * w + b, 2),
}


@pytest.mark.parametrize("maximum", MAXIMA.values(), ids=MAXIMA)
def test_gradients_reach_the_largest(maximum):
    torch._dynamo.reset()
    x, w, b = torch.randn(4, 33, 6) * 3, torch.randn(6), torch.randn(6)
    compiled = torch.compile(maximum, backend="tilewright", options={"strict": True})
    gradients = []
    for function in (compiled, maximum):
        arguments = [t.clone().requires_grad_() for t in (x, w, b)]
        function(*arguments).square().sum().backward()
        gradients.append([t.grad for t in arguments])
    for found, wanted in zip(*gradients):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
