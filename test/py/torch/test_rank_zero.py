"""Reductions of tensors of rank 0 are element-wise work, whatever reads them."""

from __future__ import annotations

import math

import pytest
import torch

import tilewright

REDUCTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "product": torch.prod,
    "maximum": torch.amax,
    "norm": torch.linalg.vector_norm,
    "sum of logarithms": lambda a: torch.logsumexp(a, 0),
    "position": lambda a: torch.argmax(a) + a,
    "truth": lambda a: torch.any(a) + a,
}
READERS = {
    "broadcast": lambda s, b: s.expand(4).sum(),
    "rows": lambda s, b: ((b - s) ** 2).sum(1),
    "maximum": lambda s, b: torch.maximum(b, s).amax(),
    "sum of sums": lambda s, b: s.sum().expand(2, 3).sum(1).sum(),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reduction_of_rank_zero_is_read_right(reduction, reader):
    def model(a, b):
        return READERS[reader](REDUCTIONS[reduction](a), b)

    a, b = torch.tensor(2.0), torch.arange(6.0).reshape(2, 3) - 1
    torch.testing.assert_close(tilewright.compile(model, (a, b))(a, b), model(a, b))


def test_every_rank_of_one_element_sums_alike():
    for shape in ([], [1], [1, 1]):
        a = torch.full(shape, 3.0)
        f = tilewright.compile(lambda a: a.sum().expand(5).sum(), (a,))
        assert f(a).item() == 15.0


def test_numbers_beside_rank_zero_under_vmap():
    def rows(x):
        return [
            torch.vmap(f)(x)
            for f in (lambda r: r * 2 - 1, lambda r: 2.5 - r, lambda r: r % 3, lambda r: r > 1)
        ]

    for dtype in (torch.float16, torch.float32, torch.int64, torch.uint8):
        x = torch.arange(7).to(dtype)
        for found, wanted in zip(tilewright.compile(rows, (x,))(x), rows(x), strict=True):
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("dim", [-1, 0, (-1,)], ids=str)
def test_one_element_has_one_dimension_to_count_from(dim):
    def each(x):
        norms = [torch.linalg.vector_norm(x, p, dim) for p in (0, 1, 2, 3.5, float("inf"))]
        return [*norms, torch.all(x, dim), torch.all(x.to(torch.uint8), dim), torch.any(x, dim)]

    for x in (torch.tensor(-2.5), torch.tensor(0.0)):
        torch.testing.assert_close(tilewright.compile(each, (x,))(x), each(x))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float32], ids=str)
def test_truth_along_a_dimension_is_of_the_type_of_bytes(dtype):
    def truth(x):
        return [
            f(x, dim, keepdim) for f in (torch.all, torch.any) for dim in (0, -1) for keepdim in (False, True)
        ]

    x = torch.tensor([[1, 0, 3], [2, 0, 0]]).to(dtype)
    torch.testing.assert_close(tilewright.compile(truth, (x,))(x), truth(x))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 3)], ids=str)
def test_truth_along_several_dimensions_or_none(dtype, shape):
    def truth(x):
        along = ((), tuple(range(x.dim())) or (0,), (-1,))
        return [
            f(x, dim, keepdim) for f in (torch.all, torch.any) for dim in along for keepdim in (False, True)
        ]

    x = (torch.arange(math.prod(shape)).reshape(shape) + 5 * (shape == ())).to(dtype)
    torch.testing.assert_close(tilewright.compile(truth, (x,))(x), truth(x))


def test_a_product_of_what_was_divided_by_a_tensor_without_dimensions():
    """`fuse-attention` follows elements back through the reshape of one element to none."""

    def model(x):
        return torch.nn.functional.normalize(x, p=1, dim=0)[4:] @ torch.tensor([[2.0]])

    x = torch.arange(1.0, 6.0)
    torch.testing.assert_close(tilewright.compile(model, (x,))(x), model(x))
