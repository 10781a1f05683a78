"""Weights that change between calls are bound again, whatever way they were written."""

from __future__ import annotations

import copy

import pytest
import torch
import torch._dynamo
from torch import nn

from tilewright.compiler.torch.watched import Watched


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()


def halve_data(net):
    for parameter in net.parameters():
        parameter.data.mul_(0.5)


def write_by_numpy(net):
    for parameter in net.parameters():
        parameter.detach().numpy()[...] += 1


def replace_data(net):
    for parameter in net.parameters():
        parameter.data = parameter.data + 1


def change_in_place(net):
    for parameter in net.parameters():
        parameter.add_(1)


@pytest.mark.parametrize("change", [halve_data, write_by_numpy, replace_data, change_in_place])
def test_calls_follow(change):
    net = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 8))
    compiled, x = torch.compile(net, backend="tilewright"), torch.randn(3, 40)
    with torch.no_grad():
        compiled(x)
        change(net)
        torch.testing.assert_close(compiled(x), net(x))


def test_a_target_network_follows_the_one_that_learns():
    net = nn.Linear(40, 4)
    target = copy.deepcopy(net)
    online, following = (torch.compile(m, backend="tilewright") for m in (net, target))
    optimiser = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(3):
        x = torch.randn(8, 40)
        with torch.no_grad():
            wanted = following(x)
            torch.testing.assert_close(wanted, target(x))
        optimiser.zero_grad()
        nn.functional.mse_loss(online(x), wanted + 1).backward()
        optimiser.step()
        for old, new in zip(target.parameters(), net.parameters()):
            old.data.lerp_(new.data, 0.5)


@pytest.mark.parametrize("make", [
    lambda: torch.zeros(7),
    lambda: torch.zeros(3, 5, dtype=torch.int8),
    lambda: torch.zeros(8, 30).t()[::2],
])  # fmt: skip
def test_any_element_of_a_small_tensor_tells(make):
    tensor = make()
    tensors = [torch.zeros(0), tensor]
    watched = Watched(tensors)
    for index in range(tensor.numel()):
        tensor.data[tuple(torch.unravel_index(torch.tensor(index), tensor.shape))] = 1
        assert watched.changes(tensors)
        assert not watched.changes(tensors)


def test_what_counts_no_versions_changes_always():
    with torch.inference_mode():
        tensors = [torch.zeros(3)]
    watched = Watched(tensors)
    assert watched.changes(tensors) and watched.changes(tensors)


def test_columns_of_a_large_tensor_tell():
    tensor = torch.zeros(512, 512)
    watched = Watched([tensor])
    tensor.data[:, ::2] = 1
    assert watched.changes([tensor])
    assert not watched.changes([tensor])
