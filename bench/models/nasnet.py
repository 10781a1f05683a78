"""NASNet-A of Zoph et al., 2018: searched cells of many small operators side by side."""

from __future__ import annotations

import torch
from torch import nn

from tilewright.bench.models.seeding import image, seeded


class Separable(nn.Module):
    """Relu, depthwise k x k, 1x1, batch norm, twice; the first depthwise convolution carries the stride."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1):
        super().__init__()
        layers: list[nn.Module] = []
        for width, step in ((inputs, stride), (outputs, 1)):
            layers += [
                nn.ReLU(),
                nn.Conv2d(width, width, kernel, step, kernel // 2, groups=width, bias=False),
                nn.Conv2d(width, outputs, 1, bias=False),
                nn.BatchNorm2d(outputs),
            ]
        self.body = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


def squeeze(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Relu, 1x1 convolution, batch norm: fits a cell's input to its width (and size)."""
    conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
    return nn.Sequential(nn.ReLU(), conv, nn.BatchNorm2d(outputs))


def average() -> nn.AvgPool2d:
    return nn.AvgPool2d(3, 1, 1, count_include_pad=False)


class NormalCell(nn.Module):
    """The five pairwise sums of NASNet-A's normal cell; (previous, current) -> `[B, 6 F, H, W]`."""

    def __init__(self, previous: int, current: int, width: int, shrink: bool):
        super().__init__()
        self.fit_previous = squeeze(previous, width, 2 if shrink else 1)
        self.fit_current = squeeze(current, width)
        self.ops = nn.ModuleList([Separable(width, width, k) for k in (3, 5, 3, 5, 3)])
        self.pool = average()

    def forward(self, previous: torch.Tensor, current: torch.Tensor) -> torch.Tensor:
        p, h = self.fit_previous(previous), self.fit_current(current)
        return torch.cat(
            [
                p,
                self.ops[0](h) + h,
                self.ops[1](p) + self.ops[2](h),
                self.pool(h) + p,
                self.pool(p) + self.pool(p),
                self.ops[3](p) + self.ops[4](p),
            ],
            1,
        )


class ReductionCell(nn.Module):
    """NASNet-A's reduction cell; (previous, current) -> `[B, 4 F, H/2, W/2]`."""

    def __init__(self, previous: int, current: int, width: int, shrink: bool):
        super().__init__()
        self.fit_previous = squeeze(previous, width, 2 if shrink else 1)
        self.fit_current = squeeze(current, width)
        kernels = ((5, 2), (7, 2), (7, 2), (5, 2), (3, 1))
        self.ops = nn.ModuleList([Separable(width, width, k, stride) for k, stride in kernels])
        self.largest = nn.MaxPool2d(3, 2, 1)
        self.mean = nn.AvgPool2d(3, 2, 1, count_include_pad=False)
        self.pool = average()

    def forward(self, previous: torch.Tensor, current: torch.Tensor) -> torch.Tensor:
        p, h = self.fit_previous(previous), self.fit_current(current)
        first = self.ops[0](h) + self.ops[1](p)
        second = self.largest(h) + self.ops[2](p)
        third = self.mean(h) + self.ops[3](p)
        return torch.cat([second, third, self.pool(first) + second, self.ops[4](first) + self.largest(h)], 1)


class NasNet(nn.Module):
    """Stem, `repeats` normal cells, then twice a reduction cell and `repeats` normal cells; width doubles."""

    def __init__(self, repeats: int, width: int, blocks: int = 3, classes: int = 10):
        super().__init__()
        channels = previous = 3 * width
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels))
        cells: list[nn.Module] = []
        shrink = False
        for block in range(blocks):
            kinds = ([ReductionCell] if block else []) + [NormalCell] * repeats
            for kind in kinds:
                cells.append(kind(previous, channels, width, shrink))
                shrink = kind is ReductionCell
                previous, channels = channels, width * (4 if shrink else 6)
            width *= 2
        self.cells = nn.ModuleList(cells)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        previous = current = self.stem(x)
        for cell in self.cells:
            previous, current = current, cell(previous, current)
        return self.classifier(torch.relu(current).mean((2, 3)))


def nasnet_cell(batch: int = 1):
    """One normal and one reduction cell of 32 filters with stem and classifier, on `[batch, 3, 32, 32]`."""

    class Cells(NasNet):
        """A stem, one normal and one reduction cell."""

        def __init__(self):
            super().__init__(repeats=1, width=32, blocks=1)
            self.cells.append(ReductionCell(96, 192, 64, shrink=False))
            self.classifier = nn.Linear(256, 10)

    return seeded(Cells), (image(batch, 32),)


def nasnet_a(batch: int = 1):
    """NASNet-A 6@768 for CIFAR-10. Source: Rammer, OSDI'20, Table 2."""
    return seeded(lambda: NasNet(repeats=6, width=32)), (image(batch, 32),)
