"""The micro-performance model on workloads written by hand: footprints, traffic, monotonicity, indifference to names."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.nouns.quasi_affine import QuasiAffine, Term
from tilewright.compiler.nouns.schedule import Reduction, Schedule
from tilewright.compiler.nouns.workload import Axis, Operand, Workload
from tilewright.compiler.targets.target import Target, resolve
from tilewright.compiler.tuning.model.cpu_features import UNITS, cpu_features
from tilewright.compiler.tuning.model.footprints import kept_pages
from tilewright.compiler.tuning.model.micro_performance import predict
from tilewright.compiler.tuning.model.statements import axes_of, read_index, read_statements

X86 = resolve("x86-64-v4")
SUM = "arith.mulf(x0, x1) -> v3 : f32; arith.addf(x2, v3) -> v4 : f32; linalg.yield(v4)"


def plain(*axes: int) -> tuple[QuasiAffine[int], ...]:
    return tuple(QuasiAffine((Term(axis),)) for axis in axes)


def product(m: int, n: int, k: int, order: tuple[int, int, int] = (0, 1, 2), names: str = "mnk") -> Workload:
    """A[m, k] B[k, n]; `order` are the numbers of the axes m, n and k."""
    i, j, r = order
    axes = dict(zip(order, zip(names, (m, n, k), ("parallel", "parallel", "reduction"))))
    operands = (
        Operand("a", (m, k), "f32", plain(i, r)),
        Operand("b", (k, n), "f32", plain(r, j)),
        Operand("c", (m, n), "f32", plain(i, j), output=True),
    )
    body = f"%0[a{i}, a{j}, +a{r}] = (in0, in1, 0.0 : f32) {SUM} : tensor<{m}x{n}xf32>"
    return Workload("matmul", tuple(Axis(*axes[a]) for a in range(3)), operands, 2.0, 0.0, body)


def tiled(
    m: int, n: int, unroll: int = 4, vector: int = 16, order: tuple[int, int, int] = (0, 1, 2)
) -> Schedule:
    tile = [0, 0, 0]
    tile[order[0]], tile[order[1]] = m, n
    return Schedule(tuple(tile), reductions=(Reduction("products", (unroll, vector)),))


def test_footprints_are_those_of_the_data_tiles() -> None:
    found = cpu_features(product(64, 96, 128), [tiled(16, 32), tiled(0, 0)], X86)
    assert found["footprint.in0"].tolist() == [16 * 128 * 4, 64 * 128 * 4]
    assert found["footprint.in1"].tolist() == [128 * 32 * 4, 128 * 96 * 4]
    assert found["footprint.out"].tolist() == [16 * 32 * 4, 64 * 96 * 4]
    assert found["tasks"].tolist() == [4 * 3, 1]
    assert found["run.in1"].tolist() == [32 * 4, 128 * 96 * 4]
    assert found["line_use.in1"].tolist() == [1.0, 1.0]


def test_pages_are_looked_for_again_where_more_rows_than_are_kept_come_between() -> None:
    """16 rows of register tiles by 21 columns of them pass 4,032 rows, each in a page of its own but for a few."""
    workload, (whole,) = product(128, 1000, 4032), [tiled(0, 0, 8, 48)]
    (said,) = whole.reductions
    blocks = [replace(whole, reductions=(replace(said, depth=depth),)) for depth in (0, 1344, 2016)]
    walks = cpu_features(workload, blocks, X86)["walks"]
    rows = 4032 * 4000 / 4096
    assert 0.99 < walks[0] / (16 * 21 * rows) < 1.01 + 8 * 4 / rows
    assert walks[1] < 0.1 * walks[0] < walks[2]
    assert predict(workload, blocks, X86).us.argmin() == 1
    # A packed operand is the runtime's, in large pages; 1,024 rows are kept.
    assert not cpu_features(product(128, 1000, 1024), [tiled(0, 0, 8, 48)], X86)["walks"]


def test_of_rows_that_are_pages_apart_fewer_addresses_are_kept() -> None:
    """Of rows 16 KiB apart a quarter: 384 are kept of 1,536."""
    assert kept_pages(np.asarray([0, 64, 4096, 4000, 8192, 16384, 1 << 20])).tolist() == [
        *(1536, 1536, 1536, 1536, 768, 384, 12)
    ]
    assert kept_pages(np.asarray([16384]), 8192).tolist() == [768]
    (whole,) = [tiled(0, 0, 4, 16)]
    (said,) = whole.reductions
    blocks = [replace(whole, reductions=(replace(said, depth=depth),)) for depth in (1024, 512, 256)]
    walks = cpu_features(product(32, 4096, 4096), blocks, X86)["walks"]
    # Each of 8 rows of register tiles passes 256 panels of 4,096 rows.
    assert walks[0] > 7 * 256 * 4096 and walks[1] == pytest.approx(walks[0], rel=1e-3)
    assert walks[2] < 0.1 * walks[0]


def test_instructions_are_those_of_the_register_tile() -> None:
    """4 x 2 vectors of sums: per step of 128 eight multiply-adds, four broadcasts and two loads."""
    found = cpu_features(product(64, 96, 128), [tiled(16, 32, 4, 32)], X86)
    tiles = 16 // 4
    assert found["arithmetic"][0] == tiles * 128 * 8
    assert found["loads"][0] == tiles * 128 * (4 + 2)
    assert found["stores"][0] == tiles * 8
    assert found["registers"][0] == 8 + 2 + 1
    assert found["stalled"][0] == found["spilled"][0] == 0
    assert found["utilisation"][0] == 1.0


def test_ragged_tiles_and_narrow_vectors_waste_lanes_and_time() -> None:
    whole, narrow, ragged = (16, 32, 4, 32), (16, 32, 4, 8), (16, 32, 4, 24)
    found = cpu_features(product(64, 96, 128), [tiled(*sizes) for sizes in (whole, narrow, ragged)], X86)
    assert found["utilisation"].tolist() == [1.0, 0.5, 2 / 3]
    us = predict(product(64, 96, 128), [tiled(*sizes) for sizes in (whole, narrow, ragged)], X86).us
    assert us[0] < us[2] and us[0] < us[1]


def test_one_sum_waits_and_too_many_spill() -> None:
    found = cpu_features(
        product(64, 96, 512), [tiled(0, 0, u, v) for u, v in ((1, 16), (8, 16), (16, 48))], X86
    )
    assert found["stalled"][0] > 0 and found["stalled"][1] == 0
    assert found["spilled"].tolist()[:2] == [0, 0] and found["spilled"][2] > 0


def test_what_fits_a_cache_is_loaded_once_and_what_does_not_is_loaded_again() -> None:
    work = product(256, 256, 256)
    caches = [replace(X86, memory=tuple(replace(m, capacity_bytes=c if m.name == "L1" else m.capacity_bytes) for m in X86.memory)) for c in (1 << 30, 4096)]  # fmt: skip
    once, again = (cpu_features(work, [tiled(0, 0)], target)["traffic.L1"][0] for target in caches)
    assert once == 256 * 256 * 4 * (1 + 1 + 2)
    assert again > 4 * once


def test_rows_that_share_a_set_evict_each_other() -> None:
    """Of a transposition in squares of 8, half a line each, whose source's rows lie 4 KiB apart, and elsewhere."""
    found, narrow = [], resolve("x86-64-v3")
    for width in (1024, 1040):
        operands = (
            Operand("x", (width, width), "f32", plain(1, 0)),
            Operand("y", (width, width), "f32", plain(0, 1), output=True),
        )
        body = f"%0[a0, a1] = (in0, undefined) linalg.yield(x0) : tensor<{width}x{width}xf32>"
        work = Workload("elementwise", (Axis("i", width), Axis("j", width)), operands, 0.0, 0.0, body)
        found.append(cpu_features(work, [Schedule((16, 104))], narrow)["traffic.L1.in0"][0])
    assert found[0] == 2 * found[1]


def doubled(count: int) -> Workload:
    operands = (
        Operand("x", (count,), "f32", plain(0)),
        Operand("y", (count,), "f32", plain(0), output=True),
    )
    body = f"%0[a0] = (in0, undefined) arith.addf(x0, x0) -> v2 : f32; linalg.yield(v2) : tensor<{count}xf32>"
    return Workload("elementwise", (Axis("i", count),), operands, 1.0, 0.0, body)


def test_streamed_results_pass_the_caches() -> None:
    found = cpu_features(doubled(1 << 20), [Schedule((4096,)), Schedule((4096,), stream=True)], X86)
    assert found["streamed"].tolist() == [0, 4096 * 4]
    assert found["traffic.L2.out"][1] == 0 < found["traffic.L2.out"][0]


def test_streaming_pays_where_caches_keep_nothing() -> None:
    last = X86.level("L3").capacity_bytes
    fits, exceeds = last // 16, last * 4
    for count, pays in ((fits, False), (exceeds, True)):
        kept, streamed = predict(doubled(count), [Schedule((4096,)), Schedule((4096,), stream=True)], X86).us
        assert (streamed < kept) == pays, count


def test_every_column_has_a_unit() -> None:
    found = cpu_features(product(64, 96, 128), [tiled(16, 32)], X86)
    assert all(found.unit(name) for name in found.columns)
    assert {name.partition(".")[0] for name in found.columns} == set(UNITS)


SIZES = st.tuples(st.integers(1, 200), st.integers(4, 200), st.integers(1, 300))


@st.composite
def products(draw) -> tuple[tuple[int, int, int], tuple[int, int, int, int]]:
    m, n, k = draw(SIZES)
    tile = draw(st.integers(1, m)), draw(st.integers(4, n))
    return (m, n, k), (*tile, draw(st.integers(1, 12)), draw(st.integers(1, 64)))


@settings(max_examples=40, deadline=None)
@given(products())
def test_names_and_numbers_of_axes_do_not_matter(case) -> None:
    (m, n, k), sizes = case
    expected = cpu_features(product(m, n, k), [tiled(*sizes)], X86).columns
    others = (
        (product(m, n, k, names="xyz"), tiled(*sizes)),
        (product(m, n, k, (2, 0, 1)), tiled(*sizes, order=(2, 0, 1))),
        (product(m, n, k, (1, 2, 0)), tiled(*sizes, order=(1, 2, 0))),
    )
    for work, schedule in others:
        found = cpu_features(work, [schedule], X86).columns
        assert list(found) == list(expected)
        for name in found:
            np.testing.assert_allclose(found[name], expected[name], err_msg=name)


def faster(target: Target, level: str | None) -> Target:
    """Twice as fast at one thing: one level's bandwidth, or arithmetic."""
    if level is None:
        return replace(target, peak_gflops={name: 2 * value for name, value in target.peak_gflops.items()})
    memory = (replace(m, bandwidth_gbps=m.bandwidth_gbps * (1 + (m.name == level))) for m in target.memory)
    return replace(target, memory=tuple(memory))


@settings(max_examples=40, deadline=None)
@given(products())
def test_faster_machines_are_never_slower_and_bounds_are_what_helps(case) -> None:
    (m, n, k), sizes = case
    work, schedule = product(m, n, k), tiled(*sizes)
    before = predict(work, [schedule], X86)
    for level in (None, "L1", "L2", "L3", "DRAM"):
        after = predict(work, [schedule], faster(X86, level)).us[0]
        assert after <= before.us[0] * (1 + 1e-9), level
    named = {"compute": None, "registers": "L1"}
    helped = predict(work, [schedule], faster(X86, named.get(before.bound[0], before.bound[0]))).us[0]
    assert helped < before.us[0]


@settings(max_examples=40, deadline=None)
@given(SIZES, st.integers(1, 8))
def test_more_work_of_the_same_kind_takes_longer(shape, times) -> None:
    m, n, k = shape
    us = [predict(product(m, n, k * count), [tiled(0, 0)], X86).us[0] for count in (1, 1 + times)]
    assert us[0] < us[1]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.builds(Term, st.integers(0, 9), st.integers(1, 5), st.integers(1, 64), st.integers(0, 64)),
        max_size=3,
    ),
    st.integers(0, 9),
)
def test_indices_are_read_as_they_are_written(terms: list[Term], offset: int) -> None:
    index = QuasiAffine(tuple(terms), offset)
    assert read_index(index.text()) == index


@pytest.mark.parametrize("text", ["%0[a0 = (in0)", "%0[a0] = in0"])
def test_bodies_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a line of a body"):
        read_statements(replace(product(2, 2, 2), body=text))


def test_statements_know_their_loops_and_what_changes_along_them() -> None:
    (statement,) = read_statements(product(8, 8, 8))
    assert statement.loops == (0, 1, 2) and statement.reduction == (2,)
    assert [axes_of(o) for o in statement.reads] == [(0, 2), (2, 1)]
    assert [op.name for op in statement.varying(1)] == ["mulf", "addf"]
