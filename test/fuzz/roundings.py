"""Roundings made at random: what one run of the oracle adds to the numbers of float64."""

from __future__ import annotations

import math
from typing import Any

import torch

ROUNDINGS = 8
AMPLITUDE = 4.0
"""Ulp by which roundings are made wrong: the largest errors of elementary functions in docs/numerics.md."""


ALL_ONE_WAY = 1
"""The run in which terms of sums are wrong in one direction."""


class Roundings:
    """The random errors of run `number` of a program."""

    def __init__(self, number: int, seed: int):
        self.number = number
        self.generator = torch.Generator().manual_seed(seed * ROUNDINGS + number)

    def anything(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """NaN in the first run, 0 and infinite in the last three; in pairs of the others numbers of opposite signs, whose order is reversed too.

        One of the pairs is as large as the `dtype` has numbers: what limits infinities may leave those.
        """
        if self.number == 0:
            return torch.full_like(value, math.nan)
        if self.number >= ROUNDINGS - 3:
            return torch.full_like(value, (0.0, -math.inf, math.inf)[self.number - ROUNDINGS])
        number = (self.number - 1) // 2
        pair = torch.Generator().manual_seed(number)
        made = torch.randn(value.shape, generator=pair, dtype=torch.float64).to(value.dtype)
        made = made * (torch.finfo(dtype).max / 8 if number == 1 else 1)
        return made if self.number % 2 else -made

    def of_either_sign(self, value: torch.Tensor) -> torch.Tensor:
        """Zeros and NaN with a sign drawn for each: `relu(-0.0)`, `softshrink(-0.1)` and `fmod(inf, 1)` have that of the loop that runs them.

        The first two runs have one sign each, so that no sign is the same in all runs by chance.
        """
        if not value.is_floating_point():
            return value
        signs = torch.randint(0, 2, value.shape, generator=self.generator) * 2 - 1
        if self.number < 2:
            signs = torch.full_like(signs, 1 - 2 * self.number)
        return torch.where((value == 0) | value.isnan(), torch.copysign(value, signs), value)

    def rest(self, value: torch.Tensor, operand: torch.Tensor, eager: torch.Tensor) -> torch.Tensor:
        """0 in every other run where the operand's own error is as large: there is such a number of its type.

        Anything where eager PyTorch has no number in double precision: the quotient overflows, and it takes what is left for NaN.
        """
        if eager.dtype == torch.float64:
            value = torch.where(eager.isnan(), self.anything(value, eager.dtype), value)
        if operand.shape != value.shape or not operand.is_floating_point() or self.number % 2:
            return value
        return torch.where(
            value.abs() <= AMPLITUDE * torch.finfo(eager.dtype).eps * operand.abs(), 0.0, value
        )

    def cancelled(self, value: torch.Tensor, operand: torch.Tensor) -> torch.Tensor:
        """A sum of the operand's size, or a function of it, came before the result, in f32 at least."""
        if operand.shape != value.shape or not operand.is_floating_point():
            return value
        draw = torch.rand(value.shape, generator=self.generator, dtype=torch.float64) - 0.5
        return value + draw * AMPLITUDE * torch.finfo(torch.float32).eps * operand.nan_to_num(0, 0, 0)

    def beside_one(self, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """1 was added before the result, or taken from it last."""
        draw = torch.rand(value.shape, generator=self.generator, dtype=torch.float64) - 0.5
        return value + draw * AMPLITUDE * torch.finfo(dtype).eps * (1 + value.nan_to_num(0, 0, 0).abs())

    def beside_largest(
        self, value: torch.Tensor, largest_of: torch.Tensor, dtype: torch.dtype, ulp: float = AMPLITUDE
    ) -> torch.Tensor:
        """Every element is off by as much as the largest of another tensor: the middle of -1 and 1 is 0 or eps / 4."""
        draw = torch.rand(value.shape, generator=self.generator, dtype=torch.float64) - 0.5
        largest = largest_of.nan_to_num(0, 0, 0).abs().amax() if largest_of.numel() else 0.0
        return value + draw * ulp * torch.finfo(dtype).eps * largest

    def flushed(self, value: torch.Tensor) -> torch.Tensor:
        """Instructions that make bf16 take denormals for zero: as far off are results."""
        draw = torch.rand(value.shape, generator=self.generator, dtype=torch.float64) - 0.5
        return value + 2 * draw * torch.finfo(torch.bfloat16).smallest_normal

    def disturbed_terms(self, value: Any, dtype: torch.dtype) -> Any:
        """Terms of a sum: in one of the runs all of them too large, or too far below zero, by one eps.

        What partial sums are rounded by grows with them, and has the same sign where the same terms are added again.
        """
        terms = self.disturbed(value, dtype)
        if terms is value or self.number != ALL_ONE_WAY:
            return terms
        return torch.where(value.isfinite(), value + value.abs() * torch.finfo(dtype).eps, terms)

    def disturbed(self, value: Any, dtype: torch.dtype) -> Any:
        """Every element off by a random error of a few ulp, from half of the amplitude on."""
        if (
            not isinstance(value, torch.Tensor)
            or not dtype.is_floating_point
            or not value.is_floating_point()
        ):
            return value
        draw = torch.rand(value.shape, generator=self.generator, dtype=torch.float64) - 0.5
        draw = (draw + torch.sign(draw) * 0.5) * AMPLITUDE
        info = torch.finfo(dtype)
        denormal = (value.abs() < info.smallest_normal) & (value != 0)
        step = info.smallest_normal * info.eps if dtype != torch.float64 else 0.0
        # Instructions take denormals of bf16 for zero: infinity times one is NaN then.
        kept = 0.0 if dtype == torch.bfloat16 and self.number % 2 else 1.0
        return torch.where(denormal, kept * (value + draw * step), value * (1 + draw * info.eps))


def in_range(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """float64 numbers as a shorter type would have them where it overflows or has no full precision."""
    if dtype == torch.float64 or not dtype.is_floating_point:
        return value
    short = value.to(dtype).double()
    return torch.where(short.isinf() | (short.abs() < torch.finfo(dtype).smallest_normal), short, value)
