"""The generator of a DCGAN (Radford et al., 2015): transposed convolutions from noise to images."""

from __future__ import annotations

import itertools

import torch
from torch import nn

from tilewright.bench.models.seeding import SEED, seeded

_CHANNELS = (100, 512, 256, 128, 64)


class Generator(nn.Sequential):
    """Noise `[B, 100, 1, 1]` -> images `[B, 3, 64, 64]`, doubled in size by every layer but the first."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for number, (inputs, outputs) in enumerate(itertools.pairwise(_CHANNELS)):
            stride, padding = (2, 1) if number else (1, 0)
            layers += [
                nn.ConvTranspose2d(inputs, outputs, 4, stride, padding, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
            ]
        super().__init__(*layers, nn.ConvTranspose2d(_CHANNELS[-1], 3, 4, 2, 1, bias=False), nn.Tanh())


def dcgan(batch: int = 1):
    """A DCGAN generator of 64x64 images."""
    noise = torch.randn(batch, _CHANNELS[0], 1, 1, generator=torch.Generator().manual_seed(SEED))
    return seeded(Generator), (noise,)
