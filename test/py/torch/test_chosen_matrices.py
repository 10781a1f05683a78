"""Products with matrices that are chosen by index, as of a mixture's experts: against eager PyTorch, without a copy of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright
from tilewright.runtime.errors import KernelAssertError
from tilewright.runtime.model import CompiledModel

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
NUMBERS = torch.tensor([3, 0, -1, 2, 2, 1])


class Experts(torch.nn.Module):
    """A function of rows, numbers of experts and their matrices."""

    def __init__(self, function: Callable[..., torch.Tensor], weight: torch.Tensor):
        super().__init__()
        self.function, self.weight = function, torch.nn.Parameter(weight)

    def forward(self, x: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        return self.function(x, numbers, self.weight)


def noise(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    seed = torch.Generator().manual_seed(sum(shape))
    return (torch.randn(*shape, generator=seed) / shape[-1] ** 0.5).to(dtype)


def check(model: Callable[..., torch.Tensor], *given: torch.Tensor) -> CompiledModel:
    with torch.no_grad():
        compiled = tilewright.compile(model, given)
        wanted = model(*given)
        tolerance = TOLERANCE[wanted.dtype]
        torch.testing.assert_close(compiled(*given), wanted, rtol=tolerance, atol=tolerance)
    return compiled


def main_kernels(compiled: CompiledModel) -> list[str]:
    """The kernels of a call, without those that store weights."""
    package = compiled.executable.package
    return [package.kernels[step.kernel].name for step in package.main.steps]


FORMS: dict[str, Callable[..., torch.Tensor]] = {
    "rows": lambda x, i, w: torch.bmm(x, w[i]),
    "one row": lambda x, i, w: torch.bmm(x[:, :1], w[i]),
    "turned": lambda x, i, w: torch.bmm(x, w.transpose(1, 2)[i].transpose(1, 2)),
    "vectors": lambda x, i, w: torch.bmm(w.transpose(1, 2)[i], x[:, 0].unsqueeze(-1)).squeeze(-1),
    "einsum": lambda x, i, w: torch.einsum("bd,bdn->bn", x[:, 0], w[i]),
    "index_select": lambda x, i, w: torch.bmm(x, torch.index_select(w, 0, i % 4)),
    "bias and activation": lambda x, i, w: F.gelu(torch.bmm(x, w[i]) + 1),
    "gated": lambda x, i, w: torch.bmm(F.silu(torch.bmm(x, w[i])), w[i].transpose(1, 2)),
    "columns": lambda x, i, w: torch.bmm(x, w[..., 8:40][i]),
    "sums of all": lambda x, i, w: torch.bmm(x, w[i]).sum(0),
    "two numbers each": lambda x, i, w: torch.einsum("td,tadn->tan", x[:3, 0], w[i.reshape(3, 2)]),
    "of two dimensions": lambda x, i, w: torch.einsum(
        "td,tdn->tn", x[:, 0], w.reshape(2, 2, 48, 96)[i % 2, i // 2 % 2]
    ),
    "rows and a vector": lambda x, i, w: w[0].t()[i] @ x[0, 0],
    "both": lambda x, i, w: torch.bmm(w[i], w[(i + 1) % 4].transpose(1, 2)),
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_forms(name: str, dtype: torch.dtype) -> None:
    check(Experts(FORMS[name], noise(4, 48, 96, dtype=dtype)), noise(6, 5, 48, dtype=dtype), NUMBERS)


@pytest.mark.parametrize("name", ["rows", "one row", "turned", "vectors", "bias and activation"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_no_matrix_is_copied(name: str, dtype: torch.dtype) -> None:
    compiled = check(
        Experts(FORMS[name], noise(4, 48, 96, dtype=dtype)), noise(6, 5, 48, dtype=dtype), NUMBERS
    )
    (kernel,) = main_kernels(compiled)
    assert kernel.startswith("matmul")


@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 5), st.integers(1, 9), st.integers(1, 70), st.integers(1, 70), st.booleans(), st.booleans()
)
def test_any_shape(batch: int, rows: int, depth: int, columns: int, is_weight: bool, is_turned: bool) -> None:
    weight = noise(3, columns, depth).transpose(1, 2) if is_turned else noise(3, depth, columns)
    numbers = torch.arange(batch) * 2 % 3 - 1
    if is_weight:
        check(Experts(FORMS["rows"], weight), noise(batch, rows, depth), numbers)
    else:
        check(FORMS["rows"], noise(batch, rows, depth), numbers, weight)


@pytest.mark.parametrize("number", [4, -5, 1 << 40])
def test_numbers_of_no_matrix_fail_the_call(number: int) -> None:
    model = Experts(FORMS["rows"], noise(4, 48, 96))
    compiled = check(model, noise(6, 5, 48), NUMBERS)
    with pytest.raises(KernelAssertError, match="index out of range: expected 0 to 3"):
        compiled(noise(6, 5, 48), torch.full((6,), number))
    check(model, noise(6, 5, 48), NUMBERS)


def test_no_matrix_of_several_numbers_is_copied() -> None:
    form = FORMS["two numbers each"]
    (kernel,) = main_kernels(check(Experts(form, noise(4, 48, 96)), noise(6, 5, 48), NUMBERS))
    assert kernel.startswith("matmul")


def test_tables_inside_of_other_tensors() -> None:
    """What is chosen of lies in the arena with gaps, and parts have more dimensions than it has."""

    def model(x: torch.Tensor, i: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        table = torch.cat([torch.relu(w), w * 2], dim=2)
        own = table[:, :, 20:116][i.reshape(3, 2)]
        return torch.einsum("td,tadn->tan", x[:3, 0], own) + table.sum()

    check(model, noise(6, 5, 48), NUMBERS, noise(4, 48, 96))


def test_matrices_of_a_table_that_is_computed() -> None:
    check(lambda x, i, w: torch.bmm(x, torch.relu(w)[i]), noise(6, 5, 48), NUMBERS, noise(4, 48, 96))


def test_matrices_that_two_products_read() -> None:
    def twice(x: torch.Tensor, i: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        own = w[i]
        return torch.bmm(x, own) + torch.bmm(x * 2, own)

    check(Experts(twice, noise(4, 48, 96)), noise(6, 5, 48), NUMBERS)
