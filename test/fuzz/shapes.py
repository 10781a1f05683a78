"""The shape, dtype and kind of values that every variable of a program has."""

from __future__ import annotations

import torch

from fuzz.generator import dtype_of
from fuzz.program import Program
from fuzz.wide_run import Run


def forms(program: Program) -> dict[str, tuple[tuple[int, ...], str, str]]:
    """Shape, dtype and fill by name, of what eager PyTorch comes to."""
    run = Run(program, program.build(program.seed))
    with torch.no_grad():
        for statement in program.statements:
            try:
                run.step(statement)
            except (RuntimeError, IndexError, TypeError, ValueError):
                break
    made = {}
    for statement in program.statements:
        for name in statement.targets:
            value = run.names.get(name)
            if isinstance(value, torch.Tensor):
                special = value.is_floating_point() and not bool(value.isfinite().all())
                made[name] = (tuple(value.shape), dtype_of(value), "special" if special else "normal")
    return made
