"""Operators that are given functions, through both entry points, against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch._dynamo
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import tilewright
from tilewright.compiler.torch.fallback import FallbackWarning

X, V, W = torch.randn(4, 5), torch.randn(5), torch.randn(5, 5)


def _slices(results):
    return tuple(result * 2 for result in results)


LOOPS = {
    "map": lambda x, v, w: mapped(lambda row, other: torch.tanh(row * other + 1), x, v),
    "map of two": lambda x, v, w: _slices(
        mapped(lambda rows, other: (rows[0] * other, rows[1].sum()), (x, x + 1), v)
    ),
    "map with a choice by a mask": lambda x, v, w: mapped(
        lambda row, other: torch.where(row > 0, row, other).masked_fill(row > 1, 0.0), x, v
    ),
    "scan": lambda x, v, w: scan(lambda sums, row: (sums + row, sums * row), v, x),
    "scan backwards": lambda x, v, w: scan(
        lambda state, row: (torch.tanh(state @ w + row), state * row), v, x, reverse=True
    ),
    "scan of columns": lambda x, v, w: scan(
        lambda state, column: (state * 0.5 + column, state.sum()), v[:4], x, dim=1
    ),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_known_length(name):
    torch._dynamo.reset()
    arguments = [value.clone().requires_grad_() for value in (X, V, W)]
    before = tilewright.fallback_count()
    expected = LOOPS[name](*arguments)
    found = torch.compile(LOOPS[name], backend="tilewright")(*arguments)
    torch.testing.assert_close(found, expected)
    flat = [torch.utils._pytree.tree_leaves(results) for results in (expected, found)]
    cotangents = [torch.randn_like(result) for result in flat[0]]
    gradients = [
        torch.autograd.grad(results, arguments, cotangents, allow_unused=True, materialize_grads=True)
        for results in flat
    ]
    torch.testing.assert_close(*gradients)
    assert tilewright.fallback_count() == before


def _masked(q, k, v):
    # Queries 0 and 1 see no key.
    mask = create_block_mask(lambda b, h, i, j: i > j + 1, None, None, 6, 7, device="cpu")
    return flex_attention(q, k, v, block_mask=mask, enable_gqa=True)


SLOPES = torch.randn(4)
SCORES = {
    "plain": lambda q, k, v: flex_attention(q, k, v, enable_gqa=True),
    "causal": lambda q, k, v: flex_attention(
        q, k, v, lambda s, b, h, i, j: torch.where(i >= j, s, -torch.inf), enable_gqa=True
    ),
    "by heads": lambda q, k, v: flex_attention(
        q, k, v, lambda s, b, h, i, j: s + SLOPES[h] * (j - i), enable_gqa=True, scale=0.2
    ),
    "rows without keys": _masked,
    "sums of powers": lambda q, k, v: flex_attention(q, k, v, return_lse=True, enable_gqa=True),
}


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_attention_with_functions(name):
    torch._dynamo.reset()
    q, k, v = torch.randn(2, 4, 6, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
    expected = SCORES[name](q, k, v)
    before = tilewright.fallback_count()
    torch.testing.assert_close(torch.compile(SCORES[name], backend="tilewright")(q, k, v), expected)
    assert tilewright.fallback_count() == before


@pytest.mark.parametrize("name", LOOPS)
def test_loops_without_dynamo(name):
    expected = LOOPS[name](X, V, W)
    torch.testing.assert_close(tilewright.compile(LOOPS[name], (X, V, W))(X, V, W), expected)


@pytest.mark.parametrize("name", SCORES)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_attention_without_dynamo(name):
    q, k, v = torch.randn(2, 4, 6, 8), torch.randn(2, 2, 7, 8), torch.randn(2, 2, 7, 8)
    compiled = tilewright.compile(SCORES[name], (q, k, v))
    torch.testing.assert_close(compiled(q, k, v), SCORES[name](q, k, v))


LENGTH = 40
CAUSAL = create_block_mask(lambda b, h, i, j: i >= j, None, None, LENGTH, LENGTH, device="cpu")
FUSED = {
    "plain": lambda q, k, v: flex_attention(q, k, v),
    "causal": lambda q, k, v: flex_attention(q, k, v, block_mask=CAUSAL),
    "bounded": lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: 20 * torch.tanh(s / 20)),
    "compiled by the model": lambda q, k, v: torch.compile(flex_attention)(q, k, v, block_mask=CAUSAL),
}


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_attention_with_functions_is_one_kernel(name):
    q, k, v = (torch.randn(1, 2, LENGTH, 16) for _ in range(3))
    torch._dynamo.reset()
    compiled = tilewright.compile(FUSED[name], (q, k, v))
    assert len(compiled.executable.package.kernels) == 1
    torch.testing.assert_close(compiled(q, k, v), FUSED[name](q, k, v))


def test_what_a_model_compiles_itself_is_traced():
    inner = torch.compile(lambda x: x.sin() + 1)
    compiled = tilewright.compile(lambda x: inner(x) * 2, (X,))
    torch.testing.assert_close(compiled(X), (X.sin() + 1) * 2)


def test_what_values_choose_runs_eagerly_and_says_why():
    def model(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) * 2

    torch._dynamo.reset()
    with pytest.warns(FallbackWarning, match=r"cond at .* calls functions that it is given"):
        found = torch.compile(model, backend="tilewright")(X)
    torch.testing.assert_close(found, model(X))
