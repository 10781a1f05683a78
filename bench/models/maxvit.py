"""MaxViT of Tu et al., ECCV'22: inverted residuals, then attention within windows and attention over a grid."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from tilewright.bench.models.efficientnet import Excitation
from tilewright.bench.models.seeding import image, seeded

_HEAD = 32
_WIDTHS = (64, 128, 256, 512)
_DEPTHS = (2, 2, 5, 2)


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)


class Residual(nn.Module):
    """1x1 up, depthwise 3x3, excitation, 1x1 down, around a residual that is pooled and projected where shapes change."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        width = 4 * outputs
        self.body = nn.Sequential(
            _norm(inputs),
            nn.Conv2d(inputs, width, 1, bias=False), _norm(width), nn.GELU(),
            nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False), _norm(width), nn.GELU(),
            Excitation(width, outputs // 4),
            nn.Conv2d(width, outputs, 1),
        )  # fmt: skip
        pooled = [nn.AvgPool2d(3, stride, 1)] if stride > 1 else []
        changes = stride > 1 or inputs != outputs
        self.shortcut = nn.Sequential(*pooled, nn.Conv2d(inputs, outputs, 1)) if changes else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.shortcut(x) + self.body(x)


class RelativeAttention(nn.Module):
    """Self-attention over `[B, windows, T, C]`, T = side^2, with a bias by head and relative place (§3.1)."""

    places: torch.Tensor

    def __init__(self, width: int, side: int):
        super().__init__()
        self.heads = width // _HEAD
        self.project, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = nn.Parameter(torch.randn((2 * side - 1) ** 2, self.heads) * 0.02)
        places = torch.cartesian_prod(torch.arange(side), torch.arange(side))
        apart = places[:, None] - places[None] + side - 1
        self.register_buffer("places", apart[..., 0] * (2 * side - 1) + apart[..., 1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, windows, t, c = x.shape
        q, k, v = self.project(x).view(b * windows, t, 3, self.heads, _HEAD).permute(2, 0, 3, 1, 4)
        bias = self.table[self.places].permute(2, 0, 1)[None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.merge(y.transpose(1, 2).reshape(b, windows, t, c))


class PartitionAttention(nn.Module):
    """Attention and an MLP, each around a residual, on windows of `side`^2 neighbours or `side`^2 places of a grid over `[B, C, H, W]`."""

    def __init__(self, width: int, side: int, grid: bool):
        super().__init__()
        self.side, self.grid = side, grid
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.attention = RelativeAttention(width, side)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, c, h, w = x.shape
        p = self.side
        rows, columns = h // p, w // p
        # Within windows their places are the fast parts of rows and columns; over a grid they are the slow parts.
        if self.grid:
            y = x.view(b, c, p, rows, p, columns).permute(0, 3, 5, 2, 4, 1)
        else:
            y = x.view(b, c, rows, p, columns, p).permute(0, 2, 4, 3, 5, 1)
        y = y.reshape(b, rows * columns, p * p, c)
        y = y + self.attention(self.norms[0](y))
        y = y + self.mlp(self.norms[1](y))
        y = y.view(b, rows, columns, p, p, c)
        y = y.permute(0, 5, 3, 1, 4, 2) if self.grid else y.permute(0, 5, 1, 3, 2, 4)
        return y.reshape(b, c, h, w)


class MaxVit(nn.Module):
    """Stages of (residual, windows, grid) behind a stem of two convolutions, and a head of two products."""

    def __init__(
        self,
        depths: Sequence[int] = _DEPTHS,
        widths: Sequence[int] = _WIDTHS,
        side: int = 7,
        classes: int = 1000,
    ):
        super().__init__()
        stem = widths[0]
        layers: list[nn.Module] = [
            nn.Conv2d(3, stem, 3, 2, 1, bias=False), _norm(stem), nn.GELU(), nn.Conv2d(stem, stem, 3, 1, 1),
        ]  # fmt: skip
        inputs = stem
        for depth, width in zip(depths, widths, strict=True):
            for number in range(depth):
                layers.append(Residual(inputs, width, 1 if number else 2))
                layers += [PartitionAttention(width, side, grid) for grid in (False, True)]
                inputs = width
        self.features = nn.Sequential(*layers)
        last = widths[-1]
        self.head = nn.Sequential(
            nn.LayerNorm(last), nn.Linear(last, last), nn.Tanh(), nn.Linear(last, classes, bias=False)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(x).mean((2, 3)))


def maxvit_t(batch: int = 1):
    """MaxViT-T on `[batch, 3, 224, 224]`."""
    return seeded(MaxVit), (image(batch, 224),)
