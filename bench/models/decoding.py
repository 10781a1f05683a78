"""One token of a language model whose heads of queries share heads of keys and values, with what is known of earlier tokens."""

from __future__ import annotations

import torch
from torch import nn

from tilewright.bench.models.seeding import SEED, seeded

HEAD = 64


class GroupedAttention(nn.Module):
    """Attention of one token: `heads` of queries, of which `heads / shared` read the same keys and values, as in Llama 3.

    Keys and values are repeated for them by a view that is expanded, and a reshape: as transformers does it.
    """

    def __init__(self, heads: int, shared: int):
        super().__init__()
        self.heads, self.groups = heads, heads // shared
        self.query = nn.Linear(heads * HEAD, heads * HEAD, bias=False)
        self.out = nn.Linear(heads * HEAD, heads * HEAD, bias=False)

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        q = self.query(x).view(len(x), 1, self.heads, HEAD).transpose(1, 2)
        scores = q @ self.repeated(keys).transpose(2, 3) * HEAD**-0.5
        read = torch.softmax(scores, -1) @ self.repeated(values)
        return self.out(read.transpose(1, 2).reshape(len(x), 1, -1))

    def repeated(self, cache: torch.Tensor) -> torch.Tensor:
        batch, shared, length, width = cache.shape
        expanded = cache[:, :, None].expand(batch, shared, self.groups, length, width)
        return expanded.reshape(batch, self.heads, length, width)


def grouped_token(batch: int = 1) -> tuple[nn.Module, tuple]:
    """16 heads that share 4 of keys; inputs [batch, 1, 1024], and keys and values of 1,024 tokens, [batch, 4, 1024, 64]."""
    generator = torch.Generator().manual_seed(SEED)
    shapes = ((batch, 1, 16 * HEAD), (batch, 4, 1024, HEAD), (batch, 4, 1024, HEAD))
    inputs = tuple(torch.randn(shape, generator=generator) for shape in shapes)
    return seeded(lambda: GroupedAttention(16, 4)), inputs
