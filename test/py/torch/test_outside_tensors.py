"""Tensors from closures, globals and dictionaries: what is made of them can be written, they themselves cannot."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import vmap

import tilewright
from tilewright.compiler.errors import UnsupportedError
from tilewright.runtime.errors import ArgumentError

TABLE = torch.arange(5.0)
NORM = nn.BatchNorm1d(5)
MASK = torch.tensor([True, False, True, False, True])


class Held(nn.Module):
    """Holds a mask where no module looks for tensors."""

    def __init__(self):
        super().__init__()
        self.masks = {"first": MASK}

    def forward(self, x):
        return x + torch.zeros_like(self.masks["first"], dtype=x.dtype).masked_fill_(
            self.masks["first"], -2.0
        )


def written_slice(x):
    own = TABLE.clone()
    own[1:].mul_(x[0, 1:])
    return x + own


def written_by_index(x):
    own = torch.stack([TABLE, TABLE])
    own[1].index_fill_(0, torch.tensor([1, 2]), 4.0)
    own[0, :2] = x[0, :2]
    return x[:2] * own


WRITTEN = {
    "zeros_like": lambda x: x + torch.zeros_like(TABLE).masked_fill_(MASK, 3.0),
    "clone": lambda x: x + TABLE.clone().add_(1),
    "clone with an argument": lambda x: x + TABLE.clone().add_(x[0]),
    "a slice": written_slice,
    "by index": written_by_index,
    "in a list": lambda x: x + torch.cat([TABLE, TABLE])[3:8].clone().sub_(x[1]),
    "out": lambda x: torch.add(x, TABLE, out=torch.empty_like(TABLE).expand(4, 5).clone()),
    "under vmap": lambda x: vmap(lambda row: row * TABLE + TABLE.clone().add_(1))(x),
    "a module": Held(),
    "read as a number": lambda x: x * TABLE[3].item() + (1 if MASK.any() else 2) + float(TABLE.sum()),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_made_of_them_can_be_written(name):
    x, table = torch.randn(4, 5), TABLE.clone()
    with torch.no_grad():
        expected = WRITTEN[name](x.clone())
    compiled = tilewright.compile(WRITTEN[name], (x,))
    torch.testing.assert_close(compiled(x), expected)
    torch.testing.assert_close(compiled(x), expected)
    assert torch.equal(TABLE, table)


def _through_a_view(x):
    TABLE[1:].mul_(2)
    return x + TABLE


def _added(x):
    TABLE.add_(x[0])
    return x + TABLE


def _put(x):
    TABLE[2] = 3.0
    return x + TABLE


@pytest.mark.parametrize("model", (_through_a_view, _added, _put, lambda x: NORM(x)))
def test_they_themselves_cannot_be_written(model):
    x, before = torch.randn(4, 5), TABLE.clone()
    with pytest.raises(UnsupportedError, match=rf"from outside of the model at {__file__}.* writes to it"):
        tilewright.compile(model, (x,))
    assert torch.equal(TABLE, before)


def test_what_has_no_values_is_refused():
    x = torch.randn(4, 5)
    with FakeTensorMode():
        fake = torch.ones(5)
    with pytest.raises(UnsupportedError, match=r"weight at .*on the meta device and has no values"):
        tilewright.compile(nn.Linear(5, 3, device="meta"), (x,))
    with pytest.raises(UnsupportedError, match=r"argument 0 at .*FakeTensor.* has no values"):
        tilewright.compile(lambda a: a + 1, (fake,))
    with pytest.raises(UnsupportedError, match=rf"made while tracing at {__file__}.* has no values"):
        tilewright.compile(lambda a: a + fake, (x,))


def test_derivatives_that_pytorch_computed_without_values_are_refused():
    with pytest.raises(UnsupportedError, match=r"made while tracing .* has no values"):
        tilewright.compile(lambda a, b: torch.func.linearize(torch.cos, a)[1](b), (TABLE, TABLE))


def test_calls_refuse_tensors_without_memory():
    compiled = tilewright.compile(lambda a: a + 1, (TABLE,))
    with FakeTensorMode():
        fake = torch.ones(5)
    with pytest.raises(ArgumentError, match="argument `a`: expected a tensor with values"):
        compiled(fake)
    empty = tilewright.compile(lambda a: a + 1, (torch.ones(0),))
    assert empty(torch.ones(0)).shape == (0,)
