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
BATCHES = 4
CASES = 6


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", KINDS)
def test_random_shapes(kind: str, batch: int) -> None:
    """Odd batches are cut into as many rTasks as there is work for, so that small shapes exercise ragged cuts."""
    cases = [KINDS[kind](Draw.seeded(f"{kind} {batch} {number}")) for number in range(CASES)]
    check(cases, finely if batch % 2 else None)
