"""rTask tiles on CPUs are legal, aligned, the best by the model, and what the model says follows from the machine."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright.compiler.nouns.cut_space import CutSpace, RegisterLoops
from tilewright.compiler.nouns.quasi_affine import QuasiAffine, Term
from tilewright.compiler.nouns.workload import Axis, Operand, Workload
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.cpu.cpu_candidates import EPSILON, FEWEST, cpu_candidates, register_tiles
from tilewright.compiler.tuning.cpu.rtask_tiles import CpuModel, aligned_tiles, pieces, transposing_tile
from tilewright.compiler.tuning.model.rtask_times import streams
from tilewright.compiler.tuning.roller import ConstructOptions

TARGET = resolve("x86-64-v4")
sizes = st.integers(1, 256)


def matmul(m: int, n: int, k: int) -> Workload:
    """C[m, n] += A[m, k] * B[k, n] in f32."""

    def index(*axes: int) -> tuple[QuasiAffine[int], ...]:
        return tuple(QuasiAffine((Term(axis),)) for axis in axes)

    return Workload(
        "matmul",
        (Axis("m", m), Axis("n", n), Axis("k", k, "reduction")),
        (
            Operand("a", (m, k), "f32", index(0, 2)),
            Operand("b", (k, n), "f32", index(2, 1)),
            Operand("c", (m, n), "f32", index(0, 1), output=True),
        ),
    )


def space(m: int, n: int, step: int = 1, exact: bool = False) -> CutSpace:
    registers = RegisterLoops(0, 1, m, n, (step,) if step > 1 else None)
    return CutSpace((m, n), (0, 1), (0, 1), (1, step), exact, registers)


def total(extents: tuple[int, ...], tile: tuple[int, ...]) -> int:
    return math.prod(-(-e // (s or e)) for e, s in zip(extents, tile))


@given(st.integers(1, 3000), st.integers(1, 300), st.booleans())
def test_pieces_of_a_loop(extent, step, exact):
    found = pieces(extent, step, exact)
    assert found[0] == extent
    assert found == sorted(set(found), reverse=True)
    assert all(1 <= size <= extent for size in found)
    if exact:
        assert all(extent % size == 0 for size in found)
    if not exact or extent % step == 0:
        assert all(size % step == 0 for size in found[1:]) or step == 1


@given(st.integers(1, 3000))
def test_free_pieces_are_even(extent):
    """One task more always makes the tile smaller, and the last tile overlaps its neighbour by less than a task."""
    for size in pieces(extent, 1, False):
        assert size == -(-extent // -(-extent // size))


@settings(max_examples=50, deadline=None)
@given(sizes, sizes, sizes, st.sampled_from([1, 16, 48]), st.booleans())
def test_candidates_are_legal(m, n, k, step, exact):
    n = -(-n // step) * step
    found = cpu_candidates(matmul(m, n, k), space(m, n, step, exact), TARGET, ConstructOptions())
    assert 1 <= len(found) <= 10
    for candidate in found:
        tile = candidate.schedule.tile
        assert all(0 <= size < extent or extent == 1 for size, extent in zip(tile, (m, n)))
        assert tile[1] % step == 0
        assert not exact or all(size == 0 or extent % size == 0 for size, extent in zip(tile, (m, n)))
        names = [name for name, _ in candidate.schedule.levels]
        assert names == ["L1", "L2", "L3", "registers"]
        assert candidate.us > 0
        assert candidate.bound in ("compute", "L1", "L2", "L3", "DRAM")
    assert len({c.schedule for c in found}) == len(found)


@settings(max_examples=20, deadline=None)
@example(2, 13, 17)
@given(st.integers(1, 8), st.integers(1, 24), st.integers(1, 24))
def test_the_first_is_the_best_of_all_grids(cores, rows, blocks):
    """For loops with few divisions nothing is left out of the comparison."""
    target = replace(TARGET, num_cores=cores)
    workload, cut = matmul(rows, blocks * 16, 256), space(rows, blocks * 16, 16)
    first = cpu_candidates(workload, cut, target, ConstructOptions())[0]
    grids = np.asarray(list(itertools.product(pieces(rows, 1, False), pieces(blocks * 16, 16, False))))
    grids = grids[(-np.asarray(cut.extents) % grids <= 0.05 * np.asarray(cut.extents)).all(axis=1)]
    model = CpuModel(workload, cut, target)
    us, _, _ = model.predict(grids)
    # Grids of too many tasks are no candidates; while too few are left, more is computed twice.
    if len(aligned_tiles(cut, model.most_tasks(), EPSILON)) >= FEWEST:
        assert first.us == pytest.approx(us.min(), abs=1e-3)
    else:
        assert first.us <= us.min() + 1e-3


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 64))
def test_levels_grow_outwards(m, n, k):
    """What a level holds contains what the faster ones hold, and fits."""
    workload, cut = matmul(8 * m, 16 * n, k), space(8 * m, 16 * n, 16)
    model = CpuModel(workload, cut, TARGET)
    for candidate in cpu_candidates(workload, cut, TARGET, ConstructOptions()):
        levels = dict(candidate.schedule.levels)
        for inner, outer in itertools.pairwise(("registers", "L1", "L2", "L3")):
            assert all(a <= b for a, b in zip(levels[inner], levels[outer]))
        for name in ("L1", "L2", "L3"):
            held = model.geometry.nbytes(np.asarray([levels[name]])).sum()
            assert held <= TARGET.level(name).capacity_bytes / 2 or levels[name] == levels["registers"]


def test_large_products_keep_all_cores_busy():
    for cores in (1, 2, 3, 8, 64):
        target = replace(TARGET, num_cores=cores)
        found = cpu_candidates(matmul(2048, 2048, 2048), space(2048, 2048, 64), target, ConstructOptions())
        tasks = total((2048, 2048), found[0].schedule.tile)
        assert tasks / (-(-tasks // cores) * cores) >= 0.85


def test_small_products_stay_whole():
    target = replace(TARGET, start_us=2.0)
    found = cpu_candidates(matmul(16, 16, 16), space(16, 16), target, ConstructOptions())
    assert found[0].schedule.tile == (0, 0)


@given(st.integers(1, 512), st.integers(1, 512), st.integers(1, 512))
@settings(deadline=None)
def test_faster_machines_need_less_time(m, n, k):
    workload, cut, grid = matmul(m, n, k), space(m, n), np.asarray([[m, n]])
    base = CpuModel(workload, cut, TARGET).predict(grid)[0][0]
    peak = {name: 2 * value for name, value in TARGET.peak_gflops.items()}
    wide = tuple(replace(level, bandwidth_gbps=2 * level.bandwidth_gbps) for level in TARGET.memory)
    assert base > 0
    assert CpuModel(workload, cut, replace(TARGET, peak_gflops=peak)).predict(grid)[0][0] <= base
    assert CpuModel(workload, cut, replace(TARGET, memory=wide)).predict(grid)[0][0] <= base


@given(st.integers(1, 64), st.integers(1, 256), st.sampled_from([8, 16]), st.sampled_from([16, 32]))
def test_register_tiles_leave_no_spills(rows, columns, lanes, registers):
    for tile in register_tiles(rows, columns, lanes, registers, None):
        vectors = -(-tile.vector // lanes)
        assert tile.unroll * vectors + vectors + 1 <= registers
        assert tile.unroll <= rows


def test_rules_that_are_off_ask_for_nothing():
    workload, cut = matmul(64, 480, 64), space(64, 480, 48)
    rules = frozenset(ConstructOptions().rules)
    free = cpu_candidates(workload, cut, TARGET, ConstructOptions(rules=rules - {"memory_transaction"}))
    assert any(candidate.schedule.tile[1] % 48 for candidate in free)
    scalar = cpu_candidates(workload, cut, TARGET, ConstructOptions(rules=rules - {"execution_unit"}))
    assert {(c.schedule.unroll, c.schedule.vector) for c in scalar} == {(1, 48)}


def test_tiles_of_transposes_use_whole_cache_lines():
    assert transposing_tile((512, 512), (1, 0), 32) == (32, 32)
    assert transposing_tile((512, 512), (0, 1), 32) is None
    cut = CutSpace((512, 512), (0, 1), (0, 1), (1, 1), False, transposed=(1, 0))
    assert cpu_candidates(matmul(512, 512, 1), cut, TARGET, ConstructOptions())[0].schedule.tile == (32, 32)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 64), st.integers(1, 64), st.floats(0, 1))
def test_tiles_overlap_by_at_most_epsilon(m, n, epsilon):
    for tile in aligned_tiles(space(m, n), 10**9, epsilon):
        assert all(-(-e // s) * s - e <= epsilon * e for e, s in zip((m, n), tile))


def test_grids_have_at_most_so_many_tasks():
    for tile in aligned_tiles(space(256, 256), 10):
        assert total((256, 256), tuple(tile)) <= 10


def softmax(rows: int, width: int) -> tuple[Workload, CutSpace]:
    """Four passes over rows: x to a maximum, x to e, e to a sum, e to y."""
    whole, row = (QuasiAffine((Term(0),)), QuasiAffine((Term(1),))), (QuasiAffine((Term(0),)),)
    x, e, y = (Operand(name, (rows, width), "f32", whole, name == "y") for name in "xey")
    top, total = (Operand(name, (rows,), "f32", row) for name in ("top", "total"))
    axes = (Axis("m", rows), Axis("n", width))
    passes = ((x, top), (x, top, e), (e, total), (e, total, y))
    return Workload("softmax", axes, (x, y), 6.0), CutSpace(
        (rows, width), (0, 1), (0,), (1, width), False, passes=passes
    )


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "sapphire-rapids"])
@pytest.mark.parametrize(
    "rows, width", [(4096, 4096), (8192, 768), (1536, 128), (64, 40_000), (64, 10_000_000)]
)
def test_what_several_passes_walk_stays_in_a_private_cache(target, rows, width):
    machine = resolve(target)
    workload, cut = softmax(rows, width)
    first, *_ = cpu_candidates(workload, cut, machine, ConstructOptions())
    taken = first.schedule.tile[0] or rows
    largest = max(level.capacity_bytes for level in machine.memory if level.shared_by == 1)
    # A result that is stored past the caches takes no room.
    row_bytes = (2 if streams(workload.nbytes, machine) else 3) * 4 * (width + 1)
    assert taken * row_bytes <= largest or row_bytes * min(4, rows) > largest
    # Without passes whole images of the cache are streamed once, in larger rTasks.
    streamed, *_ = cpu_candidates(workload, replace(cut, passes=()), machine, ConstructOptions())
    assert taken <= (streamed.schedule.tile[0] or rows)
