"""Single operators as torch modules, for the suites that time one kernel at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from tilewright.bench.models.seeding import SEED, seeded

Built = tuple[nn.Module, tuple[torch.Tensor, ...]]


def normal(*shape: int) -> torch.Tensor:
    """A seeded normal tensor."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(SEED))


class WeightMatmul(nn.Module):
    """`[m, k] x [k, n]`, the second operand a weight."""

    def __init__(self, k: int, n: int):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(k, n) / k**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Matmul(nn.Module):
    """`[m, k] x [k, n]`, both operands given at every call."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


class Mean(nn.Module):
    """The mean over `axes`."""

    def __init__(self, axes: Sequence[int]):
        super().__init__()
        self.axes = tuple(axes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(self.axes)


def matmul(m: int, k: int, n: int, weight: bool = True) -> Built:
    """A matrix product whose second operand is a weight, or an input."""
    if weight:
        return seeded(lambda: WeightMatmul(k, n)), (normal(m, k),)
    return Matmul().eval(), (normal(m, k), normal(k, n))


def same_padding(extent: int, kernel: int, stride: int) -> tuple[int, int]:
    """TensorFlow's `same`: (before, after), output `ceil(extent / stride)`, the odd element after."""
    total = max((-(-extent // stride) - 1) * stride + kernel - extent, 0)
    return total // 2, total - total // 2


def conv2d(
    shape: Sequence[int], filters: int, kernel: int, stride: int, padding: int | str, groups: int = 1
) -> Built:
    """A convolution without bias over `[N, C, H, W]`; padding: a number, "valid" or TensorFlow's "same"."""
    before, after = (padding, padding) if isinstance(padding, int) else (0, 0)
    if padding == "same":
        before, after = same_padding(shape[2], kernel, stride)
        assert (before, after) == same_padding(shape[3], kernel, stride)

    def make() -> nn.Module:
        inside = before if before == after else 0
        conv = nn.Conv2d(shape[1], filters, kernel, stride, inside, groups=groups, bias=False)
        if before == after:
            return conv
        return nn.Sequential(nn.ZeroPad2d((before, after, before, after)), conv)

    return seeded(make), (normal(*shape),)


def avg_pool2d(shape: Sequence[int], kernel: int, stride: int, padding: str) -> Built:
    """Average pooling that leaves padding out of the mean, as TensorFlow does."""
    before, after = same_padding(shape[2], kernel, stride) if padding == "same" else (0, 0)
    if after - before not in (0, 1) or (after != before and before):
        raise ValueError(f"padding ({before}, {after}) has no equivalent in torch's average pooling")
    # One element of padding at the end only: that is what rounding the output size up means.
    pool = nn.AvgPool2d(kernel, stride, before, ceil_mode=after != before, count_include_pad=False)
    return pool.eval(), (normal(*shape),)


def from_row(row: dict, batch: int) -> Built:
    """The operator of one row of `data/roller119.json`, its batch dimension scaled from 128 to `batch`."""
    kind = row["kind"]
    if kind == "matmul":
        # 65,536 rows are 128 sequences of 512 tokens; 128 rows are one per image.
        return matmul(row["m"] // 128 * batch, row["k"], row["n"])
    shape = [row["input"][0] * batch // 128, *row["input"][1:]]
    if kind == "conv2d":
        return conv2d(shape, row["filters"], row["kernel"], row["stride"], row["padding"])
    if kind == "depthwise_conv2d":
        return conv2d(shape, shape[1], row["kernel"], row["stride"], row["padding"], groups=shape[1])
    if kind == "avg_pool2d":
        return avg_pool2d(shape, row["kernel"], row["stride"], row["padding"])
    if kind == "relu":
        return nn.ReLU().eval(), (normal(*shape),)
    if kind == "reduce_mean":
        return Mean(row["axes"]).eval(), (normal(*shape),)
    raise ValueError(f"{row['name']}: unknown operator kind `{kind}`")
