"""How far a result may lie from eager PyTorch's, by the spread of the runs beside it, and whether it does."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fuzz.roundings import AMPLITUDE, in_range


@dataclass
class Expected:
    """One tensor of eager PyTorch's, with the largest error allowed; NaN where nothing is compared.

    `shares` is the number of the input in whose memory it lies.
    """

    value: torch.Tensor
    bound: torch.Tensor
    shares: int | None = None


def loose(value: torch.Tensor) -> torch.Tensor:
    """A bound for what cannot be computed in float64."""
    if not value.is_floating_point():
        return torch.zeros(value.shape, dtype=torch.float64)
    return value.detach().abs().double() * torch.finfo(value.dtype).eps * 64 + 1e-6


def bounds(eager: torch.Tensor, runs: list[torch.Tensor]) -> torch.Tensor:
    """How far each element may lie from eager's: NaN where the runs differ in kind, infinity nowhere."""
    if any(run.shape != eager.shape for run in runs):
        return torch.full(eager.shape, math.nan, dtype=torch.float64)
    if not eager.is_floating_point():
        same = torch.stack([run == eager for run in runs]).all(0)
        return torch.where(same, 0.0, math.nan).double()
    dtype, wide = eager.dtype, eager.detach().double()
    rounded = [in_range(run.detach().double(), dtype) for run in runs]
    info = torch.finfo(dtype)
    spread = torch.stack([(run - rounded[0]).abs() for run in rounded[1:]]).amax(0)
    size = torch.maximum(rounded[0].abs(), wide.abs())
    bound = 3 * spread + 4 * (wide - rounded[0]).abs() + AMPLITUDE * info.eps * size
    bound = bound + 4 * info.smallest_normal * info.eps
    kinds = torch.stack([_kind(value) for value in (wide, *rounded)])
    same = (kinds == kinds[0]).all(0)
    bound = torch.where(wide.isfinite(), bound, 0.0)
    return torch.where(same, bound, math.nan)


def _kind(value: torch.Tensor) -> torch.Tensor:
    """0 for numbers, 1 for NaN, 2 and 3 for the infinities."""
    kinds = torch.zeros(value.shape, dtype=torch.int8)
    kinds[value.isnan()] = 1
    kinds[value == math.inf] = 2
    kinds[value == -math.inf] = 3
    return kinds


def difference(found: torch.Tensor, wanted: Expected) -> str | None:
    """Says the first element that is wrong, or None."""
    value = wanted.value
    if found.dtype != value.dtype:
        return f"dtype {found.dtype}, eager {value.dtype}"
    if found.shape != value.shape:
        return f"shape {tuple(found.shape)}, eager {tuple(value.shape)}"
    found, value = found.detach(), value.detach()
    if not value.is_floating_point():
        wrong = (found != value) & ~wanted.bound.isnan()
    else:
        a, b = found.double(), value.double()
        equal = (a == b) | (a.isnan() & b.isnan())
        close = (a - b).abs() <= wanted.bound
        wrong = ~(equal | close | wanted.bound.isnan())
    if not wrong.any():
        return None
    at = tuple(int(i) for i in wrong.nonzero()[0])
    allowed = "" if not value.is_floating_point() else f", at most {float(wanted.bound[at]):.3g} off"
    return f"{int(wrong.sum())} of {wrong.numel()} elements; {list(at)} is {found[at].item()}, eager {value[at].item()}{allowed}"


def compared(wanted: list[Expected]) -> tuple[int, int]:
    """Elements that are compared, and all."""
    return sum(int((~w.bound.isnan()).sum()) for w in wanted), sum(w.value.numel() for w in wanted)
