"""Propagated layouts change where numbers are stored, never which: networks agree with eager PyTorch."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from plain_loops import run
from torch import nn
from torch.nn import functional as F
from torch_linalg import import_linalg

from tilewright.compiler.ir import ir, walk
from tilewright.compiler.pipeline.pipeline import run_pipeline

LAYOUT = "builtin.module(assign-layouts,propagate-layouts)"
FOLD = "builtin.module(generalize-named,canonicalize,cse,fold-transposes)"
CLEAN = "builtin.module(canonicalize,cse,simplify-bodies,separate-bias,canonicalize,cse)"


def activation_transposes(module: ir.Module, weights: int) -> list[str]:
    """Transposes of what depends on an argument behind the first `weights` ones."""
    main = next(op.operation for op in module.body.operations if op.operation.name == "func.func")
    block = main.regions[0].blocks[0]
    activations, found = set(list(block.arguments)[weights:]), []
    for op in (op.operation for op in block.operations):
        if any(operand in activations for inner in walk(op) for operand in inner.operands):
            activations.update(op.results)
            if op.name == "linalg.transpose":
                found.append(str(op))
    return found


def check(model: nn.Module, *inputs: torch.Tensor, clean: bool = True, fold: bool = False) -> list[str]:
    """Runs `model` with propagated layouts; returns the transposes of activations that were needed."""
    module, arguments = import_linalg(model, *inputs)
    if clean:
        run_pipeline(module.operation, CLEAN)
    run_pipeline(module.operation, LAYOUT)
    assert module.operation.verify()
    assert "tilewright.layouts" not in str(module)
    transposes = activation_transposes(module, len(arguments) - len(inputs))
    if fold:
        run_pipeline(module.operation, FOLD)
        assert module.operation.verify()
    expected = model(*inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    results = run(module, arguments)
    for result, reference in zip(results, expected, strict=True):
        reference = reference.detach().numpy()
        scale = max(1.0, float(np.abs(reference).max()))
        np.testing.assert_allclose(result, reference, atol=2e-5 * scale, rtol=1e-4)
    return transposes


class Net(nn.Module):
    """A function of the input over layers given by name."""

    def __init__(self, forward, **layers: nn.Module):
        super().__init__()
        self.compute = forward
        self.layers = nn.ModuleDict(layers)

    def forward(self, *inputs):
        return self.compute(self.layers, *inputs)


def batch_norm(channels: int) -> nn.BatchNorm2d:
    norm = nn.BatchNorm2d(channels)
    nn.init.uniform_(norm.running_mean, -1, 1)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    return norm


@st.composite
def networks(draw):
    """A chain of two to five random layers over a [N, C, H, W] input."""
    channels, steps = draw(st.sampled_from([1, 2, 4, 6])), []
    shape = (draw(st.integers(1, 2)), channels, draw(st.integers(5, 9)), draw(st.integers(5, 9)))
    kinds = [
        "conv",
        "conv",
        "grouped",
        "depthwise",
        "transposed",
        "norm",
        "relu",
        "residual",
        "concat",
        "scale",
    ]
    kinds += ["max", "average", "shuffle", "split", "gate", "crop", "upsample", "rotate", "attend", "tokens"]
    kinds += ["layer norm", "product", "softmax", "roll", "mask", "space to depth", "insert", "stack"]
    for _ in range(draw(st.integers(2, 5))):
        kind = draw(st.sampled_from(kinds))
        kernel, stride = draw(st.sampled_from([(1, 1), (3, 1), (3, 2), ((1, 3), 1), (2, 2)]))
        padding = draw(st.integers(0, 1)) if kernel != 1 else 0
        if kind in ("conv", "grouped", "depthwise", "transposed"):
            groups = {"grouped": 2 if channels % 2 == 0 else 1, "depthwise": channels}.get(kind, 1)
            out = groups * draw(st.sampled_from([1, 2, 3])) if kind != "depthwise" else channels
            options = {"stride": stride, "padding": padding, "groups": groups, "bias": draw(st.booleans())}
            if kind == "transposed":
                layer = nn.ConvTranspose2d(channels, out, kernel, **options)
            else:
                layer = nn.Conv2d(channels, out, kernel, dilation=draw(st.integers(1, 2)), **options)
            steps.append((kind, layer))
            channels = out
        elif kind == "norm":
            steps.append((kind, batch_norm(channels)))
        elif kind == "gate":
            steps.append((kind, nn.Conv2d(channels, channels, 1)))
        elif kind in ("max", "average"):
            options = {
                "stride": stride,
                "padding": padding if kernel == 3 else 0,
                "ceil_mode": draw(st.booleans()),
            }
            pool = nn.MaxPool2d if kind == "max" else nn.AvgPool2d
            steps.append((kind, pool(kernel, **options)))
        else:
            if (kind in ("shuffle", "split") and channels % 2) or (kind == "roll" and channels == 1):
                continue  # torch-mlir rolls a single element by a slice out of bounds
            steps.append((kind, nn.Identity()))
            channels *= {"concat": 2, "space to depth": 4}.get(kind, 1)
    return steps, draw(st.sampled_from(["map", "mean", "flatten", "pool", "both"])), shape


def attend(x):
    tokens = x.flatten(2)
    return x + (tokens.transpose(1, 2) @ tokens).softmax(-1).matmul(tokens.transpose(1, 2)).transpose(
        1, 2
    ).view_as(x)


def inserted(x):
    y = torch.zeros_like(x)
    y[:, :, ::2, 1:] = x[:, :, ::2, :-1]
    return y


MOVES = {
    "rotate": lambda x: x.transpose(2, 3),
    "attend": attend,
    "tokens": lambda x: F.gelu(x.flatten(2).transpose(1, 2) * 2).transpose(1, 2).reshape(x.shape),
    "layer norm": lambda x: F.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2]).permute(0, 3, 1, 2),
    "product": lambda x: torch.einsum("nchw,ncvw->nchv", x, x) / x.shape[1],
    "softmax": lambda x: x.softmax(1) + x.argmax(1, keepdim=True),
    # By less than what there is: torch-mlir slices out of bounds otherwise.
    "roll": lambda x: (x.roll((1, 2), (1, 3)) if x.shape[3] > 2 else x.roll(1, 1)).flip(2),
    # Not at 0, where the mean of a layer norm's results is on either side by rounding.
    "mask": lambda x: torch.where(x.mean(1, keepdim=True) > 0.1, x, x[:, :1] - 1),
    "space to depth": lambda x: F.pixel_unshuffle(F.pad(x, (0, x.shape[3] % 2, 0, x.shape[2] % 2)), 2),
    "insert": inserted,
    "stack": lambda x: torch.stack([x, -x], 2).amax(2),
}


def forward(steps, end):
    def compute(layers, x):
        for number, (kind, _) in enumerate(steps):
            y = layers[str(number)](x)
            if kind == "relu":
                y = x.relu()
            elif kind == "residual":
                y = x + torch.tanh(x)
            elif kind == "concat":
                y = torch.cat([x, x * 2], 1)
            elif kind == "scale":
                y = x * torch.arange(x.shape[3], dtype=x.dtype) + torch.arange(x.shape[1])[:, None, None]
            elif kind == "shuffle":
                n, c, h, w = x.shape
                y = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
            elif kind == "split":
                left, right = x.chunk(2, 1)
                y = torch.cat([right, left.sigmoid()], 1)
            elif kind == "gate":
                y = x * layers[str(number)](F.adaptive_avg_pool2d(x, 1)).sigmoid()
            elif kind == "crop":
                y = x[:, :, 1:, :-1]
            elif kind == "upsample":
                y = F.interpolate(x, scale_factor=2)
            elif kind in MOVES:
                y = MOVES[kind](x)
            x = y
        if end == "mean":
            return x.mean((2, 3))
        if end == "flatten":
            return x.flatten(1)
        if end == "pool":
            return F.adaptive_avg_pool2d(x, 1).flatten(1)
        return (x, x.sum(1)) if end == "both" else x

    return compute


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(networks(), st.integers(0, 1000), st.booleans(), st.booleans())
def test_random_networks_agree_with_eager(network, seed, clean, fold):
    steps, end, shape = network
    torch.manual_seed(seed)
    layers = {str(number): layer for number, (_, layer) in enumerate(steps)}
    model, x = Net(forward(steps, end), **layers), torch.randn(shape)
    try:
        expected = model.eval()(x)
    except RuntimeError:
        assume(False)  # a kernel larger than its input
    assume(all(result.numel() for result in (expected if end == "both" else [expected])))
    check(model, x, clean=clean, fold=fold)
