"""Indices out of range and integers divided by zero: errors of the call, whatever operator and target."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright
from tilewright.runtime.errors import KernelAssertError

ROWS = 6
READS = {
    "x[i]": lambda x, i: x[i],
    "x[:, i]": lambda x, i: x[i].t()[:, [0, 1]],
    "x[i, i]": lambda x, i: x[i, i % 3],
    "take": lambda x, i: x[:, 0].take(i),
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i.unsqueeze(1).expand(-1, 3)),
    "take_along_dim": lambda x, i: torch.take_along_dim(x, i.unsqueeze(1), 0),
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i.unsqueeze(0), x),
    "cross_entropy": lambda x, i: F.cross_entropy(x.t()[:2], i),
    "one_hot": lambda x, i: F.one_hot(i, ROWS),
    "a sum of rows": lambda x, i: x[i].sum(0),
}
WRITES = {
    "index_put": lambda x, i: x.index_put((i,), x[:2]),
    "index_put accumulated": lambda x, i: x.index_put((i,), x[:2], accumulate=True),
    "index_put of columns": lambda x, i: x.t().index_put((torch.tensor([2, 0]), i), x[0, :2]),
    "put": lambda x, i: x[:, 0].put(i, x[0, :2]),
    "index_add": lambda x, i: x.index_add(0, i, x[:2], alpha=2),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:2], "amax"),
    "scatter": lambda x, i: x.scatter(0, i.unsqueeze(1), x[:2]),
    "scatter of a number": lambda x, i: x.scatter(0, i.unsqueeze(1), 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i.unsqueeze(1), x[:2]),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i.unsqueeze(1), x[:2], "amin"),
}
OUTSIDE = [-(2**63), -(2**40), -ROWS - 1, -ROWS, -1, ROWS, 2**32, 2**40, 2**63 - 1]


def outcome(function, *args):
    """The result, or None where the call fails with one of the errors that bad indices have."""
    try:
        return function(*args)
    except (IndexError, RuntimeError, KernelAssertError):
        return None


@pytest.mark.parametrize("name", [*READS, *WRITES])
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_indices_count_or_fail_as_in_eager(name):
    function = (READS | WRITES)[name]
    x = torch.randn(ROWS, 3)
    compiled = tilewright.compile(function, (x, torch.tensor([1, 4])))
    for number in [*OUTSIDE, 0, ROWS - 1]:
        index = torch.tensor([1, number])
        expected, found = outcome(function, x, index), outcome(compiled, x, index)
        assert (found is None) == (expected is None), number
        if expected is not None:
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", ["x[i]", "index_put", "index_add", "index_fill", "scatter"])
def test_the_only_place_of_a_dimension_is_checked_too(name):
    function = (READS | WRITES)[name]
    x, index = torch.randn(1, 3), torch.tensor([0])
    compiled = tilewright.compile(function, (x, index))
    torch.testing.assert_close(compiled(x, index), function(x, index))
    for number in (1, -2, 2**32):
        with pytest.raises(KernelAssertError, match="expected 0 to 0"):
            compiled(x, torch.tensor([number]))


@pytest.mark.parametrize("name", ["x[i]", "a sum of rows", "one_hot", "index_put", "scatter", "index_add"])
def test_gpu_kernels_report_indices(name):
    function = (READS | WRITES)[name]
    x, index = torch.randn(ROWS, 3), torch.tensor([1, 4])
    compiled = tilewright.compile(function, (x, index), target="emulate:sm_90a")
    torch.testing.assert_close(compiled(x, index), function(x, index))
    for number in (ROWS, -ROWS - 1, 2**40):
        with pytest.raises(KernelAssertError, match=f"index out of range: expected 0 to {ROWS - 1}"):
            compiled(x, torch.tensor([1, number]))


@pytest.mark.parametrize("number", [7, ROWS, 2**40, -(2**40)])
def test_constant_indices_fail_too(number):
    x = torch.randn(ROWS, 3)
    for function in (
        lambda x: x[torch.tensor([number])],
        lambda x: x.index_fill(0, torch.tensor([number]), 1.0),
    ):
        with pytest.raises(KernelAssertError, match="index out of range"):
            tilewright.compile(function, (x,))(x)


def test_failed_calls_leave_mutated_inputs_alone():
    def write(x, y, i):
        y += 1
        x[i] = 2.0
        return x.sum()

    x, y = torch.randn(ROWS), torch.randn(3)
    compiled = tilewright.compile(write, (x, y, torch.tensor([0, 1])))
    before = x.clone(), y.clone()
    with pytest.raises(KernelAssertError, match="index out of range"):
        compiled(x, y, torch.tensor([0, ROWS]))
    assert torch.equal(x, before[0]) and torch.equal(y, before[1])
    compiled(x, y, torch.tensor([0, -1]))
    assert x[0] == x[-1] == 2 and torch.equal(y, before[1] + 1)


def test_checks_hold_under_torch_compile():
    compiled = torch.compile(lambda x, i: (x[i] + 1, F.one_hot(i, ROWS)), backend="tilewright")
    x, before = torch.randn(ROWS), tilewright.fallback_count()
    for found, wanted in zip(
        compiled(x, torch.tensor([0, 5])), (x[[0, 5]] + 1, F.one_hot(torch.tensor([0, 5]), 6))
    ):
        assert torch.equal(found, wanted)
    assert tilewright.fallback_count() == before
    with pytest.raises(KernelAssertError, match="index out of range"):
        compiled(x, torch.tensor([0, ROWS]))


DIVISIONS = {
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "floor_divide": torch.floor_divide,
    "div trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "div floor": lambda x, y: torch.div(x, y, rounding_mode="floor"),
}
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]


def in_python(name: str, x: int, y: int, dtype: torch.dtype) -> int:
    """The result in Python's integers, wrapped around: eager itself traps on some quotients by -1."""
    down = x // y
    towards_zero = -(-x // y) if (x < 0) != (y < 0) and x % y else down
    result = {
        "remainder": x - down * y,
        "fmod": x - towards_zero * y,
        "div trunc": towards_zero,
    }.get(name, down)
    least, bits = torch.iinfo(dtype).min, torch.iinfo(dtype).bits
    return (result - least) % (1 << bits) + least


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_divisions_of_integers(dtype):
    limits = torch.iinfo(dtype)
    numbers = [0, 1, 2, 3, 7, 100, limits.max, limits.max - 1, limits.max // 3]
    numbers += [n for n in (-1, -2, -7, limits.min + 1) if n >= limits.min] + [limits.min]
    x, y = (torch.tensor(c, dtype=dtype) for c in zip(*((a, b) for a in numbers for b in numbers if b)))

    def every(x, y):
        return [f(x, y) for f in DIVISIONS.values()] + [f(x, 7) for f in DIVISIONS.values()]

    compiled = tilewright.compile(every, (x, y))
    found = compiled(x, y)
    for results, divisors in ((found[:5], y.tolist()), (found[5:], [7] * len(y))):
        for name, result in zip(DIVISIONS, results):
            assert result.dtype == dtype
            assert result.tolist() == [in_python(name, a, b, dtype) for a, b in zip(x.tolist(), divisors)], (
                name
            )
    zeros = y.clone()
    zeros[-1] = 0
    with pytest.raises(KernelAssertError, match="integer division by zero"):
        compiled(x, zeros)


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("zero", [0, torch.tensor(0)], ids=["number", "constant"])
def test_division_by_a_known_zero(name, zero):
    x = torch.arange(4, dtype=torch.int32)
    compiled = tilewright.compile(lambda x: DIVISIONS[name](x, zero), (x,))
    with pytest.raises(KernelAssertError, match="integer division by zero"):
        compiled(x)


@pytest.mark.parametrize("name", DIVISIONS)
def test_division_of_constants(name):
    x = torch.arange(4)
    compiled = tilewright.compile(lambda x: x + DIVISIONS[name](torch.tensor(7), torch.tensor(-3)), (x,))
    assert compiled(x).tolist() == [n + in_python(name, 7, -3, torch.int64) for n in range(4)]


@pytest.fixture(scope="module")
def wide_division():
    example = torch.ones(64, dtype=torch.int64)
    return tilewright.compile(lambda x, y: (x // y, x % y), (example, example))


words = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**63 - 1, 2**53 + 1, -1, 0, 1])


@given(st.lists(words, min_size=64, max_size=64), st.lists(words, min_size=64, max_size=64))
@settings(deadline=None, max_examples=40)
def test_quotients_keep_every_bit(wide_division, dividends, divisors):
    x, y = (torch.from_numpy(np.array(numbers)) for numbers in (dividends, divisors))
    if 0 in divisors:
        with pytest.raises(KernelAssertError, match="integer division by zero"):
            wide_division(x, y)
        y[y == 0] = 1
    for name, found in zip(("floor_divide", "remainder"), wide_division(x, y)):
        pairs = zip(x.tolist(), y.tolist())
        assert found.tolist() == [in_python(name, a, b, torch.int64) for a, b in pairs]


def test_gpu_kernels_report_zeros():
    x, y = torch.tensor([7, -7, -(2**31)], dtype=torch.int32), torch.tensor([2, -3, -1], dtype=torch.int32)
    compiled = tilewright.compile(lambda x, y: (x % y, x // y), (x, y), target="emulate:sm_90a")
    rest, quotient = compiled(x, y)
    assert rest.tolist() == [1, -1, 0] and quotient.tolist() == [3, 2, -(2**31)]
    with pytest.raises(KernelAssertError, match="integer division by zero"):
        compiled(x, torch.tensor([1, 0, 1], dtype=torch.int32))
