"""EfficientNetV2 of Tan and Le, ICML'21: inverted residuals, fused ones in early stages, with squeeze and excitation in late ones."""

from __future__ import annotations

import torch
from torch import nn

from tilewright.bench.models.seeding import image, seeded

# Fused or not, expansion, stride, output channels, repeats: Table 4 of the paper.
_ROWS = (
    (True, 1, 1, 24, 2), (True, 4, 2, 48, 4), (True, 4, 2, 64, 4),
    (False, 4, 2, 128, 6), (False, 6, 1, 160, 9), (False, 6, 2, 256, 15),
)  # fmt: skip


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution without bias, padded to keep the size at stride 1, then batch norm as this family has it."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs, eps=1e-3))


class Excitation(nn.Module):
    """Channels scaled by what two products make of their means (Hu et al., CVPR'18)."""

    def __init__(self, channels: int, squeezed: int):
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.SiLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(x)


class Block(nn.Module):
    """1x1 up, depthwise 3x3, excitation, linear 1x1 down, or both first as one 3x3; added to its input where shapes allow."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int, fused: bool):
        super().__init__()
        width = inputs * expansion
        if fused and expansion == 1:
            layers = [conv_norm(inputs, outputs, 3, stride), nn.SiLU()]
        elif fused:
            layers = [conv_norm(inputs, width, 3, stride), nn.SiLU(), conv_norm(width, outputs, 1)]
        else:
            depthwise = [conv_norm(width, width, 3, stride, groups=width), nn.SiLU()]
            excitation = Excitation(width, inputs // 4)
            up = [conv_norm(inputs, width, 1), nn.SiLU()]
            layers = [*up, *depthwise, excitation, conv_norm(width, outputs, 1)]
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class EfficientNetV2(nn.Module):
    """The whole network, without dropout and stochastic depth, which do nothing in eval mode."""

    def __init__(self, rows=_ROWS, head: int = 1280, classes: int = 1000):
        super().__init__()
        inputs = rows[0][3]
        layers: list[nn.Module] = [conv_norm(3, inputs, 3, 2), nn.SiLU()]
        for fused, expansion, stride, outputs, repeats in rows:
            for number in range(repeats):
                layers.append(Block(inputs, outputs, 1 if number else stride, expansion, fused))
                inputs = outputs
        self.features = nn.Sequential(*layers, conv_norm(inputs, head, 1), nn.SiLU())
        self.classifier = nn.Linear(head, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def efficientnet_v2_s(batch: int = 1):
    """EfficientNetV2-S on `[batch, 3, 384, 384]`."""
    return seeded(EfficientNetV2), (image(batch, 384),)
