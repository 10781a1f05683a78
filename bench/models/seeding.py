"""Deterministic weights: seeded while a model is made, batch-norm statistics randomised afterwards."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

SEED = 20260


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    """`make()` under a fixed seed, in eval mode, the caller's generator state left as it was.

    Batch norms get means and variances away from (0, 1), so that folding them wrongly shows.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        module = make().eval()
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
                part.running_mean.uniform_(-0.2, 0.2)
                assert part.running_var is not None
                part.running_var.uniform_(0.5, 1.5)
    return module.requires_grad_(False)


def image(batch: int, size: int, channels: int = 3) -> torch.Tensor:
    """A normal random image batch `[batch, channels, size, size]`."""
    return torch.randn(batch, channels, size, size, generator=torch.Generator().manual_seed(SEED))


def tokens(batch: int, length: int, vocabulary: int) -> torch.Tensor:
    """Random token ids `[batch, length]`, int64."""
    return torch.randint(vocabulary, (batch, length), generator=torch.Generator().manual_seed(SEED))
