"""The layers of the large models, fewer and narrower on small images, compute what eager PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

import tilewright
from tilewright.bench import models
from tilewright.bench.models.efficientnet import EfficientNetV2
from tilewright.bench.models.inception import fans, lines, squares
from tilewright.bench.models.maxvit import MaxVit
from tilewright.bench.models.seeding import image, seeded

_ROWS = ((True, 1, 1, 8, 2), (True, 4, 2, 16, 1), (False, 4, 2, 16, 2))

REDUCED: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "inception_v3": lambda: (
        seeded(lambda: nn.Sequential(squares(16, 32), lines(256, 24), fans(768))),
        image(1, 9, 16),
    ),
    "efficientnet_v2_s": lambda: (seeded(lambda: EfficientNetV2(_ROWS, 32, 10)), image(1, 31)),
    "maxvit_t": lambda: (seeded(lambda: MaxVit((1, 2), (32, 64), 4, 10)), image(2, 32)),
}


def test_every_large_model_is_here() -> None:
    assert set(REDUCED) == set(models.LARGE)


@pytest.mark.parametrize("name", REDUCED)
def test_reduced_large_models(name: str) -> None:
    module, x = REDUCED[name]()
    with torch.no_grad():
        expected = module(x)
    found = tilewright.compile(module, (x,))(x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
