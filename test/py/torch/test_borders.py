"""Images that are continued beyond their borders: parts beside each other, and what their gradients are."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

import tilewright
from tilewright.compiler.errors import ModelImportError
from tilewright.compiler.importers.torch import borders

MODES = ["reflect", "replicate", "circular"]
CASES = [
    ((2, 3, 5), (2, 1)),
    ((3, 5), (0, 4)),
    ((1, 2, 4, 6), (3, 2, 1, 0)),
    ((2, 2, 3), (2, 2)),
    ((2, 4, 5), (1, 0, 3, 3)),
    ((1, 2, 3, 4, 5), (1, 2, 2, 1, 0, 2)),
    ((1, 2, 4, 6), (-1, 2, 1, -2)),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape,padding", CASES)
def test_images_and_their_gradients(mode, shape, padding):
    x = torch.randn(shape, requires_grad=True)
    factors = torch.randn(F.pad(x, padding, mode=mode).shape)

    def loss(x):
        return (F.pad(x, padding, mode=mode) * factors).sum()

    torch._dynamo.reset()
    found = torch.compile(loss, backend="tilewright", options={"strict": True})(x)
    torch.testing.assert_close(torch.autograd.grad(found, x), torch.autograd.grad(loss(x), x))
    padded = tilewright.compile(lambda x: F.pad(x, padding, mode=mode), (x.detach(),))(x.detach())
    torch.testing.assert_close(padded, F.pad(x.detach(), padding, mode=mode), rtol=0, atol=0)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [(1, 2, 2, 1), (0, 0, 0, 0)])
def test_no_element_is_looked_up_by_number(mode, padding):
    x = torch.randn(1, 2, 5, 7)

    def both(x):
        if mode == "circular":
            return borders.pad(x, padding, mode=mode)
        padded = getattr(torch.ops.aten, f"{'reflection' if mode == 'reflect' else 'replication'}_pad2d")
        backward = getattr(torch.ops.aten, f"{padded.__name__}_backward")
        found = borders.TABLE[padded.default](x, list(padding))
        return found, borders.TABLE[backward.default](found, x, list(padding))

    graph = make_fx(both)(x).graph
    names = {str(node.target) for node in graph.nodes if node.op == "call_function"}
    assert not [name for name in names if "index" in name or "scatter" in name or "gather" in name], names


@pytest.mark.parametrize(
    "mode,padding",
    [("reflect", (4, 0)), ("reflect", (1, 1, 1)), ("circular", (5, 0)), ("circular", (1, 1, 1))],
)
def test_what_eager_refuses_is_refused(mode, padding):
    x = torch.randn(1, 2, 3, 4)
    with pytest.raises(RuntimeError):
        F.pad(x, padding, mode=mode)
    with pytest.raises(ModelImportError):
        tilewright.compile(lambda x: F.pad(x, padding, mode=mode), (x,))
