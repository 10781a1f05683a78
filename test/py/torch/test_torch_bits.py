"""Divisors and multiples of integers, and what floats are made of, against eager PyTorch."""

from __future__ import annotations

import math

import pytest
import test_operand_types as operand_types
import torch

import tilewright

INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def agree(function, *args, **tolerance):
    found = tilewright.compile(function, args)(*args)
    torch.testing.assert_close(found, function(*args), equal_nan=True, **tolerance)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_divisors_and_multiples(dtype):
    limits = torch.iinfo(dtype)
    fibonacci = [1, 1]
    while sum(fibonacci[-2:]) <= limits.max:  # the pairs with most steps
        fibonacci.append(sum(fibonacci[-2:]))
    numbers = [0, 1, 6, 35, -4, -6, limits.max, limits.max - 1, limits.min + 1, *fibonacci[-2:]]
    x = torch.tensor(numbers).to(dtype)
    agree(lambda x, y: (torch.gcd(x, y), torch.gcd(y, x[:, None])), x, x[2:].flip(0)[:1])
    agree(lambda x, y: torch.gcd(x, y), x, x[:, None])
    small = torch.tensor([0, 1, 4, 6, 9, -4, -6]).to(dtype)
    agree(lambda x, y: torch.lcm(x, y), small, small[:, None])


def test_divisors_of_two_types():
    agree(torch.gcd, torch.arange(-9, 9, dtype=torch.int8), torch.tensor(12, dtype=torch.int64))
    agree(torch.lcm, torch.arange(0, 9, dtype=torch.uint8), torch.arange(-4, 5, dtype=torch.int16))


def test_multiples_of_numbers_that_are_known():
    agree(lambda x: x + torch.lcm(torch.tensor(1073741823), torch.tensor(6)), torch.arange(3))
    agree(
        lambda x: torch.lcm(torch.tensor(12, dtype=torch.int32), torch.tensor(6, dtype=torch.int32)),
        torch.arange(3),
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_mantissa_and_exponent(dtype):
    limits = torch.finfo(dtype)
    numbers = [
        0.0,
        -0.0,
        1,
        -2.5,
        0.1,
        limits.max,
        limits.min,
        limits.tiny,
        limits.tiny / 4,
        -limits.tiny / 3,
    ]
    x = torch.tensor([*numbers, limits.smallest_normal * limits.eps, math.inf, -math.inf, math.nan]).to(dtype)
    agree(torch.frexp, x, rtol=0, atol=0)
    agree(torch.frexp, x[3].clone(), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_derivatives_of_digamma(dtype):
    x = torch.tensor([-7.3, -2.5, -1.75, -0.3, 1e-2, 0.3, 0.5, 1, 2.5, 17, 300, math.inf, math.nan]).to(dtype)
    poles = torch.tensor([0.0, -1, -4]).to(dtype)

    def derivatives(x, poles):
        return [
            *(torch.polygamma(n, x) for n in (0, 1, 2, 3, 6)),
            *(torch.polygamma(n, poles) for n in (2, 3)),
        ]

    found = tilewright.compile(derivatives, (x, poles))(x, poles)
    accuracy = {torch.float64: 1e-9, torch.float32: 2e-6}.get(dtype)  # eager's own second one has 1e-10
    for ours, wanted in zip(found, derivatives(x.to(torch.float64), poles.to(torch.float64)), strict=True):
        zero = None if accuracy is None else 0
        torch.testing.assert_close(ours, wanted.to(dtype), equal_nan=True, rtol=accuracy, atol=zero)


@pytest.mark.parametrize("dtype", operand_types.INTEGERS)
def test_bits_of_mixtures_are_those_of_one_type(dtype):
    functions = []
    for n, other in enumerate(operand_types.INTEGERS):
        functions += [
            lambda x, *ys, n=n: x ^ ys[n],
            lambda x, *ys, n=n: ys[n] & x,
            lambda x, *ys, n=n: torch.bitwise_or(x, ys[n][0]),
            lambda x, *ys, n=n: torch.bitwise_and(x[0, 0], ys[n]),
            lambda x, *ys, n=n: x ^ ys[n][0, 0],
        ]
        if torch.bool not in (dtype, other):
            functions += [
                lambda x, *ys, n=n: x << ys[n] % 3,
                lambda x, *ys, n=n: x >> ys[n] % 3,
                lambda x, *ys, n=n: torch.bitwise_left_shift(x, ys[n][0, 0] % 3),
            ]
    if dtype != torch.bool:
        functions += [
            lambda x, *ys: torch.bitwise_left_shift(x, 2),
            lambda x, *ys: torch.bitwise_right_shift(x, 1),
        ]
    operand_types.agree(
        functions,
        operand_types.values(dtype),
        *(operand_types.values(other, 1) for other in operand_types.INTEGERS),
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_number_beside_another(dtype):
    limits = torch.finfo(dtype)
    tiny = limits.smallest_normal * limits.eps
    numbers = [0.0, 1.0, 1.5, 2.0, tiny, limits.smallest_normal, limits.max, math.inf]
    x = torch.tensor([*numbers, *(-n for n in numbers), math.nan], dtype=dtype)
    found = tilewright.compile(torch.nextafter, (x[:, None], x))(x[:, None], x)
    expected = torch.nextafter(x[:, None], x)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found.signbit()[~found.isnan()], expected.signbit()[~expected.isnan()])
