"""Complex arithmetic against eager PyTorch, and what models do with it: rotations of queries and keys."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import nn

import tilewright
from tilewright.compiler.errors import UnsupportedError

DTYPES = (torch.complex64, torch.complex128)


def agree(functions, *args, **tolerance):
    """All functions, compiled as one, give what they give in eager PyTorch."""
    found = tilewright.compile(lambda *args: [function(*args) for function in functions], args)(*args)
    for ours, function in zip(found, functions, strict=True):
        torch.testing.assert_close(ours, function(*args), check_stride=False, **tolerance)


BINARY = [torch.add, torch.sub, torch.rsub, torch.mul, torch.div, torch.eq, torch.ne]


SHAPES = [((2, 3), (2, 3)), ((2, 1), (3,)), ((), (1, 2)), ((0, 2), (2,))]


def with_two_operands(x, y):
    """Every function of two operands, both ways."""
    results = [f(*pair) for f in BINARY for pair in ((x, y), (y, x))]
    return [*results, torch.add(y, x, alpha=2 - 1j), torch.where(x == x, x, y)]


@pytest.mark.parametrize("other", [*DTYPES, torch.float32, torch.float64, torch.int32], ids=str)
def test_two_operands(other):
    pairs = []
    for dtype, (left, right) in itertools.product(DTYPES, SHAPES):
        y = torch.randn(right, dtype=torch.float64).add(3).to(other)
        pairs.append((torch.randn(left, dtype=dtype), y - 2j if other.is_complex else y))
    agree([lambda *pairs: [with_two_operands(*pair) for pair in pairs]], *pairs)


@pytest.mark.parametrize("number", [2, -1.5, 1j, 0.5 - 2j])
def test_a_number_beside(number):
    def beside(x):
        results = [f(x, number) for f in BINARY if f not in (torch.eq, torch.ne)]
        return [*results, number / (x + 5), x == number, torch.full((2,), number) * x[:1]]

    tensors = [torch.randn(3, dtype=torch.complex64), torch.randn(3), torch.arange(3)]
    agree([lambda *tensors: [beside(x) for x in tensors]], *tensors)


UNARY = """
abs angle conj conj_physical cos cosh exp imag isfinite isinf isnan log log2 log10 mean neg real reciprocal rsqrt sigmoid sin sinh
sqrt square sum tan tanh view_as_real
"""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_operand(dtype):
    grid = torch.linspace(-2, 2, 5, dtype=torch.float64)
    x = torch.complex(*torch.meshgrid(grid, grid, indexing="ij")).to(dtype)
    functions = [getattr(torch, name) for name in UNARY.split()]
    functions += [lambda x, n=n: x**n for n in (-2, -1, 1, 2, 3)]
    functions += [lambda x: x.sum(0), lambda x: x.mean(-1, keepdim=True), lambda x: x.cumsum(1)]
    functions += [lambda x: torch.linalg.vector_norm(x, dim=0), lambda x: x @ x.mH, lambda x: x.conj()[1:]]
    agree(functions, x, equal_nan=True)


def test_parts_that_overflow_when_squared():
    x = torch.tensor([3e30 + 4e30j, 1e-30 - 1e-30j, 2e38 + 1j])
    agree([torch.abs, torch.reciprocal, lambda x: x / x.flip(0)], x)


def test_parts_whose_exponentials_overflow():
    x = torch.complex(torch.tensor([-100.0, -20, 1e-6, 20, 300]), torch.tensor([0.3, -1.5707963, 0.2, 40, 3]))
    agree([torch.tanh, lambda x: torch.sigmoid(x[1:])], x)
    assert tilewright.compile(torch.sigmoid, (x,))(x)[0].isfinite()


@pytest.mark.parametrize("function", [torch.asin, torch.log1p, lambda x: x.cumprod(0)])
def test_functions_without_a_form_are_refused(function):
    with pytest.raises(UnsupportedError, match="of this function there is no such form"):
        tilewright.compile(function, (torch.randn(3, dtype=torch.complex64),))


@pytest.mark.parametrize("start", [torch.float32, torch.float64, torch.int64, torch.bool, *DTYPES], ids=str)
def test_conversions(start):
    x = torch.tensor([[0, 1, 2], [3, 0, 5]]).to(start)
    functions = [lambda x, d=d: x.to(d) for d in DTYPES]
    functions += [lambda x: torch.ones_like(x, dtype=DTYPES[0]) + x, lambda x: x.to(DTYPES[0]).real.to(start)]
    agree(functions, x)


def test_moves_and_products_of_matrices():
    x, y = torch.randn(2, 4, dtype=torch.complex64), torch.randn(2, 4, dtype=torch.complex64)

    def assigned(x, y):
        z = x.clone()
        z[:, 1] = 1j
        z[0] += y[1]
        return z

    functions = [assigned, lambda x, y: torch.cat((x * y, y)).t(), lambda x, y: torch.stack((x + 1, y))[:, 0]]
    functions += [lambda x, y: x @ y.mH, lambda x, y: torch.outer(x[0], y[1].conj())]
    functions += [
        lambda x, y: torch.einsum("ij,kj->ik", x, y),
        lambda x, y: nn.functional.pad(x, (1, 2), value=3),
    ]
    agree(functions, x, y)


def rotations(width, length):
    """[length, width / 2] numbers on the unit circle, as language models rotate queries and keys by."""
    angles = torch.outer(torch.arange(length).float(), 1e4 ** -(torch.arange(0, width, 2).float() / width))
    return torch.polar(torch.ones_like(angles), angles)


class Rotated(nn.Module):
    """Attention whose queries and keys are pairs turned by complex numbers, kept or made at each call."""

    def __init__(self, is_kept: bool):
        super().__init__()
        self.project = nn.Linear(8, 16)
        self.is_kept = is_kept
        self.register_buffer("turns", rotations(8, 16), persistent=False)

    def forward(self, x):
        turns = (self.turns if self.is_kept else rotations(8, 16))[: x.shape[1]].view(1, x.shape[1], 1, 4)
        heads = self.project(x).view(*x.shape[:2], 2, 8)
        pairs = torch.view_as_complex(heads.float().reshape(*heads.shape[:-1], -1, 2))
        heads = torch.view_as_real(pairs * turns).flatten(3).type_as(x).transpose(1, 2)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


@pytest.mark.parametrize("is_kept", [True, False])
def test_rotary_embeddings(is_kept):
    model, x, before = Rotated(is_kept), torch.randn(2, 5, 8), tilewright.fallback_count()
    compiled = tilewright.compile(model, (x,))
    torch.testing.assert_close(compiled(x), model(x).detach())
    training = torch.compile(model, backend="tilewright")
    gradients = []
    for run in (training, model):
        model.zero_grad()
        run(x).square().sum().backward()
        gradients.append(model.project.weight.grad.clone())
    torch.testing.assert_close(*gradients)
    assert tilewright.fallback_count() == before


def test_a_returned_conjugate_is_one():
    x = torch.tensor([1 + 2j, 3 - 1j])
    for function in (torch.conj, lambda x: x.mH, lambda x: x.unsqueeze(0).adjoint(), lambda x: x[1:]):
        x = x if function is torch.conj else x.reshape(1, -1)
        agree([function], x)
        torch.testing.assert_close(torch.compile(function, backend="tilewright")(x), function(x))


def test_the_circle_keeps_its_radius():
    angles = torch.linspace(-20, 20, 101)
    agree([lambda a: torch.polar(a, a), lambda a: torch.exp(1j * a), lambda a: torch.polar(a, a[:1])], angles)
    found = tilewright.compile(lambda a: torch.polar(torch.ones_like(a), a).abs(), (angles,))(angles)
    assert math.isclose(float(found.max()), 1, rel_tol=1e-6)
