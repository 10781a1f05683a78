"""Decompositions of operators that move elements or address them by number, for whatever torch-mlir lacks."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten


def roll(x, shifts, dims=()):
    """`x` with its elements moved on, those beyond the end to the front: two slices per dimension, joined.

    Shifts count modulo the extent; torch-mlir takes them as they are, and slices out of bounds.
    """
    shifts = [shifts] if isinstance(shifts, int) else shifts
    dims = [dims] if isinstance(dims, int) else dims
    if not dims:
        return roll(x.reshape(-1), shifts, [0]).reshape(x.shape)
    for shift, dim in zip(shifts, dims):
        extent = x.shape[dim]
        moved = shift % extent if extent else 0
        if moved:
            parts = x.narrow(dim, extent - moved, moved), x.narrow(dim, 0, extent - moved)
            x = torch.cat(parts, dim)
    return x.clone()


TABLE: dict[Any, Any] = {
    aten.roll.default: roll,
}
"""Operator -> decomposition; a decomposition returns NotImplemented for what it does not cover."""
