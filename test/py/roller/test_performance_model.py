"""The micro-performance model: what more work, fewer units or less bandwidth must do to its times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.targets.target import Target, resolve
from tilewright.compiler.tuning import operators
from tilewright.compiler.tuning.model.overlap import mean_value_analysis
from tilewright.compiler.tuning.roller import ConstructOptions, construct, evaluate
from tilewright.compiler.tuning.roller.alignment import Space
from tilewright.compiler.tuning.roller.device import Device
from tilewright.compiler.tuning.roller.performance import Performance

PROGRAM = ((8, 8, 1), (64, 128, 16))


def performance(workload: Workload, target: str = "v100") -> Performance:
    return Performance(Space(workload, Device.of(resolve(target)), ConstructOptions()))


def time_us(workload: Workload, target: Target, program=PROGRAM) -> float:
    return float(evaluate(workload, target, [program])[0])


def with_bandwidth(target: Target, name: str, factor: float) -> Target:
    memory = tuple(
        replace(m, bandwidth_gbps=m.bandwidth_gbps * factor, copy_gbps=m.copy_gbps * factor)
        if m.name == name
        else m
        for m in target.memory
    )
    return replace(target, memory=memory)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 8))
def test_more_work_takes_longer(m: int, n: int, k: int) -> None:
    target = resolve("v100")
    base = time_us(operators.matmul(m * 1024, n * 1024, k * 256), target)
    assert time_us(operators.matmul((m + 1) * 1024, n * 1024, k * 256), target) >= base
    assert time_us(operators.matmul(m * 1024, n * 1024, (k + 1) * 256), target) >= base


@pytest.mark.parametrize("level", ["DRAM", "L2", "shared"])
def test_less_bandwidth_is_never_faster(level: str) -> None:
    target = resolve("v100")
    for workload in (operators.matmul(4096, 4096, 64), operators.depthwise_conv2d(128, 84, 42, 42, 5)):
        program = construct(workload, target)[0]
        tiles = tuple(tile for _, tile in program.levels)
        slower = float(evaluate(workload, with_bandwidth(target, level, 0.5), [tiles])[0])
        assert slower >= float(evaluate(workload, target, [tiles])[0])


def test_ragged_tiles_cost_what_they_pad() -> None:
    target = resolve("v100")
    whole = time_us(operators.matmul(8192, 8192, 1024), target)
    ragged = time_us(operators.matmul(8192, 8193, 1024), target)
    assert 1.0 < ragged / whole < 1.05


def test_a_partial_wave_takes_as_long_as_its_busiest_unit() -> None:
    target = resolve("v100")
    # 80 units: 80 tiles and 81 tiles differ by a whole round.
    even = time_us(operators.matmul(64 * 80, 128, 4096), target)
    odd = time_us(operators.matmul(64 * 81, 128, 4096), target)
    assert odd > 1.3 * even


def test_traffic_counts_every_tile_and_footprint_one() -> None:
    model = performance(operators.matmul(1024, 1024, 512))
    tiles = np.asarray([[64, 128, 8], [128, 128, 8]])
    expected = [
        4 * (1024 * 1024 * 512 * (1 / 64 + 1 / 128) + 1024**2),
        4 * (1024**2 * 512 * 2 / 128 + 1024**2),
    ]
    assert model.traffic(1, tiles).tolist() == expected
    assert model.footprint(1, tiles).tolist() == [4 * 8 * (64 + 128), 4 * 8 * (128 + 128)]
    assert model.footprint(0, np.asarray([[8, 8, 1]])).tolist() == [4 * (8 + 8 + 64)]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 1))
def test_larger_tiles_move_less_and_take_more(m: int, n: int, axis: int) -> None:
    model = performance(operators.matmul(1024, 1024, 512))
    tile = [8 << m, 8 << n, 8]
    larger = [size * 2 if a == axis else size for a, size in enumerate(tile)]
    traffic = model.traffic(1, np.asarray([tile, larger]))
    footprint = model.footprint(1, np.asarray([tile, larger]))
    assert traffic[1] < traffic[0]
    assert footprint[1] > footprint[0]


def test_reuse_scores_prefer_the_short_side() -> None:
    model = performance(operators.matmul(1024, 1024, 512))
    scores = model.look(
        1, [(16, 64, 8), (32, 64, 8), (16, 128, 8), (16, 64, 16)], ((8, 8, 1),)
    ).reuse_scores()
    assert scores[0] > scores[1] > 0
    assert scores[2] == 0


def test_one_block_takes_the_sum_and_many_the_maximum() -> None:
    memory, core, delay = np.asarray([30.0]), np.asarray([70.0]), np.asarray([100.0])
    alone, few, many = (
        float(mean_value_analysis(memory, core, delay, np.asarray([[n]]))[0, 0]) for n in (1.0, 4.0, 64.0)
    )
    assert alone == pytest.approx(200.0)
    assert alone > few > many
    assert many == pytest.approx(70.0, rel=0.01)


def test_blocks_that_hide_less_latency_take_longer() -> None:
    target = resolve("v100")
    workload = operators.matmul(4096, 4096, 1024)
    assert time_us(workload, target, ((8, 8, 1), (64, 64, 8))) > 0
    slow = replace(target, memory=(replace(target.memory[0], latency_ns=20000.0), *target.memory[1:]))
    assert time_us(workload, slow) > 1.5 * time_us(workload, target)


def test_column_reads_of_a_stored_tile_conflict_unless_padded() -> None:
    target, workload = resolve("v100"), operators.matmul(4096, 64, 64)
    padded = evaluate(workload, target, [((1, 1, 1), (128, 1, 32))])
    device = Device.of(target)
    bare = Performance(Space(workload, device, ConstructOptions(rules=frozenset())))
    plain = bare.evaluate([((1, 1, 1), (128, 1, 32))], [True])
    # 32 lanes read A[m, k] at a distance of 32 words: one bank, until the rows are padded by one.
    assert (
        plain.times_us["shared"][0]
        > 8
        * Performance(Space(workload, device, ConstructOptions()))
        .evaluate([((1, 1, 1), (128, 1, 32))], [True])
        .times_us["shared"][0]
    )
    assert plain.total_us[0] > padded[0]


def test_skipped_rows_are_not_loaded() -> None:
    target = resolve("v100")
    every = construct(operators.pool2d(128, 64, 64, 64, 1, 1, shape=(64, 64)), target)[0]
    second = construct(operators.pool2d(128, 64, 64, 64, 1, 2, shape=(128, 128)), target)[0]
    # Four times the input, of which every second row is read, each element of it in lines that are.
    read, written = every.workload.operands[0].nbytes, every.workload.operands[1].nbytes
    assert second.times_us["DRAM"] / every.times_us["DRAM"] == pytest.approx(
        (2 * read + written) / (read + written), rel=0.15
    )


def test_a_cpu_is_bound_by_memory_or_arithmetic() -> None:
    target = resolve("x86-64-v4")
    assert construct(operators.matmul(2048, 2048, 2048), target)[0].bound == "compute"
    assert construct(operators.elementwise([1 << 24]), target)[0].bound == "DRAM"
