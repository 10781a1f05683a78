"""Shapes that follow from the values of constants: masks, numbers and places that no call can change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch._dynamo
import torch.nn.functional as F

import tilewright
from tilewright.compiler.errors import UnsupportedError
from tilewright.runtime.errors import KernelAssertError

MASK = torch.tensor([True, False, True, True])


def put(x, index, values):
    own = x.clone()
    own[index] = values
    return own


MASKS = {
    "a list": lambda x: x[[True, False, True, False]],
    "a list behind": lambda x: x[:, [True, False, True, True, False]],
    "all false": lambda x: x[[False] * 4],
    "a tensor": lambda x: x[torch.tensor([False, True, False, True])],
    "two dimensions": lambda x: x[torch.arange(20).reshape(4, 5) % 3 == 0],
    "triangle": lambda x: x[torch.ones(4, 5).triu().bool()],
    "computed": lambda x: x[(torch.arange(4) > 0) & MASK],
    "from outside": lambda x: x[MASK],
    "of numpy": lambda x: x[:, np.array([True, False, True, False, True])],
    "beside a number": lambda x: x[torch.tensor([True, False, True, False]), torch.tensor([1, 2])],
    "two masks": lambda x: x[MASK, torch.tensor([True, False, True, False, True])],
    "masked_select": lambda x: x.masked_select(torch.tensor([True, False, True, True, False])),
    "put": lambda x: put(x, [True, False, True, False], torch.ones(2, 5) * 3),
    "put one value": lambda x: put(x, [True, False, True, False], 3.0),
    "put elements": lambda x: put(x, torch.arange(20).reshape(4, 5) % 7 == 0, torch.tensor([1.0, 2.0, 3.0])),
    "put beside": lambda x: put(
        x, (torch.tensor([True, False, True, False]), torch.tensor([1, 2])), x[0, :2]
    ),
    "accumulated": lambda x: x.index_put(
        (torch.tensor([True, False, True, True]),), torch.ones(3, 5), accumulate=True
    ),
    "nonzero": lambda x: x[torch.tensor([0, 3, 0, 1]).nonzero().squeeze(1)],
    "unique": lambda x: x[torch.tensor([2, 0, 2]).unique()],
    "repeats": lambda x: x.repeat_interleave(torch.tensor([1, 0, 2, 1]), 0),
    "counts": lambda x: x[0, :3] * torch.bincount(torch.tensor([0, 1, 1, 2])),
    "split": lambda x: x.tensor_split(torch.tensor([1, 2]))[1] * 2,
    "a size": lambda x: x[: int(torch.tensor([1, 0, 3]).max())] + 1,
    "a list of dimensions": lambda x: x.sum(torch.arange(0, x.dim()).tolist()),
    "lists of numbers": lambda x: sum(x * n for row in torch.eye(2).mul(3).tolist() for n in row),
    "no numbers": lambda x: x + len(torch.zeros(2, 0).tolist()) + torch.tensor(3.5).tolist(),
    "a branch": lambda x: x + 1 if torch.equal(MASK, MASK.clone()) else x,
    "tensors of two shapes": lambda x: x + 1 if torch.equal(x, x[:1]) or x.equal(x.T) else x * 2,
}


@pytest.mark.parametrize("name", MASKS)
def test_what_constants_decide_is_decided_while_tracing(name):
    x = torch.randn(4, 5)
    expected = MASKS[name](x)
    torch.testing.assert_close(tilewright.compile(MASKS[name], (x,))(x), expected)


@pytest.mark.parametrize("name", MASKS)
def test_torch_compile_runs_none_of_it_eagerly(name):
    torch._dynamo.reset()
    x = torch.randn(4, 5, requires_grad=True)
    expected = MASKS[name](x)
    before = tilewright.fallback_count()
    found = torch.compile(MASKS[name], backend="tilewright")(x)
    torch.testing.assert_close(found, expected)
    cotangent = torch.randn_like(expected)
    gradients = [torch.autograd.grad(result, x, cotangent)[0] for result in (found, expected)]
    torch.testing.assert_close(*gradients)
    assert tilewright.fallback_count() == before


@pytest.mark.parametrize(
    "model",
    (
        lambda x: x[x[:, 0] > 0],
        lambda x: x[(x[:, 0] > 0) & MASK],
        lambda x: x[: int((x > 0).sum())],
        lambda x: x[torch.rand(4) > 0.5],
    ),
)
def test_what_arguments_or_draws_decide_is_refused(model):
    with pytest.raises(UnsupportedError, match="depends on values"):
        tilewright.compile(model, (torch.randn(4, 5),))


OF_NUMBERS = {
    "hamming": lambda x: x * torch.hamming_window(20, False, 0.5, 0.4),
    "others": lambda x: x * torch.bartlett_window(20) + torch.blackman_window(20) - torch.hann_window(20),
    "kaiser": lambda x: x * torch.kaiser_window(20, True, 5.0).to(x.device),
    "double": lambda x: x * torch.hamming_window(20, dtype=torch.float64),
    "frequencies": lambda x: x * torch.fft.fftfreq(20, 0.5) + torch.fft.rfftfreq(38),
    "written": lambda x: x * torch.hamming_window(20).mul_(2),
}


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_windows_and_frequencies_are_constants(name):
    torch._dynamo.reset()
    x = torch.randn(20)
    expected = OF_NUMBERS[name](x)
    torch.testing.assert_close(tilewright.compile(OF_NUMBERS[name], (x,))(x), expected)
    before = tilewright.fallback_count()
    torch.testing.assert_close(torch.compile(OF_NUMBERS[name], backend="tilewright")(x), expected)
    assert tilewright.fallback_count() == before


class Owning(torch.nn.Module):
    """A model that decides by a number of its own, `n`."""

    def __init__(self, n, decide):
        super().__init__()
        self.register_buffer("n", torch.tensor(n))
        self.decide = decide

    def forward(self, x):
        return self.decide(self, x)


def initialised(own, x):
    if not own.n > 0:
        own.n.fill_(1)
        return x * 2
    return x * 3


def counted(own, x):
    own.n += 1
    return x * 2 if own.n < 9 else x


def assigned(own, x):
    if own.n < 9:
        own.n = own.n + 1
    return x * 2


DECIDING = {
    "a branch": (3.5, lambda own, x: x + 1 if own.n > 2 else x * 2),
    "padding": (3, lambda own, x: F.pad(x, (own.n, max(own.n - 1, own.n // 2)))),
    "a size": (3, lambda own, x: x[:, : own.n.item()] + own.n.item()),
    "a conversion": (3, lambda own, x: x[:, : int(own.n)] * float(own.n)),
    "steps": ([2], lambda own, x: sum(x * i for i in range(int(own.n.max() + 1)))),
    "initialised": (1, initialised),
}


@pytest.mark.parametrize("name", DECIDING)
def test_numbers_of_a_model_decide_until_they_change(name):
    model, x = Owning(*DECIDING[name]), torch.randn(4, 5)
    compiled = tilewright.compile(model, (x,))
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))
    before = model.n.clone()
    model.n.add_(1)
    with pytest.raises(KernelAssertError, match="`n` has another value than when the model was compiled"):
        compiled(x)
    model.n.copy_(before)
    torch.testing.assert_close(compiled(x), model(x))


def test_numbers_of_a_model_that_decide_nothing_may_change():
    model, x = Owning(3, lambda own, x: x * own.n.item() + own.n), torch.randn(4, 5)
    compiled = tilewright.compile(model, (x,))
    model.n.fill_(5)
    torch.testing.assert_close(compiled(x), 5 * x + 5)


@pytest.mark.parametrize(
    "number, decide", [(0, initialised), (0, counted), (0, assigned), (float("nan"), initialised)]
)
def test_numbers_that_a_model_writes_decide_nothing(number, decide):
    with pytest.raises(UnsupportedError, match="depends on values"):
        tilewright.compile(Owning(number, decide), (torch.randn(4, 5),))


def test_a_refusal_names_the_line_at_fault():
    def decide(own, x):
        rows = x[: int(own.n)]
        return rows.unique()

    with pytest.raises(UnsupportedError, match=r"unique.* in decide"):
        tilewright.compile(Owning(3, decide), (torch.randn(4, 5),))
