"""Fused attention against float64: shapes that fill no vector, masks of every kind, several ways to write it down."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import tilewright


class Compute(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def operators(compiled) -> list[str]:
    """What the compiled model's dispatches compute."""
    return [note["operator"] for note in compiled.executable.package.notes["dispatches"]]


def check(function: Callable, *inputs: torch.Tensor, tolerance: float = 2e-6, fused: int = 1) -> None:
    """Compiles, counts the fused attentions, and compares with float64 by the largest error over the largest value."""
    model = Compute(function)
    compiled = tilewright.compile(model, inputs)
    assert operators(compiled).count("attention") == fused
    wide = [t.double() if t.is_floating_point() else t for t in inputs]
    result, expected = compiled(*inputs), model(*wide)
    assert result.shape == expected.shape and result.dtype == inputs[0].dtype
    assert torch.equal(result.isnan(), expected.isnan())
    result, expected = result.double().nan_to_num(), expected.nan_to_num()
    assert (result - expected).abs().max() <= tolerance * max(1.0, float(expected.abs().max()))


def heads(*shape: int, dtype=torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(1, 2),
    st.integers(1, 3),
    st.sampled_from([8, 9, 15, 16, 17, 33, 64, 79, 130]),
    st.sampled_from([2, 3, 16, 31, 64, 129, 300]),
    st.sampled_from([1, 8, 16, 20, 64, 80]),
    st.sampled_from([3, 16, 33, 64]),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_cross_attention_of_any_shape(batch, count, rows, columns, inner, width, dtype):
    q, k = (
        heads(batch, count, rows, inner, dtype=dtype),
        heads(batch, count, columns, inner, dtype=dtype, seed=1),
    )
    v = heads(batch, count, columns, width, dtype=dtype, seed=2)
    check(lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(inner), -1) @ v, q, k, v)


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from([16, 50, 64, 100, 197, 301]),
    st.sampled_from([16, 40, 64, 128]),
    st.integers(-1, 1),
)
@example(16, 64, -1)
def test_causal_masks_skip_what_they_hide(rows, width, more):
    columns = max(1, rows + 37 * more)
    q, k = heads(1, 2, rows, width), heads(1, 2, columns, width, seed=1)
    v = heads(1, 2, columns, width, seed=2)
    # A single key leaves no softmax to fuse: its loop folds away.
    fused = int(columns > 1)
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), q, k, v, fused=fused)


def test_what_a_causal_mask_hides_is_not_read():
    q, k, v = (heads(1, 1, 256, 16, seed=i) for i in range(3))
    v[:, :, 250:] = math.inf
    compiled = tilewright.compile(
        Compute(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)), (q, k, v)
    )
    assert compiled(q, k, v)[:, :, :192].isfinite().all()


@pytest.mark.parametrize(
    "shape", [(2, 3, 40, 50), (2, 1, 40, 50), (1, 1, 1, 50), (40, 50), (2, 3, 1, 1), (40, 1)]
)
@pytest.mark.parametrize("kind", ["bool", "float", "added", "filled"])
def test_masks(shape, kind):
    q, k, v = heads(2, 3, 40, 16), heads(2, 3, 50, 16, seed=1), heads(2, 3, 50, 24, seed=2)
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(3)) > 0.3
    if kind == "float":
        mask = heads(*shape, seed=4)
    if kind in ("bool", "float"):
        check(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), q, k, v, mask)
        return

    def attention(q, k, v, m):
        scores = q @ k.transpose(-2, -1)
        if kind == "added":
            scores = scores * 0.3 + (1.0 - m.to(q.dtype)) * -20.0
        else:
            scores = (scores / 4).masked_fill(~m, -math.inf)
        return torch.softmax(scores, -1) @ v

    check(attention, q, k, v, mask)


def test_rows_that_see_nothing():
    q, k, v = (heads(1, 2, 24, 16, seed=i) for i in range(3))
    mask = torch.ones(24, 24, dtype=torch.bool)
    mask[5] = mask[23] = False
    check(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), q, k, v, mask)
    # Softmax itself gives NaN there.
    scores = lambda q, k, m: (q @ k.transpose(-2, -1)).masked_fill(~m, -math.inf)  # noqa: E731
    check(lambda q, k, v, m: torch.softmax(scores(q, k, m), -1) @ v, q, k, v, mask)


@pytest.mark.parametrize("special", [math.nan, math.inf, 1e30, -1e30])
def test_special_values_spread_as_in_eager(special):
    q, k, v = (heads(1, 2, 24, 16, seed=i) for i in range(3))
    k[0, 0, 3, 2] = special
    model = Compute(lambda q, k, v: F.scaled_dot_product_attention(q, k, v))
    result, expected = tilewright.compile(model, (q, k, v))(q, k, v), model(q, k, v)
    assert torch.equal(result.isnan(), expected.isnan())
    torch.testing.assert_close(result.nan_to_num(), expected.nan_to_num(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("is_causal", [False, True])
def test_rows_whose_scores_are_all_infinitely_low_give_zeros(is_causal):
    """Without a mask too, and their gradients are zeros."""
    q, k, v = (heads(1, 2, 24, 16, seed=i) for i in range(3))
    q[0, 0, 7, 2], k[0, 0, :, 2] = math.inf, -1.0
    model = Compute(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal))
    result = tilewright.compile(model, (q, k, v))(q, k, v)
    assert torch.equal(result[0, 0, 7], torch.zeros(16))
    torch.testing.assert_close(result, model(q, k, v), atol=1e-5, rtol=1e-5)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    torch.compile(model, backend="tilewright")(*leaves).sum().backward()
    wanted = [x.clone().requires_grad_() for x in (q, k, v)]
    model(*wanted).sum().backward()
    torch.testing.assert_close(leaves[2].grad, wanted[2].grad, atol=1e-5, rtol=1e-5)


def test_rows_masked_by_the_lowest_number():
    """Masks are often the dtype's lowest number, added: a row of nothing else weighs all keys alike, as in eager."""
    q, k, v = (heads(1, 2, 24, 16, seed=i) for i in range(3))
    mask = torch.zeros(24, 24)
    mask[3:6] = torch.finfo(torch.float32).min
    model = Compute(lambda q, k, v, m: torch.softmax(q @ k.transpose(-2, -1) + m, -1) @ v)
    torch.testing.assert_close(
        tilewright.compile(model, (q, k, v, mask))(q, k, v, mask), model(q, k, v, mask)
    )


def test_large_scores_neither_overflow_nor_vanish():
    q, k, v = (heads(1, 1, 48, 16, seed=i) * 40 for i in range(3))
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), q, k, v, tolerance=1e-4)


@pytest.mark.parametrize(
    "changed",
    [
        lambda s: s * 0.3 + s,
        lambda s: s + (s * 0.3).tanh(),
        lambda s: s * 0.3 + s * 0.5,
        lambda s: s / 2 + (s / 2).tanh(),
        lambda s: s * 2 - s / 2,
        lambda s: torch.where(s > 0, s * 0.25, s),
    ],
    ids=["beside", "under", "two", "one", "both", "chosen"],
)
def test_scores_read_in_several_ways_keep_their_factors(changed):
    q = heads(1, 2, 16, 32)
    check(lambda q: torch.softmax(changed(q @ q.transpose(-1, -2)), -1) @ q, q)


def test_grouped_queries_read_keys_where_they_lie():
    q, k, v = heads(2, 6, 33, 16), heads(2, 2, 45, 16, seed=1), heads(2, 2, 45, 16, seed=2)
    compiled = check_grouped(q, k, v)
    assert operators(compiled) == ["attention"]


def check_grouped(q, k, v):
    function = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)  # noqa: E731
    check(function, q, k, v)
    return tilewright.compile(Compute(function), (q, k, v))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_wide(dtype):
    q, k, v = (heads(2, 2, 40, 32, dtype=dtype, seed=i) for i in range(3))
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), q, k, v, tolerance=1e-2)


@pytest.mark.parametrize("split", ["views", "chunks", "linears", "transposed"])
@pytest.mark.parametrize("batch", [1, 3])
def test_projections_are_read_in_place(split, batch):
    """However queries, keys and values are cut out of a projection, no copy of them is made."""
    hidden, count, length = 48, 3, 40

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.project = nn.Linear(hidden, 3 * hidden)
            self.merge = nn.Linear(hidden, hidden)

        def forward(self, x):
            b, t, h = x.shape
            p = self.project(x)
            if split == "views":
                q, k, v = p.view(b, t, 3, count, h // count).permute(2, 0, 3, 1, 4)
            elif split == "transposed":
                q, k, v = p.view(b, t, count, 3, h // count).permute(3, 0, 2, 1, 4)
            else:
                parts = p.chunk(3, -1) if split == "chunks" else torch.split(p, [h, h, h], -1)
                q, k, v = (part.view(b, t, count, h // count).transpose(1, 2) for part in parts)
            y = F.scaled_dot_product_attention(q, k, v)
            return self.merge(y.transpose(1, 2).reshape(b, t, h))

    torch.manual_seed(0)
    layer, x = Layer().eval(), heads(batch, length, hidden)
    compiled = tilewright.compile(layer, (x,))
    assert operators(compiled) == ["matmul", "attention", "matmul"]
    torch.testing.assert_close(compiled(x), layer(x), atol=1e-5, rtol=1e-5)


def refused(function: Callable, *inputs: torch.Tensor) -> None:
    compiled = tilewright.compile(Compute(function), inputs)
    assert "attention" not in operators(compiled)
    for result, expected in zip(compiled(*inputs), function(*inputs), strict=True):
        torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-4)


def test_weights_that_others_read_stay():
    def attention(q, k, v):
        weights = torch.softmax(q @ k.transpose(-2, -1), -1)
        return weights @ v, weights

    refused(attention, *(heads(1, 2, 24, 16, seed=i) for i in range(3)))


def test_one_query_is_no_vector():
    refused(lambda q, k, v: (F.scaled_dot_product_attention(q, k, v),),
            heads(1, 2, 1, 16), heads(1, 2, 40, 16, seed=1), heads(1, 2, 40, 16, seed=2))  # fmt: skip


def test_other_normalisations_are_no_softmax():
    def squares(q, k, v):
        scores = (q @ k.transpose(-2, -1)) ** 2
        return (scores / scores.sum(-1, keepdim=True) @ v,)

    def over_queries(q, k, v):
        return (torch.softmax(q @ k.transpose(-2, -1), -2) @ v,)

    for function in (squares, over_queries):
        refused(function, *(heads(1, 2, 24, 16, seed=i) for i in range(3)))


def test_many_keys_round_no_more_often_than_blocks():
    """One chain of 5,000 weighted values was wrong by 1.4e-6."""
    torch.manual_seed(0)
    x = torch.rand(1, 2, 5000, 32) + 0.5

    class Attention(nn.Module):
        def forward(self, x):
            return F.scaled_dot_product_attention(x, x, x)

    with torch.inference_mode():
        found, exact = tilewright.compile(Attention(), (x,))(x), Attention()(x.double())
    assert (found.double() - exact).norm() / exact.norm() < 3e-7
