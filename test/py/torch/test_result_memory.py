"""Results lie in memory as eager PyTorch's do, so that what views them is legal where it is there."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import tilewright

ROWS = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "index_add": lambda x: x.index_add(0, torch.tensor([0]), x[:1]),
    "index_copy": lambda x: x.index_copy(0, torch.tensor([0]), x[1:2]),
    "put": lambda x: x.put(torch.tensor([0, 5]), torch.ones(2)),
    "cummax": lambda x: x.cummax(0),
    "cummin": lambda x: x.cummin(0)[0],
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "logsigmoid": F.logsigmoid,
    "softmax": lambda x: x.softmax(-1),
    "cumsum": lambda x: x.cumsum(0),
    "dropout": lambda x: F.dropout(x, training=False),
    "gelu": F.gelu,
}
IMAGES = {
    "layer_norm": ROWS["layer_norm"],
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)),
    "batch_norm of a batch": lambda x: F.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x, 2),
    "instance_norm": F.instance_norm,
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, 3),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 3),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, size=(5, 7), mode="bicubic"),
    "channel_shuffle": lambda x: F.channel_shuffle(x, 2),
    "conv_transpose2d": lambda x: F.conv_transpose2d(x, torch.ones(4, 3, 2, 2), stride=2),
    "conv2d": lambda x: F.conv2d(x, torch.ones(3, 4, 2, 2)),
    "dropout2d": lambda x: F.dropout2d(x, training=False),
}
CASES = [
    *((name, f, x) for name, f in ROWS.items() for x in (torch.rand(6, 4).t(), torch.rand(5, 4, 6).permute(1, 2, 0))),
    *(
        (name, f, x)
        for name, f in IMAGES.items()
        for x in (
            torch.rand(2, 4, 6, 4).to(memory_format=torch.channels_last),
            torch.rand(4, 6, 2, 4).permute(2, 0, 3, 1),
            torch.rand(2, 6, 4, 4).permute(0, 3, 1, 2)[:, :, :4],
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "function", "x"), CASES, ids=[f"{n}-{tuple(x.stride())}" for n, _, x in CASES]
)
def test_results_lie_where_eagers_do(name, function, x):
    found, wanted = tilewright.compile(function, (x,))(x), function(x)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for ours, eager in pairs:
        assert ours.stride() == eager.stride()
        torch.testing.assert_close(ours, eager)


def test_a_view_of_a_normalised_transpose():
    def model(x):
        return F.layer_norm(x.t(), (3,)).view(-1)

    x = torch.randn(3, 5)
    torch.testing.assert_close(tilewright.compile(model, (x,))(x), model(x))
