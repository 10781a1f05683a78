"""Products that are added to something, on 16-bit floats: rounded once, as in eager PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import tilewright

FORMS = {
    "linear": lambda x, w, b: F.linear(x, w, b),
    "linear_of_batches": lambda x, w, b: F.linear(x.reshape(3, 11, 65), w, b),
    "linear_of_a_row": lambda x, w, b: F.linear(x[0], w, b),
    "addmm": lambda x, w, b: torch.addmm(b, x, w.t()),
    "addmm_scaled": lambda x, w, b: torch.addmm(b, x, w.t(), beta=0.3, alpha=0.7),
    "addmm_scaled_without_bias": lambda x, w, b: torch.addmm(b, x, w.t(), beta=0, alpha=0.7),
    "addmm_of_a_matrix": lambda x, w, b: torch.addmm(x[:, :47], x, w.t()),
    "addmv": lambda x, w, b: torch.addmv(b, w, x[0]),
    "addbmm": lambda x, w, b: torch.addbmm(
        b, x.reshape(3, 11, 65), w.t().expand(3, 65, 47), beta=0.5, alpha=0.4
    ),
    "baddbmm": lambda x, w, b: torch.baddbmm(b, x.reshape(3, 11, 65), w.t().expand(3, 65, 47)),
    "baddbmm_scaled": lambda x, w, b: torch.baddbmm(
        b, x.reshape(3, 11, 65), w.t().expand(3, 65, 47), beta=2, alpha=-0.7
    ),
}


def off_the_nearest(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The share of elements that are not the number of their type next to the exact one."""
    return float((found != exact.to(found.dtype)).float().mean())


@pytest.mark.parametrize("target", [None, "emulate:sm_90a"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_sums_are_rounded_once(name: str, dtype: torch.dtype, target: str | None) -> None:
    torch.manual_seed(0)
    form = FORMS[name]
    args = [torch.randn(shape).to(dtype) for shape in ((33, 65), (47, 65), (47,))]
    options = {} if target is None else {"target": target}
    found = tilewright.compile(form, tuple(args), **options)(*args)
    wanted = form(*args)
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    exact = form(*(a.double() for a in args))
    assert off_the_nearest(found, exact) < 0.01, name


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("name", ["addmm", "addbmm", "baddbmm"])
@pytest.mark.parametrize("factors", [{}, {"beta": 2, "alpha": 3}, {"beta": 0, "alpha": 5}], ids=str)
def test_integers_wrap(name: str, dtype: torch.dtype, factors: dict[str, int]) -> None:
    torch.manual_seed(0)
    shapes = ((3, 5), (3, 4), (4, 5)) if name == "addmm" else ((3, 5), (2, 3, 4), (2, 4, 5))
    args = [torch.randint(0, 120, shape).to(dtype) for shape in shapes]
    if name == "baddbmm":
        args[0] = args[0].expand(2, 3, 5).contiguous()

    def sums(bias, left, right):
        return getattr(torch, name)(bias, left, right, **factors)

    assert torch.equal(tilewright.compile(sums, tuple(args))(*args), sums(*args))


def test_what_a_model_writes_as_two_operators_is_rounded_twice() -> None:
    torch.manual_seed(0)
    x, w, b = (torch.randn(shape).bfloat16() for shape in ((33, 65), (65, 47), (47,)))
    found = tilewright.compile(lambda x, w, b: x @ w + b, (x, w, b))(x, w, b)
    twice = ((x.double() @ w.double()).bfloat16() + b).double()
    assert off_the_nearest(found, twice) < 0.01


@pytest.mark.parametrize("shape", [(0, 5, 4), (3, 0, 4), (3, 5, 0), (1, 1, 1)])
def test_without_elements(shape: tuple[int, int, int]) -> None:
    rows, inner, columns = shape
    x, w, b = torch.ones(rows, inner), torch.ones(inner, columns), torch.full((columns,), 3.0)
    x, w, b = x.half(), w.half(), b.half()

    def added(x, w, b):
        return torch.addmm(b, x, w), torch.baddbmm(b, x[None], w[None], alpha=2)

    for ours, wanted in zip(tilewright.compile(added, (x, w, b))(x, w, b), added(x, w, b), strict=True):
        assert torch.equal(ours, wanted)


def test_a_bias_that_is_not_read_may_be_nan() -> None:
    x, w, b = (
        torch.ones(3, 5).bfloat16(),
        torch.ones(5, 4).bfloat16(),
        torch.full((4,), float("nan")).bfloat16(),
    )
    found = tilewright.compile(lambda x, w, b: torch.addmm(b, x, w, beta=0, alpha=0.5), (x, w, b))(x, w, b)
    assert torch.equal(found, torch.full((3, 4), 2.5).bfloat16())


@pytest.mark.parametrize("start", [None, "added"])
def test_products_over_one_step_that_are_repeated(start: str | None) -> None:
    def repeated(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        product = x.mT @ x if start is None else torch.baddbmm(y, x.mT, x)
        return product.repeat(1, 3, 2)

    x, y = torch.randn(2, 1, 4), torch.randn(2, 4, 4)
    torch.testing.assert_close(tilewright.compile(repeated, (x, y))(x, y), repeated(x, y))
