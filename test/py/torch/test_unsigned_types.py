"""Integers without a sign: conversions to them and what may be done with them, against eager PyTorch."""

from __future__ import annotations

import math

import pytest
import torch

import tilewright
from tilewright.compiler.errors import UnsupportedError

WORDS = torch.tensor([[1, 5], [4_000_000_000, 3]]).to(torch.uint32)


@pytest.mark.parametrize("to", [torch.uint8, torch.int8, torch.int16])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floats_become_short_integers(dtype: torch.dtype, to: torch.dtype) -> None:
    limits = torch.iinfo(to)
    x = torch.arange(limits.min, limits.max + 1, max(1, (limits.max - limits.min) // 300)).to(dtype)
    x = x.clamp(limits.min, limits.max if dtype != torch.bfloat16 or to != torch.int16 else 32512)
    assert torch.equal(tilewright.compile(lambda x: x.to(to), (x,))(x), x.to(to))


@pytest.mark.parametrize("value", [200, torch.tensor(200, dtype=torch.uint8)])
@pytest.mark.parametrize("is_set", [True, False])
def test_bytes_are_filled_where_a_mask_is_the_same_everywhere(
    value: int | torch.Tensor, is_set: bool
) -> None:
    """torch-mlir folds both, into literals of signed bytes."""

    def fill(x: torch.Tensor) -> torch.Tensor:
        return x.masked_fill(torch.full((2, 3), is_set), value)

    x = torch.tensor([[1, 2, 250]], dtype=torch.uint8)
    assert torch.equal(tilewright.compile(fill, (x,))(x), fill(x))


def test_what_is_read_again_has_the_type_of_the_tensor_that_was_written() -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.slice_scatter(x, y, 0, 1, 2)[1:2], torch.select_scatter(x, y[0], 0, 1)[1]

    x, y = torch.rand(4, 3), torch.rand(1, 3, dtype=torch.float64)
    for found, wanted in zip(tilewright.compile(write, (x, y))(x, y), write(x, y)):
        assert found.dtype == wanted.dtype and torch.equal(found, wanted)


def test_bytes_that_were_written_are_read_again() -> None:
    def write(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.clone()
        y[-1] = 200
        y[:, 1:] = 7
        return y, y[2], y[-1], y[:, -2:], y[:, 1], y[:, 1:2], y[..., :3]

    x = torch.arange(9, dtype=torch.uint8).reshape(3, 3)
    for found, wanted in zip(tilewright.compile(write, (x,))(x), write(x)):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("count", [1, 7, 64, 1000])
def test_bytes_above_127_are_kept_in_vectors_and_alone(count: int) -> None:
    x = torch.linspace(0, 255, count)
    for scaled in (lambda x: x.to(torch.uint8), lambda x: (x * 0.5 + 100).to(torch.uint8)):
        assert torch.equal(tilewright.compile(scaled, (x,))(x), scaled(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.t().reshape(4),
        lambda x: torch.cat([x, x[:1]]),
        lambda x: torch.where(x == 5, x, x.flip(0)),
        lambda x: x.to(torch.int64) * 2,
        lambda x: x.to(torch.float64),
        lambda x: (x.to(torch.int64) - 6).to(torch.uint32),
        lambda x: x.to(torch.float64).to(torch.uint32),
        lambda x: (x.to(torch.float32) - 6.7).to(torch.uint32),
        lambda x: x.to(torch.float32).clamp(max=60000).half().to(torch.uint32).to(torch.float32),
        lambda x: x.to(torch.bfloat16).to(torch.uint32).to(torch.int64) + 1,
        lambda x: x & 7,
    ],
)
def test_words_without_a_sign_are_moved_and_converted(function) -> None:
    assert torch.equal(tilewright.compile(function, (WORDS,))(WORDS), function(WORDS))


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda x: x * 3, "aten.mul"),
        (lambda x: x.sum(), "aten.sum"),
        (lambda x: x < 5, "aten.lt"),
        (lambda x: x.max(), "aten.max"),
    ],
)
def test_computing_on_words_without_a_sign_is_refused_by_name(function, operator: str) -> None:
    with pytest.raises(UnsupportedError, match=rf"{operator}.*computes on torch\.uint32"):
        tilewright.compile(function, (WORDS,))


def _overwritten(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    copied = x.clone()
    part = copied.view(-1)[:1][:1]
    part.fill_(1)
    return part, copied * 2


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (_overwritten, (2, 6)),
        (lambda x: (torch.squeeze_copy(torch.all(torch.bitwise_not(x))),), (0, 4, 2, 3)),
        (lambda x: (torch.clamp(x, True, 1), torch.clamp(x, max=False), torch.clamp_min(x, True)), (5,)),
    ],
)
def test_bytes_that_are_constants_in_the_end(function, shape: tuple[int, ...]) -> None:
    x = torch.arange(math.prod(shape), dtype=torch.uint8).reshape(shape)
    for found, expected in zip(tilewright.compile(function, (x,))(x), function(x), strict=True):
        assert found.dtype == expected.dtype and torch.equal(found, expected)


def test_memory_outside_of_an_empty_view_is_refused_by_name() -> None:
    x = torch.randn(17, 1, 1)
    with pytest.raises(UnsupportedError, match=r"aten\.as_strided.*outside the base tensor"):
        tilewright.compile(lambda x: x[10:13, :, :0:2].as_strided((2,), (1,)) * 2, (x,))
