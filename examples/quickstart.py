"""Compile a module, call it like the module, and see where its time goes."""

from __future__ import annotations

import torch
from torch import nn

import tilewright


class Perceptron(nn.Module):
    """Two linear layers around a GELU: `[B, 256] -> [B, 10]`."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x).softmax(-1)


def main() -> None:
    model = Perceptron().eval()
    x = torch.randn(32, 256)
    compiled = tilewright.compile(model, (x,))
    with torch.no_grad():
        print("largest difference:", (compiled(x) - model(x)).abs().max().item())
    for step in compiled.executable.profile():
        print(f"{step.time_us:8.1f} us  {step.dispatch}")


if __name__ == "__main__":
    main()
