"""Parameters of models under torch.compile: kept or given, in graphs of one shape, of many, split, and for training."""

from __future__ import annotations

import copy

import pytest
import torch
import torch._dynamo
from torch import nn

from tilewright.compiler.torch import fallback
from tilewright.compiler.torch import partition as torch_partition
from tilewright.compiler.torch import specialise as torch_specialise
from tilewright.compiler.torch.fallback import FallbackWarning


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    fallback._reported.clear()


@pytest.fixture
def parts(monkeypatch) -> list[torch_partition.Part]:
    """The compiled parts of graphs, in the order in which they are made."""
    made = []

    class Seen(torch_partition.Part):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(torch_partition, "Part", Seen)
    return made


class Split(nn.Module):
    """Two layers with an operator between them that is left to eager PyTorch."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(64, 48), nn.Linear(48, 32)

    def forward(self, x):
        x = self.first(x)
        return self.second(torch.special.airy_ai(x))


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return ((found.detach().double() - exact).norm() / exact.norm()).item()


def rounded_linear(layer: nn.Linear, x: torch.Tensor) -> torch.Tensor:
    weight = layer.weight.detach().bfloat16().double()
    return x.detach().bfloat16().double() @ weight.T + layer.bias.detach().double()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kept", [0, 1])
def test_a_precision_is_obeyed_in_every_shape(dynamic, kept, monkeypatch):
    monkeypatch.setattr(torch_specialise, "MOST_KEPT", kept)
    layer = nn.Linear(64, 32).eval()
    f = torch.compile(
        layer, backend="tilewright", dynamic=dynamic, options={"precision": "bf16", "strict": True}
    )
    with torch.no_grad():
        for rows in (8, 5):
            x = torch.randn(rows, 64)
            assert error(f(x), rounded_linear(layer, x)) < 1e-6


def test_a_precision_is_obeyed_where_parameters_are_trained():
    layer, x = nn.Linear(64, 32), torch.randn(8, 64)
    f = torch.compile(layer, backend="tilewright", options={"precision": "bf16", "strict": True})
    for _ in range(2):
        found = f(x)
        assert error(found, rounded_linear(layer, x)) < 1e-6
        layer.zero_grad()
        found.sum().backward()
        exact = x.double().sum(0).expand(32, 64)
        assert error(layer.weight.grad, exact) < 1e-6, "products of gradients are not rounded"
        with torch.no_grad():
            layer.weight.sub_(0.1 * layer.weight.grad)


def test_a_precision_is_obeyed_in_parts_of_a_graph():
    model, x = Split().eval(), torch.randn(8, 64)
    f = torch.compile(model, backend="tilewright", options={"precision": "bf16"})
    with torch.no_grad(), pytest.warns(FallbackWarning, match="airy_ai"):
        found = f(x)
    between = rounded_linear(model.first, x).float()
    assert error(found, rounded_linear(model.second, torch.special.airy_ai(between))) < 1e-3
    assert error(found, copy.deepcopy(model).double()(x.double())) > 1e-4, "nothing was rounded"


def test_only_the_first_shapes_keep_parameters(parts, monkeypatch):
    monkeypatch.setattr(torch_specialise, "MOST_KEPT", 2)
    layer = nn.Linear(6, 4).eval()
    f = torch.compile(layer, backend="tilewright", dynamic=True, options={"strict": True})
    with torch.no_grad():
        for rows in (2, 3, 5, 7):
            x = torch.randn(rows, 6)
            torch.testing.assert_close(f(x), layer(x))
    assert [len(part._model.weights) for part in parts] == [2, 2, 0, 0]


@pytest.mark.filterwarnings("ignore::tilewright.compiler.torch.fallback.FallbackWarning")
@pytest.mark.parametrize("model", [Split, lambda: nn.Linear(64, 32)], ids=["split", "dynamic"])
def test_kept_parameters_may_change_between_calls(model, parts):
    model = model().eval()
    f = torch.compile(model, backend="tilewright", dynamic=True)
    with torch.no_grad():
        for rows in (3, 5, 3):
            x = torch.randn(rows, 64)
            torch.testing.assert_close(f(x), model(x))
            for parameter in model.parameters():
                parameter.mul_(-1.5)
    assert parts and all(part._model.weights for part in parts)


def test_buffers_that_a_call_writes_are_given(parts):
    norm = nn.BatchNorm1d(4).train()
    f, twin = torch.compile(norm, backend="tilewright", options={"strict": True}), copy.deepcopy(norm)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(5, 4)
            torch.testing.assert_close(f(x), twin(x))
    torch.testing.assert_close(dict(norm.named_buffers()), dict(twin.named_buffers()))
    (part,) = parts
    assert len(part._model.weights) == 2, "the scale and the shift are kept, the running statistics are not"
