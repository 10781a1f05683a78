"""Gradients of poolings and paddings through torch.compile, whole: nothing runs in eager PyTorch."""

from __future__ import annotations

import pytest
import torch.nn.functional as F
from torch_harness import check_gradient

CASES = {
    "adaptive maximum of volumes": (lambda x: F.adaptive_max_pool3d(x, (2, 3, 1)), (2, 3, 4, 5, 3)),
    "as many windows as elements": (lambda x: F.adaptive_max_pool3d(x, (None, None, None)), (1, 4, 4, 3, 5)),
    "without a batch": (lambda x: F.adaptive_max_pool3d(x, 2), (3, 4, 5, 3)),
    "adaptive maximum of images": (lambda x: F.adaptive_max_pool2d(x, (3, 2)), (2, 3, 5, 4)),
    "edges repeated and left out": (lambda x: F.pad(x, (-1, 2), mode="replicate"), (2, 3, 5)),
    "edges left out": (lambda x: F.pad(x, (-2, -1, 0, -1), mode="replicate"), (2, 3, 5, 6)),
    "one element left": (lambda x: F.pad(x, (-3, 2, 1, -3), mode="replicate"), (1, 2, 4, 4)),
    "of volumes": (lambda x: F.pad(x, (1, -1, -2, 3, 2, 0), mode="replicate"), (1, 2, 3, 4, 5)),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients(name):
    function, shape = CASES[name]
    check_gradient(function, shape)
