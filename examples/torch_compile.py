"""Use tilewright as a backend of torch.compile, and count what it left to eager PyTorch."""

from __future__ import annotations

import torch

import tilewright


@torch.compile(backend="tilewright")
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """`[B, H, T, D]` each."""
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return scores.softmax(-1) @ v


def main() -> None:
    q, k, v = (torch.randn(1, 4, 64, 32) for _ in range(3))
    with torch.no_grad():
        found = attention(q, k, v)
        expected = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    print("largest difference:", (found - expected).abs().max().item())
    print("operators left to eager:", tilewright.fallback_count())


if __name__ == "__main__":
    main()
