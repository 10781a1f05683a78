"""MobileNetV2 of Sandler et al., 2018: inverted residuals with linear bottlenecks."""

from __future__ import annotations

import torch
from torch import nn

from tilewright.bench.models.resnet import conv_norm
from tilewright.bench.models.seeding import image, seeded

# Expansion, output channels, repeats, first stride: Table 2 of the paper.
_ROWS = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip


class InvertedResidual(nn.Module):
    """1x1 up by `expansion`, depthwise 3x3, linear 1x1 down; added to its input where shapes allow."""

    def __init__(self, inputs: int, outputs: int, stride: int, expansion: int):
        super().__init__()
        width = inputs * expansion
        up = [conv_norm(inputs, width, 1), nn.ReLU6()] if expansion > 1 else []
        depthwise = conv_norm(width, width, 3, stride, groups=width)
        self.body = nn.Sequential(*up, depthwise, nn.ReLU6(), conv_norm(width, outputs, 1))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.residual else self.body(x)


class MobileNetV2(nn.Module):
    """The whole network at width 1.0, without the classifier's dropout (it does nothing in eval mode)."""

    def __init__(self, classes: int = 1000):
        super().__init__()
        layers: list[nn.Module] = [conv_norm(3, 32, 3, 2), nn.ReLU6()]
        inputs = 32
        for expansion, outputs, repeats, stride in _ROWS:
            for i in range(repeats):
                layers.append(InvertedResidual(inputs, outputs, stride if i == 0 else 1, expansion))
                inputs = outputs
        self.features = nn.Sequential(*layers, conv_norm(inputs, 1280, 1), nn.ReLU6())
        self.classifier = nn.Linear(1280, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def mobilenet_v2(batch: int = 1):
    """MobileNetV2 on `[batch, 3, 224, 224]`."""
    return seeded(MobileNetV2), (image(batch, 224),)
