"""One small, ragged module per kind of kernel: what the suite checks before it times anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from tilewright.bench.models.seeding import seeded
from tilewright.bench.operators import normal

_FLOATS = ("f32", "f16", "bf16")


@dataclass(frozen=True)
class Family:
    """How to make the module and its inputs in f32, and the dtypes it is checked in."""

    build: Callable[[], tuple[nn.Module, tuple]]
    dtypes: tuple[str, ...] = _FLOATS


class Attention(nn.Module):
    """Scaled dot-product attention of `[batch, heads, rows, size]`."""

    def __init__(self, causal: bool = False):
        super().__init__()
        self.causal = causal

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable):
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


def _of(function: Callable, *shapes: tuple[int, ...]) -> Callable[[], tuple[nn.Module, tuple]]:
    return lambda: (Call(function).eval(), tuple(normal(*shape) for shape in shapes))


def _layer(make: Callable[[], nn.Module], *shape: int) -> Callable[[], tuple[nn.Module, tuple]]:
    return lambda: (seeded(make).eval(), (normal(*shape),))


FAMILIES: dict[str, Family] = {
    "matmul": Family(_of(torch.matmul, (131, 67), (67, 75)), (*_FLOATS, "tf32")),
    "matmul-aligned": Family(_of(torch.matmul, (256, 128), (128, 256)), (*_FLOATS, "tf32")),
    "matmul-deep": Family(_of(torch.matmul, (64, 2048), (2048, 64)), (*_FLOATS, "tf32")),
    "matmul-batch": Family(_of(torch.matmul, (5, 67, 48), (5, 48, 72))),
    "matmul-vector": Family(_of(torch.matmul, (1, 515), (515, 260))),
    "linear-gelu": Family(_layer(lambda: nn.Sequential(nn.Linear(96, 200), nn.GELU()), 77, 96)),
    "conv3x3": Family(
        _layer(lambda: nn.Sequential(nn.Conv2d(16, 24, 3, padding=1), nn.ReLU()), 2, 16, 13, 15)
    ),
    "conv7x7s2": Family(_layer(lambda: nn.Conv2d(3, 32, 7, stride=2, padding=3), 2, 3, 29, 31)),
    "conv1x1": Family(_layer(lambda: nn.Conv2d(64, 40, 1), 2, 64, 9, 7)),
    "conv-grouped": Family(_layer(lambda: nn.Conv2d(32, 32, 3, padding=1, groups=4), 2, 32, 11, 9)),
    "depthwise": Family(_layer(lambda: nn.Conv2d(40, 40, 3, stride=2, padding=1, groups=40), 2, 40, 15, 13)),
    "max-pool": Family(_layer(lambda: nn.MaxPool2d(3, 2, 1), 2, 20, 17, 15)),
    "average-pool": Family(_layer(lambda: nn.AdaptiveAvgPool2d(1), 3, 72, 7, 7)),
    "relu": Family(_of(torch.relu, (1023, 17))),
    "gelu-add": Family(_of(lambda a, b: functional.gelu(a) + b, (131, 129), (129,))),
    "transpose": Family(_of(lambda x: x.transpose(1, 2).contiguous(), (3, 67, 130))),
    "concatenate": Family(_of(lambda a, b: torch.cat([a, b], 1), (9, 31, 5), (9, 6, 5))),
    "gather": Family(lambda: (seeded(lambda: nn.Embedding(100, 72)).eval(), (torch.arange(60) % 100,))),
    "softmax": Family(_of(lambda x: x.softmax(-1), (67, 130))),
    "softmax-long": Family(_of(lambda x: x.softmax(-1), (3, 20000))),
    "layer-norm": Family(_layer(lambda: nn.LayerNorm(200), 33, 200)),
    "mean-columns": Family(_of(lambda x: x.mean(0), (515, 66))),
    "sum-all": Family(_of(lambda x: x.sum(), (100, 777)), ("f32",)),
    "cumulative-sum": Family(_of(lambda x: x.cumsum(-1), (7, 300)), ("f32",)),
    "argmax": Family(_of(lambda x: x.argmax(-1), (31, 257)), ("f32",)),
    "sort": Family(_of(lambda x: x.sort(-1).values, (5, 100)), ("f32",)),
    "top-k": Family(_of(lambda x: x.topk(5).values, (6, 90)), ("f32",)),
    "attention": Family(lambda: (Attention().eval(), tuple(normal(2, 3, 37, 32) for _ in range(3)))),
    "attention-causal": Family(
        lambda: (Attention(True).eval(), tuple(normal(1, 2, 65, 64) for _ in range(3)))
    ),
    "attention-long": Family(
        lambda: (Attention(True).eval(), tuple(normal(2, 6, 500, 128) for _ in range(3)))
    ),
}
"""Every kind of kernel by name."""
