"""Transformers: BERT encoders, the ViT-B/16 image classifier and GPT-2 with its language-model head."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tilewright.bench.models.seeding import image, seeded, tokens


class Attention(nn.Module):
    """Multi-head self-attention over `[B, T, H]`: one projection to queries, keys and values, one back."""

    def __init__(self, hidden: int, heads: int, causal: bool):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.project = nn.Linear(hidden, 3 * hidden)
        self.merge = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, h = x.shape
        q, k, v = self.project(x).view(b, t, 3, self.heads, h // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.merge(y.transpose(1, 2).reshape(b, t, h))


class Layer(nn.Module):
    """Attention and a four times wider MLP, each around a residual; layer norm first or last."""

    def __init__(self, hidden: int, heads: int, norm_first: bool, causal: bool, gelu: str, epsilon: float):
        super().__init__()
        self.attention = Attention(hidden, heads, causal)
        self.mlp = nn.Sequential(
            nn.Linear(hidden, 4 * hidden), nn.GELU(approximate=gelu), nn.Linear(4 * hidden, hidden)
        )
        self.norms = nn.ModuleList([nn.LayerNorm(hidden, eps=epsilon) for _ in range(2)])
        self.norm_first = norm_first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.norm_first:
            x = x + self.attention(self.norms[0](x))
            return x + self.mlp(self.norms[1](x))
        x = self.norms[0](x + self.attention(x))
        return self.norms[1](x + self.mlp(x))


class Bert(nn.Module):
    """BERT (Devlin et al., 2018) with its pooler: token ids `[B, T]` -> (`[B, T, H]`, `[B, H]`)."""

    def __init__(self, layers: int, hidden: int, vocabulary: int = 30522, positions: int = 512):
        super().__init__()
        self.words = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(positions, hidden)
        self.segments = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.layers = nn.Sequential(
            *[Layer(hidden, hidden // 64, False, False, "none", 1e-12) for _ in range(layers)]
        )
        self.pooler = nn.Linear(hidden, hidden)

    def forward(self, ids: torch.Tensor):
        places = torch.arange(ids.shape[1], device=ids.device)
        x = self.words(ids) + self.positions(places) + self.segments(torch.zeros_like(ids))
        x = self.layers(self.norm(x))
        return x, torch.tanh(self.pooler(x[:, 0]))


class VisionTransformer(nn.Module):
    """ViT (Dosovitskiy et al., 2020): patches of 16x16, a class token, pre-norm layers, a linear head."""

    def __init__(self, layers: int, hidden: int, size: int = 224, patch: int = 16, classes: int = 1000):
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, patch, patch)
        self.token = nn.Parameter(torch.randn(1, 1, hidden) * 0.02)
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, hidden) * 0.02)
        self.layers = nn.Sequential(
            *[Layer(hidden, hidden // 64, True, False, "none", 1e-6) for _ in range(layers)]
        )
        self.norm = nn.LayerNorm(hidden, eps=1e-6)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.layers(x))[:, 0])


class Gpt2(nn.Module):
    """GPT-2 (Radford et al., 2019), head tied to the embedding: token ids `[B, T]` -> logits `[B, T, V]`."""

    def __init__(self, layers: int = 12, hidden: int = 768, vocabulary: int = 50257, positions: int = 1024):
        super().__init__()
        self.words = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(positions, hidden)
        for table in (self.words, self.positions):
            nn.init.normal_(table.weight, std=0.02)
        self.layers = nn.Sequential(
            *[Layer(hidden, hidden // 64, True, True, "tanh", 1e-5) for _ in range(layers)]
        )
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.norm(self.layers(self.words(ids) + self.positions(places))))


def bert_tiny(batch: int = 1, length: int = 128):
    """BERT-tiny, 2 layers of 128."""
    return seeded(lambda: Bert(2, 128)), (tokens(batch, length, 30522),)


def bert_mini(batch: int = 1, length: int = 128):
    """BERT-mini, 4 layers of 256."""
    return seeded(lambda: Bert(4, 256)), (tokens(batch, length, 30522),)


def bert_base(batch: int = 1, length: int = 128):
    """BERT-base, 12 layers of 768."""
    return seeded(lambda: Bert(12, 768)), (tokens(batch, length, 30522),)


def vit_b16(batch: int = 1):
    """ViT-B/16 on `[batch, 3, 224, 224]`."""
    return seeded(lambda: VisionTransformer(12, 768)), (image(batch, 224),)


def vit_mini(batch: int = 1):
    """Four layers of 256 on `[batch, 3, 224, 224]` in patches of 16x16."""
    return seeded(lambda: VisionTransformer(4, 256)), (image(batch, 224),)


def gpt2(batch: int = 1, length: int = 64):
    """GPT-2 small over a prompt, no key-value cache."""
    return seeded(Gpt2), (tokens(batch, length, 50257),)
