"""Most frequent elements and histograms against eager PyTorch."""

from __future__ import annotations

import pytest
import torch

import tilewright

DTYPES = (torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_most_frequent(dtype):
    tensors = [torch.randint(0, 4, shape).to(dtype) for shape in ((1,), (), (7, 3), (2, 5, 9))]

    def modes(*tensors):
        return [torch.mode(x, dim, keepdim) for x in tensors for dim in (0, -1) for keepdim in (False, True)]

    found = tilewright.compile(modes, tuple(tensors))(*tensors)
    for ours, wanted in zip(found, modes(*tensors), strict=True):
        torch.testing.assert_close(ours[0], wanted[0])
        torch.testing.assert_close(ours[1], wanted[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_histograms(dtype):
    x, one = torch.randn(4, 9).to(dtype), torch.full((3,), 2.5, dtype=dtype)
    edges = torch.tensor([-1.0, -0.2, 0.9, 2], dtype=dtype)

    def histograms(x, one, edges):
        even = [torch.histogram(x, 7), torch.histogram(x, 5, range=(-1, 1.5), density=True)]
        even += [torch.histogram(one, 3), torch.histogram(x, 1, weight=x.abs())]
        return [*even, torch.histogram(x, edges), torch.histogram(x, edges, weight=x, density=True)]

    found = tilewright.compile(histograms, (x, one, edges))(x, one, edges)
    for ours, wanted in zip(found, histograms(x, one, edges), strict=True):
        torch.testing.assert_close(tuple(ours), tuple(wanted))


def test_bounds_belong_to_intervals():
    edges = torch.tensor([0.0, 1, 2])
    x = torch.tensor([0.0, 1, 2, -1e-6, 2.000001, torch.nan, 0.5])
    found = tilewright.compile(torch.histogram, (x, edges))(x, edges)
    torch.testing.assert_close(found[0], torch.tensor([2.0, 2]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_kth_element_knows_an_order_for_what_is_no_number(dtype, k):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor(
        [
            [nan, inf, 1.0, -inf],
            [nan] * 4,
            [inf, inf, nan, inf],
            [-inf, nan, -inf, 0.0],
            [3.0, 2.0, 1.0, 0.0],
        ],
        dtype=dtype,
    )
    values, indices = tilewright.compile(lambda x: x.kthvalue(k, 1), (x,))(x)
    torch.testing.assert_close(values, x.kthvalue(k, 1).values, rtol=0, atol=0, equal_nan=True)
    found = x.gather(1, indices.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(found, values, rtol=0, atol=0, equal_nan=True)
    kept = tilewright.compile(lambda x: x.kthvalue(k, 0, keepdim=True)[0], (x,))(x)
    torch.testing.assert_close(kept, x.kthvalue(k, 0, keepdim=True)[0], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.bool, torch.int64, torch.float16, torch.float32], ids=str
)
def test_running_extremes_of_long_lines_of_all_ranks(dtype):
    """Comparing all pairs of 5,000 elements would take 10^8 comparisons."""
    long = (torch.randn(4, 5000) * 40).to(dtype)
    planes, short = long[:, :120].reshape(4, 40, 3), long[0, :40]
    if dtype.is_floating_point:
        short[7], short[20:22] = float("inf"), float("nan")

    def every(long, planes, short):
        found = [
            f(x, dim) for f in (torch.cummax, torch.cummin) for x, dim in ((long, 1), (long, 0), (planes, 1))
        ]
        return [*found, torch.cummax(short, 0), torch.cummin(short, 0), torch.mode(long, 1)[0]]

    found = tilewright.compile(every, (long, planes, short))(long, planes, short)
    torch.testing.assert_close(found, every(long, planes, short), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("slope", [0.0, 0.2, -1.5, float("inf")])
def test_leaky_rectifiers_keep_the_sign_of_zero(slope):
    x = torch.tensor([-2.0, -0.0, 0.0, 3.0, float("inf"), -float("inf"), float("nan")])
    found = tilewright.compile(lambda x: torch.nn.functional.leaky_relu(x, slope), (x,))(x)
    wanted = torch.nn.functional.leaky_relu(x, slope)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(1 / found, 1 / wanted, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_running_logarithms_of_sums_keep_what_little_is_added_to_one(dtype):
    inf, nan = float("inf"), float("nan")
    rows = [
        [0, -9, -12, -3, 1],
        [-inf, -inf, 0, -9, inf],
        [inf, inf, -inf, 1, nan],
        [88, 89, -100, 3e4, -3e4],
    ]
    x = torch.tensor(rows, dtype=torch.float64).to(dtype)
    inputs = x, x.t().contiguous(), x[:1], x[:, :1], x[:0], x[:, :0], x[0, 1]

    def running(*inputs):
        return [torch.logcumsumexp(each, -1) for each in inputs]

    found = tilewright.compile(running, inputs)(*inputs)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(found, running(*inputs), rtol=4 * eps, atol=0, equal_nan=True)


@pytest.mark.parametrize("n", [2, 5, 40])
def test_running_logarithms_of_sums_near_one_are_as_exact_as_their_type(n):
    """The largest element and the logarithm cancel: here what is left is a thousandth of either."""
    x = torch.randn(60, n) * 0.2
    x = x - torch.logsumexp(x.double(), 1, keepdim=True).float() + 1e-3 * torch.randn(60, 1)
    found = tilewright.compile(lambda x: torch.logcumsumexp(x, 1), (x,))(x)
    exact = torch.logcumsumexp(x.double(), 1)
    assert exact[:, -1].abs().median() < 2e-3
    torch.testing.assert_close(found.double(), exact, rtol=1.5e-7, atol=0)


@pytest.mark.parametrize("largest", [True, False])
def test_largest_elements_in_any_order(largest):
    x = torch.randn(3, 8)

    def model(x):
        values, places = x.topk(3, dim=-1, largest=largest, sorted=False)
        return values.sort(-1)[0], torch.zeros_like(x).scatter(-1, places, 1.0)

    torch.testing.assert_close(tilewright.compile(model, (x,))(x), model(x))
    whole = torch.stack([torch.randperm(8) for _ in range(3)]).to(torch.int32)
    torch.testing.assert_close(tilewright.compile(model, (whole,))(whole), model(whole))


@pytest.mark.parametrize("p", [0.0, 1.0, 3.0, float("inf")])
def test_distances_between_many_rows(p):
    """The differences of all pairs, 2^25 numbers here, are added up as they are computed."""
    x, y = (torch.randn(count, 8, generator=torch.Generator().manual_seed(count)) for count in (2048, 2050))
    found = tilewright.compile(lambda x, y: torch.cdist(x, y, p), (x, y))(x, y)
    torch.testing.assert_close(found, torch.cdist(x, y, p), rtol=1e-5, atol=1e-5)


_FAR = 2**62
_LEAST = -(2**63)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "x",
    [
        torch.randint(-500, 1000, (7, 333)),
        torch.stack([torch.randint(0, 9, (300,)), torch.randint(-_FAR, _FAR, (300,))]),
        torch.tensor([[0, 2**32 - 1, 5, 2**32 - 1, 0], [0, 2**32, 5, 2**32 - 1, 0]]),
        torch.tensor([[_LEAST, 2**63 - 1, 0], [_LEAST, _LEAST + 5, _LEAST + 2**32 - 1]]),
        torch.tensor([[3]]),
    ],
    ids=["near each other", "near and far", "as far as fits", "the least and the greatest", "one"],
)
def test_integers_of_64_bits_are_sorted_wherever_they_lie(x, descending):
    def ordered(x):
        return [torch.sort(x, dim=dim, stable=True, descending=descending) for dim in (0, 1)]

    for ours, theirs in zip(tilewright.compile(ordered, (x,))(x), ordered(x), strict=True):
        assert torch.equal(ours[0], theirs[0]) and torch.equal(ours[1], theirs[1])
    kept = min(3, x.shape[1])
    found = tilewright.compile(lambda x: torch.topk(x, kept, 1, largest=descending), (x,))(x)
    assert torch.equal(found[0], torch.topk(x, kept, 1, largest=descending)[0])
    assert torch.equal(x.gather(1, found[1]), found[0])
