"""Folded transposes change no number: attention and products of transposed views agree with eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plain_loops import run
from test_propagate_layouts import Net
from torch import nn
from torch.nn import functional as F
from torch_linalg import import_linalg

import tilewright
from tilewright.compiler.ir import walk
from tilewright.compiler.passes.graph.fold_transposes import transposed_by
from tilewright.compiler.pipeline.pipeline import run_pipeline

BEFORE = "canonicalize,cse,simplify-bodies,separate-bias,generalize-named,canonicalize,cse"


def check(model: nn.Module, *inputs: torch.Tensor) -> int:
    """Runs `model` with folded transposes; returns how many transposes remain."""
    module, arguments = import_linalg(model, *inputs)
    run_pipeline(module.operation, f"builtin.module({BEFORE},fold-transposes)")
    assert module.operation.verify()
    remaining = sum(transposed_by(op) is not None for op in walk(module.operation))
    expected = model(*inputs).detach().numpy()
    np.testing.assert_allclose(run(module, arguments)[0], expected, atol=1e-4, rtol=1e-4)
    return remaining


def heads(x, count):
    batch, length, width = x.shape
    return x.view(batch, length, count, width // count).transpose(1, 2)


def joined(x):
    batch, count, length, width = x.shape
    return x.transpose(1, 2).reshape(batch, length, count * width)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([1, 2]),
    st.sampled_from([1, 3]),
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from(["plain", "scaled", "library", "masked"]),
)
def test_attention_agrees_with_eager(batch, count, length, width, kind):
    def attention(layers, x):
        q, k, v = (heads(layers[name](x), count) for name in "qkv")
        if kind == "library":
            return joined(F.scaled_dot_product_attention(q, k, v))
        if kind == "scaled":
            q = q * 0.5 + torch.arange(width)
        scores = q @ k.transpose(-1, -2)
        if kind == "masked":
            scores = scores + torch.ones(length, length).triu(1) * -3
        return joined(scores.softmax(-1) @ v)

    torch.manual_seed(0)
    size = count * width
    model = Net(attention, **{name: nn.Linear(size, size) for name in "qkv"})
    check(model, torch.randn(batch, length, size))


@pytest.mark.parametrize("batch", [1, 2])
def test_attention_keeps_only_the_transposed_keys(batch):
    def attention(layers, x):
        q, k, v = (heads(part, 4) for part in x.split(32, 2))
        return joined((q @ k.transpose(-1, -2) / 3).softmax(-1) @ v)

    assert check(Net(attention), torch.randn(batch, 6, 96)) == 1


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.permutations(range(4)),
    st.permutations(range(4)),
    st.permutations(range(4)),
    st.lists(st.sampled_from([1, 2, 3]), min_size=5, max_size=5),
)
def test_products_of_permuted_views_agree_with_eager(left, right, out, extents):
    a, b, m, n, k = extents

    def compute(_, x, y):
        x = x.permute(tuple(np.argsort(left))).relu()
        y = y.permute(tuple(np.argsort(right)))
        return (x @ y).permute(out)

    x = torch.randn([(a, b, m, k)[dim] for dim in left])
    y = torch.randn([(a, b, k, n)[dim] for dim in right])
    check(Net(compute), x, y)


def test_a_shared_scale_is_not_moved():
    def compute(_, x, y):
        scaled = x.transpose(0, 1) * 2
        return scaled @ y + scaled.sum()

    assert check(Net(compute), torch.randn(5, 3, 4), torch.randn(3, 4, 2)) == 1


def test_an_operand_that_is_the_others_transpose_is_erased_once() -> None:
    def product(x: torch.Tensor) -> torch.Tensor:
        column = torch.quantile(x, torch.tensor([0.0, 0.3, 1.0]), -1, True)
        return column.mT @ column

    x = torch.randn(1)
    torch.testing.assert_close(tilewright.compile(product, (x,))(x), product(x))
