"""Batch norms whose running statistics are averages over all batches so far, against eager PyTorch."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import tilewright


class Twice(nn.Module):
    """One norm that is called twice, and its count."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(5, momentum=None)

    def forward(self, x):
        return self.norm(self.norm(x) * 3 + 1), self.norm.num_batches_tracked * 2


MODELS = {
    "of images": (lambda: nn.BatchNorm2d(3, momentum=None), (4, 3, 5, 2)),
    "of volumes without parameters": (
        lambda: nn.BatchNorm3d(2, momentum=None, affine=False),
        (2, 2, 3, 2, 3),
    ),
    "behind a convolution": (
        lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4, momentum=None), nn.ReLU()),
        (2, 3, 8),
    ),
    "twice": (Twice, (6, 5)),
    "without statistics": (
        lambda: nn.BatchNorm2d(3, momentum=None, track_running_stats=False),
        (4, 3, 5, 2),
    ),
    "weighted": (lambda: nn.BatchNorm2d(3, momentum=0.3), (4, 3, 5, 2)),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_call_adds_its_batch(name):
    build, shape = MODELS[name]
    model = build()
    reference, forward = copy.deepcopy(model), nn.BatchNorm2d.forward
    compiled = tilewright.compile(model, (torch.randn(shape),))
    assert nn.BatchNorm2d.forward is forward
    for call in range(3):
        x = torch.randn(shape) + call
        torch.testing.assert_close(compiled(x), reference(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(dict(model.named_buffers()), dict(reference.named_buffers()))
    model.eval(), reference.eval()
    torch.testing.assert_close(tilewright.compile(model, (x,))(x), reference(x), rtol=1e-4, atol=1e-5)


def test_one_value_per_channel_has_no_variance():
    with pytest.raises(Exception, match="more than 1 value per channel"):
        tilewright.compile(nn.BatchNorm1d(3, momentum=None), (torch.randn(1, 3),))
