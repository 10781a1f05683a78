"""Images sampled at places that are no places, and windows of integers, against eager PyTorch."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import tilewright
from tilewright.compiler.driver import import_model
from tilewright.compiler.importers.torch.gradients import window_pool_backward

aten = torch.ops.aten

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
MODES = list(itertools.product((0, 1, 2), (0, 1, 2), (False, True)))
"""Interpolation, padding, whether -1 and 1 are centres of elements."""
SOME = [
    *((torch.float32, mode) for mode in MODES[::4]),
    *((torch.float64, mode) for mode in MODES[1::9]),
    *((torch.float16, mode) for mode in MODES[3::5]),
    *((torch.bfloat16, mode) for mode in MODES[2::8]),
]
REST = [(dtype, mode) for dtype in FLOATS for mode in MODES if (dtype, mode) not in SOME]


@pytest.mark.parametrize("channels", [2, 6])
@pytest.mark.parametrize("dtype", FLOATS)
def test_samples_are_eagers_wherever_they_are_taken(dtype, channels):
    """Of few channels, which are read plane by plane, and of more, which are rows."""
    _sampled(dtype, [mode for kind, mode in SOME if kind == dtype], channels)


@pytest.mark.slow
@pytest.mark.parametrize("channels", [2, 6])
@pytest.mark.parametrize("dtype", FLOATS)
def test_samples_are_eagers_in_the_other_modes(dtype, channels):
    _sampled(dtype, [mode for kind, mode in REST if kind == dtype], channels)


def _sampled(dtype, modes, channels):
    torch.manual_seed(0)
    x = torch.randn(2, channels, 3, 4).to(dtype)
    x[1, 1, 1, 1] = math.inf
    across = [0.0, 0.5, -0.9, 1, -1, 1.5, -3, 100, 6e4, -6e4, 65504]
    across += [math.inf, -math.inf, math.nan, 1e-5, 3e9, 1e20]
    places = torch.tensor([[a, b] for a in across for b in (0.1, math.inf, math.nan, -65504, 1)]).to(dtype)
    grid = torch.stack([places, places.flip(0)])[:, None]
    found = tilewright.compile(lambda x, g: [torch.grid_sampler_2d(x, g, *m) for m in modes], (x, grid))(
        x, grid
    )
    tolerance = {torch.float16: 3e-3, torch.bfloat16: 3e-2, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    for mode, ours in zip(modes, found, strict=True):
        wanted = torch.grid_sampler_2d(x, grid, *mode)
        torch.testing.assert_close(
            ours,
            wanted,
            rtol=tolerance,
            atol=tolerance,
            equal_nan=True,
            msg=lambda m, mode=mode: f"{mode}: {m}",
        )


def test_images_of_one_row_or_column_are_sampled():
    images = [torch.randn(1, 1, *size) for size in ((1, 1), (1, 5), (4, 1))]
    grid = torch.rand(1, 3, 7, 2) * 4 - 2

    def sample(grid, *images):
        return [torch.grid_sampler_2d(x, grid, mode, 2, True) for x in images for mode in (0, 1, 2)]

    found = tilewright.compile(sample, (grid, *images))(grid, *images)
    for ours, wanted in zip(found, sample(grid, *images), strict=True):
        torch.testing.assert_close(ours, wanted, rtol=1e-5, atol=1e-5)


WINDOWS = [
    (2,),
    (3, 2, 1),
    ([2, 3, 2], [1, 2, 3], [1, 1, 0], [2, 1, 2]),
    (3, 2, 1, 2, True),
    (2, 2, 1, 1, True),
    (2, 3, 0, 1, True),
]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_volumes_of_integers_are_pooled(dtype):
    torch.manual_seed(0)
    x = torch.randint(-(2**62), 2**62, (2, 2, 5, 6, 7)).to(dtype)
    x[0, 0] = 3
    windows = WINDOWS if dtype == torch.int64 else WINDOWS[1:2]
    functions = [lambda x, w=w: torch.ops.aten.max_pool3d_with_indices(x, *w) for w in windows]
    functions += [lambda x: (F.max_pool3d(x[0], 3, 1, 1),)]
    found = tilewright.compile(lambda x: [function(x) for function in functions], (x,))(x)
    for ours, function in zip(found, functions, strict=True):
        for part, wanted in zip(ours, function(x), strict=True):
            assert torch.equal(part, wanted)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_images_of_integers_are_pooled(dtype):
    torch.manual_seed(0)
    x = torch.randint(-(2**62), 2**62, (2, 2, 6, 7)).to(dtype)
    windows = [(2,), ((3, 2), 2, 1), (3, (1, 2), 1, (2, 1)), (3, 2, 1, 1, True)]
    functions = [lambda x, w=w: torch.ops.aten.max_pool2d_with_indices(x, *w) for w in windows]
    functions += [lambda x: (F.max_pool2d(x[0], 3, 1, 1),)]
    found = tilewright.compile(lambda x: [function(x) for function in functions], (x,))(x)
    for ours, function in zip(found, functions, strict=True):
        for part, wanted in zip(ours, function(x), strict=True):
            assert torch.equal(part, wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_what_is_not_finite_stays_in_the_windows_that_it_is_in(dtype):
    x = torch.randn(2, 6, 7, 9).to(dtype)
    x[0, 1, 2, 3], x[1, 0, 0, 0], x[1, 5, 6, 8] = math.inf, math.nan, -math.inf

    def pooled(x):
        return (
            F.adaptive_avg_pool1d(x[0], 4),
            F.adaptive_avg_pool2d(x, (5, 9)),
            F.adaptive_avg_pool2d(x, (3, 11)),
            F.adaptive_avg_pool3d(x, (4, 1, 2)),
        )

    ours = tilewright.compile(pooled, (x,))(x)
    tolerance = {torch.float16: 1e-3, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    for found, wanted in zip(ours, pooled(x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize("size", [(3, 4), (8, 11), (7, 2)])
def test_gradients_of_windows_stay_where_the_windows_are(size):
    x, grad = torch.randn(2, 7, 9), torch.randn(2, *size)
    grad[0, 1, 1], grad[1, 2, 0] = math.inf, math.nan

    def backward(x, grad):
        return torch.func.vjp(lambda x: F.adaptive_avg_pool2d(x, size), x)[1](grad)[0]

    found = tilewright.compile(backward, (x, grad))(x, grad)
    torch.testing.assert_close(found, backward(x, grad), equal_nan=True)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_what_is_not_finite_stays_in_its_bag(mode):
    weight, rows = torch.randn(4, 3), torch.tensor([0, 1, 2, 3, 1])
    weight[0, 1], weight[3, 0] = math.inf, math.nan

    def bags(rows, weight):
        return F.embedding_bag(rows, weight, torch.tensor([0, 2, 4]), mode=mode)

    found = tilewright.compile(bags, (rows, weight))(rows, weight)
    torch.testing.assert_close(found, bags(rows, weight), equal_nan=True)


@pytest.mark.parametrize("padding", [None, 2])
def test_nan_in_maxima_of_bags_counts_where_a_bag_begins_with_it(padding):
    weight = torch.tensor([[math.nan, math.inf], [0.7, -0.1], [1.0, 1.2], [0.2, math.nan]])
    rows = torch.tensor([[2, 3, 0], [3, 0, 2], [0, 3, 1], [2, 2, 2], [1, 3, 3], [2, 1, 0]])

    def bags(rows, weight):
        return F.embedding_bag(rows, weight, mode="max", padding_idx=padding)

    found = tilewright.compile(bags, (rows, weight))(rows, weight)
    torch.testing.assert_close(found, bags(rows, weight), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_of_samples(dtype):
    x, grid = torch.randn(2, 3, 4, 5, dtype=dtype), torch.randn(2, 3, 6, 2, dtype=dtype)
    grad = torch.randn(2, 3, 3, 6, dtype=dtype)
    grid[0, 0, 0] = torch.tensor([1.0, -1.0])
    modes = list(itertools.product((0, 1), (0, 1), (False, True)))

    def backward(x, grid, grad):
        return [torch.ops.aten.grid_sampler_2d_backward(grad, x, grid, *m, [True, True]) for m in modes]

    ours = tilewright.compile(backward, (x, grid, grad))(x, grid, grad)
    for found, wanted in zip(ours, backward(x, grid, grad), strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 1, 4), (2, 1, 3, 2, 4)], ids=str)
@pytest.mark.parametrize("align_corners", [False, True])
def test_gradients_of_grids_of_affine_maps(size, align_corners):
    rank = len(size) - 2

    def places(theta):
        return F.affine_grid(theta * 2, size, align_corners=align_corners)

    theta = torch.randn(2, rank, rank + 1, requires_grad=True)
    torch._dynamo.reset()
    found = torch.compile(places, backend="tilewright", options={"strict": True})(theta)
    expected, grad = places(theta), torch.randn(2, *size[2:], rank)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, theta, grad), torch.autograd.grad(expected, theta, grad)
    )


@pytest.mark.parametrize("rank", [2, 3])
def test_gradients_of_poolings_reach_the_maxima_of_all_windows(rank):
    """Windows that overlap, that leave elements out, and that reach beyond the image; few of its elements differ."""
    pool = [aten.max_pool2d_with_indices, aten.max_pool3d_with_indices][rank - 2]
    backward = [aten.max_pool2d_with_indices_backward, aten.max_pool3d_with_indices_backward][rank - 2]
    x = torch.randint(6, (2, 3, *[11, 8, 9][:rank]), generator=torch.Generator().manual_seed(0)).float()
    compared = 0
    for kernel, stride, padding, dilation, ceil in itertools.product(
        ([1], [2], [3], [2, 3, 4][:rank]), ([], [1], [2], [3, 1, 2][:rank]), (0, 1), (1, 2), (False, True)
    ):
        if 2 * padding > min(kernel):
            continue
        window = (kernel * (rank // len(kernel)), stride, [padding] * rank, [dilation] * rank, ceil)
        found, indices = pool(x, *window)
        gradient = torch.cos(torch.arange(found.numel()).float()).reshape(found.shape)
        wanted = backward(gradient, x, *window, indices)
        torch.testing.assert_close(window_pool_backward(gradient, x, *window, indices), wanted)
        compared += 1
    assert compared > 50


def test_many_windows_around_an_element_are_written_from_instead():
    x = torch.randn(1, 2, 9, 9)
    found, indices = aten.max_pool2d_with_indices(x, [7, 7], [1, 1], [3, 3])
    wanted = aten.max_pool2d_with_indices_backward(found, x, [7, 7], [1, 1], [3, 3], [1, 1], False, indices)
    graph = make_fx(lambda g, i: window_pool_backward(g, x, [7, 7], [1, 1], [3, 3], [1, 1], False, i))(
        found, indices
    )
    assert graph.graph.find_nodes(op="call_function", target=aten.scatter_add.default)
    torch.testing.assert_close(graph(found, indices), wanted)


@pytest.mark.parametrize("size", [64, (64, 2), 1000])
@pytest.mark.parametrize("padding", [0, 1])
def test_windows_larger_than_the_image_end_where_it_does(size, padding):
    """An average over 1,000 x 1,000 pixels is a mean of the few that there are, and is no larger than the image."""

    def pools(x):
        average, volume = (
            F.avg_pool2d(x, size, None, padding, True),
            F.avg_pool3d(x, (4, 5, 7), ceil_mode=True),
        )
        without = F.avg_pool2d(x, size, None, padding, ceil_mode=True, count_include_pad=False)
        largest, places = F.max_pool2d(x, size, None, padding, ceil_mode=True, return_indices=True)
        return average, volume, without, largest, places

    x = torch.randn(2, 4, 5, 7)
    assert "1000" not in str(import_model(pools, (x,)).module)
    torch.testing.assert_close(tilewright.compile(pools, (x,))(x), pools(x))


def test_images_are_not_padded_where_windows_fit():
    def pad(size):
        return "tensor.pad" in str(import_model(pool, (torch.ones(1, 2, size, size),)).module)

    pool = torch.nn.AvgPool2d(3, 2, ceil_mode=True)
    assert not pad(9) and pad(8)
