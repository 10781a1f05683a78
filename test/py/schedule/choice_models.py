"""Small graphs of which much is chosen before there are dispatches, in odd shapes, with inputs for them."""

from __future__ import annotations

import torch
from torch import nn


class Residual(nn.Module):
    """Convolution, bias, relu and a sum, with a convolution of other size beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(5, 32, 3, padding=1), nn.Conv2d(32, 32, 3, padding=1)
        self.shortcut = nn.Conv2d(5, 32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu()).relu() + self.shortcut(x)


class Separable(nn.Module):
    """A depthwise convolution and a pointwise one, of stride 2."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(24, 24, 3, stride=2, padding=1, groups=24)
        self.pointwise = nn.Conv2d(24, 48, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.pointwise(self.depthwise(x).relu()).relu()


class Perceptron(nn.Module):
    """Two products with a GELU between them."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(20, 96), nn.Linear(96, 36)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(nn.functional.gelu(self.up(x)))


class Normalized(nn.Module):
    """A layer norm between products, whose rows are few and long."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(7, 2064), nn.LayerNorm(2064), nn.Linear(2064, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.norm(self.up(x)))


class Scores(nn.Module):
    """Products of inputs, a sum of two of them, and a softmax."""

    def forward(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return torch.softmax(a @ b + (a * 2) @ c, 1)


def models() -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    """By name a module and its inputs; the same numbers each time."""
    torch.manual_seed(0)
    return {
        "residual": (Residual().eval(), (torch.randn(1, 5, 11, 9),)),
        "separable": (Separable().eval(), (torch.randn(1, 24, 13, 7),)),
        "perceptron": (Perceptron().eval(), (torch.randn(13, 20),)),
        "normalized": (Normalized().eval(), (torch.randn(3, 7),)),
        "scores": (Scores(), (torch.randn(13, 9), torch.randn(9, 48), torch.randn(9, 48))),
    }
