"""Tensors without elements, as operands and as results, against eager PyTorch."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import tilewright

NOTHING = torch.zeros(0, dtype=torch.int64)
FUNCTIONS = {
    "norms": (
        lambda x: (torch.linalg.vector_norm(x, -1, -1), torch.linalg.vector_norm(x, math.inf, (-1, 1), True)),
        [(0, 3, 2)],
    ),
    "joined with nothing": (
        lambda x: (torch.cat((x, x[:0])), torch.cat((torch.empty(0, 3, dtype=torch.float64), x))),
        [(2, 3), (0, 3)],
    ),
    "spread": (
        lambda x: (x.std(), x.var(0), x.std(1, correction=0), torch.var_mean(x, (0, 1), keepdim=True)),
        [(0, 3), (2, 0)],
    ),
    "group_norm": (lambda x: (F.group_norm(x, 2), F.layer_norm(x, x.shape[1:])), [(0, 2, 1, 4), (0, 4, 3)]),
    "adaptive pools of no images": (
        lambda x: (F.adaptive_max_pool2d(x, 3, return_indices=True), F.adaptive_avg_pool2d(x, (3, 2))),
        [(0, 2, 4, 5)],
    ),
    "adaptive pools to nothing": (
        lambda x: [
            pool(x, size)
            for pool in (F.adaptive_max_pool2d, F.adaptive_avg_pool2d)
            for size in (0, (0, 3), (1, 0))
        ],
        [(1, 2, 4, 5)],
    ),
    "adaptive pools of volumes": (
        lambda x: (F.adaptive_max_pool3d(x, 3), F.adaptive_avg_pool3d(x, 3)),
        [(0, 1, 4, 4, 4)],
    ),
    "conv_transpose2d": (
        lambda x: (
            F.conv_transpose2d(x, torch.ones(2, 3, 3, 3), stride=2),
            F.conv_transpose2d(x, torch.ones(2, 1, 3, 3), stride=2, groups=2),
        ),
        [(0, 2, 4, 4)],
    ),
    "grid_sample of volumes": (
        lambda x: (
            F.grid_sample(x, torch.zeros(len(x), 2, 2, 2, 3), align_corners=False),
            F.grid_sample(x, torch.zeros(len(x), 2, 0, 2, 3), "nearest", align_corners=True),
        ),
        [(0, 2, 3, 3, 3), (1, 2, 3, 3, 3)],
    ),
    "writes of nothing": (
        lambda x: (
            x.index_add(0, NOTHING, x[:0]),
            x.index_copy(1, NOTHING, x[:, :0]),
            x.index_put((NOTHING,), x[:0], accumulate=True),
            x.put(NOTHING, x[:0].flatten()),
        ),
        [(2, 3), (0, 3)],
    ),
    "gradient of max_pool": (
        lambda x: torch.func.grad(lambda x: F.max_pool2d(x, 2).sum())(x),
        [(0, 2, 4, 4)],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nothing_is_computed_as_in_eager(name):
    function, shapes = FUNCTIONS[name]
    for shape in shapes:
        for dtype in (torch.float32, torch.float16) if name == "spread" else (torch.float32,):
            x = torch.zeros(shape, dtype=dtype)
            found = tilewright.compile(function, (x,))(x)
            torch.testing.assert_close(found, function(x), equal_nan=True)


@pytest.mark.filterwarnings("ignore::tilewright.compiler.torch.fallback.FallbackWarning")
@pytest.mark.parametrize("shape", [(0, 0), (0, 5, 5)])
def test_effects_that_autograd_orders(shape):
    """AOTAutograd orders checks by an empty tensor, which it gives no call."""
    x = torch.zeros(shape, requires_grad=True)
    result = torch.compile(lambda x: torch.linalg.cholesky(x), backend="tilewright")(x)
    assert torch.autograd.grad(result.sum(), x)[0].shape == x.shape


@pytest.mark.parametrize("layer", [torch.nn.Conv2d(4, 6, 3, groups=2), torch.nn.ConvTranspose2d(4, 6, 2)])
def test_a_batch_of_nothing_has_gradients_of_zeros(layer):
    x = torch.randn(0, 4, 8, 8, requires_grad=True)
    torch._dynamo.reset()
    fallbacks = tilewright.fallback_count()
    torch.compile(layer, backend="tilewright")(x).sum().backward()
    for tensor in (x, layer.weight, layer.bias):
        torch.testing.assert_close(tensor.grad, torch.zeros_like(tensor))
    assert tilewright.fallback_count() == fallbacks
