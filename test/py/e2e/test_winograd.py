"""Convolutions by Winograd's algorithm on random shapes, against float64, and what stays direct."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from kernel_checks import Batch, as_tuple, check, compiled, finely, widened
from kernel_draws import Case, Draw

from tilewright.compiler import phases
from tilewright.compiler.driver import import_model
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.cpu import winograd_choice

CASES = 6
ROUNDING = 2e-5
"""The largest error per sum of absolute products: F(4, 3) on points up to 3/2 amplifies roundings some thirty times."""


@pytest.fixture(params=[2, 4])
def forced(request, monkeypatch) -> int:
    """Takes F(m, r) wherever it fits, worth it or not."""
    monkeypatch.setattr(winograd_choice, "_GAIN", float("inf"))
    monkeypatch.setattr(winograd_choice, "OUTPUTS", (request.param,))
    return request.param


def convolution(draw: Draw) -> Case:
    """Ragged images, channels that fill no vector, every padding, and what may follow a convolution."""
    n, c, f = draw.pick([1, 1, 2, 3]), draw.extent(40), draw.extent(70)
    taps, padding = draw.pick([3, 3, 5]), draw.pick([0, 1, 2])
    h, w = taps + draw.extent(14), taps + draw.extent(14)
    x, weight = draw.tensor((n, c, h, w), torch.float32), draw.tensor((f, c, taps, taps), torch.float32)
    bias = draw.tensor((f,), torch.float32)
    shape = F.conv2d(x, weight, padding=padding).shape
    other = draw.tensor(tuple(shape), torch.float32)
    epilogue = draw.pick(["none", "bias", "relu", "residual", "last", "constant"])
    name = f"convolution {n}x{c}x{h}x{w} to {f} by {taps}, padded {padding}, {epilogue}"
    functions = {
        "none": lambda x, w: F.conv2d(x, w, padding=padding),
        "bias": lambda x, w, b: F.conv2d(x, w, b, padding=padding),
        "relu": lambda x, w, b: F.conv2d(x, w, b, padding=padding).relu(),
        "residual": lambda x, o, w, b: (F.conv2d(x, w, b, padding=padding) + o).relu(),
        "last": lambda x, w: F.conv2d(x, w, padding=padding).permute(0, 2, 3, 1).contiguous(),
        "constant": lambda x, w: F.conv2d(F.pad(x, (1, 2, 0, 1), value=0.5), w, padding=padding),
    }
    inputs = (x, other) if epilogue == "residual" else (x,)
    weights = (weight, bias) if epilogue in ("bias", "relu", "residual") else (weight,)
    return Case(name, functions[epilogue], inputs, weights, c * taps * taps)


@pytest.mark.parametrize("batch", range(4))
def test_random_shapes(forced: int, batch: int) -> None:
    """As the estimate cuts them, and in odd batches into as many rTasks as there is work for, ragged ones too."""
    cases = [convolution(Draw.seeded(f"winograd {batch} {number}")) for number in range(CASES)]
    inputs = tuple(tensor for case in cases for tensor in case.inputs)
    imported = import_model(Batch(cases), inputs)
    models = compiled(imported, (1, 2), finely if batch % 2 else None)
    assert "tilewright.winograd" in str(imported.module)
    results = [[tensor for (tensor,) in map(as_tuple, model(*inputs))] for model in models]
    for case, one, two in zip(cases, *results, strict=True):
        assert torch.equal(one, two), f"F({forced}): {case.name}: two threads differ from one"
    for tensors in results:
        for case, result in zip(cases, tensors, strict=True):
            arguments = [widened(t) for t in (*case.inputs, *case.weights)]
            (reference,) = as_tuple(case.function(*arguments))
            (size,) = as_tuple(case.function(*(t.abs() for t in arguments)))
            error = (result.double() - reference).abs()
            # Errors spread over a tile: they are bounded by the largest sum around, not by each output's own.
            assert error.max() <= ROUNDING * size.max(), f"F({forced}): {case.name}: {error.max():.3g}"


def test_a_chain_shares_one_filter(forced: int) -> None:
    """One convolution applied thrice, as in a recurrent network, with its input added at the end."""
    draw = Draw.seeded("winograd chain")
    x, w = draw.tensor((1, 24, 11, 13), torch.float32), draw.tensor((24, 24, 3, 3), torch.float32) / 15

    def chain(x, w):
        y = F.conv2d(x, w, padding=1).relu()
        y = F.conv2d(y, w, padding=1).relu()
        return F.conv2d(y, w, padding=1) + x

    (model,) = compiled(import_model(Batch([Case("chain", chain, (x,), (w,), 24 * 9)]), (x,)), (2,))
    reference = chain(x.double(), w.double())
    (result,) = as_tuple(model(x)[0])
    assert (result.double() - reference).abs().max() <= ROUNDING * reference.abs().max()


def lowered(function, inputs: tuple, weights: tuple) -> str:
    """The dispatches of a function after scheduling, as text."""
    imported = import_model(Batch([Case("one", function, inputs, weights, 1)]), inputs)
    phases.run_phases(imported.module, resolve("cpu"), "graph", "schedule")
    return str(imported.module)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((2, 16, 12, 12), {"stride": 2}),
        ((2, 16, 12, 12), {"dilation": 2}),
        ((2, 16, 12, 12), {"groups": 4}),
        ((2, 16, 12, 12), {"groups": 16}),
        ((1, 16, 4, 3), {}),
    ],
)
def test_others_stay_direct(forced: int, shape: tuple, options: dict) -> None:
    draw = Draw.seeded(f"direct {options}")
    x = draw.tensor(shape, torch.float32)
    w = draw.tensor((16, 16 // options.get("groups", 1), 3, 3), torch.float32)
    assert "tilewright.winograd" not in lowered(lambda x, w: F.conv2d(x, w, **options), (x,), (w,))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_types_stay_direct(forced: int, dtype: torch.dtype) -> None:
    x, w = torch.ones(1, 16, 12, 12, dtype=dtype), torch.ones(16, 16, 3, 3, dtype=dtype)
    assert "tilewright.winograd" not in lowered(lambda x, w: F.conv2d(x, w), (x,), (w,))


def test_chosen_where_it_pays() -> None:
    """A layer of ResNet-18 is worth it; one input channel is not: it has nothing to multiply but transforms."""
    x, w = torch.ones(1, 64, 56, 56), torch.ones(64, 64, 3, 3)
    assert "tilewright.winograd = 4" in lowered(lambda x, w: F.conv2d(x, w, padding=1), (x,), (w,))
    x, w = torch.ones(1, 1, 56, 56), torch.ones(64, 1, 3, 3)
    assert "tilewright.winograd" not in lowered(lambda x, w: F.conv2d(x, w, padding=1), (x,), (w,))


def test_whole_dispatch_is_right_too(monkeypatch) -> None:
    """A layer as the estimate cuts it, on two threads, against the bound of direct sums."""
    draw = Draw.seeded("winograd layer")
    x, w = draw.tensor((1, 64, 28, 28), torch.float32), draw.tensor((64, 64, 3, 3), torch.float32)
    check([Case("layer", lambda x, w: F.conv2d(x, w, padding=1), (x,), (w,), 64 * 9)])
