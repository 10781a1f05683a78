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
