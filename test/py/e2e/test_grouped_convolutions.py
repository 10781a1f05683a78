"""Convolutions whose vectors hold several groups, through the whole compiler, whole and finely cut, against eager."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from kernel_checks import check, finely
from kernel_draws import Case, Draw

# batch, groups, channels in and out of a group, height and width, kernel, stride, dilation
SHAPES = [
    (1, 32, 4, 4, 9, 17, 3, 1, 1),
    (2, 16, 8, 8, 7, 10, 3, 2, 1),
    (1, 8, 2, 4, 11, 5, 5, 1, 2),
    (1, 4, 3, 8, 6, 6, 1, 1, 1),
    (1, 12, 8, 4, 8, 31, 3, 1, 1),
    (1, 6, 4, 4, 8, 9, 3, 1, 1),
]


def case(number: int, shape: tuple[int, ...]) -> Case:
    batch, groups, inside, outside, height, width, kernel, stride, dilation = shape
    draw = Draw.seeded(f"grouped {number}")
    x = draw.tensor((batch, groups * inside, height, width), torch.float32)
    w = draw.tensor((groups * outside, inside, kernel, kernel), torch.float32)
    b = draw.tensor((groups * outside,), torch.float32)
    padding = dilation * (kernel // 2)

    def function(x, w, b):
        return torch.relu(F.conv2d(x, w, b, stride, padding, dilation, groups))

    return Case(f"grouped {shape}", function, (x,), (w, b), inside * kernel * kernel + 300)


@pytest.mark.parametrize("decide", [None, finely], ids=["as constructed", "finely cut"])
def test_results(decide) -> None:
    check([case(number, shape) for number, shape in enumerate(SHAPES)], decide)
