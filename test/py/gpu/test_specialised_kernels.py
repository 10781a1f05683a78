"""Dispatches that only the fallback took once: each is grouped, or read, so that a family has a kernel for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from dispatch_runs import dispatches

import tilewright
from tilewright.compiler.dialects import schedule_attribute

TARGETS = ("emulate:sm_70", "emulate:sm_80", "emulate:sm_90a")


def halos(x: torch.Tensor) -> torch.Tensor:
    """Overlapping windows of a padded image, as HaloNet reads its keys."""
    windows = F.pad(x, (3, 3, 3, 3)).unfold(2, 14, 8).unfold(3, 14, 8)
    return windows.permute(0, 2, 3, 4, 5, 1).contiguous()


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def heads(length: int, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(1, 2, 24, length).to(dtype) for _ in range(3))


r = torch.randn
CASES: dict[str, tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = {
    "long heads": (attention, heads(1024, torch.float32)),
    "long heads of halves": (attention, heads(512, torch.float16)),
    "batch written innermost": (lambda x, y: (x @ y).permute(1, 2, 0).contiguous(), (r(6, 20, 24), r(6, 24, 28))),
    "halves, batch written innermost": (
        lambda x, y: (x @ y).permute(2, 1, 0).contiguous() * 2, (r(6, 20, 24).half(), r(6, 24, 28).half()),
    ),
    "windows by index": (halos, (r(1, 8, 32, 32),)),
    "a norm of means": (lambda x, w: F.layer_norm(x.mean(1), (40,), w), (r(1, 70, 40), r(40))),
    "a product beside a pooling": (
        lambda x, w, y: F.conv2d(x, w) + F.avg_pool2d(y, 2), (r(1, 8, 6, 6), r(16, 8, 1, 1), r(1, 16, 12, 12)),
    ),
    "weights that are repeated": (
        lambda x: (x.sigmoid() / x.sigmoid().sum(-1, keepdim=True)).unsqueeze(2).expand(1, 2, 8, 8, 8).contiguous(),
        (r(1, 2, 8, 8),),
    ),
    "a pooling that is repeated": (
        lambda x: (F.max_pool2d(x, 3, 2, 1)[:, None] * 2).expand(2, 4, 16, 5, 5).contiguous(), (r(2, 16, 9, 9),),
    ),
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_no_kernel_is_the_fallback(case: str, target: str) -> None:
    function, args = CASES[case]
    _, found = dispatches(function, args, target)
    schedules = [schedule_attribute.read(dispatch) for dispatch in found.values()]
    kernels = [
        schedule.gpu.kernel for schedule in schedules if schedule is not None and schedule.gpu is not None
    ]
    assert len(kernels) == len(found) and "fallback" not in kernels
    # Scores of halves are rounded where they are written.
    near = {"rtol": 1e-2, "atol": 2e-3} if args[0].dtype == torch.float16 else {}
    torch.testing.assert_close(
        tilewright.compile(function, args, target=target)(*args), function(*args), **near
    )


@pytest.mark.parametrize(
    "case", {
        "softmax": (lambda x: torch.softmax(x, -1), (r(5, 90),)),
        "a group norm": (lambda x: F.group_norm(x, 4), (r(2, 16, 9, 9),)),
        "from its mean": (lambda x: x - x.mean((2, 3), keepdim=True), (r(2, 16, 9, 9),)),
        "variances": (lambda x: torch.var(x, 1), (r(2, 16, 90),)),
    }.items(), ids=lambda case: case[0],
)  # fmt: skip
def test_reductions_along_the_same_loops_stay_one_kernel(case: tuple) -> None:
    _, (function, args) = case
    _, found = dispatches(function, args, "emulate:sm_80")
    assert len(found) == 1
