"""Constructed programs are valid on every target: nested, aligned, within capacities; and the same every time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.nouns.quasi_affine import QuasiAffine, Term
from tilewright.compiler.nouns.workload import Axis, Operand, Workload
from tilewright.compiler.targets.target import PRESETS, Target, resolve
from tilewright.compiler.tuning import operators
from tilewright.compiler.tuning.roller import ConstructOptions, Program, RTile, construct
from tilewright.compiler.tuning.roller.alignment import Space
from tilewright.compiler.tuning.roller.device import Device
from tilewright.compiler.tuning.roller.performance import Performance

TARGETS = [name for name in PRESETS if name != "cpu"]

WORKLOADS = {
    "matmul": operators.matmul(512, 384, 256),
    "ragged matmul": operators.matmul(100, 77, 53),
    "batch matmul": operators.batch_matmul(12, 128, 64, 128),
    "conv2d": operators.conv2d(4, 64, 28, 28, 128, 3, shape=(28, 28)),
    "conv2d NHWC": operators.conv2d(4, 64, 28, 28, 128, 3, layout="NHWC"),
    "depthwise": operators.depthwise_conv2d(4, 84, 42, 42, 5, 2),
    "pooling": operators.pool2d(4, 96, 83, 83, 3, 2),
    "elementwise": operators.elementwise([4, 96, 83, 83], inputs=2),
    "reduction": operators.reduction([4096, 1024], [1]),
    "one element": operators.elementwise([1]),
    "column sums": operators.reduction([1000, 64], [0]),
    "whole sum": operators.reduction([7, 13], [0, 1]),
    "one row": operators.matmul(1, 256, 512),
    "constant": Workload(
        "fill", (Axis("i", 1000),), (Operand("out", (1000,), "f32", (QuasiAffine((Term(0),)),), True),)
    ),
}


def check(program: Program, target: Target) -> None:
    workload, device = program.canonical, Device.of(target)
    space = Space(workload, device, ConstructOptions(), program.epsilon)
    performance = Performance(space)
    tiles = [tile for _, tile in program.canonical_levels]
    assert [name for name, _ in program.levels] == [layer.name for layer in device.layers[:-1]]
    above: tuple[int, ...] = (1,) * len(workload.axes)
    for layer, tile in enumerate(tiles):
        assert all(size % inner == 0 for size, inner in zip(tile, above)), f"{tile} does not hold {above}"
        read = tiles[0] if layer and device.threaded else None
        if not layer or program.staged or not device.threaded:
            held = performance.footprint(layer, np.asarray([tile]), read)[0]
            assert held <= device.layers[layer].capacity_bytes, (
                f"{device.layers[layer].name} {tile}: {held} B"
            )
        above = tile
    for axis, extent in enumerate(workload.extents):
        padded = -(-extent // tiles[-1][axis]) * tiles[-1][axis]
        assert padded < extent + tiles[-1][axis]
    if device.threaded:
        parallel = workload.parallel
        threads = math.prod(tiles[1][a] // tiles[0][a] for a in parallel)
        assert threads <= (target.block_threads or 1024)
    assert program.predicted_us > 0
    assert program.bound in program.times_us


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_programs_are_valid(target: str, name: str) -> None:
    programs = construct(WORKLOADS[name], resolve(target))
    assert programs
    assert len({p.canonical_levels for p in programs}) == len(programs)
    for program in programs:
        check(program, resolve(target))
    times = [p.predicted_us for p in programs]
    assert times == sorted(times)


sizes = st.integers(1, 300)


@settings(max_examples=30, deadline=None)
@given(sizes, sizes, sizes, st.sampled_from(TARGETS))
def test_matrix_products_of_any_size(m: int, n: int, k: int, target: str) -> None:
    for program in construct(operators.matmul(m, n, k), resolve(target)):
        check(program, resolve(target))


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 8), st.integers(1, 40), st.integers(1, 30), st.integers(1, 64), st.integers(1, 5),
    st.integers(1, 3), st.sampled_from(TARGETS),
)  # fmt: skip
def test_convolutions_of_any_size(
    batch: int, channels: int, out: int, filters: int, kernel: int, stride: int, target: str
) -> None:
    for program in construct(
        operators.conv2d(batch, channels, out, out, filters, kernel, stride), resolve(target)
    ):
        check(program, resolve(target))
    for program in construct(
        operators.depthwise_conv2d(batch, channels, out, out, kernel, stride), resolve(target)
    ):
        check(program, resolve(target))


@pytest.mark.parametrize("target", ["v100", "x86-64-v4"])
def test_construction_is_deterministic(target: str) -> None:
    for workload in WORKLOADS.values():
        assert construct(workload, resolve(target)) == construct(workload, resolve(target))


@pytest.mark.parametrize("target", TARGETS)
def test_more_operands_than_registers_still_run(target: str) -> None:
    # Forty vectors at once fit nowhere; what runs takes one vector, or one thread per result, at a time.
    program = construct(operators.elementwise([64, 64], inputs=40), resolve(target))[0]
    assert program.canonical_levels[0][1] <= (Device.of(resolve(target)).lanes,)


@pytest.mark.parametrize("target", ["v100", "x86-64-v4", "graphcore-ipu"])
def test_a_single_point_has_a_program_without_axes(target: str) -> None:
    scalar = Workload("constant", (), (Operand("out", (), "f32", (), True),))
    programs = construct(scalar, resolve(target))
    assert [tile for _, tile in programs[0].levels] == [()] * len(programs[0].levels)


def test_ten_programs_unless_told_otherwise() -> None:
    target, workload = resolve("v100"), WORKLOADS["matmul"]
    assert len(construct(workload, target)) == 10
    assert len(construct(workload, target, ConstructOptions(top_k=3))) == 3
    with pytest.raises(ValueError, match="expected 1 <= top_k <= candidates, found 10 and 5"):
        ConstructOptions(candidates=5)


def test_blocks_are_whole_warps_on_every_scheduler() -> None:
    for program in construct(WORKLOADS["matmul"], resolve("v100")):
        (_, thread), (_, block) = program.canonical_levels
        assert math.prod(block[a] // thread[a] for a in program.canonical.parallel) % 128 == 0


def test_tiles_keep_up_with_arithmetic_where_they_can() -> None:
    target = resolve("v100")
    program = construct(operators.matmul(65536, 4096, 1024), target)[0]
    _, (_, block) = program.canonical_levels
    m, n = block[0], block[1]
    # Each loaded f32 feeds m n / (m + n) multiply-adds; loads keep up with 12.5 TFLOP/s from 790 GB/s.
    assert 2 * m * n / (4 * (m + n)) >= 12480 / 790
    assert program.bound == "compute"


def test_small_operators_are_shrunk_until_every_unit_has_a_tile() -> None:
    workload, target = operators.matmul(128, 1000, 4032), resolve("v100")
    for shrink in (True, False):
        tasks = []
        for program in construct(workload, target, ConstructOptions(shrink=shrink)):
            tasks.append(math.prod(-(-e // t) for e, t in zip((128, 1000), program.task)))
        assert (min(tasks) >= target.num_cores) is shrink


def test_shrinking_pays_on_few_blocks() -> None:
    workload, target = operators.matmul(128, 1000, 4032), resolve("v100")
    shrunk = construct(workload, target)[0].predicted_us
    whole = construct(workload, target, ConstructOptions(shrink=False))[0].predicted_us
    assert shrunk < whole


def test_padding_grows_until_there_are_programs() -> None:
    # Nothing that aligns with eight divides 42.
    workload, target = operators.depthwise_conv2d(128, 84, 42, 42, 5), resolve("v100")
    assert construct(workload, target)[0].epsilon == pytest.approx(0.2)
    assert construct(operators.depthwise_conv2d(128, 84, 48, 48, 5), target)[0].epsilon == 0


def test_matrix_units_shape_every_tile() -> None:
    workload = operators.matmul(4096, 4096, 4096, "f16")
    for program in construct(workload, resolve("v100"), ConstructOptions(matrix_unit=True)):
        for _, tile in program.levels:
            assert all(size % 16 == 0 for size in tile)


def test_a_cpu_holds_enough_vectors_to_hide_its_latency() -> None:
    target = resolve("x86-64-v4")
    for program in construct(operators.matmul(1024, 1024, 1024), target):
        m, n, k = program.tile("registers")
        assert n % 16 == 0
        assert k == 1
        assert m * (n // 16) >= 8
        assert m * (n // 16) + n // 16 + 1 <= 32


def test_a_device_is_data() -> None:
    base = resolve("v100")
    half = replace(base, tile_shared_bytes=8 << 10)
    workload = operators.matmul(4096, 4096, 4096)
    assert all(
        RTile(p.canonical, p.canonical_levels[1][1]).stored_bytes <= 8 << 10
        for p in construct(workload, half)
    )
    assert any(
        RTile(p.canonical, p.canonical_levels[1][1]).stored_bytes > 8 << 10 for p in construct(workload, base)
    )


def test_layers_and_tiles_can_be_asked_for_by_name() -> None:
    program = construct(WORKLOADS["matmul"], resolve("v100"))[0]
    assert program.tile("shared") == program.task
    with pytest.raises(KeyError, match="the program has no layer `L1`; it has registers, shared"):
        program.tile("L1")
    text = program.explain()
    assert text.startswith("matmul on v100: ")
    assert f"bound by {program.bound}" in text
    assert "registers" in text
    assert "<- bound" in text


def reads_everything(workload: Workload) -> int:
    return sum(operand.nbytes for operand in workload.operands)


@pytest.mark.parametrize("name", ["elementwise", "reduction", "pooling"])
def test_operators_without_reuse_are_read_in_place(name: str) -> None:
    for program in construct(WORKLOADS[name], resolve("v100")):
        assert not program.staged
        least = reads_everything(program.workload) / 900.0 / 1e3
        assert program.predicted_us >= 0.5 * least
