"""Transposed convolutions and gradients of strided ones, with elements that are not finite, against eager PyTorch."""

from __future__ import annotations

import itertools
import math
import random

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import tilewright
from tilewright.compiler.importers.torch.gradients import _kernel_gradient
from tilewright.compiler.importers.torch.transposed_convolutions import _phases, transposed_convolution

CASES = [
    (1, 3, 2, 1, 1, "plain"),
    (1, 1, 3, 0, 1, "plain"),
    (1, 4, 2, 1, 3, "grouped"),
    (2, 3, 2, 1, 1, "plain"),
    (2, 3, 2, 1, 1, "grouped"),
    (2, 3, 2, 0, 1, "depthwise"),
    (2, 3, 2, 1, 2, "plain"),
    (2, (1, 5), (2, 3), (0, 2), (1, 2), "plain"),
    (2, (2, 4), (3, 2), (1, 1), (3, 1), "depthwise"),
    (3, (2, 3, 1), (2, 2, 2), 0, 1, "plain"),
]
"""Rank, kernel, stride, padding, dilation, channels."""
_SHAPES = {"plain": (3, 2, 1), "grouped": (4, 3, 2), "depthwise": (3, 1, 3)}


def _operands(rank, kernel, kind, dtype):
    inside, outside, groups = _SHAPES[kind]
    kernel = kernel if isinstance(kernel, tuple) else (kernel,) * rank
    # Whole numbers: sums are exact, and in every order.
    x = torch.randint(-8, 8, (2, inside, *(5, 4, 3)[:rank])).to(dtype)
    return x, torch.randint(-8, 8, (inside, outside, *kernel)).to(dtype), groups


def _equal(found, wanted):
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_what_is_not_finite_meets_its_own_taps_only(dtype):
    args, functions = [], []
    for rank, kernel, stride, padding, dilation, kind in CASES if dtype == torch.float32 else CASES[2:5:2]:
        x, weight, groups = _operands(rank, kernel, kind, dtype)
        x[0].flatten()[3], x[1].flatten()[-1], x[1].flatten()[0] = math.inf, -math.inf, math.nan
        transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        functions.append(lambda x, w, f=transposed, o=options: f(x, w, **o))
        args.append((x, weight))

    def all_of_them(args):
        return [function(*pair) for function, pair in zip(functions, args, strict=True)]

    _equal(tilewright.compile(all_of_them, (args,))(args), all_of_them(args))


@pytest.mark.parametrize("rank", [1, 2])
def test_gradients_of_strided_convolutions(rank):
    torch.manual_seed(0)
    cases = [case for case in CASES if case[0] == rank]
    args = []
    for _, kernel, stride, padding, dilation, kind in cases:
        _, weight, groups = _operands(rank, kernel, kind, torch.float32)
        x = torch.randint(-8, 8, (2, weight.shape[1] * groups, *(9, 8)[:rank])).float()
        convolution = (F.conv1d, F.conv2d)[rank - 1]
        grad = torch.randint_like(convolution(x, weight, None, stride, padding, dilation, groups), -8, 8)
        grad[0].flatten()[1] = math.inf
        args.append((x, weight, grad, (stride, padding, dilation, groups)))

    def gradient(x, weight, grad, options):
        f = (F.conv1d, F.conv2d)[rank - 1]
        return torch.func.vjp(lambda x: f(x, weight, None, *options), x)[1](grad)[0]

    def gradients(args):
        return [gradient(*each) for each in args]

    _equal(tilewright.compile(gradients, (args,))(args), gradients(args))


def test_phases_take_every_tap_once():
    draw = random.Random(0)
    for _ in range(300):
        kernel, stride, dilation = draw.randint(1, 7), draw.randint(1, 5), draw.randint(1, 5)
        step = stride // math.gcd(stride, dilation)
        start = draw.randint(0, 6)
        runs = _phases(kernel, stride, dilation, start, draw.random() < 0.5)
        places, result = [], start
        for firsts, taps, first_wanted in runs:
            for first in firsts:
                for tap in range(taps):
                    # The first result of this phase that is wanted reads its first tap of one element.
                    assert dilation * first + stride * first_wanted == result
                    places.append(first + step * tap)
                result += 1
        assert result == start + stride
        assert sorted(places) == list(range(kernel))


def _convolutions(x, weight, **options) -> list[list[int]]:
    """The shapes of all results of convolutions that a transposed one becomes."""
    graph = make_fx(
        lambda x, w: transposed_convolution(x, w, None, **{**_PLAIN, **options}), tracing_mode="fake"
    )(x, weight)
    nodes = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default)
    return [list(node.meta["val"].shape) for node in nodes]


_PLAIN = {
    "stride": [2, 2],
    "padding": [1, 1],
    "dilation": [1, 1],
    "output_padding": [0, 0],
    "groups": 1,
}


def test_phases_compute_what_is_wanted_of_them():
    """Of 4 taps with padding two phases begin an element earlier than the others: apart they compute 4x4 each, together 5x5."""
    small, large = torch.randn(1, 8, 4, 4), torch.randn(1, 8, 64, 64)
    assert _convolutions(small, torch.randn(8, 32, 4, 4)) == [[1, 32, 4, 4]] * 4
    # Few channels fill no vector, of a large image one row more is little, and without padding all begin at one element.
    assert _convolutions(small, torch.randn(8, 3, 4, 4)) == [[1, 12, 5, 5]]
    assert _convolutions(large, torch.randn(8, 32, 4, 4)) == [[1, 128, 65, 65]]
    assert _convolutions(small, torch.randn(8, 32, 2, 2), padding=[0, 0]) == [[1, 128, 4, 4]]


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("stride", [1, 3])
def test_one_element_is_a_product(stride, padding):
    """As a generator of images begins: each result has one tap, where a convolution would multiply borders of zeros."""
    x, weight, groups = _operands(2, 4, "plain", torch.float32)
    x, bias = x[:, :, :1, :1], torch.arange(weight.shape[1]).float()
    assert _convolutions(x, weight, stride=[stride] * 2, padding=[padding] * 2) == []

    def model(x):
        more = stride - 1
        return [
            F.conv_transpose2d(x, weight, bias, stride, padding),
            F.conv_transpose2d(x, weight, None, stride, padding, more, groups),
            F.conv_transpose2d(x, weight, bias, stride, padding, dilation=2),
            F.conv_transpose1d(x[..., 0], weight[..., 0], None, stride, padding),
        ]

    _equal(tilewright.compile(model, (x,))(x), model(x))


@pytest.mark.slow
def test_drawn_transposed_convolutions():
    draw = random.Random(0)
    for _ in range(60):
        rank = draw.randint(1, 3)
        kernel, stride, dilation = (tuple(draw.randint(1, 4) for _ in range(rank)) for _ in range(3))
        extra = tuple(draw.randrange(max(s, d)) for s, d in zip(stride, dilation))
        kind = draw.choice(list(_SHAPES))
        x, weight, groups = _operands(rank, kernel, kind, torch.float64)
        padding = tuple(draw.randint(0, d * (k - 1) // 2) for k, d in zip(kernel, dilation))
        transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[rank - 1]
        bias = torch.randint(-8, 8, (weight.shape[1] * groups,)).double() if draw.random() < 0.5 else None
        options = (stride, padding, extra, groups, dilation)

        def convolved(x, weight, f=transposed, bias=bias, options=options):
            return [f(x, weight, bias, *options)]

        _equal(tilewright.compile(convolved, (x, weight))(x, weight), convolved(x, weight))


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("padding", [0, 1])
def test_results_lie_in_memory_as_eagers(form, padding):
    torch.manual_seed(0)
    x, weight = torch.randn(2, 3, 5, 4).to(memory_format=form), torch.randn(3, 2, 3, 3)

    def model(x):
        y = F.conv_transpose2d(x, weight, stride=2, padding=padding)
        return y, (y if form is torch.contiguous_format else y.permute(0, 2, 3, 1)).view(-1, 2)

    for found, wanted in zip(tilewright.compile(model, (x,))(x), model(x)):
        assert found.stride() == wanted.stride()
        torch.testing.assert_close(found, wanted)


def test_gradients_of_kernels_compute_no_taps_that_kernels_lack():
    """Strides that leave elements of the image out, windows that lie in its border alone, and what is left of both."""
    generator, compared = torch.Generator().manual_seed(0), 0
    choices = itertools.product(
        (1, 2, 3, 5), (1, 2, 3, 10), (0, 1, 3), (1, 2), (1, 2), ((9, 8), (12, 7), (1, 6))
    )
    for extent, step, pad, dilation, groups, size in choices:
        if any(n + 2 * pad < dilation * (extent - 1) + 1 for n in size):
            continue
        x = torch.randn(3, 4, *size, generator=generator, dtype=torch.float64)
        kernel = torch.randn(6, 4 // groups, extent, extent, generator=generator, dtype=torch.float64)
        found = F.conv2d(x, kernel.requires_grad_(), None, step, pad, dilation, groups)
        (wanted,) = torch.autograd.grad(found.cos().sum(), kernel)
        given = (x, -found.detach().sin(), (extent, extent), [step] * 2, [pad] * 2, [dilation] * 2, groups)
        torch.testing.assert_close(_kernel_gradient(*given), wanted)
        compared += 1
    assert compared > 200
    graph = make_fx(lambda x, g: _kernel_gradient(x, g, (3, 3), [2, 2], [1, 1], [1, 1], 1))(
        torch.randn(2, 4, 8, 8), torch.randn(2, 6, 4, 4)
    )
    (convolution,) = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution.default)
    assert convolution.meta["val"].shape == (4, 6, 3, 3)
