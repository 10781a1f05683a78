"""The registry of small PyTorch functions and modules with their inputs: what the front end must take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch


@dataclass(frozen=True)
class Case:
    """`make()` gives (function or module, positional arguments); seeded by the name."""

    name: str
    make: Callable[[], tuple]
    tolerance: float = 1e-4


CASES: dict[str, Case] = {}


def randn(*shape: int, dtype=torch.float32) -> torch.Tensor:
    """Random numbers of any dtype; small integers for integer dtypes."""
    if dtype == torch.bool:
        return torch.rand(shape) > 0.5
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.randint(0 if dtype == torch.uint8 else -9, 10, shape, dtype=dtype)
    return torch.randn(shape, dtype=dtype)


def case(name: str, function, *shapes, dtype=torch.float32, tolerance: float | None = None) -> None:
    """Adds a function of tensors with these shapes."""
    tolerance = tolerance or (2e-2 if dtype in (torch.float16, torch.bfloat16) else 1e-4)
    made(name, lambda: (function, tuple(randn(*s, dtype=dtype) for s in shapes)), tolerance)


def module(name: str, build, *shapes, tolerance: float = 1e-4, dtype=torch.float32) -> None:
    """Adds an nn.Module in evaluation mode."""
    made(name, lambda: (build().eval(), tuple(randn(*s, dtype=dtype) for s in shapes)), tolerance)


def made(name: str, make, tolerance: float = 1e-4) -> None:
    """Adds a case whose function and inputs are made together."""
    assert name not in CASES, name
    CASES[name] = Case(name, make, tolerance)


def every_case() -> dict[str, Case]:
    """All cases by name, from every table."""
    for table in ("operators", "indexing", "products", "models"):
        import_module(f"torch_cases_{table}")
    return CASES
