"""bf16 and f16 that are moved, chosen, computed with and read or written with strides: eager's bits, denormals included."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import tilewright

TYPES = (torch.bfloat16, torch.float16)
FORMS = {
    "padded": lambda x: F.pad(x, [1, 1]),
    "padded_computed": lambda x: F.pad(x * 3, [1, 1]),
    "interleaved": lambda x: torch.stack((x * 2, x * 3, x), -1),
    "every_third": lambda x: x.flatten()[::3] * 2,
    "every_third_copied": lambda x: x.flatten()[::3].clone(),
    "chosen": lambda x: torch.where(x > 0, x, x - x),
    "largest": lambda x: torch.maximum(x, x.flip(1)),
    "largest_of_windows": lambda x: F.max_pool2d(x, (2, 1), 1, (1, 0)),
    "smallest_of_windows": lambda x: -F.max_pool2d(-x, 2, 1, 1),
    "largest_of_rows": lambda x: x.amax((0, -1)),
    "turned": lambda x: x.transpose(1, 2).contiguous() * 2,
    "mean_of_columns": lambda x: x[:, :2].mean(1),
    "joined": lambda x: torch.cat((x, x / 4), -1),
    "wider": lambda x: x.float() + 1e-39,
    "shorter": lambda x: (x.double() / 3).to(x.dtype),
    "from_integers": lambda x: (x * 100).long().to(x.dtype),
}


def everything(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(form(x) for form in FORMS.values())


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 17, 33, 1), (2, 16, 8, 2), (3, 5, 7, 9)])
def test_short_floats_have_eager_bits(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(dtype)
    info, flat = torch.finfo(dtype), x.view(-1)
    special = [
        info.smallest_normal / 4,
        -info.smallest_normal / 4,
        info.max,
        -0.0,
        float("nan"),
        float("inf"),
    ]
    for offset, value in enumerate(special):
        flat[offset :: 7 + offset] = value
    found = tilewright.compile(everything, (x,))(x)
    for name, ours, eager in zip(FORMS, found, everything(x)):
        if name == "from_integers":  # what NaN and infinity are as integers is not defined
            defined = x.isfinite() & (x.abs() < 1e16)
            ours, eager = ours[defined], eager[defined]
        assert torch.equal(ours.isnan(), eager.isnan()), name
        assert torch.equal(torch.nan_to_num(ours), torch.nan_to_num(eager)), name
