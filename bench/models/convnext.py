"""ConvNeXt of Liu et al., "A ConvNet for the 2020s", CVPR'22: 7x7 depthwise convolutions with layer norms between products."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from tilewright.bench.models.seeding import image, seeded

_WIDTHS = (96, 192, 384, 768)
_DEPTHS = (3, 3, 9, 3)


class ChannelsNorm(nn.LayerNorm):
    """A layer norm over the channels of images."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    """A depthwise 7x7, a layer norm, and two products with a GELU between, scaled and added to its input (§2.6, fig. 4)."""

    def __init__(self, width: int):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(nn.functional.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNeXt(nn.Module):
    """Stages of blocks behind a stem of patches, and a classifier."""

    def __init__(self, depths: Sequence[int], widths: Sequence[int] = _WIDTHS, classes: int = 1000):
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), ChannelsNorm(widths[0], eps=1e-6)]
        for number, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            if number:
                before = widths[number - 1]
                layers += [ChannelsNorm(before, eps=1e-6), nn.Conv2d(before, width, 2, 2)]
            layers += [Block(width) for _ in range(depth)]
        self.features = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(widths[-1], eps=1e-6)
        self.classifier = nn.Linear(widths[-1], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.norm(self.features(x).mean((2, 3))))


def convnext_t(batch: int = 1):
    """ConvNeXt-T on `[batch, 3, 224, 224]`."""
    return seeded(lambda: ConvNeXt(_DEPTHS)), (image(batch, 224),)


def convnext_blocks(batch: int = 1):
    """One block of each stage of ConvNeXt-T, with its stem and classifier, on `[batch, 3, 224, 224]`."""
    return seeded(lambda: ConvNeXt((1, 1, 1, 1))), (image(batch, 224),)
