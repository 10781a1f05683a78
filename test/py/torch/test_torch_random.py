"""Random numbers under torch.compile: eager PyTorch's own, from the same seed, forward and backward, call after call."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import nn

import tilewright
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.torch import fallback
from tilewright.compiler.torch.fallback import FallbackWarning

WHOLE = {
    "dropouts": lambda x: F.dropout(F.dropout(x, 0.3) * 2, 0.5),
    "dropout of nothing and of all": lambda x: F.dropout(x, 0.0) + F.dropout(x, 1.0) + x * torch.rand_like(x),
    "dropout of channels": lambda x: F.dropout2d(x, 0.4) + F.feature_alpha_dropout(x, 0.2, training=True),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.3, training=True),
    "like": lambda x: (x * torch.rand_like(x) + torch.randn_like(x), torch.randn_like(x)),
    "of a shape": lambda x: (
        x * torch.rand(5) + torch.randn(5) + torch.randint(-3, 9, (5,)) + torch.randperm(5)
    ),
    "coins": lambda x: x * torch.empty_like(x).bernoulli_(0.3) * torch.bernoulli(x.detach(), 0.6),
    "in place": lambda x: (
        x * torch.empty_like(x).uniform_(-1, 2)
        + torch.empty(5).normal_(1, 2)
        + torch.zeros(5).exponential_(2)
    ),
    "more in place": lambda x: (
        x * torch.empty(5).log_normal_() + torch.empty(5).cauchy_() + torch.empty(5).geometric_(0.3)
    ),
    "whole numbers": lambda x: (
        x * torch.empty(5, dtype=torch.int64).random_(10)
        + torch.randint_like(x, 3)
        - torch.randint_like(x, 3)
    ),
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.3),
    "choice": lambda x: F.gumbel_softmax(x, dim=1),
    "itself": lambda x: (torch.rand(3), x),
}
BY_DATA = {
    "coins by data": lambda x: x * torch.bernoulli(torch.sigmoid(x.detach())),
    "means": lambda x: x + torch.normal(x.detach(), 1.0) * torch.rand(5),
    "leaky": lambda x: F.rrelu(x, training=True) * torch.rand(5),
    "in between": lambda x: (
        torch.rand(5) * x[:, chosen(x)] * torch.rand(5)
        + torch.poisson(x[:, :2].detach().abs())
        + torch.rand(5)
    ),
}


def chosen(x: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(x.detach()[0, :, 0, 0].abs(), 2)


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    fallback._reported.clear()


def images(layout: str) -> torch.Tensor:
    x = torch.linspace(-2, 2, 3 * 4 * 4 * 5).reshape(3, 4, 4, 5)
    if layout == "channels_last":
        return x.to(memory_format=torch.channels_last)
    return x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0) if layout == "reversed" else x


def steps(function, x: torch.Tensor, gradients: bool) -> list[torch.Tensor]:
    """Results, gradients and the generator's state over two calls from one seed."""
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_(gradients)
    torch.manual_seed(7)
    found = []
    for _ in range(2):
        y = function(x)
        y = y if isinstance(y, tuple) else (y,)
        found += [part.detach() for part in y]
        if gradients:
            sum(part.square().sum() for part in y if part.requires_grad).backward()
            found.append(x.grad.clone())
    return [*found, torch.get_rng_state()]


@pytest.mark.parametrize(
    ("layout", "gradients"), [("plain", True), ("channels_last", True), ("reversed", False)]
)
@pytest.mark.parametrize("name", WHOLE)
def test_draws_are_those_of_eager_pytorch(name, layout, gradients):
    """In one compiled graph, on memory in any order."""
    f = torch.compile(WHOLE[name], backend="tilewright", options={"strict": True})
    before = tilewright.fallback_count()
    found, wanted = (steps(g, images(layout), gradients) for g in (f, WHOLE[name]))
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert tilewright.fallback_count() == before


@pytest.mark.parametrize("name", BY_DATA)
def test_draws_by_data_keep_their_place_among_the_others(name):
    """They run eagerly, are counted, and each takes its numbers when its turn comes."""
    f = torch.compile(BY_DATA[name], backend="tilewright")
    before = tilewright.fallback_count()
    with pytest.warns(FallbackWarning, match="eagerly where they depend on data"):
        found = steps(f, images("plain"), True)
    for ours, theirs in zip(found, steps(BY_DATA[name], images("plain"), True), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert tilewright.fallback_count() > before


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_masks_do_not_depend_on_the_type(dtype):
    f = torch.compile(lambda x: F.dropout(x, 0.1), backend="tilewright", options={"strict": True})
    found, wanted = (steps(g, images("plain").to(dtype), True) for g in (f, lambda x: F.dropout(x, 0.1)))
    assert torch.equal(found[0], wanted[0])
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-2 if dtype is torch.bfloat16 else 1e-12, atol=0)


def test_a_transformer_trains_with_dropout_as_in_eager_pytorch():
    ours = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True).train()
    theirs = copy.deepcopy(ours)
    x = torch.randn(2, 5, 16)
    f = torch.compile(ours, backend="tilewright", options={"strict": True})
    for model in (f, theirs):
        torch.manual_seed(3)
        for _ in range(2):
            model(x).square().sum().backward()
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters()):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-3, msg=name)


def test_compiling_draws_nothing():
    x = images("plain")
    torch.manual_seed(0)
    before = torch.get_rng_state()
    torch.compile(lambda x: x * 2 + 1, backend="tilewright")(x)
    assert torch.equal(before, torch.get_rng_state())


def test_random_numbers_differ_from_call_to_call():
    f, ones = torch.compile(nn.Dropout(0.5), backend="tilewright"), torch.ones(1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = f(ones)
    assert 300 < int((first == 0).sum()) < 700 and not torch.equal(first, f(ones))


def test_without_torch_compile_they_are_refused_with_what_to_do():
    with pytest.raises(UnsupportedError, match=r"under torch.compile .*; else call model.eval\(\)"):
        tilewright.compile(nn.Dropout(0.5), (torch.ones(4),))
    f = tilewright.compile(nn.Dropout(0.5).eval(), (torch.ones(4),))
    assert torch.equal(f(torch.ones(4)), torch.ones(4))
