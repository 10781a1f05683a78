"""Inception-v3 of Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", CVPR'16, without the auxiliary classifier."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from tilewright.bench.models.seeding import image, seeded

Kernel = int | tuple[int, int]


class Conv(nn.Sequential):
    """A convolution without bias, batch norm, ReLU; `same` pads it to keep the size."""

    def __init__(self, inputs: int, outputs: int, kernel: Kernel = 1, stride: int = 1, same: bool = True):
        sizes = (kernel, kernel) if isinstance(kernel, int) else kernel
        padding = (sizes[0] // 2, sizes[1] // 2) if same else 0
        super().__init__(
            nn.Conv2d(inputs, outputs, sizes, stride, padding, bias=False),
            nn.BatchNorm2d(outputs, eps=1e-3),
            nn.ReLU(),
        )


def chain(inputs: int, *layers: tuple[int, Kernel]) -> nn.Sequential:
    """Convolutions one after the other, each by its outputs and kernel."""
    before = [inputs, *(outputs for outputs, _ in layers)]
    return nn.Sequential(
        *[Conv(b, outputs, kernel) for b, (outputs, kernel) in zip(before, layers, strict=False)]
    )


class Branches(nn.Module):
    """What branches make of one input, joined along the channels."""

    def __init__(self, *branches: nn.Module):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


def _pooled(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), Conv(inputs, outputs))


def squares(inputs: int, pooled: int) -> Branches:
    """Figure 5, with a 5x5 kept in one branch as the authors' code has it."""
    return Branches(
        Conv(inputs, 64),
        chain(inputs, (48, 1), (64, 5)),
        chain(inputs, (64, 1), (96, 3), (96, 3)),
        _pooled(inputs, pooled),
    )


def lines(inputs: int, width: int) -> Branches:
    """Figure 6: 7x7 kernels as a row and a column."""
    return Branches(
        Conv(inputs, 192),
        chain(inputs, (width, 1), (width, (1, 7)), (192, (7, 1))),
        chain(
            inputs, (width, 1), (width, (7, 1)), (width, (1, 7)), (width, (7, 1)), (192, (1, 7))
        ),
        _pooled(inputs, 192),
    )  # fmt: skip


def _fan(outputs: int) -> Branches:
    return Branches(Conv(outputs, outputs, (1, 3)), Conv(outputs, outputs, (3, 1)))


def fans(inputs: int) -> Branches:
    """Figure 7: on the coarsest grid a row and a column beside each other."""
    return Branches(
        Conv(inputs, 320),
        nn.Sequential(Conv(inputs, 384), _fan(384)),
        nn.Sequential(chain(inputs, (448, 1), (384, 3)), _fan(384)),
        _pooled(inputs, 192),
    )


def halved(inputs: int, first: nn.Module, second: nn.Module) -> Branches:
    """Figure 10: two branches of stride 2 beside a pooling of stride 2."""
    return Branches(first, second, nn.MaxPool2d(3, 2))


def _down(inputs: int, outputs: int) -> Conv:
    return Conv(inputs, outputs, 3, 2, same=False)


class InceptionV3(nn.Module):
    """The network of Table 1, without dropout, which does nothing in eval mode."""

    def __init__(self, lines_of: Sequence[int] = (128, 160, 160, 192), classes: int = 1000):
        super().__init__()
        stem = [
            Conv(3, 32, 3, 2, same=False), Conv(32, 32, 3, same=False), Conv(32, 64, 3), nn.MaxPool2d(3, 2),
            Conv(64, 80), Conv(80, 192, 3, same=False), nn.MaxPool2d(3, 2),
        ]  # fmt: skip
        self.features = nn.Sequential(
            *stem,
            *[squares(inputs, pooled) for inputs, pooled in ((192, 32), (256, 64), (288, 64))],
            halved(288, _down(288, 384), nn.Sequential(chain(288, (64, 1), (96, 3)), _down(96, 96))),
            *[lines(768, width) for width in lines_of],
            halved(
                768,
                nn.Sequential(Conv(768, 192), _down(192, 320)),
                nn.Sequential(chain(768, (192, 1), (192, (1, 7)), (192, (7, 1))), _down(192, 192)),
            ),
            *[fans(inputs) for inputs in (1280, 2048)],
        )
        self.classifier = nn.Linear(2048, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def inception_v3(batch: int = 1):
    """Inception-v3 on `[batch, 3, 299, 299]`."""
    return seeded(InceptionV3), (image(batch, 299),)
