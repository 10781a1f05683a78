"""Sorts order as eager PyTorch does: stable, along any axis, NaN last, in n log n steps."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensor_function import TensorModule
from torch import nn

import tilewright
from tilewright.compiler.importers.torch.model import import_torch
from tilewright.compiler.ir import parse


class Sort(nn.Module):
    def __init__(self, dim: int, descending: bool):
        super().__init__()
        self.dim, self.descending = dim, descending

    def forward(self, x):
        return torch.sort(x, self.dim, self.descending)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "shape, dim", [((1,), 0), ((2,), 0), ((33,), 0), ((4, 17), 1), ((5, 3, 2), 0), ((3, 64, 2), 1)]
)
def test_order_is_that_of_eager(shape: tuple[int, ...], dim: int, descending: bool):
    # Few distinct values, so that equal elements test stability.
    x = torch.randint(-4, 4, shape, generator=torch.Generator().manual_seed(1)).float()
    imported = import_torch(Sort(dim, descending), (x,))
    values, indices = TensorModule(imported.module)(x.numpy())
    exact = torch.sort(x, stable=True, dim=dim, descending=descending)
    np.testing.assert_array_equal(values, exact.values.numpy())
    np.testing.assert_array_equal(indices, exact.indices.numpy())


@pytest.mark.parametrize("descending", [False, True])
def test_nan_is_the_greatest(descending: bool):
    x = torch.tensor([1.0, float("nan"), -2.0, float("inf"), float("nan"), 0.0, -float("inf")])
    imported = import_torch(Sort(0, descending), (x,))
    values, indices = TensorModule(imported.module)(x.numpy())
    exact = torch.sort(x, stable=True, dim=0, descending=descending)
    np.testing.assert_array_equal(values, exact.values.numpy())
    np.testing.assert_array_equal(indices, exact.indices.numpy())


def test_integers_sort_by_their_own_comparison():
    module = parse("""
      func.func @main(%x: tensor<6xi64>) -> tensor<6xi64> {
        %r = tm_tensor.sort dimension(0) outs(%x : tensor<6xi64>) {
        ^bb0(%a: i64, %b: i64):
          %c = arith.cmpi sge, %a, %b : i64
          tm_tensor.yield %c : i1
        } -> tensor<6xi64>
        return %r : tensor<6xi64>
      }""")
    x = np.array([3, -1, 7, 3, 0, -9])
    np.testing.assert_array_equal(TensorModule(module)(x)[0], np.sort(x)[::-1])


def test_ten_thousand_elements_sort_at_once():
    x = torch.randn(10_000)
    imported = import_torch(Sort(0, False), (x,))
    values, _ = TensorModule(imported.module)(x.numpy())
    np.testing.assert_array_equal(values, np.sort(x.numpy()))


class TopK(nn.Module):
    def __init__(self, count: int, dim: int, largest: bool):
        super().__init__()
        self.count, self.dim, self.largest = count, dim, largest

    def forward(self, x):
        return torch.topk(x, self.count, self.dim, self.largest)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize(
    "shape, count, dim",
    [((100,), 1, 0), ((3, 70), 5, 1), ((64, 3, 2), 8, 0), ((2, 40, 3), 5, 1), ((20,), 19, 0)],
)
def test_a_few_first_elements_are_those_of_the_whole_sort(shape, count, dim, largest):
    x = torch.randint(-9, 9, shape, generator=torch.Generator().manual_seed(2)).float()
    x.view(-1)[::17] = float("nan")
    module = tilewright.compile(TopK(count, dim, largest), (x,))
    exact = torch.sort(x, stable=True, dim=dim, descending=largest)
    values, indices = module(x)
    torch.testing.assert_close(values, exact.values.narrow(dim, 0, count), equal_nan=True, rtol=0, atol=0)
    assert torch.equal(indices, exact.indices.narrow(dim, 0, count))


def special_values(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Equal ones among others; infinities, both zeros and NaN of both signs, or the ends of the range."""
    generator = torch.Generator().manual_seed(3)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator) > 0
    if dtype.is_floating_point:
        x = torch.randint(-9, 9, shape, generator=generator).to(dtype) / 2
        flat = x.view(-1)
        for start, value in enumerate((torch.inf, -torch.inf, 0.0, -0.0, torch.nan, -torch.nan)):
            flat[start::13] = value
        return x
    ends = torch.iinfo(dtype)
    x = torch.randint(max(ends.min, -9), 9, shape, generator=generator).to(dtype)
    x.view(-1)[::7], x.view(-1)[3::11] = ends.max, ends.min
    return x


@pytest.mark.parametrize(
    ("target", "descending"),
    [
        ("cpu", False),
        ("x86-64-v3", True),
        pytest.param("cpu", True, marks=pytest.mark.slow),
        pytest.param("x86-64-v3", False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
    ],
    ids=str,
)
def test_elements_of_every_type_stay_what_they_are(dtype: torch.dtype, descending: bool, target: str):
    """Signs of zeros included: elements that are compared as integers are not computed from these."""
    inputs = [special_values(dtype, shape) for shape in ((3, 41), (140, 2), (2, 1, 2300), (10_000,))]
    dims = (1, 0, 2, 0)

    def ordered(*inputs):
        return [torch.sort(x, stable=True, dim=dim, descending=descending) for x, dim in zip(inputs, dims)]

    found = tilewright.compile(ordered, tuple(inputs), target=target)(*inputs)
    for x, dim, (values, indices) in zip(inputs, dims, found):
        exact = torch.sort(x, stable=True, dim=dim, descending=descending)
        assert torch.equal(indices, exact.indices)
        torch.testing.assert_close(values, exact.values, equal_nan=True, rtol=0, atol=0)
        if dtype.is_floating_point:
            numbers = ~values.isnan()
            assert torch.equal(values.signbit()[numbers], exact.values.signbit()[numbers])


@pytest.mark.parametrize("length", [*range(1, 20), 63, 64, 65, 255, 257, 700, 2100])
@pytest.mark.parametrize("count", [1, 2, 7, 40, 700])
def test_any_number_of_first_elements(length: int, count: int):
    """Lines that are kept in order and lines that are sorted, in one column of vectors and in several."""
    count = min(count, length)
    x = torch.randint(-50, 50, (2, length), generator=torch.Generator().manual_seed(length)).float()
    values, indices = tilewright.compile(lambda x: torch.topk(x, count), (x,))(x)
    exact = torch.sort(x, stable=True, descending=True)
    assert torch.equal(values, exact.values[:, :count])
    assert torch.equal(indices, exact.indices[:, :count])
