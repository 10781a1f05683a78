"""The zoo's models at a size that an emulator runs in seconds: the same layers, fewer and narrower, small images.

module, inputs = REDUCED["resnet50"]()
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from tilewright.bench.models.lstm import lstm
from tilewright.bench.models.mobilenet import InvertedResidual
from tilewright.bench.models.nasnet import NasNet, ReductionCell
from tilewright.bench.models.resnet import BasicBlock, Bottleneck, ResNet, conv_norm
from tilewright.bench.models.seeding import image, seeded, tokens
from tilewright.bench.models.transformer import Bert, Gpt2, VisionTransformer


def _residual(block: type, stages: list[tuple[int, int, int]], groups: int = 1) -> tuple:
    def make() -> nn.Module:
        stem = nn.Sequential(conv_norm(3, 16, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        return ResNet(stem, 16, block, stages, groups, 10)

    return seeded(make), (image(1, 32),)


def _resnext29() -> tuple:
    def make() -> nn.Module:
        stem = nn.Sequential(conv_norm(3, 16, 3), nn.ReLU())
        return ResNet(stem, 16, Bottleneck, [(1, 64, 32), (1, 128, 64)], 4, 10)

    return seeded(make), (image(1, 8),)


def _mobilenet() -> tuple:
    def make() -> nn.Module:
        rows = [(16, 16, 1, 1), (16, 24, 2, 6), (24, 24, 1, 6), (24, 32, 2, 6)]
        blocks = [
            InvertedResidual(inputs, outputs, stride, expand) for inputs, outputs, stride, expand in rows
        ]
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
        return nn.Sequential(conv_norm(3, 16, 3, 2), nn.ReLU6(), *blocks, *head)

    return seeded(make), (image(1, 24),)


def _nasnet() -> tuple:
    class Cells(NasNet):
        """A stem, one normal and one reduction cell."""

        def __init__(self) -> None:
            super().__init__(repeats=1, width=8, blocks=1)
            self.cells.append(ReductionCell(24, 48, 16, shrink=False))
            self.classifier = nn.Linear(64, 10)

    return seeded(Cells), (image(1, 8),)


REDUCED: dict[str, Callable[[], tuple]] = {
    "resnet18": lambda: _residual(BasicBlock, [(1, 16, 16), (1, 32, 32)]),
    "resnet50": lambda: _residual(Bottleneck, [(1, 16, 32), (1, 32, 64)]),
    "mobilenet_v2": _mobilenet,
    "bert_tiny": lambda: (seeded(lambda: Bert(1, 128, 100, 32)), (tokens(1, 19, 100),)),
    "bert_base": lambda: (seeded(lambda: Bert(2, 64, 100, 32)), (tokens(2, 16, 100),)),
    "vit_b16": lambda: (seeded(lambda: VisionTransformer(1, 64, 48, 16, 10)), (image(1, 48),)),
    "gpt2": lambda: (seeded(lambda: Gpt2(1, 128, 101, 32)), (tokens(1, 13, 101),)),
    "lstm": lambda: lstm(layers=2, hidden=32, steps=4),
    "nasnet_cell": _nasnet,
    "resnext29": _resnext29,
    "resnext50": lambda: _residual(Bottleneck, [(1, 32, 32), (1, 64, 64)], 8),
}
"""Every model of the default suite by name -> (module, inputs)."""
