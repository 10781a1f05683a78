"""Products of groups of rows with matrices of their own, against PyTorch's `grouped_mm`: forms, types, gradients, experts of a mixture."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}


def noise(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    seed = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(*shape, generator=seed) / shape[-1] ** 0.5).to(dtype)


def ends(*sizes: int) -> torch.Tensor:
    return torch.tensor(sizes).cumsum(0).to(torch.int32)


def check(
    left: torch.Tensor, right: torch.Tensor, offs: torch.Tensor | None, transposed: bool = False
) -> None:
    def product(left, right, offs):
        return F.grouped_mm(left, right.transpose(-2, -1) if transposed else right, offs=offs)

    found = tilewright.compile(product, (left, right, offs))(left, right, offs)
    wanted = product(left, right, offs)
    assert found.dtype == wanted.dtype
    tolerance = TOLERANCE[left.dtype]
    torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


GROUPS = {
    "of one row": (1,) * 8,
    "of several sizes": (3, 8, 1, 20),
    "empty ones among them": (0, 7, 0, 0, 25, 0),
    "one has all": (0, 0, 40),
    "one group": (17,),
    "more than rows": (0, 1) * 12,
}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("sizes", GROUPS.values(), ids=GROUPS)
def test_groups_of_rows(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    rows, matrices = noise(sum(sizes), 16, dtype=dtype), noise(len(sizes), 16, 24, dtype=dtype)
    check(rows, matrices, ends(*sizes))
    check(rows, matrices.transpose(1, 2).contiguous(), ends(*sizes), transposed=True)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_groups_of_columns_and_of_what_is_summed(dtype: torch.dtype) -> None:
    check(noise(3, 8, 16, dtype=dtype), noise(16, 40, dtype=dtype), ends(8, 0, 32))
    check(noise(8, 40, dtype=dtype), noise(40, 16, dtype=dtype), ends(8, 0, 32))
    check(noise(3, 8, 16, dtype=dtype), noise(3, 16, 24, dtype=dtype), None)


def test_what_is_infinite_stays_in_its_group() -> None:
    """Of what is summed, of rows and of columns: the other groups are as without it."""
    left, right = noise(8, 24), noise(24, 16)
    left[:, 3], right[20] = float("inf"), float("nan")
    check(left, right, ends(8, 8, 8))
    rows = noise(24, 16)
    rows[2] = float("nan")
    check(rows, noise(3, 16, 8), ends(8, 0, 16))
    check(noise(3, 8, 16), rows.t(), ends(8, 0, 16))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=9), st.integers(0, 5))
def test_rows_past_the_last_group_are_zeros(sizes: list[int], past: int) -> None:
    """One program for all sizes of as many rows: how long groups are is known at the call."""
    number = max(1, sum(sizes) + past)
    rows, matrices = noise(number, 4), noise(len(sizes), 4, 8)
    compiled = tilewright.compile(
        lambda a, b, offs: F.grouped_mm(a, b, offs=offs), (rows, matrices, ends(*sizes))
    )
    for offs in (ends(*sizes), ends(*reversed(sizes)), ends(*[0] * len(sizes))):
        wanted = torch.zeros(number, 8)
        start = 0
        for matrix, end in zip(matrices, offs.tolist()):
            wanted[start:end] = rows[start:end] @ matrix
            start = end
        torch.testing.assert_close(compiled(rows, matrices, offs), wanted, rtol=1e-5, atol=1e-5)


class Experts(torch.nn.Module):
    """A mixture whose tokens are sorted by their experts, as models of transformers do it."""

    def __init__(self, number: int, inner: int, hidden: int, chosen: int):
        super().__init__()
        self.router = torch.nn.Linear(inner, number)
        self.up = torch.nn.Parameter(noise(number, 2 * hidden, inner))
        self.down = torch.nn.Parameter(noise(number, inner, hidden))
        self.chosen = chosen

    def product(self, x, weights, offs):
        return F.grouped_mm(x, weights.transpose(1, 2), offs=offs)

    def forward(self, x):
        scores, experts = self.router(x).softmax(-1).topk(self.chosen)
        order = experts.flatten().argsort(stable=True)
        counts = torch.nn.functional.one_hot(experts.flatten(), len(self.up)).sum(0)
        offs = counts.cumsum(0).to(torch.int32)
        gate, up = self.product(x[order // self.chosen], self.up, offs).chunk(2, -1)
        y = self.product(F.silu(gate) * up, self.down, offs)
        y = y[order.argsort()].reshape(len(x), self.chosen, -1)
        return (y * scores.unsqueeze(-1)).sum(1)


def test_a_mixture_of_experts() -> None:
    model = Experts(4, 32, 48, 2).eval()
    for tokens in (1, 50):
        x = noise(tokens, 32)
        with torch.no_grad():
            torch.testing.assert_close(tilewright.compile(model, (x,))(x), model(x), rtol=1e-5, atol=1e-5)


def test_gradients() -> None:
    rows, matrices = noise(24, 16).requires_grad_(), noise(3, 16, 8).requires_grad_()
    offs = ends(8, 0, 16)

    def loss(rows, matrices):
        return F.grouped_mm(rows.bfloat16(), matrices.bfloat16(), offs=offs).float().square().sum()

    wanted = torch.autograd.grad(loss(rows, matrices), (rows, matrices))
    before = tilewright.fallback_count()
    found = torch.autograd.grad(torch.compile(loss, backend="tilewright")(rows, matrices), (rows, matrices))
    assert tilewright.fallback_count() == before
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


def test_the_operator_that_transformers_registers_while_it_exports() -> None:
    """The library defines it for programs that are exported; here it is defined as there, with a loop over lengths."""
    library = torch.library.Library("transformers", "FRAGMENT")
    if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):
        library.define("grouped_mm_fallback(Tensor input, Tensor weight, Tensor offs) -> Tensor")
        library.impl("grouped_mm_fallback", _looped, "CompositeExplicitAutograd")
        torch.library.register_fake(
            "transformers::grouped_mm_fallback",
            lambda x, weight, offs: x.new_empty((x.shape[0], weight.shape[2])),
            lib=library,
        )
    model = Experts(4, 32, 48, 2).eval()
    model.product = lambda x, weights, offs: torch.ops.transformers.grouped_mm_fallback(
        x, weights.transpose(1, 2), offs
    )
    x = noise(20, 32)
    with torch.no_grad():
        torch.testing.assert_close(tilewright.compile(model, (x,))(x), model(x), rtol=1e-5, atol=1e-5)
        exported = torch.export.export(model, (x,))
        torch.testing.assert_close(tilewright.compile(exported, (x,))(x), model(x), rtol=1e-5, atol=1e-5)


def _looped(x: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    result, start = x.new_zeros((x.shape[0], weight.shape[2])), 0
    for matrix, end in zip(weight, offs.tolist()):
        result[start:end] = x[start:end] @ matrix
        start = end
    return result
