"""Programs of a few lines for tests of the fuzzer, and what its oracle makes of them."""

from __future__ import annotations

import torch
from fuzz.oracle import expected
from fuzz.program import Program, Statement
from fuzz.tensors import Tensor


def program(*lines: str, rounding: str = "once", **inputs: Tensor) -> Program:
    """A program of lines `v0 = ...`, returning what the last one makes."""
    parts = [line.partition(" = ") for line in lines]
    statements = [Statement((target,), source, rounding) for target, _, source in parts]
    return Program(1, tuple(inputs.values()), (), tuple(statements), (parts[-1][0],))


def of(name: str, shape: tuple[int, ...] = (3, 4), dtype: str = "float32", fill: str = "normal") -> Tensor:
    return Tensor(name, shape, dtype, fill)


def bound_of(made: Program) -> tuple[torch.Tensor, torch.Tensor]:
    want = expected(made, lambda: made.build(made.seed))[0]
    return want.value, want.bound
