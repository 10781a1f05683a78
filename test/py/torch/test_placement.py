"""Tensors computed inside of others: joined with constants, joined twice, returned as well, through every path."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tilewright

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8]


def check(function, *args, calls: int = 2, **options) -> None:
    """Compiled, `function` gives what eager does, at the second call too and for other values."""
    compiled = tilewright.compile(function, args, **options)
    with torch.no_grad():
        for call in range(calls):
            own = [(arg.roll(call) if arg.dim() else arg + call).clone() for arg in args]
            torch.testing.assert_close(compiled(*own), function(*own))


class Joins(nn.Module):
    """A parameter, a buffer and a literal at the first, a middle and the last place, returned and computed on."""

    def __init__(self, dtype: torch.dtype):
        super().__init__()
        self.token = nn.Parameter(torch.arange(1, 9).view(1, 1, 8).to(dtype), requires_grad=False)
        self.register_buffer("table", torch.arange(24).view(3, 8).to(dtype))

    def forward(self, x):
        literal = torch.tensor([[3, 1, 2, 5, 4, 7, 6, 9]]).to(x.dtype)
        token = self.token.expand(2, -1, -1)
        tokens = torch.cat((token, x), 1)
        table = torch.cat((self.table, x[0], self.table))
        return (
            tokens,
            torch.cat((x, token), 1).flip(2),
            torch.cat((tokens, torch.cat((token, x * 2), 1)), 2),
            table,
            torch.cat((literal, x[1], literal)),
            torch.stack((self.table[0], x[0, 0], self.table[1])),
            torch.cat((self.table[:2], table[1:4])) + 1,
            F.pad(torch.cat((self.table[1:], x[0])), (1, 1)).cumsum(0),
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype).split(".")[1])
def test_constants_are_joined_at_any_place(dtype):
    check(Joins(dtype).eval(), torch.arange(48).remainder(11).view(2, 3, 8).to(dtype))


def test_booleans_are_joined_with_constants():
    flags = torch.tensor([True, False, True])
    check(
        lambda x: (torch.cat((flags, x)), torch.cat((x, flags, ~x))), torch.tensor([True, True, False, False])
    )


def test_slices_of_weights_are_read_where_they_lie():
    """What is computed once, when weights are bound, reads slices with gaps: by loops, and by what needs a copy."""
    table = torch.arange(96.0).reshape(4, 4, 6)

    def sliced(x):
        column = table[1:, 1:, 3]
        return (
            torch.cat((column[:, ::2], column[:, ::2] + x), 0),
            x + column.sin().sum(),
            x * column.sort(0, descending=True)[0][0, 1],
            x + table[:, 2:, 1:5].reshape(4, 8).cumsum(1).exp()[0, 0],
        )

    check(sliced, torch.ones(3, 2))


def test_one_constant_in_two_tensors():
    """Concatenations that begin alike share no memory, whatever CSE makes of how they begin."""
    head = torch.arange(4.0)
    check(
        lambda x: (torch.cat((head, x)), torch.cat((head, x + 1)), torch.cat((head, x * 2)).cumsum(0)),
        torch.randn(5),
    )


@pytest.mark.parametrize("size", [1, 3, 16, 40])
def test_a_tensor_is_joined_into_several(size):
    def joined(a, c):
        y = a * 2
        inner = torch.cat((y, c), 1)
        return (
            torch.cat((a, y), 1),
            torch.cat((a, c), 1),
            torch.cat((y, a), 1),
            torch.cat((y, y, inner), 1) @ torch.ones(4 * size, 2),
            torch.cat((inner, y), 1),
            torch.cat((inner, c), 1).relu(),
            torch.stack((y, c, y)),
            torch.cat((y.view(-1), c.reshape(-1))),
            torch.cat((y[1:], c[:1], y[:1])),
            inner,
        )

    check(joined, torch.randn(4, size), torch.randn(4, size))


def test_a_padded_tensor_is_returned_and_joined():
    def padded(x):
        y = x.relu()
        p = F.pad(y, (1, 1, 1, 1))
        return (
            F.conv2d(p, torch.ones(2, 1, 3, 3)),
            p.transpose(0, 1),
            torch.cat((p, p + 1)),
            torch.cat((y, y)),
            F.max_pool2d(F.pad(y, (1, 1, 1, 1), value=2.0), 3, 1),
            F.max_pool2d(F.pad(y, (2, 2, 2, 2)), 3, 1),
            F.pad(p, (1, 1)).sum(3),
        )

    check(padded, torch.randn(1, 1, 6, 16))


def test_weights_bound_anew_are_joined():
    model = Joins(torch.float32).eval()
    compiled = tilewright.compile(model, (torch.randn(2, 3, 8),))
    x = torch.randn(2, 3, 8)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))
        executable = compiled.executable
        names = [spec.name for spec in executable.package.weights]
        held = [torch.as_tensor(weight) for weight in executable.weights]
        executable.rebind([w + (name in ("token", "table")) for name, w in zip(names, held)])
        with torch.no_grad():
            model.token += 1
            model.table += 1


@pytest.mark.parametrize("target", [None, "emulate:sm_90a"])
def test_saved_models_join_what_they_did(target, tmp_path):
    model, other = Joins(torch.float32).eval(), Joins(torch.float32).eval()
    with torch.no_grad():
        other.token.neg_()
    x = torch.randn(2, 3, 8)
    options = {} if target is None else {"target": target}
    for number, each in enumerate((model, other)):
        tilewright.compile(each, (x,), **options).save(str(tmp_path / f"{number}.twm"))
    loaded = [tilewright.load(str(tmp_path / f"{number}.twm")) for number in range(2)]
    for compiled, each in zip(loaded * 2, [model, other] * 2):
        torch.testing.assert_close(compiled(x), each(x))
