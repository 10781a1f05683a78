"""Elements written and read by number, at every rank and type: scatters, lookups in sorted rows, running products."""

from __future__ import annotations

import pytest
import torch

import tilewright

aten = torch.ops.aten
DTYPES = [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float16, torch.float64]
NAN = float("nan")


def agree(function, *args):
    expected = function(*args)
    torch.testing.assert_close(tilewright.compile(function, args)(*args), expected, equal_nan=True)


@pytest.mark.filterwarnings("ignore:index_reduce", "ignore:The reduce argument")
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scatters_that_reduce(dtype, include_self):
    x, source = torch.tensor([[3, 7, 2], [1, 5, 4]]).to(dtype), torch.tensor([[4, 6], [9, 2]]).to(dtype)
    index = torch.tensor([[0, 0], [2, 1]])
    if dtype.is_floating_point or dtype in (torch.int8, torch.int32, torch.int64):
        x = -x
    means = ["mean"] if dtype != torch.bool else []

    def scattered(x, index, source):
        kinds = ["sum", "prod", "amax", "amin", *means]
        return [x.scatter_reduce(1, index, source, kind, include_self=include_self) for kind in kinds]

    def of_slices(x, index, source):
        kinds = ["prod", "amax", "amin", "mean"]
        found = [x.index_reduce(1, index[0], source, kind, include_self=include_self) for kind in kinds]
        return [*found, x.scatter(1, index, source, reduce="add"), x.scatter(1, index, 2, reduce="multiply")]

    agree(scattered, x, index, source)
    if dtype != torch.bool:
        agree(of_slices, x, index, source)


@pytest.mark.filterwarnings("ignore:index_reduce", "ignore:The reduce argument")
@pytest.mark.parametrize(
    "shapes", [([], []), ([], [1]), ([1], []), ([3], []), ([], [0]), ([3], [0])], ids=str
)
def test_scatters_and_gathers_without_dimensions(shapes):
    def every(x, index, source):
        written = [x.scatter(0, index, source), x.scatter(0, index, 2), x.scatter_add(0, index, source)]
        for kind in ("sum", "prod", "mean", "amax", "amin"):
            written += [x.scatter_reduce(0, index, source, kind, include_self=k) for k in (True, False)]
        return [*written, x.scatter(0, index, source, reduce="add"), x.gather(0, index)]

    x, index = torch.full(shapes[0], 5.0), torch.zeros(shapes[1], dtype=torch.int64)
    agree(every, x, index, torch.full(shapes[1], 3.0))


def test_slices_reduced_into_a_number():
    def every(x, index, source):
        return [x.index_reduce(0, index, source, kind) for kind in ("prod", "mean", "amax", "amin")]

    agree(every, torch.tensor(5), torch.tensor([0]), torch.tensor(2))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != torch.bool], ids=str)
def test_places_in_sorted_rows(dtype):
    row = torch.tensor([1, 3, 3, 100]).to(dtype)
    sought = torch.tensor([[0, 1, 3], [4, 100, 120]]).to(dtype)
    if dtype.is_floating_point:
        sought = torch.cat([sought, torch.tensor([[NAN, float("inf"), -float("inf")]], dtype=dtype)])

    def every(row, sought, order):
        return [
            *(torch.searchsorted(row, sought, right=right) for right in (False, True)),
            *(torch.bucketize(sought, row, right=right, out_int32=True) for right in (False, True)),
            torch.searchsorted(row.flip(0), sought, sorter=order, side="right"),
            *(torch.searchsorted(row, 2.5), torch.searchsorted(row, sought[0, 1])),
            *(torch.bucketize(3, row), torch.searchsorted(row[:0], sought), torch.bucketize(sought[:0], row)),
        ]

    agree(every, row, sought, torch.tensor([3, 2, 1, 0]))


@pytest.mark.parametrize("length", [1, 2, 7, 8, 31])
def test_places_in_rows_with_nan_or_out_of_order_are_those_of_a_binary_search(length):
    row = torch.randn(3, length)
    row[1, -3:] = NAN
    row[2, length // 2] = NAN

    def every(row, sought):
        return [
            *(torch.searchsorted(row, sought, right=right) for right in (False, True)),
            *(torch.bucketize(sought, row[1], right=right) for right in (False, True)),
            torch.bucketize(0, row[1]),
        ]

    agree(every, row.sort(-1).values, torch.randn(3, 5))
    agree(every, row, torch.tensor([[0.1, NAN], [float("inf"), 0.0], [-2.0, 0.3]]))


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int8, torch.int64, torch.float16, torch.float64], ids=str
)
def test_running_products_in_another_type(dtype):
    def every(x, y, n):
        return [t.cumprod(0, dtype=dtype) for t in (x, x.to(dtype), y, n, x[:0])] + [n.cumprod(0)]

    agree(
        every, torch.tensor([[1, 7], [5, 3], [9, 11]]), torch.tensor([1.5, 2.5, -3.0]).abs(), torch.tensor(7)
    )


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(4, 3, 5, 2), (0, 3, 5, 2), (2, 3, 0, 2), (2, 0, 3, 2)], ids=str)
def test_sums_of_batches_of_products(shape, dtype):
    batch, rows, inner, columns = shape
    left, right = torch.arange(batch * rows * inner) % 5, torch.arange(batch * inner * columns) % 3
    factors = (0.5, 1.5) if dtype.is_floating_point else (2, 3)

    def both(bias, left, right):
        beta, alpha = factors
        return torch.addbmm(bias, left, right), torch.addbmm(bias[:1], left, right, beta=beta, alpha=alpha)

    left, right = left.reshape(batch, rows, inner).to(dtype), right.reshape(batch, inner, columns).to(dtype)
    agree(both, torch.ones(max(rows, 1), columns).to(dtype)[:rows], left, right)


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64], ids=str
)
def test_copies_and_writes_by_strides(dtype):
    def every(x, y):
        return [
            *(torch.as_strided_copy(x, (2, 3), (1, 2), 1), *aten.unbind_copy(x, 1), *aten.unbind_copy(x[0])),
            *(torch.as_strided_copy(x, (1,), (1,), 2), torch.as_strided(x, (), (), 2)),
            torch.as_strided_scatter(x, y, (2, 3), (1, 2), 1),
            torch.as_strided_scatter(x, y[0, 0], (), (), 5),
            torch.as_strided_scatter(x, y[:0], (0, 3), (1, 2)),
            torch.as_strided_scatter(x[1:], y[:, :2], (2, 2), (4, 1)),
            torch.empty_strided((2, 3), (1, 2), dtype=dtype).fill_(1),
            torch.empty_permuted((2, 0), (1, 0), dtype=dtype),
        ]

    agree(every, torch.arange(12).reshape(3, 4).to(dtype), torch.tensor([[9, 0, 7], [0, 5, 4]]).to(dtype))


@pytest.mark.parametrize("shape", [(1,), (1, 1), (2, 1), (1, 3), (1, 1, 1), (1, 0)], ids=str)
def test_slices_added_and_copied_along_every_dimension(shape):
    x = torch.arange(float(torch.Size(shape).numel())).reshape(shape)

    def every(x, index):
        found = []
        for dim, extent in enumerate(shape):
            at = index[:extent]
            found += [x.index_add(dim, at, x + 5), x.index_copy(dim, at, x * 2), x.index_fill(dim, at, 3)]
        return found

    agree(every, x, torch.zeros(1, dtype=torch.int64).expand(3) if max(shape) == 1 else torch.arange(3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool], ids=str)
@pytest.mark.parametrize(("length", "size", "step"), [(9, 4, 1), (9, 3, 2), (3, 3, 1)])
def test_writes_into_copies_of_windows_change_all_that_share_a_place(dtype, length, size, step):
    def every(x, source):
        windows = x.unfold(-1, size, step)
        wide = source.expand(windows.shape)
        return (
            torch.select_scatter(windows, wide.select(-2, 0), -2, -1),
            torch.slice_scatter(windows, wide[..., :1, :], -2, 0, 1),
            torch.diagonal_scatter(windows, wide.diagonal(0, -2, -1), 0, -2, -1),
            torch.select_scatter(x.unsqueeze(0).expand(2, *x.shape), x + x, 0, 1),
        )

    row = torch.arange(-4, length - 4).to(dtype)
    agree(
        lambda *args: [every(x, args[-1]) for x in args[:-1]], row, row.repeat(2, 1), torch.ones_like(row[:1])
    )


def test_scatters_into_windows_change_none_beside_those_that_they_number():
    """The result is no copy with the strides of windows: in eager PyTorch its elements lie apart."""
    x, index = torch.arange(-8.0, 8.0).reshape(2, 8), torch.tensor([[[4], [0], [6], [2]]])

    def scattered(x, index, source):
        windows = x.unfold(1, 2, 1)
        kinds = ["sum", "prod", "amax", "mean"]
        found = [windows.scatter_reduce(1, index, source, kind) for kind in kinds]
        strided = x[:, ::2].scatter(1, index[:1, :2, 0] % 4, source[:1, :2, 0])
        return [*found, windows.scatter(1, index, source), windows.scatter(1, index, 3.0), strided]

    agree(scattered, x, index, torch.tensor([[[50.0], [60.0], [70.0], [80.0]]]))


def test_writes_into_copies_of_windows_under_torch_compile():
    def every(x, source):
        windows = x.unfold(-1, 2, 1)
        return (
            torch.select_scatter(windows, source.expand(2, 2), 1, 1),
            torch.slice_scatter(windows, source.expand(2, 1, 2), 1, 1, 2),
            torch.diagonal_scatter(windows, source.expand(2, 2), 0, -2, -1),
        )

    x, source = torch.arange(8.0).reshape(2, 4), torch.tensor([50.0, 60.0])
    torch._dynamo.reset()
    compiled = torch.compile(every, backend="tilewright", options={"strict": True})
    torch.testing.assert_close(compiled(x, source), every(x, source))


WRITES = {
    "adds": lambda part: part.add_(1),
    "fills by a mask": lambda part: part.masked_fill_(part > 0, 1.0),
    "reduces by number": lambda part: part.scatter_reduce_(
        0, torch.zeros_like(part, dtype=torch.int64), part.clone(), "amax"
    ),
    "blends": lambda part: part.lerp_(part.flip(0), 0.5) if part.is_floating_point() else part.add_(2),
    "copies": lambda part: part.copy_(part.flip(0)),
    "fills": lambda part: part.fill_(2),
    "sums up": lambda part: part.cumsum_(0),
}
PARTS = {
    "selected": lambda x: x.view(1, 5, 3, 3, 2).permute(2, 0, 3, 1, 4)[0],
    "sliced": lambda x: x.view(1, 5, 3, 3, 2).permute(2, 0, 3, 1, 4)[:, :, 1:],
    "of a diagonal": lambda x: x.view(1, 5, 3, 3, 2).permute(0, 4, 2, 3, 1).diagonal(1, -3, -2)[0],
    "of a diagonal the other way": lambda x: x.view(1, 5, 3, 3, 2).diagonal(1, -2, -3)[..., 1:],
    "without elements": lambda x: x.view(1, 5, 3, 3, 2).permute(2, 0, 3, 1, 4)[0, :0],
    "of a slice": lambda x: x.view(5, 3, 3, 2)[1:4].view(9, 6).t()[::2],
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("write", WRITES)
def test_writes_into_parts_of_permuted_views(part, write):
    def write_into(x):
        found = PARTS[part](x)
        WRITES[write](found)
        return found

    torch._dynamo.reset()
    for x in (torch.randn(1, 5, 18), torch.randint(0, 7, (1, 5, 18), dtype=torch.uint8)):
        theirs = x.clone()
        expected = write_into(theirs)
        for compiled in (
            tilewright.compile(write_into, (x.clone(),)),
            torch.compile(write_into, backend="tilewright", options={"strict": True}),
        ):
            ours = x.clone()
            torch.testing.assert_close(compiled(ours), expected)
            torch.testing.assert_close(ours, theirs)
