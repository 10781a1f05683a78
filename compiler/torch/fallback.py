"""Counts and reports the operators that ran in eager PyTorch instead of compiled code."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from tilewright.compiler.errors import UnsupportedOperator

_ran = 0
_reported: set[tuple[str, str]] = set()


class FallbackWarning(UserWarning):
    """Operators run in eager PyTorch because they cannot be compiled; lists each with its source line."""


def fallback_count() -> int:
    """Operators that ran in eager PyTorch since the process started, every execution counted."""
    return _ran


def count(operators: int) -> None:
    """Adds operators that have just run in eager PyTorch."""
    global _ran
    _ran += operators


def warn(operators: Iterable[UnsupportedOperator]) -> None:
    """One warning that lists the operators not reported before; none when all were."""
    new = []
    for entry in operators:
        key = (entry.operator, entry.location)
        if key not in _reported:
            _reported.add(key)
            new.append(entry)
    if new:
        lines = "\n".join(f"  - {entry}" for entry in new)
        warnings.warn(f"{len(new)} operator(s) run in eager PyTorch:\n{lines}", FallbackWarning, stacklevel=2)
