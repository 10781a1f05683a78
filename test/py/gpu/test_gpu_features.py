"""Features of GPU schedules: by hand for a small product, held against emitted kernels and the assembler, many as one at a time."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from dispatch_runs import dispatches
from gemm_dispatches import matmul
from test_gpu_spaces import emitted, kernels
from test_schedules_obeyed import CASES, asked_of, dispatch
from torch.nn import functional as F

from tilewright.compiler.analysis.workload_of import workload_of
from tilewright.compiler.codegen import lower_gpu, ptxas
from tilewright.compiler.dialects import schedule_attribute
from tilewright.compiler.dialects.kernel_form import kernel_of
from tilewright.compiler.errors import ScheduleError
from tilewright.compiler.families.gpu.families import complete
from tilewright.compiler.gpu.launch import launch_of
from tilewright.compiler.ir import functions, ir
from tilewright.compiler.nouns.schedule import PREDICTED, GpuTile, Schedule
from tilewright.compiler.nouns.workload import Workload
from tilewright.compiler.passes.lower_gpu.place_shared import PlaceShared
from tilewright.compiler.targets.target import resolve
from tilewright.compiler.tuning.model.gpu_features import gpu_features
from tilewright.compiler.tuning.model.gpu_kernel import UNITS, wavefronts
from tilewright.compiler.tuning.model.micro_performance import predict

TARGETS = ("cuda:sm_70", "cuda:sm_80", "cuda:sm_90a")
MMA = GpuTile(
    "mma", 128, (64, 64, 32), (32, 32), instruction="mma.m16n8k16.f16", stages=3, split_k=1, raster=4, resident=4
)  # fmt: skip


@cache
def product(m: int = 256, n: int = 192, k: int = 128) -> Workload:
    case = matmul(m, n, k, dtype="f16", result="f16")
    (function,) = functions(module := case.module())
    assert module
    with function.context, function.location:
        return workload_of(function)


def workload_and_schedules(case: str, target: str, count: int, seed: int = 1):
    """Of every kernel of a case: the workload, what its emitter takes, and schedules of its space."""
    _module, found = kernels(case, target)
    for completed, space in found.values():
        function = completed.function
        with function.context, function.location:
            workload = workload_of(function)
        points = space.sample(count, np.random.default_rng(seed))
        yield workload, completed, [space.default(), *map(space.schedule, points)]


def test_a_small_product_is_counted_as_by_hand() -> None:
    found = gpu_features(product(), [Schedule(gpu=MMA)], resolve("a100"))
    expected = {
        # 4 x 3 tiles of 64 x 64, K in 4 steps of 32.
        "blocks": 12, "tasks": 12, "threads": 128, "warps": 4, "steps": 4, "stages": 3, "split": 1, "raster": 4,
        # Three stages of 64 x 32 and of 32 x 64 halves, swizzled; results staged in less.
        "shared": 3 * (64 * 32 + 32 * 64) * 2,
        "arithmetic.mma": 256 * 192 * 128, "arithmetic.fma": 0, "computed": 1.0,
        # Every tile of rows is loaded by three blocks, every tile of columns by four.
        "traffic.L2.in0": 3 * 256 * 128 * 2, "traffic.L2.in1": 4 * 128 * 192 * 2, "traffic.L2.out": 256 * 192 * 2,
        "traffic.DRAM.in0": 256 * 128 * 2, "traffic.DRAM.in1": 128 * 192 * 2, "traffic.L2.partial": 0,
        # Four warps read 32 rows and 32 columns of each step.
        "traffic.shared.in0": 12 * 4 * 4 * 32 * 32 * 2, "traffic.shared.in1": 12 * 4 * 4 * 32 * 32 * 2,
        "run.in0": 64, "sectors.in0": 1.0, "run.in1": 128, "vector.in0": 16, "deferred.in0": 1, "deferred.in1": 1,
        "flying": 2 * (64 + 64) * 32 * 2, "conflicts": 1.0,
        "registers": 32 * 32 // 32 + 2 * (64 * 32 // 4 // 32) + 40, "spilled": 0,
    }  # fmt: skip
    assert {name: float(found[name][0]) for name in expected} == {k: float(v) for k, v in expected.items()}
    waves = found["waves"][0] * found["resident"][0] * resolve("a100").num_cores
    assert waves == pytest.approx(12)


def test_splits_tiles_and_steps_move_what_they_should() -> None:
    tiles = [
        MMA,
        replace(MMA, split_k=4),
        replace(MMA, block=(128, 64, 32), threads=256),
        replace(MMA, padding=8),
    ]
    found = gpu_features(product(), [Schedule(gpu=tile) for tile in tiles], resolve("a100"))
    assert found["blocks"].tolist() == [12, 48, 6, 12]
    assert found["steps"].tolist() == [4, 1, 4, 4]
    assert found["traffic.L2.partial"].tolist() == [0, 2 * 48 * 64 * 64 * 4, 0, 0]
    assert found["traffic.L2.in1"][2] == 2 * 128 * 192 * 2
    # Rows that are 16 bytes longer start in other banks: no swizzle is needed, and none is slower.
    assert found["shared"][3] == 3 * (64 * 40 + 32 * 72) * 2
    assert found["conflicts"].tolist() == [1.0] * 4


def test_rows_that_start_in_one_bank_conflict() -> None:
    rows = np.arange(8)[None]
    assert wavefronts(rows * 128, 16).tolist() == [8.0]
    assert wavefronts(rows * (128 + 16), 16).tolist() == [1.0]
    assert wavefronts(np.arange(32)[None] * 4, 4).tolist() == [1.0]
    assert wavefronts(np.arange(32)[None] * 8, 4).tolist() == [2.0]
    assert wavefronts(np.zeros((1, 32), dtype=np.int64), 4).tolist() == [1.0]


def test_lanes_that_lie_apart_use_little_of_their_sectors() -> None:
    """Of a transposition computed in the order of its results, against one in boxes."""
    module, function = dispatch("transpose")
    assert module
    with function.context, function.location:
        workload = workload_of(function)
    plain = GpuTile("elementwise", 128, (128,), vector=1)
    boxes = GpuTile("transpose", 128, (40, 50))
    found = gpu_features(workload, [Schedule(gpu=plain), Schedule(gpu=boxes)], resolve("a100"))
    # Neighbours of a result are 800 bytes apart in the operand: one of eight elements of a sector.
    assert found["sectors.in0"].tolist() == [0.125, 1.0] and found["run.in0"][0] == 4
    assert found["sectors.out"][0] == 1.0
    # Rows of 50 floats are longer than a line: each ends in a gap of a bank.
    assert found["shared"].tolist() == [0, 40 * 51 * 4]


def test_ragged_tiles_compute_in_vain() -> None:
    found = gpu_features(product(200, 192, 120), [Schedule(gpu=MMA)], resolve("a100"))
    assert found["computed"][0] == pytest.approx(256 * 192 * 128 / (200 * 192 * 120))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CASES)
def test_blocks_threads_and_shared_memory_are_those_of_the_kernel(case: str, target: str) -> None:
    for workload, completed, schedules in workload_and_schedules(case, target, 2):
        found = gpu_features(workload, schedules, resolve(target))
        for row, schedule in enumerate(schedules):
            module = emitted(completed, schedule, target)
            kernel = kernel_of(module)
            with module.context, ir.Location.unknown():
                PlaceShared(max_bytes=resolve(target).level("shared").capacity_bytes).run(kernel)
                launch = launch_of(kernel)
            own = {name: int(found[name][row]) for name in ("blocks", "tasks", "threads", "shared")}
            # The model counts blocks' parts of rTasks: a cluster does each of its rTasks together.
            expected = {
                "blocks": launch.grid,
                "tasks": launch.tasks * launch.cluster,
                "threads": launch.block,
            }
            assert own == {**expected, "shared": launch.shared_bytes}, schedule.text()


@pytest.mark.parametrize("case", CASES)
def test_many_schedules_are_counted_as_each_alone(case: str) -> None:
    target = resolve("h100")
    every = [(w, s) for w, _, own in workload_and_schedules(case, "cuda:sm_90a", 4) for s in own]
    workload = every[0][0]
    schedules = [schedule for _, schedule in every]
    found = gpu_features(workload, schedules, target)
    assert set(map(found.unit, found.columns)) <= set(UNITS.values())
    assert np.isfinite(found.matrix()).all() and (found.us > 0).all()
    for row, schedule in enumerate(schedules):
        alone = gpu_features(workload, [schedule], target)
        assert np.array_equal(alone.matrix()[0], found.matrix()[row])
        assert alone.us[0] == found.us[row] and alone.bound[0] == found.bound[row]


@pytest.mark.parametrize("case", ["simt", "mma", "volta", "wgmma", "attention", "attention, wgmma", "relu"])
def test_times_are_those_that_schedules_were_constructed_by(case: str) -> None:
    function, args, target, _ = CASES[case]
    module, found = dispatches(function, args, target)
    assert module
    for own in found.values():
        schedule = schedule_attribute.read(own)
        if schedule is None or PREDICTED not in own.attributes:
            continue
        with own.context, own.location:
            workload = workload_of(own)
        (us,) = predict(workload, [schedule], resolve(target)).us
        said = ir.FloatAttr(ir.DictAttr(own.attributes[PREDICTED])["us"]).value
        assert us == pytest.approx(said, abs=1e-3)


def test_registers_rank_as_the_assembler_counts_them() -> None:
    if ptxas.find("sm_80") is None:
        pytest.skip("there is no assembler for sm_80")
    target = resolve("cuda:sm_80")
    needed, counted = [], []
    for kernel in ("simt", "mma"):
        _module, found = kernels("mma", "cuda:sm_80")
        completed, space = found[kernel]
        with completed.function.context, completed.function.location:
            workload = workload_of(completed.function)
        schedules = list(map(space.schedule, space.sample(12, np.random.default_rng(5))))
        needed += gpu_features(workload, schedules, target)["registers"].tolist()
        for schedule in schedules:
            function = completed.function.clone().operation
            schedule_attribute.write(function, schedule)
            lowered = lower_gpu.assemble(lower_gpu.lower(function, target, "0" * 16), target)
            counted.append(lowered.kernel.launch.registers)
            function.erase()
    ranks = [np.argsort(np.argsort(values)) for values in (needed, counted)]
    # 0.91 with ptxas 12.9.
    assert np.corrcoef(ranks[0], ranks[1])[0, 1] > 0.8, list(zip(needed, counted))


@pytest.mark.parametrize(
    ("tile", "said"),
    [
        (GpuTile(), r"gpu.kernel is open; it is one of simt, .+ Complete the schedule first"),
        (replace(MMA, stages=0), "gpu.stages is open; kernels of family mma are counted by it"),
        (replace(MMA, warp=()), "gpu.warp is open"),
        (replace(MMA, block=(64, 64)), r"gpu.block is \[64, 64\]; for kernel mma it has 3 sizes"),
        (GpuTile("attention", 128, (64, 64), stages=2), "gpu.kernel is attention, but the workload is no attention"),
        (GpuTile("transpose", 128, (8,)), r"gpu.block is \[8\], its results lie along 2 axes"),
    ],
)  # fmt: skip
def test_what_a_schedule_leaves_open_is_refused_by_name(tile: GpuTile, said: str) -> None:
    with pytest.raises(ScheduleError, match=f"features of `matmul` on a GPU: {said}"):
        gpu_features(product(), [Schedule(gpu=MMA), Schedule(gpu=tile)], resolve("a100"))


def test_kernels_of_products_need_a_product() -> None:
    module, function = dispatch("softmax")
    assert module
    with function.context, function.location:
        workload = workload_of(function)
    with pytest.raises(
        ScheduleError, match=r"gpu\.kernel is mma, but the workload is no product of two matrices"
    ):
        gpu_features(workload, [Schedule(gpu=MMA)], resolve("a100"))


def test_queries_keys_and_values_may_be_parts_of_one_tensor() -> None:
    def packed(x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.view(1, 96, 2, 64).transpose(1, 2) for part in x.chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v)

    module, found = dispatches(packed, (torch.zeros(1, 96, 384),), "a100")
    assert module
    (own,) = (f for f in found.values() if asked_of(f).kernel == "attention")
    with own.context, own.location:
        workload = workload_of(own)
    schedule = schedule_attribute.read(own)
    assert schedule is not None and schedule.gpu is not None
    counted = gpu_features(workload, [schedule], resolve("a100"))
    blocks, rows = counted["blocks"][0], schedule.gpu.block[0]
    assert len(workload.inputs) == 1 and blocks == 2 * -(-96 // rows)
    seen = -(-96 // schedule.gpu.block[1]) * schedule.gpu.block[1]
    assert counted["traffic.L2.in0"][0] == blocks * (rows + 2 * seen) * 64 * 4


def test_the_fallback_is_counted_by_its_rtasks() -> None:
    module, function = dispatch("ragged")
    assert module
    target = resolve("v100")
    completed = complete(function, Schedule(gpu=GpuTile("fallback")), target)
    with function.context, function.location:
        workload = workload_of(function)
    found = gpu_features(workload, [completed.schedule], target)
    assert found["blocks"][0] == completed.schedule.num_tasks(workload.extents)
    with pytest.raises(ScheduleError, match=r"tile\[0\] is 100000, which no loop of its result has"):
        gpu_features(workload, [Schedule((100000,), gpu=GpuTile("fallback", 64))], target)
