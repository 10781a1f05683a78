"""Tensors that a model makes itself: numbers written into copies, and parameters of modules made in `forward`."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tilewright
from tilewright.runtime.errors import KernelAssertError


def agree(function, *args):
    found, wanted = tilewright.compile(function, args)(*args), function(*args)
    for left, right in zip(found, wanted):
        assert left.dtype == right.dtype and left.shape == right.shape
        torch.testing.assert_close(left, right)


def whole(x):
    y = x.clone()
    y[:] = 100
    return y, y.t()


def row(x):
    y = x.clone()
    part, other = y[1:], y[1]
    y[1:] = -56 if x.dtype == torch.int8 else 200
    return part, other, y, y[1, 2]


def turned(x):
    flat = x.clone().view(-1)
    view = flat.unsqueeze(0)
    view.zero_()
    return flat, view.squeeze(0)


def copied(x):
    y = x.clone()
    return y.copy_(torch.tensor(3.75)), y.transpose(0, 1).fill_(7)


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.bool, torch.int64, torch.bfloat16, torch.float64], ids=str
)
@pytest.mark.parametrize("function", [whole, row, turned, copied])
def test_numbers_written_over_copies(function, dtype):
    agree(function, torch.arange(12).reshape(3, 4).to(dtype))


def test_a_number_written_beside_another_is_not_what_is_read():
    def beside(x):
        y = x.clone()
        y[1:] = 9
        return y[:2], y[0], y[1:2]

    agree(beside, torch.arange(12, dtype=torch.uint8).reshape(3, 4))


def test_parameters_that_a_model_makes():
    def model(x):
        norm = nn.LayerNorm(4).requires_grad_(False)
        assert [name for name, _ in norm.named_parameters()] == ["weight", "bias"]
        scale = nn.Parameter(torch.full((4,), 0.25))
        return nn.PReLU(init=0.5)(x), norm(x) * scale, F.prelu(x, nn.Parameter(x[0, :1])), scale + 1

    x = torch.randn(3, 4)
    with torch.no_grad():
        agree(model, x)
        torch.testing.assert_close(tilewright.compile(model, (x,))(-2 * x), model(-2 * x))
    assert type(nn.Parameter(x)) is nn.Parameter


def test_selections_of_one_number_check_their_indices():
    def model(x, i):
        filled = (x * 1).unsqueeze(0)
        filled.fill_(4)
        return torch.ones(3, 5).index_select(0, i), torch.full((2, 4, 3), 7).index_select(-1, i), filled.sum()

    x = torch.randn(2)
    agree(model, x, torch.tensor([2, 0, 1, 2]))
    agree(model, x, torch.tensor([0, 1], dtype=torch.int32))
    for index in (3, -1):
        with pytest.raises(KernelAssertError):
            tilewright.compile(model, (x, torch.tensor([0])))(x, torch.tensor([index]))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int64, torch.float32], ids=str)
def test_choices_that_are_one_number_are_that_number(dtype):
    def chosen(x, condition):
        ones, zero = torch.ones_like(x), torch.zeros((), dtype=x.dtype)
        same = torch.where(condition, ones, 1)
        known = torch.where(torch.full((3,), True), same, x), torch.where(zero == 1, ones, x)
        signed = torch.where(condition, 0.0, -0.0).signbit()
        return (
            same.to(torch.uint8),
            -same,
            *known,
            torch.where(condition, ones, zero),
            signed,
            torch.pow(1, x),
        )

    agree(chosen, torch.tensor([3, 0, 100]).to(dtype), torch.tensor([True, False, True]))


LOOKED_UP = {
    "one": lambda i: torch.full((4,), 2.5)[i],
    "later": lambda i: torch.full((3, 4), True)[:, i],
    "pair": lambda i: torch.ones(4, 5, dtype=torch.int32)[i, i],
    "apart": lambda i: torch.zeros(4, 3, 5)[i, :, i],
    "spread": lambda i: torch.ones(2, 4, 5, dtype=torch.uint8)[:, i[:, None], i],
    "selected": lambda i: torch.ones(3, 4).index_select(1, torch.where(i < 0, i + 4, i)),
}


@pytest.mark.parametrize("path", ["compile", "torch.compile"])
def test_lookups_of_one_number_check_their_indices(path):
    def every(i):
        return [function(i) for function in LOOKED_UP.values()]

    torch._dynamo.reset()
    index = torch.tensor([0, 1])
    if path == "compile":
        compiled = tilewright.compile(every, (index,))
    else:
        compiled = torch.compile(every, backend="tilewright", options={"strict": True})
    for index in ([0, 1], [3, -4], [-1, 2]):
        for ours, wanted in zip(compiled(torch.tensor(index)), every(torch.tensor(index)), strict=True):
            assert ours.dtype == wanted.dtype
            assert torch.equal(ours, wanted)
    for index in ([0, 9], [-9, 0], [4, 0]):
        with pytest.raises(KernelAssertError):
            compiled(torch.tensor(index))


JOINED = {
    "one": lambda c: torch.cat((c([7]), c([7]))),
    "others": lambda c: torch.cat((c([1]), c([200]), c([[3, 4]])[0])),
    "stacked": lambda c: torch.stack((c(1), c(2), c(255)), -1),
    "rows": lambda c: torch.vstack((c(1), c(1), c(2))),
    "columns": lambda c: torch.cat((torch.full((2, 1), 1), torch.full((2, 2), 2)), -1).to(c(0).dtype),
    "wider": lambda c: torch.cat((c([1]).expand(2), c([2]).repeat(3))),
    "again": lambda c: torch.cat((torch.cat((c([1]), c([2]))), c([3]))),
    "none": lambda c: torch.cat((c([]), c([5]))),
    "tiled": lambda c: c([9]).repeat(2, 3),
    "nothing": lambda c: c([9]).repeat(2, 0),
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.bool, torch.int64, torch.float16], ids=str)
@pytest.mark.parametrize("path", ["compile", "torch.compile"])
def test_joined_constants(dtype, path):
    def every(x):
        made = [function(lambda v: torch.tensor(v).to(dtype)) for function in JOINED.values()]
        return [*made, *(value.to(x.dtype) * 2 + x for value in made)]

    torch._dynamo.reset()
    x = torch.ones(1)
    if path == "compile":
        compiled = tilewright.compile(every, (x,))
    else:
        compiled = torch.compile(every, backend="tilewright", options={"strict": True})
    for name, ours, wanted in zip([*JOINED] * 2, compiled(x), every(x), strict=True):
        assert ours.dtype == wanted.dtype, name
        assert torch.equal(ours, wanted), name


PICKS = (
    torch.sort, torch.cummax, torch.cummin, torch.mode, torch.median, torch.max, torch.min,
    lambda c, dim: torch.topk(c, 1, dim), lambda c, dim: torch.kthvalue(c, 1, dim),
)  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int64, torch.float32], ids=str)
def test_elements_of_constants_in_some_order(dtype):
    picks = [pick for pick in PICKS if dtype != torch.bool or pick in (torch.sort, torch.max, torch.min)]

    def every(x):
        constants = [torch.full(shape, 1).to(dtype) for shape in ((4, 1), (1, 3), (2, 3))]
        values = [pick(c, dim)[0] for pick in picks for c in constants for dim in (0, 1)]
        return [*values, *(value + x for value in values)]

    x = torch.ones(1)
    for ours, wanted in zip(tilewright.compile(every, (x,))(x), every(x), strict=True):
        torch.testing.assert_close(ours, wanted)
