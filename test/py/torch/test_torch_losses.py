"""Losses that PyTorch takes apart into something else than its kernels compute."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import tilewright
from tilewright.compiler.errors import ModelImportError
from tilewright.runtime.errors import KernelAssertError

TARGETS = {
    "ended in the middle": [[0, 2, -1, 3, 1], [4, -1, -1, -1, -1]],
    "none": [[-1, 0, 1, 2, 3], [-1, -1, -1, -1, -1]],
    "all, never ended": [[4, 3, 2, 1, 0], [0, 1, 2, 3, 4]],
    "repeated": [[4, 4, 2, -1, 1], [0, 0, 0, 0, 0]],
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", TARGETS)
def test_multilabel_margins_are_those_of_eager(name, reduction):
    def losses(x, target):
        return (
            F.multilabel_margin_loss(x, target, reduction=reduction),
            F.multilabel_margin_loss(x[0], target[0], reduction=reduction),
            torch.nn.MultiLabelMarginLoss(reduction=reduction)(x * 2, target),
        )

    args = torch.randn(2, 5), torch.tensor(TARGETS[name])
    torch.testing.assert_close(tilewright.compile(losses, args)(*args), losses(*args))


def test_multilabel_margins_leave_nan_out_as_eager_does():
    x, target = (
        torch.tensor([[float("nan"), 1.0, 2.0], [0.5, 3.0, -1.0]]),
        torch.tensor([[1, -1, 0], [2, 0, -1]]),
    )
    found = tilewright.compile(F.multilabel_margin_loss, (x, target))(x, target)
    torch.testing.assert_close(found, F.multilabel_margin_loss(x, target), equal_nan=True)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_multi_margins_are_those_of_eager(reduction, p, is_weighted):
    def losses(x, target, weight):
        given = {"p": p, "margin": 0.7, "weight": weight if is_weighted else None, "reduction": reduction}
        rows = [F.multi_margin_loss(x, target, **given), F.multi_margin_loss(x[0], target[0], **given)]
        return [*rows, F.multi_margin_loss(x[:, 0] * 2, target[1:2], p, 1.0, weight if is_weighted else None)]

    x = torch.randn(4, 4)
    x[1, 2], x[2, 0] = float("nan"), float("inf")
    args = x, torch.tensor([3, 0, 2, 1]), torch.tensor([0.5, -1.0, 2.0, float("inf")])
    before = tilewright.fallback_count()
    expected = losses(*args)
    torch.testing.assert_close(tilewright.compile(losses, args)(*args), expected, equal_nan=True)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(losses, backend="tilewright")(*args), expected, equal_nan=True)
    assert tilewright.fallback_count() == before


def test_gradients_of_multi_margins():
    target, x = torch.tensor([3, 0, 2]), torch.randn(3, 4)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    torch._dynamo.reset()
    torch.compile(lambda x: F.multi_margin_loss(x, target, p=2), backend="tilewright")(mine).backward()
    F.multi_margin_loss(theirs, target, p=2).backward()
    torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.filterwarnings("ignore")
def test_gradients_of_multilabel_margins():
    target, before = torch.tensor(TARGETS["ended in the middle"]), tilewright.fallback_count()
    x = torch.randn(2, 5)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    torch.compile(lambda x: F.multilabel_margin_loss(x, target), backend="tilewright")(mine).backward()
    F.multilabel_margin_loss(theirs, target).backward()
    torch.testing.assert_close(mine.grad, theirs.grad)
    assert tilewright.fallback_count() == before


def test_wrong_targets_are_refused_as_in_eager():
    x = torch.randn(2, 5)
    past_the_end = torch.tensor([[5, -1, 0, 0, 0], [0, 1, 2, -1, 0]])
    compiled = tilewright.compile(F.multilabel_margin_loss, (x, past_the_end))
    with pytest.raises(KernelAssertError, match="index out of range"):
        compiled(x, past_the_end)
    with pytest.raises(ModelImportError, match="inconsistent target size"):
        tilewright.compile(F.multilabel_margin_loss, (x, past_the_end[:1]))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_cross_entropies_are_of_their_own_type_whatever_that_of_weights(dtype, reduction):
    drawn = torch.Generator().manual_seed(2)
    x, target = (torch.rand(5, 7, generator=drawn).to(dtype) for _ in range(2))
    weight = torch.rand(7, generator=drawn, dtype=torch.float32)

    def loss(x, target, weight):
        return torch.nn.functional.binary_cross_entropy(x, target, weight, reduction=reduction)

    compiled = tilewright.compile(loss, (x, target, weight))
    rounding = 4 * torch.finfo(min(dtype, torch.float32, key=lambda kind: torch.finfo(kind).bits)).eps
    torch.testing.assert_close(
        compiled(x, target, weight), loss(x, target, weight), rtol=rounding, atol=rounding
    )
