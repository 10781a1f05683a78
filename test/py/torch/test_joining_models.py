"""Small networks that join what they compute several times compile whole, through both entrances."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tilewright


class Tokens(nn.Module):
    """A class and a distillation token before the patches, as in DeiT."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Parameter(torch.randn(2, 1, 1, 8))
        self.mix = nn.Linear(8, 8)

    def forward(self, x):
        x = torch.cat([*(token.expand(len(x), -1, -1) for token in self.tokens), x.flatten(2).mT], 1)
        x = x + self.mix(x)
        return x[:, 0], x[:, 1], x


class Flow(nn.Module):
    """A motion encoder and two gates of a recurrent unit, which join the same features, as in RAFT."""

    def __init__(self):
        super().__init__()
        self.motion, self.gate = nn.Conv2d(8, 6, 3, padding=1), nn.Conv2d(16, 8, 3, padding=1)

    def forward(self, x):
        flow, state = x[:, :2], x.tanh()
        motion = torch.cat((self.motion(x), flow), 1)
        gate = self.gate(torch.cat((state, motion), 1)).sigmoid()
        new = self.gate(torch.cat((gate * state, motion), 1)).tanh()
        return state + gate * (new - state), motion


class Dense(nn.Module):
    """Every layer reads all before it, then a transposed one joins the first again: DenseNet and U-Net."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(8 + 4 * i, 4, 3, padding=1) for i in range(3))
        self.up = nn.ConvTranspose2d(20, 4, 2, 2)

    def forward(self, x):
        first = x
        for layer in self.layers:
            x = torch.cat((x, layer(x.relu())), 1)
        return torch.cat((self.up(F.max_pool2d(x, 2)), first), 1), x


class Shuffle(nn.Module):
    """Half of the channels pass by and are shuffled in; then shifted windows: ShuffleNet and Swin."""

    def __init__(self):
        super().__init__()
        self.branch = nn.Conv2d(4, 4, 3, padding=1, groups=4)

    def forward(self, x):
        kept, taken = x.chunk(2, 1)
        x = torch.stack((kept, self.branch(taken)), 2).flatten(1, 2)
        windows = x.roll((-1, -1), (2, 3)).unflatten(3, (2, 2)).unflatten(2, (2, 2)).transpose(3, 4)
        return windows.softmax(-1), torch.cat((x, kept), 1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [Tokens, Flow, Dense, Shuffle])
def test_compiles_whole(kind):
    torch.manual_seed(0)
    model, x = kind().eval(), torch.randn(2, 8, 4, 4)
    before = tilewright.fallback_count()
    torch._dynamo.reset()
    with torch.no_grad():
        for compiled in (tilewright.compile(model, (x,)), torch.compile(model, backend="tilewright")):
            for given in (x, x + 1):
                torch.testing.assert_close(compiled(given), model(given), rtol=1e-4, atol=1e-5)
    assert tilewright.fallback_count() == before
