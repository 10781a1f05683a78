"""Numbers that are tensors as indices, functions of plain numbers, histograms, bags, images without a batch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright
from tilewright.compiler.errors import UnsupportedError
from tilewright.compiler.importers.torch import bags as torch_bags
from tilewright.compiler.importers.torch import indexing as torch_indexing
from tilewright.compiler.importers.torch import places as torch_places
from tilewright.runtime.errors import KernelAssertError

COMPILERS = [tilewright.compile, lambda f, args: torch.compile(f, backend="tilewright")]


@st.composite
def numbered(draw):
    """A shape, and an index of numbers, slices, positions and new dimensions, some numbers of which become tensors."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    slices = st.sampled_from([slice(None), slice(1, None), slice(None, None, 2)])
    positions = st.sampled_from([[0], [-1], torch.tensor([[0], [-1]]), torch.tensor([0])])
    elements = [
        draw(st.integers(-n, n - 1) | st.integers(-n, n - 1) | slices | positions)
        for n in shape[: draw(st.integers(1, len(shape)))]
    ]
    for extra in draw(st.sampled_from([[], [None], [Ellipsis], [None, Ellipsis], [True]])):
        elements.insert(draw(st.integers(0, len(elements))), extra)
    dtype = draw(st.sampled_from([torch.int64, torch.int32]))
    tensors = [
        torch.tensor(e, dtype=dtype) if type(e) is int and draw(st.booleans()) else e for e in elements
    ]
    return shape, tuple(elements), tuple(tensors)


@given(numbered())
@settings(deadline=None, max_examples=200)
def test_numbers_that_are_tensors_index_as_numbers_do(case):
    shape, elements, tensors = case
    x = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    try:
        expected = x[elements]
    except IndexError:
        return
    assert torch.equal(torch_places.getitem(x, tensors), expected)
    for value in (7.0, expected + 0.5):
        ours, theirs = x.clone(), x.clone()
        theirs[elements] = value
        torch_places.setitem(ours, tensors, value)
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_compiled_lookups(compiler):
    x, before = torch.randn(3, 3, 3), tilewright.fallback_count()

    def written(x, n):
        y = x.clone()
        y[0, n] = x.sum((0, 1))
        y[n, :, [0, 1]] = x.sum(0)[:2].T
        y[n, n] = x[0, 1] * 2
        return y, y.sum()

    def read(x, n):
        return x[n] * 2, x[:, n, 1:], x[..., n], x[[0, 2], :, n], x[n, n, torch.tensor([1, 0])]

    for function in (read, written):
        compiled = compiler(function, (x, torch.tensor(0)))
        for number in (0, 2, -1):
            n = torch.tensor(number)
            torch.testing.assert_close(compiled(x, n), function(x, n))
        with pytest.raises(Exception, match=r"out of (range|bounds)"):
            compiled(x, torch.tensor(3))
    assert tilewright.fallback_count() == before


def test_a_copy_in_place_of_a_view_is_not_written_to():
    def through_the_copy(x, n):
        y = x * 1
        y[n].add_(1)
        return y

    def behind_it(x, n):
        y = x * 1
        z = y[n]
        y += 1
        return z * 1

    for function in (through_the_copy, behind_it):
        args = (torch.randn(3, 2), torch.tensor(1))
        with pytest.raises(UnsupportedError, match=r"x\[n\] with a tensor n took a copy"):
            tilewright.compile(function, args)
        compiled = torch.compile(function, backend="tilewright")
        torch.testing.assert_close(compiled(*args), function(*args))


SHARED = {
    "expand": lambda z: z.expand(3, 4),
    "broadcast": lambda z: torch.broadcast_to(z, (2, 3, 4))[1],
    "unfold": lambda z: z.unfold(0, 2, 1),
    "strides": lambda z: z.as_strided((3, 2), (1, 1)),
}
INTO = {
    "one copy": lambda y: y[1].mul_(2),
    "an element": lambda y: y.__setitem__((0, 1), 5),
    "views of views": lambda y: y.t().narrow(1, 0, 1).squeeze(1)[1:].zero_(),
    "detached": lambda y: y.detach().select(0, 1).add_(1),
    "results": lambda y: torch.add(y[0], 1, out=y[1]),
}


@pytest.mark.parametrize("into", INTO.values(), ids=INTO)
@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED)
def test_elements_that_share_memory_are_not_written_to(shared, into):
    def written(x):
        z = x * 2
        into(shared(z))
        return z

    with pytest.raises(UnsupportedError, match="elements share memory"):
        tilewright.compile(written, (torch.randn(4),))


APART = {
    "copies": lambda z: (z.expand(3, 4).clone(), z.unfold(0, 2, 1).contiguous()),
    "windows beside each other": lambda z: (z.unfold(0, 2, 2), z.unfold(0, 1, 1)),
    "expanded to one": lambda z: (z.expand(1, 4), z[:, None].expand(4, 1).t()),
    "turned": lambda z: (z.view(2, 2).t(), z.view(2, 2)[:, ::2]),
    "strides": lambda z: (z.as_strided((2, 2), (1, 2)), z.as_strided((2, 1), (3, 0))),
}


@pytest.mark.parametrize("apart", APART.values(), ids=APART)
def test_elements_apart_are_written_to_beside_those_that_share_memory(apart):
    def written(x):
        z = x * 2
        for y in apart(z):
            y[:1].add_(1)
        repeated = z.expand(3, 4)
        z.mul_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
        return z, repeated * 1

    x = torch.randn(4)
    for ours, eager in zip(tilewright.compile(written, (x,))(x), written(x)):
        torch.testing.assert_close(ours, eager)


OF_NUMBERS = {
    "quotient": lambda: torch.div(64, 8, rounding_mode="trunc"),
    "floored quotient": lambda: torch.div(-7, 2, rounding_mode="floor"),
    "fractions": lambda: torch.div(-7.5, 2, rounding_mode="floor"),
    "true quotient": lambda: torch.true_divide(7, 2),
    "floor_divide": lambda: torch.floor_divide(-7, 2),
    "sum": lambda: torch.add(1, 2.5),
    "product": lambda: torch.mul(3, True),
}


@pytest.mark.parametrize("compiler", COMPILERS)
def test_functions_of_plain_numbers(compiler):
    def every(x):
        return [x + f() for f in OF_NUMBERS.values()] + [100 // x, 100 % x, torch.remainder(-7, x)]

    x, before = torch.tensor([3, -4, 7]), tilewright.fallback_count()
    for found, expected in zip(compiler(every, (x,))(x), every(x)):
        assert found.dtype == expected.dtype and torch.equal(found, expected)
    assert tilewright.fallback_count() == before


WITHOUT_BATCH = {
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), (3, 8)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, (3, 2), ceil_mode=True), (3, 8, 9)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2, count_include_pad=False, padding=1), (3, 4, 4, 5)),
    "lp_pool2d": (lambda x: F.lp_pool2d(x, 2, 2), (3, 8, 9)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), (3, 8, 9)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), (3, 4, 4, 5)),
    "adaptive_avg_pool2d": (
        lambda x: (F.adaptive_avg_pool2d(x, (4, 3)), F.adaptive_avg_pool2d(x, (3, 4))),
        (3, 8, 9),
    ),
    "adaptive_max_pool1d": (lambda x: (F.adaptive_max_pool1d(x, 4), F.adaptive_max_pool1d(x, 3)), (3, 8)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (4, 3), return_indices=True), (3, 8, 9)),
    "adaptive_max_pool2d of a batch": (
        lambda x: F.adaptive_max_pool2d(x, (4, 3), return_indices=True),
        (2, 3, 8, 9),
    ),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, (2, 1, 3)), (3, 4, 5, 6)),
    "conv2d": (lambda x: F.conv2d(x, torch.ones(2, 3, 3, 3), padding=1), (3, 8, 9)),
    "conv_transpose2d": (lambda x: F.conv_transpose2d(x, torch.ones(3, 2, 3, 3), stride=2), (3, 4, 5)),
}


@pytest.mark.parametrize("name", WITHOUT_BATCH)
def test_images_without_a_batch(name):
    function, shape = WITHOUT_BATCH[name]
    x = torch.randn(shape)
    torch.testing.assert_close(tilewright.compile(function, (x,))(x), function(x))


numbers = st.floats(-4, 4, width=32) | st.sampled_from([float("nan"), float("inf"), -float("inf"), 2.0, -2.0])
bounds = st.sampled_from([(0, 0), (-2, 2), (-1, 3.5), (1, 1)])


@given(st.lists(numbers, min_size=1, max_size=30), st.integers(1, 12), bounds)
@settings(deadline=None, max_examples=150)
def test_histograms(elements, bins, bounds):
    x = torch.tensor(elements)
    if bounds[0] == bounds[1] and not x.isfinite().all():
        with pytest.raises((IndexError, RuntimeError)):
            torch_indexing.histc(x, bins, *bounds)
        return
    assert torch.equal(torch_indexing.histc(x, bins, *bounds), torch.histc(x, bins, *bounds))


def test_compiled_histograms():
    x = torch.randn(5, 20)

    def both(x):
        return torch.histc(x, 7), torch.histc(x, 4, -1, 1)

    for found, expected in zip(tilewright.compile(both, (x,))(x), both(x)):
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "operator", [torch.ops.aten._embedding_bag, torch.ops.aten._embedding_bag_forward_only]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", [0, 1, 2], ids=["sum", "mean", "max"])
def test_bags_give_all_that_eager_gives(operator, dtype, mode):
    weight, indices = torch.randn(9, 2).to(dtype), torch.tensor([1, 3, 3, 4, 5])
    decomposition = torch_bags.TABLE[operator.default]
    for offsets in (torch.tensor([0, 2, 2, 5]), torch.tensor([0, 5])):
        for last in (False, True):
            for padding in (-1, 3):
                args = (weight, indices, offsets, False, mode, False, None, last, padding)
                for found, expected in zip(decomposition(*args), operator(*args)):
                    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8, torch.bool], ids=str)
def test_places_of_what_is_not_zero(dtype):
    tensors = [torch.randint(0, 2, shape).to(dtype) for shape in ((9,), (3, 4), (2, 1, 5), (4, 0))]

    def places(*tensors):
        return [torch.nonzero_static(x, size=n, fill_value=-3) for x in tensors for n in (0, 1, 4, 30)]

    found = tilewright.compile(places, tuple(tensors))(*tensors)
    torch.testing.assert_close(found, places(*tensors))


@pytest.mark.parametrize("norm", [2.0, 1.0, 3.0])
def test_rows_looked_up_are_shortened(norm):
    weight, rows = torch.randn(6, 4) * torch.arange(6).reshape(6, 1), torch.tensor([[0, 5], [5, 2]])

    def looked_up(rows, weight):
        found = F.embedding(rows, weight, max_norm=1.5, norm_type=norm)
        return found, F.embedding_bag(rows, weight, max_norm=1.0, norm_type=norm)

    ours, theirs = weight.clone(), weight.clone()
    found = tilewright.compile(looked_up, (rows, weight.clone()))(rows, ours)
    torch.testing.assert_close(found, looked_up(rows, theirs))
    torch.testing.assert_close(ours, theirs)


def test_sizes_of_fresh_tensors_change():
    def resized(x):
        return x.clone().resize_(2, 2), x.clone().resize_as_(x.t()), (x * 2).resize_(3, 4)[0]

    x = torch.randn(2, 3)
    *found, grown = tilewright.compile(resized, (x,))(x)
    *wanted, _ = resized(x)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(grown, 2 * x.reshape(-1)[:4])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("weight", [None, torch.float32, torch.float16, torch.int32], ids=str)
def test_counts_of_a_given_length(dtype, weight):
    x = torch.randint(0, 5, (20,), dtype=dtype)
    weights = None if weight is None else (torch.rand(20) * 4).to(weight)

    def counted(x, weights):
        beyond = torch.bincount(torch.tensor([0, 3]), None if weights is None else weights[:2], minlength=2)
        return torch.bincount(x, weights, minlength=6), beyond, x[:0].bincount(minlength=3)

    found = tilewright.compile(counted, (x, weights))(x, weights)
    torch.testing.assert_close(found, counted(x, weights))


def test_counts_fail_where_they_would_be_longer():
    x = torch.tensor([0, 2, 2, 1])
    counted = tilewright.compile(lambda x: torch.bincount(x, minlength=3), (x,))
    for number in (3, -1):
        with pytest.raises(KernelAssertError, match="index out of range"):
            counted(torch.tensor([0, 2, number, 1]))
    assert counted(x).tolist() == [1, 1, 2]
    with pytest.raises(UnsupportedError, match=r"aten\.bincount.* depends on values"):
        tilewright.compile(torch.bincount, (x,))
