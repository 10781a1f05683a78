"""What tilewright.compile made of a model follows its weights where these are changed in place."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import tilewright


def net() -> nn.Sequential:
    """Weights that are packed, folded into others, and read where they lie."""
    layers = nn.Conv2d(3, 20, 3), nn.BatchNorm2d(20), nn.ReLU(), nn.Flatten(), nn.Linear(320, 7)
    return nn.Sequential(*layers).eval()


def load(model: nn.Module) -> None:
    model.load_state_dict({name: t + t.new_ones(()) for name, t in model.state_dict().items()})


def train(model: nn.Module) -> None:
    model(torch.randn(2, 3, 6, 6)).square().mean().backward()
    torch.optim.SGD(model.parameters(), 0.5).step()


def scale_one(model: nn.Sequential) -> None:
    with torch.no_grad():
        model.get_parameter("4.weight")[2:3].mul_(3)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("change", [load, train, scale_one])
def test_calls_copies_and_files_follow(change, layout, tmp_path) -> None:
    model, x = net().to(memory_format=layout), torch.randn(2, 3, 6, 6)
    compiled = tilewright.compile(model, (x,))
    compiled(x)
    compiled(x.numpy())
    change(model)
    with torch.no_grad():
        wanted = model(x)
    compiled.save(tmp_path / "model.twm")
    for found in (compiled, copy.copy(compiled), tilewright.load(tmp_path / "model.twm")):
        torch.testing.assert_close(found(x), wanted, rtol=1e-4, atol=1e-5)
    change(model)
    with torch.no_grad():
        wanted = model(x)
    for found in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled)), compiled):
        torch.testing.assert_close(found(x), wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(torch.from_numpy(compiled(x.numpy())), wanted, rtol=1e-4, atol=1e-5)


def test_weights_of_inference_mode_count_no_changes() -> None:
    with torch.inference_mode():
        model, x = net(), torch.randn(2, 3, 6, 6)
        torch.testing.assert_close(tilewright.compile(model, (x,))(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_returned_weight_is_the_model_s_own() -> None:
    model = nn.Linear(3, 3)
    call = tilewright.compile(_Returning(model), (torch.ones(3),))
    call(torch.ones(3))
    with torch.no_grad():
        model.weight.zero_()
    found, weight = call(torch.ones(3))
    assert weight.data_ptr() == model.weight.data_ptr()
    torch.testing.assert_close(found, model.bias)


class _Returning(nn.Module):
    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.layer(x), self.layer.weight
