"""Caches: objects with tensors that a model is given, or holds, and writes to."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tilewright
from tilewright.runtime.errors import ArgumentError

WIDTH, LENGTH = 4, 6


class Layer:
    """Keys of a fixed length, written in place as transformers' `StaticCache` does, and how many there are."""

    def __init__(self) -> None:
        self.keys, self.used = torch.zeros(LENGTH, WIDTH), torch.tensor(0)
        self.dtype = self.keys.dtype

    def update(self, keys: torch.Tensor) -> torch.Tensor:
        self.keys.index_copy_(0, self.used + torch.arange(len(keys)), keys.to(self.dtype))
        self.used.add_(len(keys))
        return self.keys


class Cache:
    def __init__(self, layers: int = 2, name: str = "static") -> None:
        self.layers, self.name = [Layer() for _ in range(layers)], name


class Decoder(nn.Module):
    """Attends to all keys in a cache, which is given, or its own."""

    def __init__(self, cache: Any = None) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, WIDTH)
        self.cache = cache

    def forward(self, x: torch.Tensor, cache: Cache | None = None) -> torch.Tensor:
        found = self.cache if cache is None else cache
        for layer in found.layers if isinstance(found, Cache) else found:
            keys = layer.update(self.project(x))
            x = (x @ keys.mT).softmax(-1) @ keys
        return x


def tensors(cache: Cache) -> list[torch.Tensor]:
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.used)]


def test_caches_that_are_given_are_written(tmp_path: Path) -> None:
    model = Decoder().eval()
    compiled = tilewright.compile(model, (torch.randn(1, WIDTH), Cache()))
    compiled.save(tmp_path / "decoder.twm")
    for called in (compiled, tilewright.load(tmp_path / "decoder.twm")):
        given, wanted = Cache(), Cache()
        for _ in range(3):
            x = torch.randn(1, WIDTH)
            with torch.no_grad():
                torch.testing.assert_close(called(x, given), model(x, wanted))
        for found, expected in zip(tensors(given), tensors(wanted)):
            torch.testing.assert_close(found, expected)
        with pytest.raises(
            ArgumentError, match=r"`cache.name` was compiled as the constant 'static', found 'other'"
        ):
            called(torch.randn(1, WIDTH), Cache(name="other"))
        with pytest.raises(TypeError, match="expected 2 members, found 3"):
            called(torch.randn(1, WIDTH), Cache(layers=3))


@pytest.mark.parametrize("held", (Cache, lambda: (Layer(), Layer()), lambda: [Layer()]))
def test_caches_that_a_model_holds_are_its_state(held: Callable[[], Any]) -> None:
    model = Decoder(held()).eval()
    eager = copy.deepcopy(model)
    compiled = tilewright.compile(model, (torch.randn(1, WIDTH),))
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(1, WIDTH)
            torch.testing.assert_close(compiled(x), eager(x))
    layers = getattr(model.cache, "layers", model.cache)
    assert [int(layer.used) for layer in layers] == [3] * len(layers)


def test_modules_in_closures_have_state() -> None:
    norm = nn.BatchNorm1d(5)
    eager, x = copy.deepcopy(norm), torch.randn(4, 5)
    compiled = tilewright.compile(lambda x: norm(x) * 2, (x,))
    for _ in range(2):
        torch.testing.assert_close(compiled(x), eager(x).detach() * 2)
    torch.testing.assert_close(norm.running_var, eager.running_var)


class Growing:
    def __init__(self) -> None:
        self.keys, self.steps = torch.zeros(1, WIDTH), 0


def _grown(x: torch.Tensor, cache: Growing) -> torch.Tensor:
    cache.keys = torch.cat([cache.keys, x])
    return cache.keys.sum(0)


def _counted(x: torch.Tensor, cache: Growing) -> torch.Tensor:
    cache.steps += 1
    return x + cache.keys * cache.steps


@pytest.mark.parametrize(("function", "name"), ((_grown, "keys"), (_counted, "steps")))
def test_attributes_of_arguments_are_not_assigned(function: Callable[..., Any], name: str) -> None:
    cache = Growing()
    with pytest.raises(
        tilewright.UnsupportedError, match=f"`argument 1.{name}` at .* its caller would not see"
    ):
        tilewright.compile(function, (torch.randn(1, WIDTH), cache))
    assert cache.keys.shape == (1, WIDTH) and cache.steps == 0


class Slotted:
    __slots__ = ("width",)


class Scale(Slotted):
    """An object that attributes alone do not make again: its tensors are known values."""

    def __init__(self, factor: float) -> None:
        self.width, self.factor = WIDTH, torch.tensor(factor)


def test_objects_that_cannot_be_made_again_are_constants() -> None:
    x, scale = torch.randn(WIDTH), Scale(3.0)
    compiled = tilewright.compile(lambda x, scale: x * scale.factor + scale.width, (x, scale))
    torch.testing.assert_close(compiled(x, scale), x * 3 + WIDTH)
    with pytest.raises(ArgumentError, match="`scale` was compiled as the constant"):
        compiled(x, Scale(4.0))
