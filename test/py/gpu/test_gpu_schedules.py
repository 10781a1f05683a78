"""Schedules for NVIDIA GPUs: every one constructed keeps the device's limits, whatever the shape; model and rules hold."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright.bench.roller_construct import spearman, workload_of
from tilewright.bench.suites import roller_rows
from tilewright.compiler.nouns.attention_cut import AttentionShape
from tilewright.compiler.nouns.schedule import GpuTile, Schedule
from tilewright.compiler.targets.occupancy import occupancy, register_limit, resident_blocks
from tilewright.compiler.targets.target import Target, resolve
from tilewright.compiler.tuning.cpu.cpu_candidates import Candidate
from tilewright.compiler.tuning.gpu.attention_tiles import attention_candidates
from tilewright.compiler.tuning.gpu.gemm_candidates import GemmChoice, gemm_choices
from tilewright.compiler.tuning.gpu.gemm_tiles import aligned_tiles, kinds
from tilewright.compiler.tuning.gpu.gpu_candidates import WINDOWS, workload_candidates
from tilewright.compiler.tuning.model.gemm_model import estimate
from tilewright.compiler.tuning.model.gemm_shape import Gemm, gemm_of, plain_gemm
from tilewright.compiler.tuning.operators import (
    batch_matmul,
    conv2d,
    depthwise_conv2d,
    matmul,
    pool2d,
    reduction,
)
from tilewright.compiler.tuning.roller.options import ConstructOptions

TARGETS = ("v100", "a100", "h100", "h200")
extents = st.one_of(st.integers(1, 70), st.sampled_from([127, 128, 197, 512, 1000, 1024, 4096, 4097, 8192]))
gemms = st.builds(
    plain_gemm,
    st.sampled_from([1, 1, 12]),
    extents,
    extents,
    extents,
    st.sampled_from(["f32", "f16", "bf16", "i8", "f64"]),
    transposed_b=st.booleans(),
)


def check_limits(gemm: Gemm, choice: GemmChoice, target: Target) -> None:
    """What any kernel must keep to on the target, from the tile alone."""
    tile = choice.tile
    if tile.kernel == "skinny":
        assert gemm.m <= 16 and tile == GpuTile("skinny")
        return
    bm, bn, bk = tile.block
    tm, tn = tile.thread or (0, 0)
    wm, wn = tile.warp or (4 * tm, 8 * tn)
    assert tile.threads % 32 == 0 and 32 <= tile.threads <= target.block_threads
    assert choice.shared_bytes <= target.level("shared").capacity_bytes
    assert choice.registers <= register_limit(target, tile.threads)
    assert resident_blocks(target, tile.threads, choice.registers, choice.shared_bytes) >= 1
    assert (bm % wm == 0 and bn % wn == 0) or tile.kernel == "simt"
    assert tile.split_k >= 1 and tile.split_k <= max(1, gemm.k)
    if tile.kernel == "wgmma":
        assert target.arch == "sm_90a"
        assert bm in (64, 128) and bn % 16 == 0 and bn <= 256
        assert tile.threads == 128 * (bm // 64 + 1)
        assert tile.instruction.startswith(f"wgmma.m64n{bn}k")
    if tile.kernel == "mma":
        assert tile.threads == 32 * (bm // wm) * (bn // wn)
        m, n, k = (16, 16, 4) if tile.instruction == "mma.m8n8k4" else (16, 8, 16)
        assert wm % m == 0 and wn % n == 0 and bk % min(k, 8 if "tf32" in tile.instruction else k) == 0
    if tile.kernel == "simt":
        assert tile.instruction == ""
        assert bm * bn == tile.threads * tm * tn
    if target.arch == "sm_70":
        assert tile.stages == 2
    assert Schedule.from_dict(Schedule(gpu=tile).as_dict()).gpu == tile


@settings(max_examples=60, deadline=None)
@given(gemms, st.sampled_from(TARGETS), st.sampled_from(["f32", "tf32"]))
@example(
    plain_gemm(1, 13, 512, 4096, "f16"), "a100", "f32"
)  # a few rows, a little slower than on matrix units
def test_every_tile_of_a_product_keeps_the_limits(gemm, name, precision):
    target = resolve(name)
    choices = gemm_choices(gemm, target, precision=precision)
    assert choices
    for choice in choices:
        check_limits(gemm, choice, target)
        assert choice.us >= target.start_us and math.isfinite(choice.us)
    assert [c.us for c in choices] == sorted(c.us for c in choices)
    assert len({c.tile for c in choices}) == len(choices)
    if gemm.dtype == "f32" and precision == "f32":
        assert {c.tile.kernel for c in choices} <= {"simt", "skinny"}, "f32 is exact unless tf32 is asked for"


@settings(max_examples=25, deadline=None)
@given(gemms, st.sampled_from(TARGETS))
def test_no_time_is_below_the_roofline(gemm, name):
    target = resolve(name)
    (best, *_) = gemm_choices(gemm, target)
    peak = max(target.peak_gflops.values())
    bandwidth = target.memory[0].bandwidth_gbps
    assert best.us * 1e3 >= gemm.flops / peak
    assert best.us * 1e3 >= gemm.nbytes / bandwidth


@pytest.mark.parametrize("name", TARGETS)
def test_all_operators_of_the_suite_get_schedules(name):
    target = resolve(name)
    for row in roller_rows():
        workload = workload_of(row)
        candidates = workload_candidates(workload, target)
        assert candidates, row["name"]
        for candidate in candidates:
            check_blocks(workload, candidate, target)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_schedules_take_milliseconds(name):
    target = resolve(name)

    def seconds(workload) -> float:
        start = time.process_time()
        workload_candidates(workload, target)
        return time.process_time() - start

    assert max(seconds(workload_of(row)) for row in roller_rows()) < 0.25


def check_blocks(workload, candidate: Candidate, target: Target) -> None:
    gpu = candidate.schedule.gpu
    assert gpu is not None and gpu.kernel
    assert gpu.threads % 32 == 0 and 32 <= gpu.threads <= target.block_threads
    tile = candidate.schedule.tile
    parallel = [workload.extents[axis] for axis in workload.parallel]
    assert len(tile) in (0, len(parallel))
    assert all(0 <= size <= extent for size, extent in zip(tile, parallel))
    if gpu.kernel in ("elementwise", "windows", "rows"):
        assert gpu.vector in (0, 4)
        assert not gpu.block
    else:
        assert len(gpu.block) == 3 and not any(tile)
    assert math.isfinite(candidate.us) and candidate.us > 0
    lengths = {len(sizes) for _, sizes in candidate.schedule.levels}
    assert len(lengths) == 1


def test_times_go_with_those_published_for_a_v100():
    """Roller's published times (OSDI'22, Table 1) on a V100 are of its own programs: ranks agree, and most magnitudes.

    Left out are M1 and M2, whose K the published programs do not divide, and depthwise convolutions, whose published
    programs stage windows in shared memory, which these kernels do not.
    """
    target = resolve("v100")
    found: dict[str, list[tuple[float, float]]] = {}
    for row in roller_rows():
        if row["name"] not in ("M1", "M2") and row["kind"] != "depthwise_conv2d":
            predicted = workload_candidates(workload_of(row), target)[0].us
            found.setdefault(row["kind"], []).append((predicted, row["v100_ms"]["roller_top10"] * 1e3))
    for kind, least in (("conv2d", 0.95), ("relu", 0.97), ("avg_pool2d", 0.9)):
        assert spearman(*zip(*found[kind])) > least, kind
    ratios = np.asarray([a / b for pairs in found.values() for a, b in pairs])
    assert np.mean(np.abs(ratios - 1) < 0.2) > 0.75
    assert 0.85 < np.exp(np.log(ratios).mean()) < 1.1


def test_small_operators_are_spread_over_the_device():
    """Blocks shrink, and K is divided, until multiprocessors have work."""
    target = resolve("h200")
    (best, *_) = gemm_choices(plain_gemm(1, 128, 128, 8192, "f32"), target)
    assert best.tile.split_k > 1
    whole = ConstructOptions(shrink=False)
    (undivided, *_) = gemm_choices(plain_gemm(1, 128, 128, 8192, "f32"), target, whole)
    assert undivided.tile.split_k == 1 and undivided.us > best.us
    candidates = workload_candidates(reduction((512, 1024), (1,)), target)
    schedule = candidates[0].schedule
    assert schedule.num_tasks((512,)) >= target.num_cores


def test_large_products_get_the_large_tiles():
    target = resolve("h200")
    (half, *_) = gemm_choices(plain_gemm(1, 8192, 8192, 8192, "f16", "f16"), target)
    assert half.tile.kernel == "wgmma" and half.tile.block == (128, 256, 64) and half.tile.cluster == 2
    assert half.tile.stages >= 4
    (single, *_) = gemm_choices(plain_gemm(1, 8192, 8192, 8192, "f32"), target)
    assert math.prod(single.tile.block[:2]) >= 128 * 128 and math.prod(single.tile.thread) >= 64


def test_what_tma_cannot_load_goes_to_mma_sync():
    """Rows of 1001 elements start at no multiple of 16 bytes."""
    target = resolve("h200")
    odd = plain_gemm(1, 1024, 1024, 1001, "f16")
    assert not odd.tensor_maps
    assert {c.tile.kernel for c in gemm_choices(odd, target)} == {"mma"}


def test_stages_end_with_a_windows_channels():
    """Boxes of 64 elements take windows of 72 channels in two steps each, of 32 in one that is half as much work."""
    target, depth = resolve("h100"), np.array([64])
    whole = plain_gemm(1, 8192, 256, 9 * 64, "f16", "f16")
    assert [int(whole.steps(kind, depth)[0]) for kind in ("wgmma", "mma")] == [9, 9]
    for channels, steps in ((64, 9), (72, 18), (32, 9)):
        gemm = replace(whole, k=9 * channels, run=channels)
        assert gemm.steps("wgmma", depth) == [steps]
        assert gemm.steps("mma", depth) == -(-9 * channels // depth)
    tiles = aligned_tiles("wgmma", "f16", target, "k", "n")
    one = np.ones(len(tiles), dtype=np.int64)

    def compute(gemm: Gemm) -> np.ndarray:
        return estimate(gemm, "wgmma", "f16", tiles, one, target).parts_us["compute"]

    assert np.allclose(compute(replace(whole, k=9 * 72, run=72)), 2 * compute(whole))
    assert np.allclose(compute(replace(whole, k=9 * 32, run=32)), compute(whole) / 2)
    assert np.array_equal(compute(replace(whole, run=64)), compute(whole))


def test_tf32_warpgroups_want_both_factors_along_k():
    target = resolve("h200")
    for transposed, kernels in ((True, "wgmma"), (False, "mma")):
        gemm = plain_gemm(1, 4096, 4096, 4096, "f32", transposed_b=transposed)
        (best, *_) = gemm_choices(gemm, target, precision="tf32")
        assert best.tile.kernel == kernels
        assert best.tile.instruction.endswith(".tf32")


def test_emitters_have_the_last_word():
    target = resolve("h200")
    gemm = plain_gemm(1, 4096, 4096, 4096, "f16")
    refused = lambda tile: tile.kernel != "wgmma"  # noqa: E731
    assert {c.tile.kernel for c in gemm_choices(gemm, target, fits=refused)} == {"mma"}


def test_a_faster_machine_is_predicted_to_be_faster():
    gemm = plain_gemm(1, 4096, 4096, 4096, "f16")
    times = [gemm_choices(gemm, resolve(name))[0].us for name in TARGETS]
    assert times[0] > times[1] > times[2] >= times[3]


def test_more_multiprocessors_never_cost_time():
    a100 = resolve("a100")
    gemm = plain_gemm(1, 2048, 2048, 2048, "f32")
    fewer = replace(a100, num_cores=54, peak_gflops={k: v / 2 for k, v in a100.peak_gflops.items()})
    assert gemm_choices(gemm, fewer)[0].us > gemm_choices(gemm, a100)[0].us


def test_partial_waves_cost_a_whole_one():
    """One block more than a wave takes nearly as long as two waves."""
    target = resolve("a100")
    tiles = aligned_tiles("simt", "f32", target, "k", "n")
    chosen = np.flatnonzero(
        (tiles.block_m == 128) & (tiles.block_n == 128) & (tiles.block_k == 16) & (tiles.stages == 3)
    )[:1]
    one = tiles.take(chosen)
    resident = int(resident_blocks(target, one.threads, one.registers, one.shared_bytes)[0])
    wave = target.num_cores * resident
    splits = np.ones(1, dtype=np.int64)
    us = [
        float(estimate(plain_gemm(1, 128 * n, 128, 4096, "f32"), "simt", "f32", one, splits, target).us[0])
        for n in (wave, wave + 1, 2 * wave)
    ]
    assert us[0] < us[1] < us[2]
    assert us[1] - us[0] > 0.4 * (us[2] - us[0]) / resident


def test_occupancy_of_known_kernels():
    """Figures of the CUDA occupancy calculator."""
    a100 = resolve("a100")
    assert occupancy(a100, 256, 128, 64 << 10) == pytest.approx(0.25)
    assert occupancy(a100, 256, 32, 0) == 1.0
    assert occupancy(resolve("v100"), 1024, 64, 0) == 0.5
    assert occupancy(resolve("h200"), 384, 168, 229_440) == pytest.approx(12 / 64)
    assert occupancy(a100, 256, 128, 200 << 10) == 0.0
    # 40 registers: 12 warps fit into a quarter of the registers, 51 would fit into all of them together.
    assert resident_blocks(a100, 96, 40, 0) == 16
    assert resident_blocks(a100, 256, 40, 0) == 6
    # 1 KB of shared memory per block is the system's: 164 KB hold two blocks of 81 KB, not of 82.
    assert resident_blocks(a100, 128, 32, 81 << 10) == 2
    assert resident_blocks(a100, 128, 32, 82 << 10) == 1
    assert resident_blocks(resolve("v100"), 128, 32, 48 << 10) == 2
    blocks = resident_blocks(a100, np.array([64, 1024, 1024, 2048]), np.array([32, 64, 65, 32]), 0)
    assert blocks.tolist() == [32, 1, 0, 0]


def test_registers_are_shared_by_the_threads_of_a_block():
    h200 = resolve("h200")
    assert register_limit(h200, 128) == 255
    assert register_limit(h200, 384) == 168
    assert register_limit(h200, 1024) == 64


def test_the_product_of_a_workload():
    gemm = gemm_of(matmul(30, 40, 50))
    assert gemm is not None
    assert (gemm.batch, gemm.m, gemm.n, gemm.k, gemm.a_major, gemm.b_major) == (1, 30, 40, 50, "k", "n")
    assert (gemm.a_vector, gemm.b_vector) == (2, 4)
    gemm = gemm_of(batch_matmul(3, 30, 40, 50))
    assert gemm is not None and (gemm.batch, gemm.m, gemm.n, gemm.k) == (3, 30, 40, 50)
    # Results of a convolution in NCHW lie along pixels: filters are the rows.
    gemm = gemm_of(conv2d(2, 16, 14, 14, 32, 3))
    assert gemm is not None and (gemm.m, gemm.n, gemm.k) == (32, 2 * 14 * 14, 16 * 9)
    assert not gemm.tensor_maps
    assert gemm_of(reduction((8, 8), (1,))) is None


@pytest.mark.parametrize("workload", [depthwise_conv2d(2, 16, 14, 14, 3), pool2d(2, 16, 14, 14, 3, 1)])
def test_windows_are_no_products(workload):
    assert workload.op in WINDOWS
    for candidate in workload_candidates(workload, resolve("h200")):
        assert candidate.schedule.gpu is not None and candidate.schedule.gpu.kernel == "windows"


def test_rows_stay_whole():
    schedule = workload_candidates(reduction((333, 77), (1,)), resolve("a100"))[0].schedule
    assert len(schedule.tile) == 1
    assert schedule.gpu is not None and schedule.gpu.kernel == "rows"


@settings(max_examples=30, deadline=None)
@given(
    st.builds(
        AttentionShape,
        st.sampled_from([1, 12, 96]),
        st.integers(1, 2048),
        st.integers(1, 2048),
        st.sampled_from([32, 40, 64, 80, 128]),
        st.sampled_from([32, 64, 128]),
        st.booleans(),
    ),
    st.sampled_from(["f32", "f16", "bf16"]),
    st.sampled_from(TARGETS),
)
def test_attention_blocks_keep_the_limits(shape, dtype, name):
    target = resolve(name)
    if dtype not in target.peak_gflops:
        dtype = "f32"
    candidates = attention_candidates(shape, dtype, target)
    assert candidates
    for candidate in candidates:
        gpu = candidate.schedule.gpu
        assert gpu is not None and gpu.kernel == "attention" and len(gpu.block) == 2
        rows, columns = gpu.block
        item = {"f32": 4}.get(dtype, 2)
        held = item * (rows * shape.inner + 2 * columns * (shape.inner + shape.width))
        assert held <= target.level("shared").capacity_bytes
        if gpu.instruction:
            assert rows % 16 == 0 and rows in (gpu.threads // 2, gpu.threads)
            assert dtype in ("f16", "bf16") and target.arch != "sm_70"


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [
        (AttentionShape(12, 512, 512, 64, 64, False), "wgmma"),
        (AttentionShape(32, 2048, 2048, 128, 128, True), "wgmma"),
        (AttentionShape(16, 1024, 1024, 256, 256, True), "wgmma"),
        (AttentionShape(12, 32, 512, 64, 64, False), "attention"),
        (AttentionShape(4, 64, 64, 32, 32, False), "attention"),
    ],
)
def test_attention_on_warpgroups_where_it_is_expected_faster(shape, kernel):
    """Long sequences; few queries would leave half of a warpgroup's rows unwanted, and short ones fill no pipeline."""
    h100 = resolve("h100")
    first = attention_candidates(shape, "bf16", h100, warpgroups=True)[0].schedule.gpu
    assert first is not None and first.kernel == kernel
    every = attention_candidates(shape, "bf16", h100, 200, warpgroups=True)
    for gpu in (candidate.schedule.gpu for candidate in every):
        assert gpu is not None
        if gpu.kernel == "wgmma":
            rows, columns = gpu.block
            assert rows % 64 == 0 and rows < 2 * shape.rows and gpu.threads == 2 * rows + 128
            held = 2 * (rows * shape.inner + 2 * columns * (shape.inner + shape.width))
            assert held <= h100.level("shared").capacity_bytes


def test_matrix_units_are_those_of_the_architecture():
    assert kinds(resolve("v100"), "f16") == ("volta",)
    assert kinds(resolve("v100"), "bf16") == ("simt",)
    assert kinds(resolve("a100"), "bf16") == ("mma",)
    assert kinds(resolve("h100"), "bf16") == ("wgmma", "mma")
    assert kinds(resolve("h100"), "f32") == ("simt",)
    assert isinstance(gemm_choices(plain_gemm(1, 64, 64, 64, "i8"), resolve("a100"))[0].tile, GpuTile)
