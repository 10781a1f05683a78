"""Networks as people write them: convolutions never wait for a transpose between them."""

from __future__ import annotations

import pytest
import torch
from test_propagate_layouts import Net, batch_norm, check
from torch import nn
from torch.nn import functional as F


def conv(i: int, o: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    layer = nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, batch_norm(o))


def head(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3))


class Residual(nn.Module):
    def __init__(self, i: int, middle: int, o: int, stride: int = 1, groups: int = 1):
        super().__init__()
        self.path = nn.Sequential(
            conv(i, middle, 1),
            nn.ReLU(),
            conv(middle, middle, 3, stride, groups),
            nn.ReLU6(),
            conv(middle, o, 1),
        )
        self.skip = nn.Identity() if i == o and stride == 1 else conv(i, o, 1, stride)

    def forward(self, x):
        return F.relu(self.path(x) + self.skip(x))


class Dense(nn.Module):
    def __init__(self, i: int, growth: int):
        super().__init__()
        self.norm, self.conv = batch_norm(i), nn.Conv2d(i, growth, 3, padding=1, bias=False)

    def forward(self, x):
        return torch.cat([x, self.conv(F.relu(self.norm(x)))], 1)


class Gate(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, channels // 2, 1), nn.Conv2d(channels // 2, channels, 1)

    def forward(self, x):
        return x * torch.sigmoid(self.up(F.silu(self.down(x.mean((2, 3), keepdim=True)))))


class Branches(nn.Module):
    def __init__(self, i: int):
        super().__init__()
        self.one, self.three = conv(i, 4, 1), nn.Sequential(conv(i, 4, 1), nn.ReLU(), conv(4, 6))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(i, 2, 1))

    def forward(self, x):
        return F.relu(torch.cat([self.one(x), self.three(x), self.pool(x)], 1))


class UNet(nn.Module):
    def __init__(self, bilinear: bool):
        super().__init__()
        self.bilinear = bilinear
        self.outer, self.inner = conv(3, 4), conv(4, 8)
        self.up, self.join, self.out = nn.ConvTranspose2d(8, 8, 2, 2), conv(12, 4), nn.Conv2d(4, 2, 1)

    def forward(self, x):
        outer = F.relu(self.outer(x))
        inner = F.relu(self.inner(F.max_pool2d(outer, 2)))
        up = F.interpolate(inner, scale_factor=2, mode="bilinear") if self.bilinear else self.up(inner)
        return self.out(F.relu(self.join(torch.cat([outer, up], 1))))


class ConvNext(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 5, padding=2, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.wide, self.narrow = nn.Linear(channels, 2 * channels), nn.Linear(2 * channels, channels)

    def forward(self, x):
        y = self.depthwise(x).permute(0, 2, 3, 1)
        return x + self.narrow(F.gelu(self.wide(self.norm(y)))).permute(0, 3, 1, 2)


def patches(layers, x):
    tokens = layers["patch"](x).flatten(2).transpose(1, 2)
    return layers["mix"](layers["norm"](tokens)).softmax(-1)


IMAGE = (1, 3, 16, 16)
CASES = {
    # name: (network, input shape, transposes of activations)
    "resnet": (nn.Sequential(conv(3, 8, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Residual(8, 4, 8),
                             Residual(8, 4, 16, 2), head(16)), (2, 3, 16, 16), 1),
    "resnext": (nn.Sequential(conv(3, 8), Residual(8, 8, 8, groups=4), Residual(8, 8, 8, 2, groups=2), head(8)),
                IMAGE, 1),
    "mobilenet": (nn.Sequential(conv(3, 4, 3, 2), nn.ReLU6(), Residual(4, 8, 4, groups=8),
                                Residual(4, 8, 6, 2, groups=8), head(6)), IMAGE, 1),
    "efficientnet": (nn.Sequential(conv(3, 4), nn.SiLU(), Gate(4), conv(4, 4, groups=4), Gate(4), conv(4, 2, 1)),
                     IMAGE, 2),
    "densenet": (nn.Sequential(conv(3, 4, 7, 2), nn.MaxPool2d(3, 2, 1), Dense(4, 2), nn.AvgPool2d(2), Dense(6, 2),
                               head(8)), IMAGE, 1),
    "inception": (nn.Sequential(conv(3, 4), Branches(4), nn.MaxPool2d(3, 2, ceil_mode=True), Branches(12),
                                head(12)), IMAGE, 1),
    "unet": (UNet(False), IMAGE, 2),
    "unet-bilinear": (UNet(True), IMAGE, 2),
    "convnext": (nn.Sequential(nn.Conv2d(3, 4, 4, 4), ConvNext(4), ConvNext(4), head(4)), IMAGE, 1),
    "vgg": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(7), nn.Flatten(),
                          nn.Linear(196, 3)), IMAGE, 2),
    "uneven-pool": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(5), nn.Conv2d(4, 2, 3)), IMAGE, 2),
    "patches": (Net(patches, patch=nn.Conv2d(3, 6, 4, 4), norm=nn.LayerNorm(6), mix=nn.Linear(6, 4)), IMAGE, 1),
    "group-norm": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Conv2d(4, 2, 3)), IMAGE, 2),
    "channel-shuffle": (nn.Sequential(nn.Conv2d(3, 4, 1), nn.ChannelShuffle(2), nn.Conv2d(4, 2, 3, groups=2)),
                        IMAGE, 3),
    "pixel-shuffle": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.PixelShuffle(2), nn.Conv2d(2, 3, 3)), IMAGE, 3),
    "reflection": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReflectionPad2d(1), nn.Conv2d(4, 2, 3)), IMAGE, 2),
    "one-dimension": (nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.MaxPool1d(2),
                                    nn.Conv1d(4, 4, 3, groups=2), nn.Conv1d(4, 4, 1, groups=4),
                                    nn.AdaptiveAvgPool1d(1), nn.Flatten()), (1, 3, 16), 1),
    "three-dimensions": (nn.Sequential(nn.Conv3d(3, 4, 3), nn.BatchNorm3d(4), nn.ReLU(), nn.MaxPool3d(2),
                                       nn.Conv3d(4, 4, 2, groups=2), nn.AdaptiveAvgPool3d(1), nn.Flatten()),
                         (1, 3, 8, 8, 8), 1),
    "unbatched": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)), (3, 8, 8), 2),
    "no-convolution": (nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)), (2, 8), 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_transposes_stay_at_the_borders(name):
    network, shape, count = CASES[name]
    torch.manual_seed(0)
    found = check(network, torch.randn(shape))
    assert len(found) == count, "\n".join(found)
