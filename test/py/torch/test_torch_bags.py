"""Bags of rows of a table: their gradients, and that their cost grows with their rows alone."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import tilewright
from tilewright.compiler.importers.torch import bags


class _Largest(TorchDispatchMode):
    """Takes note of the most elements of a result."""

    def __init__(self):
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor):
            self.elements = max(self.elements, found.numel())
        return found


@pytest.mark.parametrize("mode", [0, 1], ids=["sum", "mean"])
@pytest.mark.parametrize("padding", [None, 3])
def test_no_tensor_has_an_element_for_every_row_of_every_bag(mode, padding):
    weight, indices, offsets = torch.randn(9, 2), torch.randint(0, 9, (60,)), torch.arange(0, 60, 2)
    args = (weight, indices, offsets, False, mode, False, None, False, padding)
    with _Largest() as largest:
        found = bags.embedding_bag(*args)[0]
    assert largest.elements <= 60 * 2
    expected = torch.ops.aten._embedding_bag(*args[:-1], -1 if padding is None else padding)[0]
    torch.testing.assert_close(found, expected)


def test_bags_of_one_size_are_reduced_without_adding_to_bags():
    weight, indices = torch.randn(9, 2), torch.randint(0, 9, (7, 3))

    def traced(indices, weight):
        return bags.functional_embedding_bag(indices, weight)

    graph = torch.fx.experimental.proxy_tensor.make_fx(traced)(indices, weight)
    assert not [node for node in graph.graph.nodes if "bag" in str(node.target)]
    torch.testing.assert_close(graph(indices, weight), F.embedding_bag(indices, weight))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 1])
@pytest.mark.parametrize("is_flat", [False, True], ids=["one size", "offsets"])
def test_gradients_of_bags(mode, padding, is_flat):
    weight = torch.randn(6, 4, requires_grad=True)
    indices = torch.tensor([1, 3, 3, 4, 5, 1]) if is_flat else torch.tensor([[1, 3, 3], [4, 5, 1]])
    offsets = torch.tensor([0, 2, 2, 5]) if is_flat else None

    def loss(weight):
        found = F.embedding_bag(indices, weight, offsets, mode=mode, padding_idx=padding)
        return (found * torch.arange(4.0)).square().sum()

    torch._dynamo.reset()
    found = torch.compile(loss, backend="tilewright", options={"strict": True})(weight)
    torch.testing.assert_close(torch.autograd.grad(found, weight), torch.autograd.grad(loss(weight), weight))


@pytest.mark.parametrize("padding", [None, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_factors(padding, dtype):
    weight = torch.randn(6, 4, dtype=dtype, requires_grad=True)
    factors = torch.randn(6, dtype=dtype, requires_grad=True)
    indices, offsets = torch.tensor([1, 3, 3, 4, 5, 1]), torch.tensor([0, 2, 2, 5])

    def loss(weight, factors):
        found = F.embedding_bag(
            indices, weight, offsets, mode="sum", per_sample_weights=factors, padding_idx=padding
        )
        return found.square().sum()

    torch._dynamo.reset()
    found = torch.compile(loss, backend="tilewright", options={"strict": True})(weight, factors)
    expected = torch.autograd.grad(loss(weight, factors), (weight, factors))
    torch.testing.assert_close(torch.autograd.grad(found, (weight, factors)), expected)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_bags_of_one_size(mode, dtype):
    weight = torch.tensor([[math.nan, math.inf], [0.7, -0.1], [1.0, -math.inf], [0.2, math.nan]]).to(dtype)
    indices = torch.tensor([[2, 3, 0], [3, 0, 2], [0, 3, 1], [2, 2, 2], [1, 2, 1], [2, 1, 0]])

    def looked_up(indices, weight):
        return F.embedding_bag(indices, weight, mode=mode)

    found = tilewright.compile(looked_up, (indices, weight))(indices, weight)
    torch.testing.assert_close(found, looked_up(indices, weight), equal_nan=True)
