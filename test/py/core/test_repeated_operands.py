"""Values that are used twice, each of what was used twice: compiling takes time by operators, not by ways through them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import tilewright

DEPTH = 40
"""2^40 ways lead through as many operators."""


def products(x: torch.Tensor) -> torch.Tensor:
    for _ in range(DEPTH):
        x = (x + 1) * (x - 0.5) * 0.5
    return x


def sums(x: torch.Tensor) -> torch.Tensor:
    for _ in range(DEPTH):
        x = (x + x) * 0.5 + x * 0
    return x


def attention(q: torch.Tensor, changed: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    return F.softmax(changed(q @ q.transpose(-1, -2) * 0.3), -1) @ q


CASES: dict[str, Callable[..., torch.Tensor]] = {
    "elementwise": lambda x, way: way(x),
    "sum": lambda x, way: way(x).sum(-1),
    "argmax": lambda x, way: way(x).argmax(-1),
    "scan": lambda x, way: way(x).cumsum(-1),
    "product": lambda x, way: way(x @ x.transpose(-1, -2)),
    "operand": lambda x, way: way(x) @ x.transpose(-1, -2),
    "convolution": lambda x, way: way(F.conv2d(x, x[:, :, :3, :3])),
    "attention": lambda x, way: attention(x, way),
    "mask": lambda x, way: attention(x, lambda s: s + way(x[:, :, :, :16])),
}


@pytest.mark.parametrize("way", [products, sums], ids=lambda way: way.__name__)
@pytest.mark.parametrize("target", ["cpu", "emulate:sm_90a"])
def test_compiling_takes_time_by_operators(
    monkeypatch: pytest.MonkeyPatch, target: str, way: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_COMPILE_LIMIT_S", "100")
    x = torch.randn(1, 2, 16, 32, generator=torch.Generator().manual_seed(1)) * 0.1
    for name, case in CASES.items():
        compiled = tilewright.compile(lambda x, case=case: case(x, way), (x,), target=target)
        torch.testing.assert_close(compiled(x), case(x, way), rtol=1e-3, atol=1e-4, msg=name)
