"""Operators on lists of tensors, on their own and as optimizers use them under `torch.compile`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import tilewright
from tilewright.compiler.importers.torch import foreach as torch_foreach

each: Any = torch  # the functions have no public names
UNARY = sorted(
    set(torch_foreach._SAME.split()) - {"add", "sub", "mul", "div", "pow", "lerp", "clamp_max", "clamp_min"}
)


def test_functions_of_one_tensor():
    def f(x, y):
        found = [getattr(each, f"_foreach_{name}")([x, y]) for name in UNARY]
        each._foreach_zero_([z := x.clone()])
        return found, z, each._foreach_norm([x, y], 1), each._foreach_norm([x], float("inf"))

    x, y = torch.rand(3, 4) * 0.8 + 0.1, torch.rand(5) * 0.8 + 0.1
    torch.testing.assert_close(tilewright.compile(f, (x, y))(x, y), f(x, y), rtol=1e-4, atol=1e-5)


def test_functions_of_more():
    def f(x, y, n):
        a, b, s = [x, y], [y, x], [2.0, -3.0]
        values = torch.tensor([0.5, 4.0])
        clone = [x.clone(), y.clone()]
        each._foreach_copy_(clone, [n, y])
        each._foreach_add_(clone, 1)
        return [
            clone,
            each._foreach_add(a, 2),
            each._foreach_add(a, b, alpha=3),
            each._foreach_add(a, s),
            each._foreach_add(a, torch.tensor(2.0), alpha=2),
            each._foreach_add([n, x], 1.5),
            each._foreach_sub(a, b, alpha=0.5),
            each._foreach_mul(a, torch.tensor(2.0)),
            each._foreach_div(a, s),
            each._foreach_pow(2.0, a),
            each._foreach_pow(a, 3),
            each._foreach_lerp(a, b, 0.3),
            each._foreach_lerp(a, b, b),
            each._foreach_addcmul(a, b, a, 0.7),
            each._foreach_addcmul(a, b, a, values),
            each._foreach_addcdiv(a, b, a, s),
            each._foreach_addcdiv(a, b, a, values),
            each._foreach_maximum(a, 0.2),
            each._foreach_maximum(a, b),
            each._foreach_minimum(a, s),
            each._foreach_clamp_min(a, b),
        ]

    args = torch.randn(4), torch.randn(4), torch.tensor([1, -2, 0, 5])
    torch.testing.assert_close(tilewright.compile(f, args)(*args), f(*args), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adamax"])
def test_compiled_optimizers(name):
    theirs = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    mine, before = copy.deepcopy(theirs), tilewright.fallback_count()
    torch._dynamo.reset()
    for model, is_compiled in ((theirs, False), (mine, True)):
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01, weight_decay=0.1, foreach=True)
        step = torch.compile(optimizer.step, backend="tilewright") if is_compiled else optimizer.step
        for number in range(3):
            generator = torch.Generator().manual_seed(number)
            optimizer.zero_grad()
            model(torch.randn(5, 6, generator=generator)).square().sum().backward()
            step()
    torch.testing.assert_close(mine.state_dict(), theirs.state_dict(), rtol=1e-3, atol=1e-4)
    assert tilewright.fallback_count() == before
