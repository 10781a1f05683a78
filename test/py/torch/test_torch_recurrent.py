"""Recurrent layers under torch.compile: in the graph, with gradients and with the dropout between layers."""

from __future__ import annotations

import copy

import pytest
import torch
import torch._dynamo
from torch import nn
from torch.utils import _pytree as pytree

import tilewright
from tilewright.compiler.errors import UnsupportedError

LAYERS = {
    "lstm": lambda: nn.LSTM(3, 4),
    "lstm of two layers, both ways": lambda: nn.LSTM(
        3, 4, num_layers=2, bidirectional=True, dropout=0.3, batch_first=True
    ),
    "lstm without biases, projected": lambda: nn.LSTM(3, 4, bias=False, proj_size=2),
    "gru": lambda: nn.GRU(3, 4, num_layers=2, dropout=0.4),
    "rnn": lambda: nn.RNN(3, 4, bidirectional=True, bias=False),
    "rnn of relu": lambda: nn.RNN(3, 4, nonlinearity="relu"),
}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_compiled_whole(name, train):
    """Outputs, last states, gradients and the generator's state are those of eager PyTorch."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    ours = LAYERS[name]().train(train)
    theirs, x = copy.deepcopy(ours), torch.randn(3, 2, 3)
    torch._dynamo.utils.counters.clear()
    f = torch.compile(ours, backend="tilewright", options={"strict": True})
    before = tilewright.fallback_count()
    found = []
    for call, layer in ((f, ours), (theirs, theirs)):
        torch.manual_seed(5)
        with torch.set_grad_enabled(train):
            results = pytree.tree_leaves(call(x))
            if train:
                sum(result.square().sum() for result in results).backward()
        found.append([*results, *(p.grad for p in layer.parameters() if train), torch.get_rng_state()])
    for mine, wanted in zip(*found, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=1e-4, atol=1e-5)
    counters = torch._dynamo.utils.counters
    assert not counters["graph_break"] and counters["stats"]["unique_graphs"] == 1
    assert tilewright.fallback_count() == before


def test_the_dropout_between_layers_is_not_forgotten_without_torch_compile():
    layers, x = nn.GRU(3, 4, num_layers=2, dropout=0.4), torch.randn(3, 2, 3)
    with pytest.raises(UnsupportedError, match="draws random numbers"):
        tilewright.compile(layers.train(), (x,))
    found = tilewright.compile(layers.eval(), (x,))(x)
    for ours, theirs in zip(found, layers(x)):
        torch.testing.assert_close(ours, theirs.detach(), rtol=1e-4, atol=1e-5)
