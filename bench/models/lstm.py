"""A deep LSTM written out step by step: 10 layers of 256 over 100 steps, Rammer's LSTM-TC."""

from __future__ import annotations

import torch
from torch import nn

from tilewright.bench.models.seeding import SEED, seeded


class Cell(nn.Module):
    """One LSTM cell: `[B, I]`, (`[B, H]`, `[B, H]`) -> (`[B, H]`, `[B, H]`)."""

    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.from_input = nn.Linear(inputs, 4 * hidden)
        self.from_state = nn.Linear(hidden, 4 * hidden)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor):
        i, f, g, o = (self.from_input(x) + self.from_state(h)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


class UnrolledLstm(nn.Module):
    """`[T, B, I]` -> the last layer's state after the last step, `[B, H]`; T x layers cells in all."""

    def __init__(self, layers: int, hidden: int):
        super().__init__()
        self.hidden = hidden
        self.cells = nn.ModuleList([Cell(hidden, hidden) for _ in range(layers)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        zero = x.new_zeros(x.shape[1], self.hidden)
        states = [(zero, zero) for _ in self.cells]
        y = zero
        for step in range(x.shape[0]):
            y = x[step]
            for index, cell in enumerate(self.cells):
                states[index] = cell(y, *states[index])
                y = states[index][0]
        return y


def lstm(batch: int = 1, layers: int = 10, hidden: int = 256, steps: int = 100):
    """Rammer's LSTM-TC: length 100, hidden 256, 10 layers. Source: Rammer, OSDI'20, Table 2."""
    generator = torch.Generator().manual_seed(SEED)
    x = torch.randn(steps, batch, hidden, generator=generator)
    return seeded(lambda: UnrolledLstm(layers, hidden)), (x,)
