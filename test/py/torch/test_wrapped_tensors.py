"""Parameters of classes that wrap other tensors, as libraries of quantisation make them: these are the weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import tilewright
from tilewright.compiler.importers.torch.model import import_torch


class Scaled(torch.Tensor):
    """Bytes times a number a row, which any operator multiplies out."""

    data_bytes: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls, data: torch.Tensor, scale: torch.Tensor) -> Scaled:
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=scale.dtype)

    def __init__(self, data: torch.Tensor, scale: torch.Tensor) -> None:
        self.data_bytes, self.scale = data, scale

    @classmethod
    def of(cls, weight: torch.Tensor) -> Scaled:
        scale = weight.abs().amax(1, keepdim=True) / 127
        return cls((weight / scale).round().to(torch.int8), scale)

    def __repr__(self, **_: Any) -> str:
        return f"Scaled({self.data_bytes}, {self.scale})"

    def numbers(self) -> torch.Tensor:
        return self.data_bytes.to(self.scale.dtype) * self.scale

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["data_bytes", "scale"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], context: None, size: Any, stride: Any) -> Scaled:
        return Scaled(inner["data_bytes"], inner["scale"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return args[0]
        return func(
            *pytree.tree_map_only(Scaled, Scaled.numbers, args),
            **pytree.tree_map_only(Scaled, Scaled.numbers, kwargs or {}),
        )


def _quantised() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)).eval()
    for layer in model:
        if isinstance(layer, nn.Linear):
            layer.weight = nn.Parameter(Scaled.of(layer.weight.detach()), requires_grad=False)
    return model


@pytest.mark.parametrize("way", ("module", "exported"))
def test_what_they_wrap_is_the_models_own(way: str) -> None:
    model, x = _quantised(), torch.randn(4, 6)
    given = torch.export.export(model, (x,)) if way == "exported" else model
    imported = import_torch(given, (x,))
    assert (
        sorted(str(weight.dtype) for weight in imported.weights) == ["torch.float32"] * 4 + ["torch.int8"] * 2
    )
    torch.testing.assert_close(tilewright.compile(given, (x,))(x), model(x))
    assert isinstance(model[0].weight, Scaled)
