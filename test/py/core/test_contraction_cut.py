"""Cuts of contractions are legal, balanced, and the best of the grids by their own estimate."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.tuning.contraction_cut import (
    ContractionCut,
    Machine,
    cut_contraction,
    estimate_us,
)
from tilewright.compiler.tuning.cut import pieces, total

MACHINE = Machine(cores=4, lanes=16, registers=32, gflops=400.0, shared_gbps=80.0, private_bytes=512 * 1024)


def matmul(m: int, n: int, k: int, step: int = 1, exact: bool = False) -> ContractionCut:
    """C[m, n] += A[m, k] * B[k, n] in f32, `step` columns to a block of B."""
    return ContractionCut(
        extents=(m, n),
        loops=(0, 1),
        steps=(1, step),
        exact=exact,
        flops=2.0 * m * n * k,
        footprint=lambda tile: (4.0 * tile[0] * k, 4.0 * (k * tile[1] + tile[0] * tile[1])),
        unroll=0,
        vector=1,
        widths=(step,) if step > 1 else None,
    )


sizes = st.integers(1, 256)


@settings(max_examples=30, deadline=None)
@given(sizes, sizes, sizes, st.integers(1, 32), st.booleans())
def test_cuts_are_legal(m, n, k, max_tasks, exact):
    tile = cut_contraction(matmul(m, n, k, exact=exact), MACHINE, 1e4, max_tasks)
    assert all(0 <= size < extent for size, extent in zip(tile, (m, n)))
    assert total((m, n), tile) <= max(1, min(max_tasks, int(2.0 * m * n * k / 1e4)))
    if exact:
        assert all(size == 0 or extent % size == 0 for size, extent in zip(tile, (m, n)))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 8), st.integers(1, 24), st.integers(1, 24))
def test_it_is_the_best_of_all_grids(cores, rows, blocks):
    """For loops with few divisions nothing is left out of the comparison."""
    machine = replace(MACHINE, cores=cores)
    problem = matmul(rows, blocks * 16, 256, step=16)
    chosen = cut_contraction(problem, machine, 1.0, 10**6)
    full = tuple(size or extent for size, extent in zip(chosen, problem.extents))
    grids = itertools.product(pieces(rows, 1, False), pieces(blocks * 16, 16, False))
    best = min(estimate_us(problem, machine, grid) for grid in grids)
    assert estimate_us(problem, machine, full) == best


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 40), st.integers(2, 8))
def test_tiles_are_whole_blocks_of_packed_weights(blocks, cores):
    machine = replace(MACHINE, cores=cores)
    tile = cut_contraction(matmul(512, 48 * blocks, 512, step=48), machine, 5e5, 128)
    assert tile[1] % 48 == 0


def test_large_products_keep_all_cores_busy():
    for cores in (1, 2, 3, 8, 64):
        problem = matmul(2048, 2048, 2048, step=64)
        tasks = total(problem.extents, cut_contraction(problem, replace(MACHINE, cores=cores), 5e5, 4096))
        busiest = -(-tasks // cores)
        assert tasks / (busiest * cores) >= 0.85


def test_small_products_stay_whole():
    assert cut_contraction(matmul(16, 16, 16), MACHINE, 5e5, 128) == (0, 0)


@given(st.integers(1, 512), st.integers(1, 512), st.integers(1, 512))
def test_faster_machines_need_less_time(m, n, k):
    problem = matmul(m, n, k)
    base = estimate_us(problem, MACHINE, (m, n))
    assert base > 0
    assert estimate_us(problem, replace(MACHINE, gflops=800.0), (m, n)) <= base
    assert estimate_us(problem, replace(MACHINE, shared_gbps=160.0), (m, n)) <= base
    assert estimate_us(problem, replace(MACHINE, private_bytes=10**9), (m, n)) <= base
