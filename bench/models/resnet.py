"""ResNets and ResNeXts: residual networks of He et al., 2015, and their grouped kind of Xie et al., 2016."""

from __future__ import annotations

import torch
from torch import nn

from tilewright.bench.models.seeding import image, seeded


def conv_norm(inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """A convolution without bias, padded to keep the size at stride 1, then batch norm."""
    conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a residual."""

    def __init__(self, inputs: int, width: int, outputs: int, stride: int, groups: int):
        super().__init__()
        self.first = conv_norm(inputs, width, 3, stride)
        self.second = conv_norm(width, outputs, 3)
        self.shortcut = shortcut(inputs, outputs, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.second(torch.relu(self.first(x))) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1 down to `width`, 3x3 (in `groups`), 1x1 up, around a residual."""

    def __init__(self, inputs: int, width: int, outputs: int, stride: int, groups: int):
        super().__init__()
        self.down = conv_norm(inputs, width, 1)
        self.middle = conv_norm(width, width, 3, stride, groups)
        self.up = conv_norm(width, outputs, 1)
        self.shortcut = shortcut(inputs, outputs, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.middle(torch.relu(self.down(x))))
        return torch.relu(self.up(y) + self.shortcut(x))


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The identity, or a 1x1 projection where the shape changes."""
    return nn.Identity() if inputs == outputs and stride == 1 else conv_norm(inputs, outputs, 1, stride)


class ResNet(nn.Module):
    """Stem, stages of residual blocks at doubling width, global pooling, classifier.

    `stages`: (blocks, inner width, outer width) each; the first stage keeps the size, the others halve it.
    """

    def __init__(self, stem: nn.Module, inputs: int, block: type, stages, groups: int, classes: int):
        super().__init__()
        self.stem = stem
        blocks = []
        for index, (count, width, outputs) in enumerate(stages):
            for i in range(count):
                blocks.append(block(inputs, width, outputs, 2 if index and i == 0 else 1, groups))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.pool(self.blocks(self.stem(x))).flatten(1))


def _imagenet(block: type, stages, groups: int = 1) -> ResNet:
    stem = nn.Sequential(conv_norm(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return ResNet(stem, 64, block, stages, groups, 1000)


def resnet18(batch: int = 1, size: int = 224):
    """ResNet-18 on `[batch, 3, size, size]`."""
    stages = [(2, 64, 64), (2, 128, 128), (2, 256, 256), (2, 512, 512)]
    return seeded(lambda: _imagenet(BasicBlock, stages)), (image(batch, size),)


def resnet50(batch: int = 1):
    """ResNet-50 on `[batch, 3, 224, 224]`."""
    stages = [(3, 64, 256), (4, 128, 512), (6, 256, 1024), (3, 512, 2048)]
    return seeded(lambda: _imagenet(Bottleneck, stages)), (image(batch, 224),)


def resnext50(batch: int = 1):
    """ResNeXt-50 32x4d on `[batch, 3, 224, 224]`."""
    stages = [(3, 128, 256), (4, 256, 512), (6, 512, 1024), (3, 1024, 2048)]
    return seeded(lambda: _imagenet(Bottleneck, stages, 32)), (image(batch, 224),)


def resnext29(batch: int = 1):
    """ResNeXt-29 16x64d on `[batch, 3, 32, 32]`, as in Rammer, OSDI'20, Table 2."""
    stages = [(3, 1024, 256), (3, 2048, 512), (3, 4096, 1024)]

    def make() -> ResNet:
        return ResNet(nn.Sequential(conv_norm(3, 64, 3), nn.ReLU()), 64, Bottleneck, stages, 16, 10)

    return seeded(make), (image(batch, 32),)
