"""Blocks of images as columns, and columns added up to images, without looking elements up by number."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import tilewright
from tilewright.compiler.importers.torch import blocks

# kernel, dilation, padding, stride
BLOCKS = [
    *(((3, 2), (1, 1), (1, 0), (1, 1)), ((2, 3), (1, 1), (0, 2), (2, 1)), ((2, 2), (1, 1), (0, 0), (3, 4))),
    *(((2, 2), (2, 3), (1, 1), (1, 2)), ((4, 2), (1, 1), (0, 0), (4, 2)), ((4, 3), (1, 1), (0, 1), (4, 3))),
    *(((8, 9), (1, 1), (2, 2), (1, 1)), ((1, 1), (1, 1), (0, 0), (1, 1))),
]
SHAPES = [(2, 3, 8, 10), (2, 8, 10)]


@pytest.mark.parametrize("shape,block", [*itertools.product(SHAPES, BLOCKS)])
def test_blocks_and_sums_of_blocks(shape, block):
    x = torch.randn(shape)

    def both(x):
        columns = F.unfold(x, *block)
        return columns, F.fold(columns * 2, shape[-2:], *block)

    torch.testing.assert_close(tilewright.compile(both, (x,))(x), both(x))


@pytest.mark.parametrize("block", BLOCKS)
def test_gradients_of_blocks(block):
    x = torch.randn(2, 2, 8, 10, requires_grad=True)

    def loss(x):
        return F.unfold(x, *block).square().sum()

    torch._dynamo.reset()
    found = torch.compile(loss, backend="tilewright", options={"strict": True})(x)
    torch.testing.assert_close(torch.autograd.grad(found, x), torch.autograd.grad(loss(x), x))


@pytest.mark.parametrize("block", [b for b in BLOCKS if b[0] != (8, 9) and b[1] == (1, 1)])
def test_no_element_is_looked_up_by_number(block):
    x = torch.randn(2, 3, 8, 10)
    kernel, dilation, padding, stride = block

    def both(x):
        columns = blocks.im2col(x, kernel, dilation, padding, stride)
        return blocks.col2im(columns, [8, 10], kernel, dilation, padding, stride)

    names = {str(node.target) for node in make_fx(both)(x).graph.nodes if node.op == "call_function"}
    assert not [name for name in names if "index" in name or "gather" in name or "scatter" in name], names
