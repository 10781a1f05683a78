"""Kernels of every kind of operation on random shapes, against eager PyTorch."""

from __future__ import annotations

import kernel_chains
import kernel_contractions
import kernel_elementwise
import kernel_movement
import kernel_reductions
import pytest
from kernel_checks import check, finely
from kernel_draws import Draw

KINDS = {
    **kernel_contractions.KINDS,
    **kernel_reductions.KINDS,
    **kernel_movement.KINDS,
    **kernel_elementwise.KINDS,
    **kernel_chains.KINDS,
}
CASES = 4
BATCHES = [0, 1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("kind", KINDS)
def test_random_shapes(kind: str, batch: int) -> None:
    """Odd batches are cut into as many rTasks as there is work for, so that small shapes exercise ragged cuts."""
    cases = [KINDS[kind](Draw.seeded(f"{kind} {batch} {number}")) for number in range(CASES)]
    check(cases, finely if batch % 2 else None)
