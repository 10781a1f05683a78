"""Rounding errors of convolutions by Winograd's algorithm and direct ones, against f64: `python -m tilewright.bench.winograd_rounding`.

Normal random images, filters of standard deviation 1 / sqrt(9 C) as networks have them, so that outputs are about
1. Errors are in units of the outputs' root mean square.
"""

from __future__ import annotations

import torch
from torch import nn

import tilewright

LAYERS = ((64, 56), (128, 28), (256, 14), (512, 7))
"""(channels, extent of the image): the stride-1 layers of ResNet-18."""


def errors(channels: int, extent: int, winograd: bool) -> tuple[float, float]:
    """(root mean square, largest) error of one layer of f32, relative to the root mean square of its output."""
    torch.manual_seed(0)
    layer = nn.Conv2d(channels, channels, 3, padding=1, bias=False).eval()
    nn.init.normal_(layer.weight, std=(9 * channels) ** -0.5)
    x = torch.randn(1, channels, extent, extent)
    with torch.no_grad():
        exact = nn.functional.conv2d(x.double(), layer.weight.double(), padding=1)
    result = tilewright.compile(layer, (x,), winograd=winograd)(x)
    error = (result.double() - exact) / exact.square().mean().sqrt()
    return error.square().mean().sqrt().item(), error.abs().max().item()


def main() -> None:
    print("| layer | direct, rms | direct, largest | Winograd, rms | Winograd, largest |")
    print("| --- | --- | --- | --- | --- |")
    for channels, extent in LAYERS:
        figures = [*errors(channels, extent, False), *errors(channels, extent, True)]
        print(f"| {channels} channels, {extent}x{extent} | " + " | ".join(f"{e:.1e}" for e in figures) + " |")


if __name__ == "__main__":
    main()
